"""Kernels to try Opts on, and running one by hand on a device."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Sequence

import numpy as np

from ntgrad import Tensor
from ntgrad.backends.base import Device, KernelSource, ProgramSpec
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.linearizer import linearize
from ntgrad.codegen.verify.forms import verify_index, verify_linear
from ntgrad.engine.compile import AxisKind, extent, options
from ntgrad.schedule import create_schedule

Array = np.ndarray[Any, Any]
E = Tensor.empty


def _conv_grads() -> list[Tensor]:
  x, w = E(2, 3, 6, 5), E(4, 3, 3, 2)
  x.requires_grad = w.requires_grad = True
  return x.conv2d(w, stride=(2, 1), padding=1).square().sum().gradient(x, w)


def _pool_grad() -> list[Tensor]:
  x = E(2, 6, 7)
  x.requires_grad = True
  return (x.max_pool2d((3, 2), stride=2) * E(2, 2, 3)).sum().gradient(x)


def _rows_grad(n: int) -> list[Tensor]:
  x = E(5, 17)
  x.requires_grad = True
  return (x[E(n, dtype="int32")] * E(n, 17)).sum().gradient(x)


# sizes that no vector divides, long enough for copies, panels and programs of rows: of products, with factors of every order
ODD: dict[str, Callable[[], list[Tensor]]] = {
  "product": lambda: [E(37, 53) @ E(53, 67)],
  "first transposed": lambda: [E(53, 37).T @ E(53, 67)],
  "second transposed": lambda: [E(37, 53) @ E(67, 53).T],
  "both transposed": lambda: [E(53, 61).T @ E(35, 53).T],
  "few rows": lambda: [E(5, 131) @ E(131, 97)],
  "few columns": lambda: [E(131, 33) @ E(33, 5)],
  "several products": lambda: [E(3, 19, 23) @ E(3, 23, 41)],
  "product of halves": lambda: [E(37, 53, dtype="float16") @ E(53, 67, dtype="float16")],
  "row and product": lambda: [(E(29, 31) @ E(31, 43) + E(43)).relu().sum(1)],
  "long rows": lambda: [E(61, 129).softmax()],
  "masked rows": lambda: [(Tensor.arange(37).reshape(37, 1) >= Tensor.arange(37)).where(E(7, 37, 37), -float("inf")).softmax()],
  "row sums": lambda: [E(131, 67).sum(1)],
  "column sums": lambda: [E(131, 67).sum(0)],
  "transpose": lambda: [E(67, 83).T.contiguous()],
  "permuted": lambda: [E(3, 35, 5, 21).permute(0, 3, 2, 1).contiguous()],
  "windows": lambda: [E(3, 5, 19, 21).conv2d(E(7, 5, 3, 3), padding=1)],
  "windows by two": lambda: [E(3, 5, 27, 27).conv2d(E(19, 5, 3, 3), stride=2, padding=1)],
  "windows of each channel": lambda: [E(2, 17, 15, 15).conv2d(E(17, 1, 3, 3), padding=1, groups=17)],
}

# what a person might write; sizes that vectors do not divide among them
GRAPHS: dict[str, Callable[[], list[Tensor]]] = {
  "elementwise": lambda: [(E(4, 24) * 2 + E(24)).relu() - E(4, 1)],
  "odd": lambda: [E(5, 7) + E(7, 5).T],
  "scalar": lambda: [E(1) * 3],
  "ints": lambda: [(E(6, 8, dtype="int32") // 3) ^ (E(6, 8, dtype="int32") % 5)],
  "halves": lambda: [E(48, dtype="float16") * 2 + 1],
  "bfloats": lambda: [E(3, 20, dtype="bfloat16").sum(1)],
  "compare": lambda: [(E(4, 12) < E(12)).where(E(4, 12), 0)],
  "two outputs": lambda: [(x := E(6, 8)) + 1, x * 2],
  "row sum": lambda: [E(6, 32).sum(1)],
  "column sum": lambda: [E(32, 6).sum(0)],
  "sum": lambda: [E(96).sum()],
  "max": lambda: [E(5, 18).max(axis=1)],
  "middle": lambda: [E(3, 8, 4).sum(1)],
  "argmax": lambda: [E(4, 12).argmax(1)],
  "matmul": lambda: [E(8, 12) @ E(12, 16)],
  "odd matmul": lambda: [(E(5, 7) @ E(7, 9)).relu()],
  "batched": lambda: [E(2, 4, 6) @ E(2, 6, 8)],
  "transposed": lambda: [E(12, 8).T @ E(16, 12).T],
  "matrix vector": lambda: [E(24, 16) @ E(16)],
  "half product": lambda: [E(17, 20, dtype="float16") @ E(20, 16, dtype="float16")],
  "softmax": lambda: [E(4, 16).softmax()],
  "layer norm": lambda: [E(4, 16).layernorm() * E(16) + E(16)],
  "conv": lambda: [E(2, 3, 6, 6).conv2d(E(4, 3, 3, 3), E(4), padding=1)],
  "conv gradients": _conv_grads,
  "pool": lambda: [E(2, 6, 8).max_pool2d()],
  "pool gradient": _pool_grad,
  "cumsum": lambda: [E(3, 9).cumsum(1)],
  "views": lambda: [E(4, 6).T.reshape(2, 12).flip(1).pad(((1, 0), (0, 3))) + 1],
  "cat": lambda: [E(2, 8).cat(E(3, 8) * 2)],
  "gather": lambda: [E(5, 8)[E(6, dtype="int32")]],
  "triangle": lambda: [E(8, 8).tril() @ E(8, 8)],
  "row gradient": lambda: _rows_grad(1),
  "rows gradient": lambda: _rows_grad(4),
  "iota": lambda: [Tensor.arange(40).reshape(5, 8) + E(5, 8, dtype="int32")],
}


def kernels(name: str) -> list[Kernel]:
  """The kernels of a graph, as scheduled."""
  return [item.ast for item in create_schedule((GRAPHS | ODD)[name]()) if item.ast is not None]


def spec(kernel: Kernel, name: str, target: Target | None = None) -> ProgramSpec:
  """A kernel as it is, checked in both forms. No source yet. ``target`` as for ``linearize``."""
  verify_index(kernel, name)
  uops = linearize(kernel, target)
  verify_linear(uops, name)
  return ProgramSpec(
    name,
    KernelSource(""),
    extent(kernel, AxisKind.GRID),
    extent(kernel, AxisKind.LOCAL),
    len(kernel.params),
    tuple(uops),
    options=options(kernel),
  )


def launch(device: Device, specs: Sequence[ProgramSpec], kernel: Kernel, data: Sequence[Array]) -> list[list[Array]]:
  """What each of several versions of a kernel writes, given the contents of its params beforehand."""
  programs = device.compile([replace(s, source=device.renderer.render(s.name, s.uops)) for s in specs])
  results = []
  for program in programs:
    raws = [device.alloc(max(a.nbytes, 1)) for a in data]
    for raw, a in zip(raws, data): device.copyin(raw, np.ascontiguousarray(a).reshape(-1).view(np.uint8))
    program(raws)
    device.synchronize()
    results.append([device.copyout(raw, a.nbytes).view(a.dtype).reshape(a.shape).copy()
                    for raw, a, p in zip(raws, data, kernel.params) if p.written])
    for raw, a in zip(raws, data): device.free(raw, max(a.nbytes, 1))
  return results


def contents(kernel: Kernel, rng: np.random.Generator, whole: bool) -> list[Array]:
  """Something for every param: small whole numbers (so that sums are exact in any order), or any numbers."""
  out = []
  for p in kernel.params:
    if p.dtype.kind == "f" and not whole: x = rng.standard_normal(p.shape)
    elif p.dtype.kind == "b": x = rng.random(p.shape) < 0.5
    else: x = rng.integers(0 if p.dtype.kind == "u" else -3, 4, p.shape)
    out.append(np.asarray(x).astype(p.dtype.np))
  return out
