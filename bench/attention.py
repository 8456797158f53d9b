#!/usr/bin/env python3
"""Attention in tensor code beside torch's best backend: `python bench/attention.py [--device cuda] [--only causal] [--quick]`.

One process, random data, the sides in turns, medians. On a GPU ours is captured (``ntgrad.jit``: a call of a tensor method takes
0.2 ms of the host), in bfloat16, beside the fastest of torch's cuDNN, flash and memory-efficient kernels, whose name is shown,
and beside ``examples/tile/flash_attention.py`` by kernels alone; masks and scores of one's own stand beside ``flex_attention``,
as torch compiles it. A row is torch's time over ours; ``TFLOP/s`` counts what the mask leaves. Results are compared.
"""
from __future__ import annotations

import argparse
import datetime
import importlib
import platform
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import measure
import numpy as np
from rows import EXAMPLES, FAST, module_of

from first_hour import Row, table  # isort: skip   (which takes this folder off the path)

import ntgrad

torch: Any = importlib.import_module("torch")
F = torch.nn.functional
_CALLS = 8   # after each other, where kernels are compared


class Case(NamedTuple):
  """Queries (batch, heads, length, width) with keys and values of ``kv_heads`` heads and ``keys`` rows."""
  name: str
  batch: int
  heads: int
  length: int
  width: int
  must: float
  aim: float
  causal: bool = True
  gradients: bool = False
  keys: int = 0
  kv_heads: int = 0

  @property
  def operations(self) -> float:
    """Of the products; with gradients three and a half times as many: five more, two of which are made again."""
    pairs = 0.5 * self.length if self.causal else self.keys or self.length
    return 4.0 * self.batch * self.heads * self.length * pairs * self.width * (3.5 if self.gradients else 1)


CPU = (
  Case("2×8×512×64 causal", 2, 8, 512, 64, 1.0, 2.0),
  Case("2×8×512×64 causal, gradients", 2, 8, 512, 64, 1.0, 2.0, gradients=True),
  Case("1×8×4096×64 causal", 1, 8, 4096, 64, 1.3, 2.0), Case("2×8×512×64 full", 2, 8, 512, 64, 1.0, 2.0, causal=False),
  Case("2×8×512×64 full, gradients", 2, 8, 512, 64, 1.0, 2.0, causal=False, gradients=True))
GPU = (
  *[Case(f"causal {n} d{d}", b, 16, n, d, 0.8, 1.0) for n, b in ((1024, 4), (4096, 4), (16384, 1)) for d in (64, 128)],
  Case("full 4096 d128", 4, 16, 4096, 128, 0.8, 1.0, causal=False),
  Case("cross 1024 × 77 d64", 4, 16, 1024, 64, 0.8, 1.0, False, keys=77),
  Case("heads 32/8, 4096 d128", 1, 32, 4096, 128, 0.8, 1.0, kv_heads=8),
  Case("causal 1024 d64, gradients", 4, 16, 1024, 64, 0.6, 0.9, gradients=True),
  Case("causal 4096 d128, gradients", 4, 16, 4096, 128, 0.6, 0.9, gradients=True),
  Case("decode 1, cache 8192", 1, 32, 1, 128, 0.8, 1.1, False, keys=8192),
  Case("decode 16, cache 8192", 16, 32, 1, 128, 0.8, 1.1, False, keys=8192))


def inputs(case: Case, library: Any, device: str, dtype: Any) -> list[Any]:
  """Queries, keys, values and what arrives at the result."""
  generator = np.random.default_rng(0)
  kv = case.kv_heads or case.heads
  shapes = [(case.batch, h, n, case.width) for h, n in (
    (case.heads, case.length), (kv, case.keys or case.length), (kv, case.keys or case.length), (case.heads, case.length))]
  found = [library.tensor(generator.standard_normal(s, "float32")).to(dtype) for s in shapes]
  if library is torch: found = [t.to(device) for t in found]
  for t in found[:3]: t.requires_grad = case.gradients
  if library is ntgrad: ntgrad.Tensor.realize(*found)
  return found


def called(case: Case, library: Any, given: list[Any]) -> Callable[[], Any]:
  q, k, v, slope = given
  attend = F.scaled_dot_product_attention if library is torch else lambda *a, **n: a[0].scaled_dot_product_attention(*a[1:], **n)
  options = {"is_causal": case.causal, **({"enable_gqa": True} if case.kv_heads else {})}
  def forward() -> Any:
    y = attend(q, k, v, **options)
    return y.realize() if library is ntgrad else y
  def both() -> Any:
    for t in (q, k, v): t.grad = None
    y = attend(q, k, v, **options)
    y.backward(slope)
    if library is ntgrad: ntgrad.Tensor.realize(y, q.grad, k.grad, v.grad)
    return y
  call = both if case.gradients else forward
  return ntgrad.jit(call) if library is ntgrad and ntgrad.Device.DEFAULT == "CUDA" else call


def backends(device: str) -> dict[str, Any]:
  """torch's backends of attention, by name."""
  if device == "cpu": return {"": None}
  kinds = torch.nn.attention.SDPBackend
  return {n: getattr(kinds, n) for n in ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")}


def timer(device: str, call: Callable[[], Any], flush: Any) -> measure.Timer:
  """Seconds of a call of either library."""
  if device == "cpu": return lambda: measure.seconds(call)
  def once() -> float:
    flush()
    torch.cuda.synchronize()
    measure.synchronize()
    return measure.waited(lambda: (call(), torch.cuda.synchronize()))()
  return once


def row(case: Case, device: str, quick: bool, flush: Any) -> Row:
  """One case, beside torch's fastest backend for it."""
  dtypes = {lib: lib.bfloat16 if device == "cuda" else lib.float32 for lib in (torch, ntgrad)}
  ours = called(case, ntgrad, inputs(case, ntgrad, device, dtypes[ntgrad]))
  started = time.perf_counter()
  y = ours()
  measure.synchronize()
  first = time.perf_counter() - started
  best, by, found = float("inf"), "", None
  given = inputs(case, torch, device, dtypes[torch])
  budget, kept = 0.2 if quick else 1.5, float("nan")
  for name, backend in backends(device).items():
    def theirs(backend: Any = backend) -> Any:
      if backend is None: return called(case, torch, given)()
      with torch.nn.attention.sdpa_kernel(backend): return called(case, torch, given)()
    try: found = theirs()
    except RuntimeError: continue   # it has no kernel for that
    for _ in range(3):
      ours()
      theirs()
    ntgrad.Device.optimise()
    mine, took = measure.turns([timer(device, ours, flush), timer(device, theirs, flush)], budget, 3, 200)
    if took < best: best, by, kept = took, name, mine
  assert found is not None, f"torch has no kernel for {case.name}"
  apart = float(abs(y.float().numpy() - found.detach().float().cpu().numpy()).max())
  assert apart < (0.1 if device == "cuda" else 1e-4), f"{case.name}: results are {apart} apart"
  said = f"{kept * 1e3:.3f} ms, {case.operations / kept * 1e-12:.2f} TFLOP/s, first call {first:.2f} s"
  return Row(case.name, said, f"{best * 1e3:.3f} ms {by.split('_')[0].lower()}", best / kept, "×", FAST, case.must, case.aim)


def tile_row(case: Case, quick: bool, flush: Any) -> Row:
  """The kernel that is written in the tile language, over the one that is found in tensor code. Kernels are compared and not what
  a call takes of the host: one captured function has several, of other queries each, beside as many launches."""
  example = module_of(EXAMPLES / "tile" / "flash_attention.py")
  q, k, v, _ = inputs(case, ntgrad, "cuda", ntgrad.bfloat16)
  o = ntgrad.Tensor.empty(*q.shape, dtype=q.dtype).realize()
  lse = ntgrad.Tensor.empty(*q.shape[:3], 1).realize()
  queries = [q, *[(q + i).realize() for i in range(1, _CALLS)]]
  def tile() -> Any:
    for each in queries: example.forward_kernel(each, k, v, case.width ** -0.5, o, lse)
  @ntgrad.jit
  def ours() -> Any:
    found = [each.scaled_dot_product_attention(k, v, is_causal=True) for each in queries]
    ntgrad.Tensor.realize(*found)
    return found
  for _ in range(3):
    tile()
    ours()
  took = [t / _CALLS for t in measure.turns([timer("cuda", c, flush) for c in (ours, tile)], 0.2 if quick else 1.5, 3, 200)]
  times = [f"{t * 1e3:.3f} ms" for t in took]
  return Row(f"{case.name}: tile kernel ÷ tensor code", *times, took[1] / took[0], "×", FAST, 0.95, 1.0)


class Scored(NamedTuple):
  """Attention of one's own: of batch × heads × length × width, ours as a function of scores and positions, torch's two of flex
  attention's, of which one may be None, and the part of the scores that the mask leaves."""
  name: str
  shape: tuple[int, int, int, int]
  ours: Callable[[Any, Any, Any], Any]
  score: Callable[..., Any] | None
  mask: Callable[..., Any] | None
  part: float


def own_scores(length: int = 4096, documents: int = 8, window: int = 512) -> list[Scored]:
  """A window, documents behind each other, and soft-capping with ALiBi, all causal."""
  n, each = 4 * length, length // documents
  slopes = 2.0 ** (-8.0 * np.arange(1, 17, dtype=np.float32) / 16)
  ours, theirs = ntgrad.tensor(slopes).reshape(16, 1, 1).realize(), torch.tensor(slopes, device="cuda")
  return [
    Scored("window of 512, 16384 d64", (1, 16, n, 64), lambda s, i, j: ((j <= i) & (i - j < window)).where(s, float("-inf")),
           None, lambda b, h, i, j: (j <= i) & (i - j < window), window / n),
    Scored("documents, 4096 d64", (4, 16, length, 64),
           lambda s, i, j: ((j <= i) & (i // each == j // each)).where(s, float("-inf")),
           None, lambda b, h, i, j: (j <= i) & (i // each == j // each), 0.5 / documents),
    Scored("soft-capping with ALiBi, causal 4096 d64", (4, 16, length, 64),
           lambda s, i, j: (j <= i).where((s / 30).tanh() * 30 + ours * (j - i), float("-inf")),
           lambda s, b, h, i, j: torch.tanh(s / 30) * 30 + theirs[h] * (j - i), lambda b, h, i, j: j <= i, 0.5)]


def scored_row(case: Scored, quick: bool, flush: Any) -> Row:
  """One of them, beside torch's flex attention, compiled."""
  flex: Any = importlib.import_module("torch.nn.attention.flex_attention")
  (batch, heads, n, width), g = case.shape, np.random.default_rng(0)
  arrays = [g.standard_normal(case.shape, "float32") for _ in range(3)]
  q, k, v = [ntgrad.tensor(a).to(ntgrad.bfloat16) for a in arrays]
  ntgrad.Tensor.realize(q, k, v)
  def ours() -> Any:
    i, j = ntgrad.Tensor.arange(n).reshape(n, 1), ntgrad.Tensor.arange(n).reshape(1, n)   # made outside they would be memory
    scores = case.ours((q @ k.transpose(-2, -1)).float() * width ** -0.5, i, j)
    return (scores.softmax(-1).to(v.dtype) @ v).realize()
  given = [torch.tensor(a).to("cuda", torch.bfloat16) for a in arrays]
  blocks = flex.create_block_mask(case.mask, None, None, n, n, device="cuda")
  compiled = torch.compile(flex.flex_attention)
  def theirs() -> Any: return compiled(*given, score_mod=case.score, block_mask=blocks)
  mine = ntgrad.jit(ours)
  for _ in range(3): y, found = mine(), theirs()
  apart = float(abs(y.float().numpy() - found.float().cpu().numpy()).max())
  assert apart < 0.1, f"{case.name}: results are {apart} apart"
  took = measure.turns([timer("cuda", mine, flush), timer("cuda", theirs, flush)], 0.2 if quick else 1.5, 3, 200)
  said = f"{took[0] * 1e3:.3f} ms, {4e-12 * batch * heads * n * n * width * case.part / took[0]:.2f} TFLOP/s"
  return Row(case.name, said, f"{took[1] * 1e3:.3f} ms flex", took[1] / took[0], "×", FAST, 0.9, 1.5)


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
  parser.add_argument("--only", default="", help="cases whose names have this")
  parser.add_argument("--quick", action="store_true")
  args = parser.parse_args()
  ntgrad.Device.DEFAULT = args.device.upper()
  flush = measure.Flush() if args.device == "cuda" else None
  cases = [c for c in (GPU if args.device == "cuda" else CPU) if args.only in c.name]
  name = torch.cuda.get_device_name() if args.device == "cuda" else f"{measure.processor()}, {measure.cores()} cores"
  print(f"{datetime.date.today()}, {name}, Python {platform.python_version()}, torch {torch.__version__}\n", flush=True)
  rows = []
  for case in cases:
    rows.append(row(case, args.device, args.quick, flush))
    print(" | ".join(rows[-1].cells()), file=sys.stderr, flush=True)
    if args.device == "cuda" and case.causal and not case.gradients and not case.kv_heads:
      rows.append(tile_row(case, args.quick, flush))
  for scored in own_scores() if args.device == "cuda" else ():
    if args.only not in scored.name: continue
    rows.append(scored_row(scored, args.quick, flush))
    print(" | ".join(rows[-1].cells()), file=sys.stderr, flush=True)
  print(table(rows))
  return 0 if all(r.ok for r in rows) else 1


if __name__ == "__main__": sys.exit(main())
