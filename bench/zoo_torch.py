"""The side of ``bench/zoo.py`` that is torch: each row in every way that may be its best, and how far results are from float64.

The ways are eager and compiled, on a GPU either of them replayed from a CUDA graph, and channels last where a row asks for it.
"""
from __future__ import annotations

import ctypes
import gc
import itertools
import math
import time
from statistics import median
from typing import Any, Callable, Sequence

import numpy as np
import zoo_models
from measure import Timer, cores
from zoo_rows import LOSSES, Row, tensors

SAMPLES = 16     # numbers of each output that the reference file keeps
FLUSHED = 512 << 20
# what is added to twice torch's error: some roundings, as one of its numbers may be exact by luck, and float64 is its own
# reference
FLOOR = {"float64": 16 * 2.0**-53, "float32": 4 * 2.0**-24, "float16": 2.0**-13, "bfloat16": 2.0**-10}
LOSS_FLOOR = {"float32": 1e-6, "bfloat16": 1e-3}

Call = Callable[[int], Any]   # with the number of the set of inputs


class Side:
  """torch on one device."""
  peak = math.inf   # of the last row on a GPU, in bytes: that of the way that takes least

  def __init__(self, torch: Any, device: str, tf32: bool, compiles: bool) -> None:
    self.torch, self.device, self.on_gpu = torch, "cuda" if device == "CUDA" else "cpu", device == "CUDA"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    if self.on_gpu:
      torch.backends.cudnn.benchmark = True
      self.scratch = torch.empty(FLUSHED, dtype=torch.uint8, device="cuda")
    else:
      torch.set_num_threads(cores())
      # memory that is freed stays with the process: results would cost page faults at every call
      for option, value in ((-4, 0), (-1, 2**31 - 1)):   # M_MMAP_MAX, M_TRIM_THRESHOLD
        try: ctypes.CDLL(None).mallopt(option, value)
        except (OSError, AttributeError): pass
    self.compiles = compiles and self._probe()

  def _probe(self) -> bool:
    """Whether torch.compile works here; it needs a C++ compiler on a CPU."""
    try: self.torch.compile(lambda x: (x + 1).relu())(self.torch.ones(1000, device=self.device))
    except Exception as e:
      print(f"torch.compile does not work here: {type(e).__name__}: {str(e)[:200]}", flush=True)
      return False
    return True

  # ---- calling
  def put(self, a: np.ndarray[Any, Any], wide: bool = False, last: bool = False) -> Any:
    """An array as a tensor; ``wide``: floats in float64."""
    t = self.torch
    if a.dtype.name == "bfloat16": x = t.from_numpy(a.view(np.int16)).to(self.device).view(t.bfloat16)
    else: x = t.from_numpy(a).to(self.device)
    if a.dtype.name == "int32": x = x.long()
    if wide and x.is_floating_point(): x = x.double()
    return x.contiguous(memory_format=t.channels_last) if last and x.ndim == 4 else x

  def function(self, row: Row, compiled: bool = False, last: bool = False) -> Callable[..., tuple[Any, ...]]:
    """What torch computes of a row: its outputs, and its gradients."""
    t, k = self.torch, row.kind
    if k.model: return zoo_models.theirs(t, k.model, row.sizes, getattr(t, row.dtype), self.device, last, compiled)
    def forward(*xs: Any) -> Any: return k.theirs(t, *xs)
    found = t.compile(forward, dynamic=False) if compiled else forward
    def plain(*xs: Any) -> tuple[Any, ...]:
      with t.no_grad(): out = found(*xs)
      return tuple(out) if isinstance(out, (tuple, list)) else (out,)
    def gradients(*xs: Any) -> tuple[Any, ...]:
      upstream = k.group != LOSSES
      leaves = [x.detach().requires_grad_(i in k.wrt) for i, x in enumerate(xs[:-1] if upstream else xs)]
      out = found(*leaves)
      return (out.detach(), *t.autograd.grad(out, [leaves[i] for i in k.wrt], xs[-1] if upstream else None))
    return gradients if k.wrt else plain

  def replayed(self, fn: Callable[..., Any], sets: Sequence[Sequence[Any]], one: bool) -> Call:
    """The same from CUDA graphs: one a set of inputs, or one whose inputs are copied in."""
    t, graphs = self.torch, []
    side = t.cuda.Stream()
    side.wait_stream(t.cuda.current_stream())
    with t.cuda.stream(side):
      for _ in range(3): fn(*sets[0])
    t.cuda.current_stream().wait_stream(side)
    static = [x.clone() for x in sets[0]] if one else []
    for xs in [static] if one else sets:
      g = t.cuda.CUDAGraph()
      with t.cuda.graph(g, capture_error_mode="relaxed"): out = fn(*xs)   # ntgrad may free memory meanwhile
      graphs.append((g, out, fn))   # a graph reads the parameters that the function holds
    def call(k: int) -> Any:
      if one:
        for to, x in zip(static, sets[k]): to.copy_(x)
      g, out, _ = graphs[0 if one else k]
      g.replay()
      return out
    return call

  def timer(self, call: Call, sets: int) -> Timer:
    """Seconds of a call, the sets of inputs in turn."""
    turn = itertools.count()
    if not self.on_gpu:
      def wall() -> float:
        k = next(turn) % sets
        start = time.perf_counter()
        out = call(k)
        took = time.perf_counter() - start
        del out
        return took
      return wall
    event = self.torch.cuda.Event
    def once() -> float:
      self.scratch.zero_()
      a, b = event(enable_timing=True), event(enable_timing=True)
      a.record()
      out = call(next(turn) % sets)
      b.record()
      b.synchronize()
      del out
      return float(a.elapsed_time(b)) * 1e-3
    return once

  def ways(self, row: Row, arrays: Sequence[Sequence[Any]], note: Callable[[str], None]) -> tuple[dict[str, float], str, Timer]:
    """Seconds of every way that works, the best one's name, and its timer."""
    t, k = self.torch, row.kind
    found: dict[str, float] = {}
    self.peak = math.inf
    best: tuple[float, str, Timer] | None = None
    if self.compiles: t._dynamo.reset()   # what was compiled for other rows
    for last, compiled in itertools.product((False, True) if k.last else (False,), (False, True)):
      if compiled and not (self.compiles and (k.compile or k.model)): continue
      if k.model and k.last and self.on_gpu and not last: continue   # a whole network is known to be faster with it
      sets = [[self.put(a, last=last) for a in xs] for xs in arrays]
      name = ("compiled" if compiled else "eager") + (", channels last" if last else "")
      calls: list[tuple[str, Call]] = []
      fn: Any = None
      timer: Any = None
      try:
        before = t.cuda.memory_allocated() if self.on_gpu else 0
        if self.on_gpu: t.cuda.reset_peak_memory_stats()
        fn = self.function(row, compiled, last)
        calls = [(name, lambda i, fn=fn, sets=sets: fn(*sets[i]))]
        for i in range(2): calls[0][1](i % len(sets))
        if self.on_gpu: self.peak = min(self.peak, t.cuda.max_memory_allocated() - before)
        if self.on_gpu:
          try: calls.append((f"{name}, graph", self.replayed(fn, sets, bool(k.model))))
          except Exception as e:
            note(f"{name}, graph: {type(e).__name__}: {str(e)[:200]}")
            t.cuda.synchronize()
        for way, call in calls:
          timer = self.timer(call, len(sets))
          first = [timer() for _ in range(2)][1]
          found[way] = min(timer() for _ in range(5 if first < 0.5 else 2))
          if best is None or found[way] < best[0]: best = found[way], way, timer
      except Exception as e: note(f"{name}: {type(e).__name__}: {str(e)[:200]}")
      calls, fn, timer = [], None, None   # the best one's memory is kept, no other's
      call = sets = None
      self.clean()
    if best is None: raise RuntimeError("torch has no way that works")
    return found, best[1], best[2]

  # ---- how right results are
  def exact(self, row: Row) -> dict[str, Any]:
    """What a row gives in float64, of the first set, and torch's own error."""
    arrays = tensors(row, 0)
    if row.kind.model:
      batch = [self.put(a, True) for a in arrays]
      want = zoo_models.exact_loss(self.torch, row.kind.model, row.sizes, tuple(batch), self.device)
      got = float(self.function(row)(*[self.put(a) for a in arrays])[0])
      return {"loss": want, "errors": [abs(got - want) / abs(want)]}
    own = self.function(row)(*[self.put(a) for a in arrays])
    if row.kind.check == "random": return {"moments": [moments(x.double().cpu().numpy()) for x in own]}
    wide = self.function(row)(*[self.put(a, True) for a in arrays])
    samples = []
    for x, y in zip(wide, own):
      at = positions(x.numel())
      want, got = x.double().flatten()[at].cpu().numpy(), y.double().flatten()[at].cpu().numpy()
      samples.append({"values": want.tolist(), "error": off(got, want)})
    return {"errors": [self.off(y, x) for x, y in zip(wide, own)], "samples": samples, "full": wide}

  def off(self, got: Any, want: Any) -> float:
    """The relative error of a result; for ints the part that differs."""
    if tuple(got.shape) != tuple(want.shape): return math.inf
    if not want.is_floating_point(): return float((got.double() != want.double()).double().mean())
    wide = want.double()
    norm = float(wide.norm())
    error = float((got.double() - wide).norm()) / (norm or 1.0)
    return error if error == error else math.inf

  def clean(self) -> None:
    gc.collect()
    if self.on_gpu: self.torch.cuda.empty_cache()

  # ---- whether this is the machine of the reference
  def calibration(self, middle: Callable[[list[float]], float] = median) -> dict[str, float]:
    """Seconds of a copy, a product and a softmax."""
    t, gpu = self.torch, self.on_gpu
    n, rows, dtype = (4096, 16384, t.bfloat16) if gpu else (1024, 2048, t.float32)
    x = t.randn(rows, 8192 if gpu else 2048, device=self.device, dtype=dtype)
    y, a = t.empty_like(x), t.randn(n, n, device=self.device, dtype=dtype)
    out = t.empty_like(a)
    found = {}
    calls = {"copy": lambda _: y.copy_(x), "product": lambda _: t.mm(a, a, out=out), "softmax": lambda _: t.softmax(x, 1)}
    for name, call in calls.items():
      timer = self.timer(call, 1)
      for _ in range(5): timer()
      found[name] = middle([timer() for _ in range(21)])
    return found


# ---- results without torch: against what the reference file keeps

def positions(n: int) -> np.ndarray[Any, Any]: return np.random.default_rng(n).integers(0, n, min(n, SAMPLES))


def off(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> float:
  """The relative error of some numbers."""
  error = float(np.linalg.norm(got - want)) / (float(np.linalg.norm(want)) or 1.0)
  return error if error == error else math.inf


def moments(x: np.ndarray[Any, Any]) -> list[float]: return [float(x.mean()), float(x.std())]


def judge(row: Row, outs: list[np.ndarray[Any, Any]], known: dict[str, Any], side: Side | None) -> tuple[bool, float, float]:
  """Whether results are right, our error and torch's: at most twice torch's is right, and so is what rounding once makes."""
  if "loss" in known:
    mine, other = abs(float(outs[0].astype(np.float64)) - known["loss"]) / abs(known["loss"]), known["errors"][0]
    return mine <= 2 * other + LOSS_FLOOR[row.dtype], mine, other
  if "moments" in known:
    both = [(moments(x.astype(np.float64)), want) for x, want in zip(outs, known["moments"])]
    differ = max(abs(a - b) / want[1] for got, want in both for a, b in zip(got, want))
    return differ < 0.01, differ, 0.0
  worst = (True, 0.0, 0.0)
  for i, x in enumerate(outs):
    if side is not None and "full" in known:
      mine, other = side.off(side.put(np.asarray(x, order="C")), known["full"][i]), known["errors"][i]
    else:
      sample = known["samples"][i]
      got = x.reshape(-1)[positions(x.size)].astype(np.float64)
      mine, other = off(got, np.array(sample["values"])), sample["error"]
    right = mine <= 2 * other + FLOOR.get(x.dtype.name, 0.0)
    if not right or mine > worst[1] and worst[0]: worst = (right and worst[0], mine, other)
  return worst
