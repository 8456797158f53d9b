"""Every public name, called with one wrong argument at a time among good ones, works or raises an error of ntgrad.

GOOD has a call for every public name, with each of its parameters; ``test_every_public_name_has_a_good_call`` says which are
missing.
"""
from __future__ import annotations

import inspect
import io
import types
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import pytest

import ntgrad
from ntgrad import Device, Tensor, nn, no_grad, tile
from ntgrad.errors import NtgradError
from ntgrad.nn import optim, state
from support import calls_numeric


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

  def with_bad(self, name: str, value: Any) -> Any:
    args, kwargs = list(self.args), dict(self.kwargs)
    names = [
      p.name for p in inspect.signature(self.fn).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
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
  "repeat_interleave": lambda: call(f(2).repeat_interleave, 2, 0),
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
  "sort": lambda: call(f(2, 3).sort, 1, True),
  "argsort": lambda: call(f(2, 3).argsort, 1, True),
  "topk": lambda: call(f(2, 3).topk, 2, 1, False, True),
  # products, convolution, normalisation, losses
  "dot": lambda: call(f(2, 3).dot, f(3, 2), "float32"),
  "matmul": lambda: call(f(2, 2).matmul, f(2, 2), False, "float32"),
  "linear": lambda: call(f(2, 3).linear, f(3, 2), f(2)),
  "sequential": lambda: call(f(2, 3).sequential, [Tensor.relu]),
  "outer": lambda: call(f(2).outer, f(3)),
  "einsum": lambda: call(Tensor.einsum, "ij,jk->ik", f(2, 3), f(3, 2)),
  "conv2d": lambda: call(f(1, 2, 4, 4).conv2d, f(2, 2, 2, 2), f(2), 1, (1, 1), 1, (0, 0)),
  "conv_transpose2d": lambda: call(f(1, 2, 4, 4).conv_transpose2d, f(2, 2, 2, 2), f(2), 1, (1, 1), 1, 0, 0),
  "max_pool2d": lambda: call(f(1, 1, 4, 4).max_pool2d, (2, 2), 2, 1, 0, False),
  "avg_pool2d": lambda: call(f(1, 1, 4, 4).avg_pool2d, (2, 2), 2, 1, 0, False, True),
  "layernorm": lambda: call(f(2, 3).layernorm, -1, 1e-5),
  "rms_norm": lambda: call(f(2, 3).rms_norm, -1, 1e-5),
  "batchnorm": lambda: call(f(2, 3).batchnorm, f(3), f(3), f(3), f(3), 1),
  "dropout": lambda: call(Tensor.train()(f(2).dropout), 0.5),
  "scaled_dot_product_attention": lambda: call(f(2, 3).scaled_dot_product_attention, f(2, 3), f(2, 3), f(2, 2), 0.0, False),
  "mse_loss": lambda: call(f(2).mse_loss, f(2), "mean"),
  "binary_crossentropy": lambda: call(f(2).binary_crossentropy, f(2), "mean"),
  "binary_crossentropy_logits": lambda: call(f(2).binary_crossentropy_logits, f(2), "mean", f(2)),
  "sparse_categorical_crossentropy": lambda: call(f(2, 3).sparse_categorical_crossentropy, i(2), -1, 0.1, "mean"),
  "cross_entropy": lambda: call(f(2, 3).cross_entropy, i(2), "mean", 0.1, -1),
  "nll_loss": lambda: call(f(2, 3).nll_loss, i(2), f(3), -1, "mean"),
  # making
  "full": lambda: call(Tensor.full, (2, 3), 1.0, dtype="float32", device="NUMPY", requires_grad=True),
  "zeros": lambda: call(Tensor.zeros, 2, 3, dtype="float32", device="NUMPY", requires_grad=True),
  "ones": lambda: call(Tensor.ones, 2, 3, dtype="float32", device="NUMPY", requires_grad=True),
  "empty": lambda: call(Tensor.empty, 2, 3, dtype="float32", device="NUMPY", requires_grad=True),
  "arange": lambda: call(Tensor.arange, 0, 5, 1, dtype="float32", device="NUMPY", requires_grad=True),
  "linspace": lambda: call(Tensor.linspace, 0, 1, 3, dtype="float32", device="NUMPY", requires_grad=True),
  "eye": lambda: call(Tensor.eye, 2, 3, dtype="float32", device="NUMPY", requires_grad=True),
  "full_like": lambda: call(f(2).full_like, 1.0, dtype="float32", device="NUMPY", requires_grad=True),
  "zeros_like": lambda: call(f(2).zeros_like, dtype="float32", device="NUMPY", requires_grad=True),
  "ones_like": lambda: call(f(2).ones_like, dtype="float32", device="NUMPY", requires_grad=True),
  "empty_like": lambda: call(f(2).empty_like, dtype="float32", device="NUMPY", requires_grad=True),
  "tril": lambda: call(f(2, 2).tril, 0),
  "triu": lambda: call(f(2, 2).triu, 0),
  "one_hot": lambda: call(i(2).one_hot, 3),
  "manual_seed": lambda: call(Tensor.manual_seed, 1),
  "rand": lambda: call(Tensor.rand, 2, 3, dtype="float32", device="NUMPY", requires_grad=True),
  "randn": lambda: call(Tensor.randn, 2, 3, dtype="float32", device="NUMPY", requires_grad=True),
  "uniform": lambda: call(Tensor.uniform, 2, low=0.0, high=1.0, dtype="float32", device="NUMPY", requires_grad=True),
  "normal": lambda: call(Tensor.normal, 2, mean=0.0, std=1.0, dtype="float32", device="NUMPY", requires_grad=True),
  "randint": lambda: call(Tensor.randint, 2, low=0, high=5, dtype="int32", device="NUMPY"),
  "scaled_uniform": lambda: call(Tensor.scaled_uniform, 2, 2, dtype="float32", device="NUMPY", requires_grad=True),
  "glorot_uniform": lambda: call(Tensor.glorot_uniform, 2, 2, dtype="float32", device="NUMPY", requires_grad=True),
  "kaiming_uniform": lambda: call(Tensor.kaiming_uniform, 2, 2, a=0.1, dtype="float32", device="NUMPY", requires_grad=True),
  "kaiming_normal": lambda: call(Tensor.kaiming_normal, 2, 2, a=0.1, dtype="float32", device="NUMPY", requires_grad=True),
  "rand_like": lambda: call(f(2).rand_like, dtype="float32", device="NUMPY", requires_grad=True),
  "randn_like": lambda: call(f(2).randn_like, dtype="float32", device="NUMPY", requires_grad=True),
  "multinomial": lambda: call(f(3).multinomial, 2, True),
  "from_dlpack": lambda: call(Tensor.from_dlpack, np.ones(2), device="NUMPY", copy=True),
  # parts
  "gather": lambda: call(f(2, 3).gather, 1, i(2, 3)),
  "scatter": lambda: call(f(2, 3).scatter, 1, i(2, 3), f(2, 3), "add"),
  # the rest
  "to": lambda: call(f(2).to, "NUMPY"),
  "to_": lambda: call(f(2).to_, "NUMPY"),
  "realize": lambda: call(f(2).realize, f(2)),
  "requires_grad_": lambda: call(f(2).requires_grad_, True),
  "backward": lambda: call(_backward, f(2)),
  "gradient": lambda: call(_gradient, leaf(2), gradient=f(2)),
  "train": lambda: call(Tensor.train, True),
  **calls_numeric.calls(call, f, i, b),
  "no_grad": lambda: call(no_grad, len),
}
PLAIN = """abs bfloat16 bitwise_not bool ceil clone contiguous contiguous_backward cos cosh data detach diag diagonal dim double
element_size erf exp exp2 float floor half hardsigmoid hardswish int is_floating_point isfinite isnan item log
log10 log2 logical_not logsigmoid long mish nbytes neg nelement numel numpy quick_gelu reciprocal relu relu6 round rsqrt
sigmoid sign silu sin sinh softsign sqrt square swish tan tanh tolist trunc""".split() + calls_numeric.PLAIN  # no parameters
PLAIN_DATA = {"datasets.Digits", "tile.Config", "tile.TileKernel", "tile.Library"}   # what functions of the table make
VALUES = "T device dtype grad is_leaf lazydata mT names ndim requires_grad shape".split()


def _backward(gradient: Any) -> Any:
  w = leaf(2)
  return (w * 2).backward(gradient)


def _gradient(*targets: Any, gradient: Any) -> Any:
  w = leaf(2)
  return (w * 2).gradient(
    w if isinstance(targets[0], Tensor) and targets[0].shape == (2,) else targets[0], *targets[1:], gradient=gradient
  )


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
  "nn.Conv1d": lambda: call(nn.Conv1d, 2, 2, 2, 1, 0, 1, 1, True),
  "nn.Conv1d()": lambda: call(nn.Conv1d(1, 1, 2), f(1, 1, 4)),
  "nn.Conv2d": lambda: call(nn.Conv2d, 2, 2, (2, 2), 1, 0, 1, 1, True),
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
  "nn.Embedding": lambda: call(nn.Embedding, 4, 2),
  "nn.Embedding()": lambda: call(nn.Embedding(4, 2), i(3)),
  "nn.BatchNorm2d": lambda: call(nn.BatchNorm2d, 2),
  "nn.BatchNorm3d": lambda: call(nn.BatchNorm3d, 2),
  "optim.SGD": lambda: call(optim.SGD, [leaf(2)], 0.1, 0.9, 0.1, True),
  "optim.Adam": lambda: call(optim.Adam, [leaf(2)], 0.1, 0.9, 0.99, 1e-8, 0.1),
  "optim.AdamW": lambda: call(optim.AdamW, [leaf(2)], 0.1, 0.9, 0.99, 1e-8, 0.1),
  "lr=": lambda: call(lambda value: setattr(_sgd(), "lr", value), 0.1),
  "optim.Optimizer": lambda: call(optim.Optimizer, [leaf(2)], 0.1),
  "state.get_state_dict": lambda: call(state.get_state_dict, Model(), "m"),
  "state.get_parameters": lambda: call(state.get_parameters, Model()),
  "state.load_state_dict": lambda: call(state.load_state_dict, Model(), {"weight": f(2)}, True, False),
  "state.safe_save": lambda: call(state.safe_save, {"a": f(2)}, "file", {"k": "v"}),
  "state.safe_load": lambda: call(state.safe_load, _file(), "NUMPY"),
  "state.safe_load_metadata": lambda: call(state.safe_load_metadata, _file()),
  "datasets.load_idx": lambda: call(nn.datasets.load_idx, _file(b"\0\0\x08\x01\0\0\0\2ab")),
  "datasets.mnist": lambda: call(nn.datasets.mnist, _digits(), 10, 0),
  "ntgrad.jit": lambda: call(ntgrad.jit, lambda x: x + 1),
  "ntgrad.TinyJit": lambda: call(ntgrad.TinyJit, lambda x: x + 1),
  "ntgrad.jit()": lambda: call(ntgrad.jit(lambda x: x + 1 if isinstance(x, Tensor) else x), f(2).realize()),
  "ntgrad.from_dlpack": lambda: call(ntgrad.from_dlpack, np.ones(2)),
  "ntgrad.no_grad": lambda: call(no_grad, len),
  "dtypes.of": lambda: call(ntgrad.dtypes.of, "float32"),
  "Device.canonicalize": lambda: call(Device.canonicalize, "NUMPY"),
  "Device.memory": lambda: call(Device.memory, "NUMPY"),
  "Device.synchronize": lambda: call(Device.synchronize, "NUMPY"),
  "Device.reset_peak": lambda: call(Device.reset_peak, "NUMPY"),
  "Device.DEFAULT=": lambda: call(lambda value: setattr(Device, "DEFAULT", value), "NUMPY"),
  "tile.Tensor": lambda: call(tile.Tensor, 2, (2, 2), "float32", 0, None, False, None, "x", None),
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
GOOD = {f"Tensor.{name}": make for name, make in TENSOR.items()} | OTHERS


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
  ("make", "arrangement"), ("simulate_arrangement", "arrangement"), ("visualize", "arrangement"), ("build", "premake"))}


def _deep() -> Any:
  out: Any = 1.0
  for _ in range(70): out = [out]
  return out


def _finish(result: Any) -> None:
  """Compute tensors that a call gave, if they are small."""
  if isinstance(result, types.GeneratorType): return
  for t in result if isinstance(result, (tuple, list)) else [result]:
    if isinstance(t, Tensor) and t.numel() <= 1000 and t.device == "NUMPY": t.realize().numpy()


@pytest.mark.parametrize("name", GOOD)
def test_a_wrong_argument_is_refused(name: str) -> None:
  good = GOOD[name]()
  with redirect_stdout(io.StringIO()): _finish(good.fn(*good.args, **good.kwargs))
  wrong = []
  for parameter in good.parameters():
    for kind, value in BAD.items():
      if (name, parameter, kind) in OWN: continue
      try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
          warnings.simplefilter("error")
          _finish(GOOD[name]().with_bad(parameter, value()))
      except NtgradError as e: assert len(str(e)) > 10
      except Exception as e: wrong.append(f"{parameter} = {kind}: {type(e).__name__}: {str(e)[:150]}")
      finally: Device.DEFAULT = "NUMPY"
  assert not wrong, f"{len(wrong)} of {name}:\n" + "\n".join(wrong)


def test_every_public_name_has_a_good_call() -> None:
  public = {f"Tensor.{n}" for n in dir(Tensor) if n[0] != "_" and n not in PLAIN + VALUES}
  for at, module in (("nn", nn), ("optim", optim), ("state", state), ("datasets", nn.datasets), ("tile", tile)):
    public |= {f"{at}.{n}" for n in module.__all__ if callable(getattr(module, n))}
  assert not public - set(GOOD) - PLAIN_DATA, "give a good call for each of these"
  assert not [n for n in PLAIN if inspect.signature(getattr(f(2), n)).parameters], "PLAIN is for methods without parameters"
