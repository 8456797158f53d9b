"""Every public operation refuses what it cannot do at the call, in one sentence that names the operation and the values."""
from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
from ntgrad import Device, Tensor, dtypes, no_grad
from ntgrad.autograd import grad
from ntgrad.errors import (
  ArgumentError,
  AssignError,
  AxisError,
  DeviceError,
  DTypeError,
  GradientError,
  IndexOutOfRangeError,
  IndexTypeError,
  MaskShapeError,
  NtgradError,
  ScalarError,
  ShapeError,
)


@pytest.fixture(autouse=True)
def _on_numpy() -> Any:
  Device.DEFAULT = "NUMPY"
  yield
  Device.DEFAULT = None


def f(*shape: int) -> Tensor: return Tensor.ones(*shape)
def i(*shape: int) -> Tensor: return Tensor.zeros(*shape, dtype="int32")
def b(*shape: int) -> Tensor: return Tensor.zeros(*shape, dtype="bool")
def leaf(*shape: int) -> Tensor: return Tensor.ones(*shape, requires_grad=True)


def _set(t: Tensor, index: Any, value: Any) -> None: t[index] = value


CASES: list[tuple[str, Callable[[], Any], type[NtgradError], list[str]]] = [
  # making tensors
  ("ragged", lambda: Tensor([[1, 2], [3]]), ShapeError, ["Tensor", "lengths"]),
  ("strings", lambda: Tensor(["a"]), DTypeError, ["Tensor", "str"]),
  ("objects", lambda: Tensor(object()), DTypeError, ["object"]),
  ("complex", lambda: Tensor(np.zeros(2, complex)), DTypeError, ["complex"]),
  ("dtype name", lambda: f(2).cast("float31"), DTypeError, ["float31", "float32"]),
  ("does not fit", lambda: Tensor(300, dtype="uint8"), ArgumentError, ["300", "uint8", "255"]),
  ("list does not fit", lambda: Tensor([1, -1], dtype="uint8"), ArgumentError, ["-1", "uint8"]),
  ("nan int", lambda: Tensor(float("nan"), dtype="int32"), ArgumentError, ["nan", "int32"]),
  ("device", lambda: Tensor([1], device="TPU"), DeviceError, ["TPU", "CPU"]),
  ("device number", lambda: f(1).to("CL:x"), DeviceError, ["CL:x"]),
  ("negative size", lambda: Tensor.zeros(2, -1), ArgumentError, ["(2, -1)"]),
  ("float size", lambda: Tensor.zeros(2.5), ArgumentError, ["2.5"]),
  ("arange step", lambda: Tensor.arange(1, 5, 0), ArgumentError, ["step 0"]),
  ("linspace", lambda: Tensor.linspace(0, 1, -1), ArgumentError, ["-1"]),
  ("seed", lambda: Tensor.manual_seed(-1), ArgumentError, ["-1"]),
  ("rand int", lambda: Tensor.rand(2, dtype="int32"), DTypeError, ["int32", "randint"]),
  ("randint range", lambda: Tensor.randint(2, low=3, high=3), ArgumentError, ["3"]),
  ("randint float", lambda: Tensor.randint(2, dtype="float32"), DTypeError, ["float32"]),
  ("kaiming", lambda: Tensor.kaiming_uniform(), ShapeError, ["()"]),
  ("one_hot", lambda: f(2).one_hot(3), DTypeError, ["float32"]),
  ("tril", lambda: f(3).tril(), ShapeError, ["(3,)"]),
  ("int grad", lambda: Tensor([1, 2], requires_grad=True), GradientError, ["int"]),
  # numbers of the wrong kind, and values that a dtype does not hold
  ("pad inf", lambda: i(2).pad((1, 1), value=math.inf), ArgumentError, ["pad", "inf", "int32"]),
  ("pad nan", lambda: i(2).cast("uint8").pad((1, 1), value=math.nan), ArgumentError, ["nan", "uint8"]),
  ("pad bool", lambda: b(2).pad((1, 1), value=2), ArgumentError, ["2", "bool"]),
  ("pad text", lambda: f(2).pad((1, 1), value="x"), ArgumentError, ["'x'"]),
  ("pad half", lambda: f(2).pad(((0.5, 1),)), ArgumentError, ["pad", "0.5"]),
  ("pad mixed", lambda: f(2).pad((0.5, 1)), ArgumentError, ["pad", "0.5"]),
  ("one_hot negative", lambda: i(2).one_hot(-2), ArgumentError, ["one_hot", "-2"]),
  ("one_hot float", lambda: i(2).one_hot(2.5), ArgumentError, ["2.5"]),
  ("linspace float", lambda: Tensor.linspace(0, 1, 2.5), ArgumentError, ["linspace", "2.5"]),
  ("linspace inf", lambda: Tensor.linspace(0, math.inf, 3), ArgumentError, ["stop", "inf"]),
  ("linspace range", lambda: Tensor.linspace(0, 300, 3, dtype="uint8"), ArgumentError, ["300", "uint8"]),
  ("linspace bool", lambda: Tensor.linspace(0, 1, 3, dtype="bool"), DTypeError, ["bool"]),
  ("linspace step", lambda: Tensor.linspace(-3e38, 3e38, 2), ArgumentError, ["step", "float32"]),
  ("arange nan", lambda: Tensor.arange(math.nan), ArgumentError, ["nan"]),
  ("arange text", lambda: Tensor.arange("3"), ArgumentError, ["'3'"]),
  ("arange bool", lambda: Tensor.arange(3, dtype="bool"), DTypeError, ["bool"]),
  ("tril float", lambda: f(2, 2).tril(0.5), ArgumentError, ["tril", "0.5"]),
  ("triu text", lambda: f(2, 2).triu("a"), ArgumentError, ["triu", "'a'"]),
  ("full inf", lambda: Tensor.full((2,), math.inf, dtype="int32"), ArgumentError, ["inf", "int32"]),
  ("full range", lambda: Tensor.full((2,), 1e10, dtype="int32"), ArgumentError, ["10000000000", "int32"]),
  ("huge int", lambda: f(2) + 10**400, ArgumentError, ["bits", "float32"]),
  ("list inf", lambda: Tensor([1.0, math.inf], dtype="int32"), ArgumentError, ["inf", "int32"]),
  ("array range", lambda: Tensor(np.array([2.0**31]), dtype="int32"), ArgumentError, ["2147483648", "int32"]),
  ("array negative", lambda: Tensor(np.array([-1.5], np.float16), dtype="uint8"), ArgumentError, ["-1", "uint8"]),
  ("roll float", lambda: f(4).roll(0.5), ArgumentError, ["roll", "0.5"]),
  ("roll axis", lambda: f(4).roll(1, 0.5), ArgumentError, ["roll", "0.5"]),
  ("repeat_interleave float", lambda: f(4).repeat_interleave(2.0), ArgumentError, ["2.0"]),
  ("split float", lambda: f(4).split(2.0), ArgumentError, ["split", "2.0"]),
  ("split floats", lambda: f(4).split([2.0, 2.0]), ArgumentError, ["split", "2.0"]),
  ("chunk float", lambda: f(4).chunk(2.0), ArgumentError, ["chunk", "2.0"]),
  ("unfold float", lambda: f(4).unfold(0, 2.0, 1), ArgumentError, ["unfold", "2.0"]),
  ("windows float", lambda: f(4).windows((2.0,)), ArgumentError, ["windows", "2.0"]),
  ("shrink float", lambda: f(4).shrink(((0, 2.0),)), ArgumentError, ["shrink", "2.0"]),
  ("var nan", lambda: f(4).var(correction=math.nan), ArgumentError, ["correction", "nan"]),
  ("norm nan", lambda: f(4).norm(math.nan), ArgumentError, ["norm", "nan"]),
  ("dropout text", lambda: f(4).dropout("a"), ArgumentError, ["dropout", "'a'"]),
  ("pool float", lambda: f(1, 1, 4, 4).max_pool2d(2.5), ArgumentError, ["max_pool2d", "2.5"]),
  ("pool stride", lambda: f(1, 1, 4, 4).max_pool2d(2, stride=0.5), ArgumentError, ["stride", "0.5"]),
  ("pool padding", lambda: f(1, 1, 4, 4).max_pool2d(2, padding=0.5), ArgumentError, ["padding", "0.5"]),
  ("conv groups", lambda: f(1, 1, 4, 4).conv2d(f(1, 1, 2, 2), groups=1.0), ArgumentError, ["groups", "1.0"]),
  ("conv padding", lambda: f(1, 1, 4, 4).conv2d(f(1, 1, 2, 2), padding="full"), ArgumentError, ["padding", "full"]),
  ("layernorm eps", lambda: f(2, 3).layernorm(-1, "a"), ArgumentError, ["eps", "'a'"]),
  ("hardtanh order", lambda: f(4).hardtanh(2, 1), ArgumentError, ["2", "1"]),
  ("softplus beta", lambda: f(4).softplus(0), ArgumentError, ["beta"]),
  ("celu alpha", lambda: f(4).celu(0.0), ArgumentError, ["alpha"]),
  ("clamp nan", lambda: f(4).clamp(math.nan), ArgumentError, ["clamp", "nan"]),
  ("uniform order", lambda: Tensor.uniform(2, low=2, high=1), ArgumentError, ["low 2", "high 1"]),
  ("uniform range", lambda: Tensor.uniform(2, high=1e6, dtype="float16"), ArgumentError, ["1000000", "float16"]),
  ("uniform ints", lambda: Tensor.uniform(2, low=0.5, high=2.5, dtype="int32"), ArgumentError, ["0.5", "int32"]),
  ("normal std", lambda: Tensor.normal(2, std=-1), ArgumentError, ["std", "-1"]),
  ("multinomial float", lambda: f(4).multinomial(1.5), ArgumentError, ["1.5"]),
  ("batchnorm invstd", lambda: f(2, 3, 4).batchnorm(None, None, f(3), f(2, 3)), ShapeError, ["invstd", "(2, 3)", "(1, 3, 1)"]),
  (
    "batchnorm order",
    lambda: f(2, 3, 4).batchnorm(None, None, f(3, 4), f(4, 3), (1, 2)),
    ShapeError,
    ["invstd", "(4, 3)", "(3, 4)"],
  ),
  ("nll weight", lambda: f(2, 3).nll_loss(i(2), f(2)), ShapeError, ["weight", "(2,)", "(3,)"]),
  ("mse number", lambda: f(2, 3).mse_loss(1.0), ShapeError, ["()", "(2, 3)"]),
  ("ignore_index", lambda: f(2, 3).cross_entropy(i(2), ignore_index=0.5), ArgumentError, ["ignore_index", "0.5"]),
  # elementwise
  ("broadcast", lambda: f(2, 3) + f(4), ShapeError, ["ADD", "(2, 3)", "(4,)"]),
  ("devices", lambda: f(2) + Tensor.zeros(2, device="CPU") + Tensor([1.0, 2.0]), DeviceError, ["ADD", "CPU", "NUMPY", ".to"]),
  ("operand", lambda: f(2) + "x", DTypeError, ["str"]),
  ("none", lambda: f(2) * None, DTypeError, ["NoneType"]),
  ("scalar range", lambda: Tensor([1], dtype="uint8") + 256, ArgumentError, ["256", "uint8"]),
  ("bool minus", lambda: b(2) - b(2), DTypeError, ["SUB", "bool"]),
  ("bool neg", lambda: -b(2), DTypeError, ["NEG", "bool"]),
  ("float bits", lambda: f(2) & f(2), DTypeError, ["AND", "float32"]),
  ("float shift", lambda: f(2) << 1, DTypeError, ["SHL", "float32"]),
  ("float not", lambda: ~f(2), DTypeError, ["NOT", "float32"]),
  ("int div zero", lambda: i(2) // 0, ArgumentError, ["0"]),
  ("int mod zero", lambda: i(2) % 0, ArgumentError, ["0"]),
  ("int pow", lambda: i(2) ** -1, DTypeError, ["pow", "-1"]),
  ("where", lambda: f(2).where(1, 0), DTypeError, ["where", "float32", "bool"]),
  ("where shape", lambda: b(2).where(f(3), 0), ShapeError, ["where", "(2,)", "(3,)"]),
  ("bitcast", lambda: f(2).cast("int8").bitcast("float32"), ShapeError, ["float32", "int8"]),
  ("clamp", lambda: f(2).clamp(), ArgumentError, ["clamp"]),
  ("gelu", lambda: f(2).gelu("fast"), ArgumentError, ["fast", "tanh"]),
  ("truth", lambda: bool(f(2)), ShapeError, ["(2,)", "any"]),
  ("len", lambda: len(Tensor(1)), ScalarError, ["()"]),
  ("item", lambda: f(2).item(), ShapeError, ["item", "(2,)"]),
  # movement
  ("reshape", lambda: f(2, 3).reshape(4), ShapeError, ["reshape", "(2, 3)", "6", "(4,)"]),
  ("reshape -1", lambda: f(2, 3).reshape(4, -1), ShapeError, ["(2, 3)", "(4, -1)"]),
  ("reshape twice -1", lambda: f(2, 3).reshape(-1, -1), ShapeError, ["-1"]),
  ("reshape negative", lambda: f(2, 3).reshape(-2, -3), ShapeError, ["(-2, -3)"]),
  ("reshape float", lambda: f(2, 3).reshape(2.0, 3), ArgumentError, ["2.0"]),
  ("permute", lambda: f(2, 3).permute(0, 0), AxisError, ["permute", "(0, 0)"]),
  ("permute few", lambda: f(2, 3).permute(0), AxisError, ["(0,)", "2"]),
  ("transpose", lambda: f(2, 3).transpose(0, 2), AxisError, ["2"]),
  ("mT", lambda: f(2).mT, AxisError, ["(2,)"]),
  ("expand", lambda: f(2, 3).expand(4, 3), ShapeError, ["expand", "(2, 3)", "(4, 3)"]),
  ("expand few", lambda: f(2, 3).expand(3), ShapeError, ["(2, 3)", "(3,)"]),
  ("squeeze", lambda: f(2).squeeze(1), AxisError, ["squeeze", "1"]),
  ("unsqueeze", lambda: f(2).unsqueeze(3), AxisError, ["unsqueeze", "3"]),
  ("flatten", lambda: f(2, 3).flatten(1, 0), AxisError, ["flatten"]),
  ("unflatten", lambda: f(6).unflatten(0, (4, 2)), ShapeError, ["6", "(4, 2)"]),
  ("pad", lambda: f(2, 3).pad(((1, 1),)), ShapeError, ["pad", "(2, 3)"]),
  ("pad odd", lambda: f(2, 3).pad((1, 1, 1)), ShapeError, ["(1, 1, 1)"]),
  ("pad too negative", lambda: f(2).pad((-1, -2)), ShapeError, ["(2,)"]),
  ("pad value", lambda: i(2).pad((1, 1), value=0.5), ArgumentError, ["0.5", "int32"]),
  ("pad mode", lambda: f(2).pad((1, 1), mode="wrap"), ArgumentError, ["wrap", "reflect"]),
  ("pad reflect", lambda: f(2).pad((2, 0), mode="reflect"), ArgumentError, ["(2, 0)"]),
  ("shrink", lambda: f(4).shrink(((1, 5),)), ArgumentError, ["shrink", "(1, 5)", "(4,)"]),
  ("shrink rank", lambda: f(4).shrink(((0, 1), (0, 1))), ShapeError, ["(4,)"]),
  ("flip", lambda: f(4).flip(1), AxisError, ["flip", "1"]),
  ("flip twice", lambda: f(4, 2).flip(0, -2), AxisError, ["twice"]),
  ("repeat", lambda: f(2, 2).repeat(2), ShapeError, ["(2,)", "(2, 2)"]),
  ("repeat negative", lambda: f(2).repeat(-1), ArgumentError, ["-1"]),
  ("split", lambda: f(4).split((1, 2)), ArgumentError, ["(1, 2)", "4"]),
  ("split size", lambda: f(4).split(0), ArgumentError, ["0"]),
  ("chunk", lambda: f(4).chunk(0), ArgumentError, ["0"]),
  ("unfold", lambda: f(4).unfold(0, 5, 1), ArgumentError, ["5", "(4,)"]),
  ("windows", lambda: f(4).windows((5,)), ShapeError, ["(5,)", "(4,)"]),
  ("windows stride", lambda: f(4).windows((2,), 0), ArgumentError, ["(0,)"]),
  ("cat", lambda: f(2, 3).cat(f(2, 4)), ShapeError, ["cat", "(2, 3)", "(2, 4)"]),
  ("cat axis", lambda: f(2).cat(f(2), dim=1), AxisError, ["cat", "1"]),
  ("stack", lambda: Tensor.stack(f(2), f(3)), ShapeError, ["stack", "(2,)", "(3,)"]),
  ("roll", lambda: f(2).roll((1, 2), 0), ArgumentError, ["(1, 2)"]),
  ("meshgrid", lambda: f(2, 2).meshgrid(), ShapeError, ["(2, 2)"]),
  ("diag", lambda: f(2, 2, 2).diag(), ShapeError, ["(2, 2, 2)"]),
  # reductions
  ("sum axis", lambda: f(2, 3).sum(2), AxisError, ["sum", "2", "-2"]),
  ("sum twice", lambda: f(2, 3).sum((0, 0)), AxisError, ["sum", "twice"]),
  ("sum axis type", lambda: f(2, 3).sum("x"), AxisError, ["x"]),
  ("max empty", lambda: f(2, 0).max(axis=1), ArgumentError, ["max", "(2, 0)"]),
  ("argmax empty", lambda: f(0).argmax(), ArgumentError, ["argmax"]),
  ("argmax axis", lambda: f(2).argmax(1), AxisError, ["argmax", "1"]),
  ("softmax axis", lambda: f(2).softmax(1), AxisError, ["softmax", "1"]),
  ("cumsum axis", lambda: f(2).cumsum(1), AxisError, ["cumsum", "1"]),
  ("sort axis", lambda: f(2).sort(1), AxisError, ["sort", "1"]),
  ("argsort axis", lambda: f(2).argsort(1), AxisError, ["argsort", "1"]),
  ("topk axis", lambda: f(2).topk(1, 1), AxisError, ["topk", "1"]),
  ("topk of too few", lambda: f(2, 3).topk(4), ArgumentError, ["topk", "k = 4", "3 elements", "(2, 3)"]),
  ("topk of less than none", lambda: f(2, 3).topk(-1), ArgumentError, ["topk", "-1"]),
  # products and pooling
  ("matmul", lambda: f(2, 3) @ f(4, 5), ShapeError, ["matmul", "(2, 3)", "(4, 5)"]),
  ("matmul number", lambda: f(2).dot(Tensor(2.0)), ShapeError, ["()"]),
  ("matmul batch", lambda: f(2, 1, 3) @ f(3, 3, 1), ShapeError, ["(2,)", "(3,)"]),
  ("matmul device", lambda: Tensor([1.0]) @ Tensor.zeros(1, device="CPU"), DeviceError, ["matmul"]),
  ("einsum", lambda: Tensor.einsum("ij,jk->iz", f(2, 3), f(3, 4)), ArgumentError, ["einsum", "iz"]),
  ("einsum shape", lambda: Tensor.einsum("ij,jk->ik", f(2, 3), f(4, 4)), ShapeError, ["(2, 3)", "(4, 4)"]),
  ("conv rank", lambda: f(4, 4).conv2d(f(2, 3, 3, 3)), ShapeError, ["conv2d", "(4, 4)"]),
  ("conv channels", lambda: f(1, 3, 4, 4).conv2d(f(2, 2, 3, 3)), ShapeError, ["conv2d", "(1, 3, 4, 4)", "(2, 2, 3, 3)"]),
  ("conv groups", lambda: f(1, 4, 4, 4).conv2d(f(3, 2, 3, 3), groups=2), ShapeError, ["groups 2"]),
  ("conv kernel", lambda: f(1, 2, 2, 2).conv2d(f(2, 2, 3, 3)), ShapeError, ["(3, 3)", "(2, 2)"]),
  ("conv stride", lambda: f(1, 2, 4, 4).conv2d(f(2, 2, 3, 3), stride=0), ArgumentError, ["stride", "0"]),
  ("conv padding", lambda: f(1, 2, 4, 4).conv2d(f(2, 2, 3, 3), padding=(1, 1, 1)), ShapeError, ["padding", "(1, 1, 1)"]),
  ("conv cut off", lambda: f(1, 2, 4, 4).conv2d(f(2, 2, 3, 3), padding=-3), ShapeError, ["-3", "(1, 2, 4, 4)"]),
  ("conv cut too small", lambda: f(1, 2, 4, 4).conv2d(f(2, 2, 3, 3), padding=-1), ShapeError, ["(3, 3)", "(2, 2)"]),
  ("pool negative padding", lambda: f(1, 4, 4).max_pool2d(2, padding=-1), ArgumentError, ["max_pool2d", "-1"]),
  ("conv bias", lambda: f(1, 2, 4, 4).conv2d(f(2, 2, 3, 3), f(3)), ShapeError, ["bias", "(3,)"]),
  ("pool kernel", lambda: f(1, 2, 2).max_pool2d(3), ShapeError, ["max_pool2d", "(3, 3)", "(2, 2)"]),
  ("pool padding", lambda: f(1, 4, 4).max_pool2d(2, padding=2), ArgumentError, ["max_pool2d", "padding"]),
  ("pool rank", lambda: f(4).avg_pool2d(2), ShapeError, ["avg_pool2d", "(4,)"]),
  ("pool int", lambda: i(1, 4, 4).avg_pool2d(2), DTypeError, ["int32"]),
  ("dropout", lambda: f(2).dropout(1.5), ArgumentError, ["1.5"]),
  ("batchnorm", lambda: f(2, 3).batchnorm(f(2), None, f(3), f(3)), ShapeError, ["batchnorm", "weight", "(2,)"]),
  ("layernorm", lambda: f(2, 3).layernorm(2), AxisError, ["layernorm"]),
  # losses
  ("classes shape", lambda: f(4, 3).cross_entropy(i(3)), ShapeError, ["cross_entropy", "(3,)", "(4,)"]),
  ("classes dtype", lambda: f(4, 3).sparse_categorical_crossentropy(f(4)), DTypeError, ["float32"]),
  ("smoothing", lambda: f(4, 3).cross_entropy(i(4), label_smoothing=2), ArgumentError, ["2"]),
  ("reduction", lambda: f(4, 3).cross_entropy(i(4), reduction="max"), ArgumentError, ["max", "mean"]),
  ("mse", lambda: f(4).mse_loss(f(4, 1)), ShapeError, ["mse_loss", "(4, 1)"]),
  ("bce", lambda: f(4).binary_crossentropy(f(3)), ShapeError, ["(3,)"]),
  # indexing
  ("index", lambda: f(2, 3)[2], IndexOutOfRangeError, ["2", "(2, 3)", "-2 to 1"]),
  ("index negative", lambda: f(2, 3)[0, -4], IndexOutOfRangeError, ["-4", "axis 1"]),
  ("index list", lambda: f(2, 3)[[0, 5]], IndexOutOfRangeError, ["5", "axis 0"]),
  ("index array", lambda: f(2, 3)[:, np.array([-4])], IndexOutOfRangeError, ["-4", "axis 1"]),
  ("too many", lambda: f(2)[0, 0], IndexOutOfRangeError, ["too many indices: 2", "(2,)"]),
  ("two dots", lambda: f(2)[..., ...], ArgumentError, ["Ellipsis"]),
  ("mask", lambda: f(2)[b(3)], MaskShapeError, ["mask", "(3,)", "(2,)"]),
  ("mask array", lambda: f(2, 3)[:, np.array([True, False])], MaskShapeError, ["mask", "(2,)", "(3,)", "(2, 3)"]),
  ("set mask", lambda: _set(f(3), np.array([True, False, True]), f(3)), ShapeError, ["setitem", "2 True", "3 of them"]),
  ("set mask shape", lambda: _set(f(3, 2), b(3), f(3)), ShapeError, ["setitem", "(3,)", "(3, 2)"]),
  ("float index", lambda: f(2)[1.0], IndexTypeError, ["float"]),
  ("float tensor", lambda: f(2)[f(2)], IndexTypeError, ["float32"]),
  ("slice step", lambda: f(2)[::0], ArgumentError, ["step"]),
  ("slice parts", lambda: f(2)[0.5:], ArgumentError, ["slice"]),
  ("index shapes", lambda: f(4, 4)[[0, 1], [0, 1, 2]], ShapeError, ["(2,)", "(3,)"]),
  ("gather rank", lambda: f(2, 2).gather(0, i(2)), ShapeError, ["(2,)", "(2, 2)"]),
  ("gather dtype", lambda: f(2).gather(0, f(2)), DTypeError, ["float32"]),
  ("scatter reduce", lambda: f(2).scatter(0, i(2), f(2), reduce="mul"), ArgumentError, ["mul"]),
  ("set shape", lambda: _set(f(2, 3), 0, f(2)), ShapeError, ["setitem", "(2,)", "(3,)"]),
  ("set range", lambda: _set(f(2, 3), 2, 0), IndexOutOfRangeError, ["2"]),
  ("set dtype", lambda: _set(i(2), 0, f(1)), DTypeError, ["float32", "int32"]),
  ("set leaf", lambda: _set(leaf(2), 0, 1), GradientError, ["leaf"]),
  # assignment and gradients
  ("assign shape", lambda: Tensor([1.0]).assign(f(2)), AssignError, ["(2,)", "(1,)"]),
  ("assign dtype", lambda: i(1).assign(Tensor([1.0])), AssignError, ["int", "float"]),
  ("assign device", lambda: Tensor([1.0]).assign(Tensor.zeros(1, device="CPU")), AssignError, ["CPU", "NUMPY"]),
  ("assign expanded", lambda: Tensor([1.0]).expand(3).assign(f(3)), AssignError, ["(3,)", "several times", "clone"]),
  ("setitem expanded", lambda: Tensor([1.0]).expand(3).__setitem__(1, 2.0), AssignError, ["(3,)", "several times", "clone"]),
  ("assign leaf", lambda: (lambda t: t.assign(t * 2))(leaf(2)), GradientError, ["leaf", "no_grad"]),
  ("backward shape", lambda: (leaf(2) * 2).backward(), GradientError, ["(2,)", "sum"]),
  ("backward int", lambda: i().backward(), GradientError, ["int32"]),
  ("backward no leaf", lambda: f(2).sum().backward(), GradientError, ["requires_grad"]),
  ("gradient shape", lambda: (leaf(2) * 2).backward(f(3)), GradientError, ["(3,)", "(2,)"]),
  ("target", lambda: grad(leaf(2).sum(), [leaf(3)]), GradientError, ["target 0", "(3,)"]),
  ("int target", lambda: leaf(2).sum().gradient(i(3)), GradientError, ["int32"]),
  # values of the wrong kind
  ("ints of 70 bits", lambda: Tensor([1, 2**70]), ArgumentError, ["1180591620717411303424", "int"]),
  ("ints of two signs", lambda: Tensor([2**63, -1]), ArgumentError, ["9223372036854775808", "-1"]),
  ("ints and floats", lambda: Tensor([10**400, 0.5]), ArgumentError, ["1329 bits"]),
  ("lists of None", lambda: Tensor([1, None]), DTypeError, ["NoneType"]),
  ("lists of tensors", lambda: Tensor([f(), f(2)]), DTypeError, ["Tensor.stack"]),
  ("deep lists", lambda: Tensor(_nested(70)), ShapeError, ["70 deep", "64"]),
  ("cat of nothing", lambda: Tensor.cat(), ArgumentError, ["cat", "no Tensor"]),
  ("cat of an empty list", lambda: Tensor.cat([]), ArgumentError, ["cat", "no Tensor"]),
  ("stack of numbers", lambda: Tensor.stack((1, 2)), ArgumentError, ["stack", "(1, 2)"]),
  ("cat with text", lambda: f(2).cat("text"), ArgumentError, ["cat", "'text'"]),
  (
    "float stride",
    lambda: f(1, 1, 4, 4).conv2d(f(1, 1, 2, 2), stride=1.5),
    ArgumentError,
    ["conv2d", "stride", "1.5", "whole number"],
  ),
  ("text weight", lambda: f(1, 1, 4, 4).conv2d("w"), ArgumentError, ["conv2d", "weight", "'w'", "tensor"]),
  ("float kernel", lambda: f(1, 4, 4).max_pool2d(1.5), ArgumentError, ["max_pool2d", "kernel_size", "1.5"]),
  ("no kernel", lambda: f(1, 4, 4).max_pool2d(()), ArgumentError, ["kernel_size", "()"]),
  ("arange nan", lambda: Tensor.arange(float("nan")), ArgumentError, ["arange", "nan", "finite"]),
  ("arange inf", lambda: Tensor.arange(0, float("inf")), ArgumentError, ["arange", "inf"]),
  ("norm nan", lambda: f(2).norm(float("nan")), ArgumentError, ["norm", "nan"]),
  ("tensor as a size", lambda: f(3).reshape(Tensor(3)), ArgumentError, ["reshape", "Tensor"]),
  ("tensor as an axis", lambda: f(3).sum(Tensor(0)), AxisError, ["sum", "Tensor"]),
  ("tensor as a flag", lambda: f(3).sum(keepdim=b(2)), ArgumentError, ["keepdim", "True or False"]),
  ("float as a flag", lambda: f(3).max(keepdim=1.0), ArgumentError, ["keepdim", "1.0"]),
  ("text index", lambda: f(3)["a"], IndexTypeError, ["str"]),
  ("65 dimensions", lambda: Tensor.ones(*[1] * 65), ArgumentError, ["65", "64"]),
  ("65 new dimensions", lambda: f(1)[(None,) * 64], IndexOutOfRangeError, ["65", "64"]),
  ("a size of 70 bits", lambda: Tensor.zeros(2**70), ArgumentError, ["zeros", str(2**63 - 1)]),
  ("more than memory", lambda: Tensor.zeros(2**40, 2**40), ArgumentError, ["(1099511627776, 1099511627776)"]),
  ("thousands of digits", lambda: f(2) + 10**5000, ArgumentError, ["16610 bits", "float32"]),
  ("index of thousands of digits", lambda: f(2)[10**5000], IndexOutOfRangeError, ["16610 bits"]),
  ("cast to None", lambda: f(2).cast(None), DTypeError, ["None", "float32"]),  # type: ignore[arg-type]
  ("dtype of an array", lambda: f(2).cast(np.zeros(2)), DTypeError, ["array"]),  # type: ignore[arg-type]
  ("device of a list", lambda: f(2).to(["CPU"]), DeviceError, ["CPU"]),  # type: ignore[arg-type]
  ("requires_grad of text", lambda: Tensor([1.0], requires_grad="yes"), ArgumentError, ["requires_grad", "'yes'"]),  # type: ignore[arg-type]
  ("gradient of text", lambda: leaf(2).sum().backward("g"), ArgumentError, ["backward", "gradient", "'g'"]),  # type: ignore[arg-type]
  ("realize of text", lambda: f(2).realize("x"), ArgumentError, ["realize", "'x'"]),
  ("layers that are none", lambda: f(2).sequential([3]), ArgumentError, ["sequential", "layers", "[3]"]),
  ("class weights", lambda: f(4, 3).nll_loss(i(4), f(2)), ShapeError, ["nll_loss", "(2,)", "(3,)"]),
  ("no_grad of a number", lambda: no_grad(5), ArgumentError, ["no_grad", "5"]),
  ("int of nan", lambda: int(Tensor(float("nan"))), ArgumentError, ["int", "nan"]),
  ("int of inf", lambda: int(Tensor(float("inf"))), ArgumentError, ["int", "inf"]),
  ("int uniform", lambda: Tensor.uniform(2, low=float("nan"), dtype="int32"), ArgumentError, ["uniform", "nan"]),
  ("the dtype of indices", lambda: f(2).cast("index"), DTypeError, ["'index'"]),
  ("training of text", lambda: setattr(Tensor, "training", "no"), ArgumentError, ["Tensor.training", "'no'"]),
  ("no parameters", lambda: ntgrad.nn.optim.SGD([]), ArgumentError, ["SGD", "none of the 0 params"]),
  ("a rate that is no number", lambda: ntgrad.nn.optim.Adam([leaf(2)], lr=float("nan")), ArgumentError, ["Adam", "lr is nan"]),
  (
    "an array for a layer",
    lambda: ntgrad.nn.Linear(2, 3)(np.ones(2)),
    ArgumentError,
    ["nn.Linear", "x is an array", "Tensor(..)"],
  ),  # type: ignore
  ("jit of a number", lambda: ntgrad.jit(5), ArgumentError, ["TinyJit", "fn is 5", "function"]),
]


def _nested(depth: int) -> Any:
  out: Any = 1.0
  for _ in range(depth): out = [out]
  return out


@pytest.mark.parametrize("name,call,error,words", CASES, ids=[c[0] for c in CASES])
def test_refusal(name: str, call: Callable[[], Any], error: type[NtgradError], words: list[str]) -> None:
  with pytest.raises(error) as caught: call()
  text = str(caught.value)
  for word in words: assert word in text, text
  assert "\n" not in text and len(text) < 260, text
  assert type(caught.value) is error


def test_no_grad_nests_and_recovers() -> None:
  x = leaf(2)
  with pytest.raises(ZeroDivisionError), no_grad():
    with no_grad(): pass
    assert not (x * 2).requires_grad
    raise ZeroDivisionError
  assert (x * 2).requires_grad


def test_a_target_that_is_not_used_is_zero_as_in_tinygrad_and_refused_as_in_pytorch() -> None:
  x, y = leaf(2), leaf(3)
  assert [g.tolist() for g in x.sum().gradient(x, y)] == [[1, 1], [0, 0, 0]]
  with pytest.raises(GradientError): grad(x.sum(), [y])
  assert dtypes.float32 is x.dtype
