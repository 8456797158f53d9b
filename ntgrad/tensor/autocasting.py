"""In which dtypes operations compute within ``ntgrad.autocast``, as PyTorch has it for GPUs
(https://docs.pytorch.org/docs/stable/amp.html): products and convolutions in the low dtype, what loses too much there in float32,
all else in the widest of its inputs.

A parameter that is multiplied is cast once a step, and stored so."""
from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ntgrad.codegen.ir import DType, dtypes
from ntgrad.core import Base, casting
from ntgrad.graph.modes import autocast

LOW = """__matmul__ __rmatmul__ _convolved _projected _transposed addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d
  conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d dot einsum linear matmul mm multi_dot mv prelu
  scaled_dot_product_attention""".split()
WIDE = """__pow__ __rpow__ __rtruediv__ acos asin binary_cross_entropy binary_cross_entropy_with_logits binary_crossentropy
  binary_crossentropy_logits cdist cosh cosine_embedding_loss cosine_similarity cross_entropy cumprod cumsum dist erfinv exp exp2
  expm1 group_norm hinge_embedding_loss huber_loss kl_div l1_loss layer_norm layernorm log log10 log1p log2 log_softmax logsumexp
  margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss norm normalize pdist poisson_nll_loss pow prod
  reciprocal renorm rms_norm rsqrt sinh smooth_l1_loss soft_margin_loss softmax softmin softplus sparse_categorical_crossentropy
  sum tan triplet_margin_loss""".split()


_CAST = frozenset({dtypes.float16, dtypes.bfloat16, dtypes.float32})
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_FUNCTIONS = _HERE + "<"   # those that are methods (made.py)


def _cast(x: Any, now: dict[str, DType], low: bool) -> Any:
  """An argument in the dtype that the operation computes in; other things, and other dtypes, as they are."""
  if type(x) in (tuple, list): return type(x)([_cast(v, now, low) for v in x])
  if not isinstance(x, Base) or x.dtype not in _CAST: return x
  t: Any = x
  if (dtype := now.get(x.device.type)) is None: return x
  if not low: dtype = dtypes.float32
  if x.dtype is dtype: return x
  return t.cast(dtype).contiguous() if low and t._state == 2 else t.cast(dtype)


def _call(low: bool, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
  """What a method gives that computes in the low dtype, or in float32, unless another method calls it."""
  caller = sys._getframe(2).f_code.co_filename
  if caller.startswith(_HERE) and not caller.startswith(_FUNCTIONS): return fn(*args, **kwargs)
  now = dict(autocast.get())
  before = autocast.set(())
  try: return fn(*[_cast(x, now, low) for x in args], **{k: _cast(x, now, low) for k, x in kwargs.items()})
  finally: autocast.reset(before)


def cast_methods(cls: type) -> None:
  """Have the operations of a class cast where autocasting is on."""
  for names, low in ((LOW, True), (WIDE, False)):
    for name in names:
      owner = next(c for c in cls.__mro__ if name in vars(c))
      fn = vars(owner)[name]
      made: Any = casting(getattr(fn, "__func__", fn), partial(_call, low))
      if isinstance(fn, (classmethod, staticmethod)): made = type(fn)(made)
      for alias in [n for n, f in vars(owner).items() if f is fn]: setattr(owner, alias, made)
