"""Reductions that need each other, with products between, in one pass: numbers of kernels, values, gradients, what is refused."""
from __future__ import annotations

import importlib
import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from ntgrad import Device, Tensor, autograd, config, dtypes, jit, manual_seed
from ntgrad.backends.cuda.renderer import TARGET as HOPPER
from ntgrad.codegen.ir import BinaryOps, Ops, UnaryOps, UOp, toposort
from ntgrad.codegen.ir.target import Target
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.passes.masks import branch_masks
from ntgrad.codegen.passes.one_pass import lower_one_pass
from ntgrad.codegen.passes.one_pass_rule import find_chain
from ntgrad.engine import overrides
from ntgrad.engine.compile import chosen_for, rendered
from ntgrad.engine.device import get_device
from ntgrad.engine.override_files import read_file
from ntgrad.schedule import create_schedule, schedule_graph, sinks_of
from ntgrad.schedule.chains import BY_RULE, EXACTLY, READ_TOO, TOO_FEW
from ntgrad.tile.eject import Eject
from support import network_machines, triton
from support.marks import long, long_where

CPU = Target("opencl", lanes=8, cores=2)
GPU = Target("triton", cores=132, blocks=True, cache=50 << 20, bandwidth=4e12)
N, L, D = 150, 70, 24   # keys, queries, width
HEADS = 220             # as many as have more scores than a CPU's caches
Score = Callable[[Any], Any]


def positions() -> tuple[Tensor, Tensor]: return Tensor.arange(L).reshape(L, 1), Tensor.arange(N).reshape(1, N)
def places() -> tuple[np.ndarray, np.ndarray]: return np.arange(L)[:, None], np.arange(N)[None]


_random = np.random.default_rng(0)
KEEP = _random.random((L, N)) < 0.6
KEEP[:, 0] = True
BIAS = _random.standard_normal((L, N)).astype(np.float32)
DOCUMENT = _random.integers(0, 3, N)
DOCUMENT_OF_QUERY = np.array([d if d in DOCUMENT else 0 for d in _random.integers(0, 3, L)])


def masked(keep: Callable[[Any, Any], Any]) -> tuple[Score, Score]:
  return (lambda s: keep(*positions()).where(s, -math.inf)), lambda s: np.where(keep(*places()), s, -np.inf)


SCORES: dict[str, tuple[Score, Score]] = {   # of tensors, of arrays
  "plain": (lambda s: s, lambda s: s),
  "scaled": (lambda s: s * 0.3, lambda s: s * 0.3),
  "causal": masked(lambda i, j: j <= i),
  "strictly later": masked(lambda i, j: j + 1 > i),
  "window": masked(lambda i, j: (j <= i) & (i - j < 20)),
  "prefix": masked(lambda i, j: (j <= i) | (j < 30)),
  "a mask, and what is made of it": (
    lambda s: (c := positions()[1] <= positions()[0]).where(s, -math.inf) + (~c).where(1.0, 0.0) + (c & (s > 0)).where(0.5, 0.0),
    lambda s: np.where(c := places()[1] <= places()[0], s + np.where(c & (s > 0), 0.5, 0.0), -np.inf)),
  "zeros within a mask": (
    lambda s: (lambda i, j: (j <= i + 140).where((j - i < 20).where(s, 0.0) * 0.5, -math.inf))(*positions()),
    lambda s: (lambda i, j: np.where(j <= i + 140, np.where(j - i < 20, s, 0) * 0.5, -np.inf))(*places())),
  "parts of a length": masked(lambda i, j: (j <= i) & (i // 30 == j // 30)),
  "mask": (lambda s: Tensor(KEEP).where(s, -math.inf), lambda s: np.where(KEEP, s, -np.inf)),
  "masked fill": (lambda s: s.masked_fill(Tensor(~KEEP), -math.inf), lambda s: np.where(KEEP, s, -np.inf)),
  "bias": (lambda s: s + Tensor(BIAS), lambda s: s + BIAS),
  "relative": (lambda s: s - (positions()[0] - positions()[1]).abs() * 0.1, lambda s: s - abs(places()[0] - places()[1]) * 0.1),
  "soft cap": (lambda s: (s / 5).tanh() * 5, lambda s: np.tanh(s / 5) * 5),
  "square": (lambda s: s * s * 0.05, lambda s: s * s * 0.05),
  "documents": (lambda s: (Tensor(DOCUMENT_OF_QUERY).reshape(L, 1) == Tensor(DOCUMENT).reshape(1, N)).where(s, -math.inf),
                lambda s: np.where(DOCUMENT_OF_QUERY[:, None] == DOCUMENT[None], s, -np.inf))}


def arrays(width: int = D, values: int | None = None, seed: int = 0, heads: int = HEADS) -> list[np.ndarray]:
  r = np.random.default_rng(seed)
  return [r.standard_normal((heads, n, w)).astype(np.float32) for n, w in ((L, width), (N, width), (N, values or width))]


def weighed(q: Tensor, k: Tensor, v: Tensor, f: Score) -> Tensor: return f(q @ k.transpose(-1, -2)).softmax(-1) @ v


def expected(q: np.ndarray, k: np.ndarray, v: np.ndarray, f: Score) -> np.ndarray:
  """The same in float64."""
  with np.errstate(invalid="ignore"):
    s = f(q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1))
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v.astype(np.float64)


def kernels(*outputs: Tensor, target: Target = CPU) -> list[Kernel]:
  return [i.ast for i in schedule_graph(sinks_of(outputs), target)[1] if i.ast is not None]


def with_gradients(f: Score, given: list[np.ndarray]) -> list[Tensor]:
  inputs = [Tensor(a, requires_grad=True).realize() for a in given]
  y = weighed(*inputs, f)  # type: ignore[arg-type]
  y.backward(Tensor(np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)).realize())
  return [y, *[t.grad for t in inputs]]


def gradients_plainly(name: str, heads: int = HEADS) -> list[np.ndarray]:
  with config(noopt=1): return [t.numpy() for t in with_gradients(SCORES[name][0], arrays(heads=heads))]


# ---- how many kernels

@pytest.mark.parametrize("name", SCORES)
def test_one_kernel_forward_and_two_for_gradients(name: str) -> None:
  f = SCORES[name][0]
  inputs = [Tensor(a).realize() for a in arrays()]
  assert len(kernels(weighed(*inputs, f))) == 1
  y, *grads = with_gradients(f, arrays())
  # a square reads its score twice, so that its gradient needs the scores where they are not
  assert len(kernels(y, *grads)) <= 4 and len(kernels(*grads)) <= 3
  assert not any(n.shape[-2:] == (L, N) for i in schedule_graph(sinks_of([y, *grads]), CPU)[1] for n in i.writes)


def test_blocks_that_matrix_units_multiply() -> None:
  """float32 that is not rounded stays in several kernels on a target with blocks."""
  def count(dtype: Any) -> int:
    q, k, v = [Tensor.empty(4, 8, 256, 64, dtype=dtype) for _ in range(3)]
    return len(kernels(q.scaled_dot_product_attention(k, v, is_causal=True), target=GPU))
  assert count(dtypes.bfloat16) == count(dtypes.float16) == 1 and count(dtypes.float32) > 1
  with config(allow_tf32=1): assert count(dtypes.float32) == 1


@pytest.mark.parametrize("compute", [
  lambda q, k, v: (lambda e: e @ v / e.sum(-1, keepdim=True))((q @ k.T - (q @ k.T).max(axis=-1, keepdim=True)).exp()),
  lambda q, k, v: (lambda s: (s - s.max(axis=-1, keepdim=True)).exp2() @ v)(q @ k.T),
  lambda q, k, v: (lambda s: ((s - s.max(axis=-1, keepdim=True)) * 3).exp() @ v)(q @ k.T),
  lambda q, k, v: (lambda e: (e * v[:, 0]).sum(-1) / e.sum(-1))((q @ k.T - (q @ k.T).max(axis=-1, keepdim=True)).exp()),
  lambda q, k, v: (lambda s: s.logsumexp(-1))(q @ k.T),
  lambda q, k, v: q[None].scaled_dot_product_attention(k[None], v[None]).transpose(0, 1).reshape(-1, v.shape[1])],
  ids=["divided later", "exp2", "scaled difference", "mean", "logsumexp", "moved"])
def test_however_it_is_written(compute: Callable[..., Tensor]) -> None:
  q, k, v = [Tensor(a[0]).realize() for a in arrays()]
  y = compute(q, k, v)
  assert len(kernels(y)) == 1
  with config(noopt=1): plain = compute(q, k, v).numpy()
  assert np.allclose(y.numpy(), plain, rtol=2e-5, atol=2e-5)


def test_grouped_heads_read_their_keys_in_place() -> None:
  q, k, v = Tensor.empty(8, 100, 32), Tensor.empty(2, 120, 32), Tensor.empty(2, 120, 32)
  found, = kernels(q.scaled_dot_product_attention(k, v, enable_gqa=True))
  assert {p.shape for p in found.params} == {(8, 100, 32), (2, 120, 32)}


def with_shared_heads(heads: int) -> list[Tensor]:
  """Attention by four heads to each head of keys and values, and its gradients."""
  r = np.random.default_rng(5)
  q, k, v = [Tensor(r.standard_normal((h, n, D)).astype(np.float32), requires_grad=True).realize()
             for h, n in ((4 * heads, L), (heads, N), (heads, N))]
  y = q.scaled_dot_product_attention(k, v, enable_gqa=True)
  y.backward(Tensor(r.standard_normal(y.shape).astype(np.float32)).realize())
  return [y, *[t.grad for t in (q, k, v)]]


@long
def test_gradients_of_shared_heads() -> None:
  """Those of keys and values are made in one pass for each head that asks, and both added up by another kernel."""
  with config(noopt=1): plain = [t.numpy() for t in with_shared_heads(HEADS // 4)]
  found = with_shared_heads(HEADS // 4)
  items = schedule_graph(sinks_of(found), CPU)[1]
  assert len(items) <= 4 and not any(n.shape[-2:] == (L, N) for i in items for n in i.writes)
  for a, b in zip(found, plain): assert np.allclose(a.numpy(), b, rtol=1e-4, atol=2e-5 * max(np.abs(b).max(), 1))


@pytest.mark.parametrize("length, heads, causal", [(512, 8, True), (4096, 32, False), (513, 16, True)])
def test_one_kernel_adds_up_what_shared_heads_have(length: int, heads: int, causal: bool) -> None:
  """However much it is: one kernel stores the parts of both, so nothing is kept for longer."""
  q, k, v = [Tensor.empty(2, h, length, 64, dtype=dtypes.bfloat16, requires_grad=True) for h in (heads, heads // 4, heads // 4)]
  y = q.scaled_dot_product_attention(k, v, is_causal=causal, enable_gqa=True)
  y.backward(Tensor.empty(*y.shape, dtype=dtypes.bfloat16))
  found = kernels(y, q.grad, k.grad, v.grad, target=HOPPER)  # type: ignore[arg-type]
  assert len(found) == 4 and len(found[-1].body) == 2


def test_gradients_of_shared_heads_in_blocks(request: pytest.FixtureRequest) -> None:
  with config(noopt=1): plain = [t.numpy() for t in with_shared_heads(2)]
  request.getfixturevalue("interpreted")
  with config(allow_tf32=1): found = [t.numpy() for t in with_shared_heads(2)]
  for a, b in zip(found, plain): assert np.allclose(a, b, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("refused", [
  lambda s, v: (s - s.mean(-1, keepdim=True)).exp() @ v,                            # shifted by no maximum
  lambda s, v: (s + s.max(axis=-1, keepdim=True)).exp() @ v,                        # grows with it
  lambda s, v: (s - (s * 2).max(axis=-1, keepdim=True)).exp() @ v,                  # the maximum of something else
  lambda s, v: (s - s.max(axis=-1, keepdim=True)).tanh() @ v,                       # no factor of it
  lambda s, v: (s / (1 + s.abs().sum(-1, keepdim=True)) + 1).log() @ v])
def test_what_the_rule_does_not_hold_for_is_made_in_several_passes(refused: Callable[..., Tensor]) -> None:
  q, k, v = [Tensor(a).realize() for a in arrays()]
  y = refused(q @ k.transpose(-1, -2), v)
  assert len(kernels(y)) > 1 and all(find_chain(a) is None for a in kernels(y))
  with config(noopt=1): plain = refused(q @ k.transpose(-1, -2), v).numpy()
  assert np.allclose(y.numpy(), plain, rtol=1e-4, atol=1e-4)


def test_why_not_is_said(capfd: pytest.CaptureFixture[str]) -> None:
  q, k, v = [Tensor(a).realize() for a in arrays(8)]
  def said(*outputs: Tensor) -> list[str]:
    with config(debug=1, cache=0): Tensor.realize(*outputs)
    lines = capfd.readouterr().out.splitlines()
    return [line.partition("needs: ")[2].removesuffix("\x1b[0m") for line in lines if "one pass" in line]
  assert said(weighed(q, k, v, lambda s: s * 0.5)) == []
  assert said((lambda s: (s - s.max(axis=-1, keepdim=True)).tanh() @ v)(q @ k.transpose(-1, -2))) == [BY_RULE]
  p = (q @ k.transpose(-1, -2) * 0.25).softmax(-1)
  assert READ_TOO in said(p @ v, p)
  q, k, v = [Tensor.empty(4, 8, 256, 64) for _ in range(3)]
  why: dict[Any, tuple[str, Any]] = {}
  schedule_graph(sinks_of([q.scaled_dot_product_attention(k, v)]), GPU, unjoined=why)
  assert {text for text, _ in why.values()} == {EXACTLY}


def test_few_programs_take_several_passes_on_a_gpu() -> None:
  """What was tried first, and is not in the graph any more, has no reason."""
  q, k, v = [Tensor.empty(1, 1, 128, 64, dtype=dtypes.bfloat16, requires_grad=True) for _ in range(3)]
  y = q.scaled_dot_product_attention(k, v, is_causal=True)
  y.backward(Tensor.empty(*y.shape, dtype=dtypes.bfloat16))
  why: dict[Any, tuple[str, Any]] = {}
  _, items = schedule_graph(sinks_of([y, q.grad, k.grad, v.grad]), GPU, unjoined=why)
  assert TOO_FEW in {text for text, _ in why.values()} and all(find_chain(i.ast) is None for i in items if i.ast is not None)


def test_its_file_is_made_in_one_pass_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  """As a file of the tile language it has no blocks; read back, it gets the same loop."""
  given = [Tensor(a).realize() for a in arrays(seed=11)]
  def run() -> np.ndarray:
    with config(debug=3, cache=0): return weighed(*given, lambda s: s * 0.3).numpy()
  with Eject("*", tmp_path) as ejected: run()
  (key, file), = ejected.written.items()
  overrides.given_overrides[key] = read_file(file)
  try: found = run()
  finally: del overrides.given_overrides[key]
  said = capsys.readouterr().out
  assert "_overridden" in said and "so_far0" in said.partition("_overridden")[2]
  assert np.allclose(found, expected(*arrays(seed=11), lambda s: s * 0.3), rtol=2e-5, atol=2e-5)


def test_few_scores_are_stored_on_a_cpu() -> None:
  """A loop over blocks takes longer to compile, and caches hold them."""
  def count(heads: int) -> int:
    q, k, v = [Tensor.empty(*a.shape) for a in arrays(heads=heads)]
    return len(kernels(weighed(q, k, v, lambda s: s), target=get_device("CPU").renderer.target))
  assert count(1) == 3 and count(HEADS) == 1


def test_what_others_read_is_stored() -> None:
  """In the loop, block by block; but for weights, which are known after it, as what makes them once more does."""
  q, k, v = [Tensor.empty(*a.shape, requires_grad=True) for a in arrays()]
  s = q @ k.transpose(-1, -2)
  p = s.softmax(-1)
  y = p @ v
  assert len(kernels(y, s)) == 1 < len(kernels(y, p))
  y.backward(Tensor.empty(*y.shape))
  assert len(kernels(y, p, q.grad, k.grad, v.grad)) == 3
  with config(noopt=1): assert len(kernels(s.softmax(-1) @ v)) > 1


def test_a_program_has_room_for_what_it_keeps() -> None:
  wide = Tensor.empty(HEADS, N, 1000)
  q, k, _ = [Tensor.empty(*a.shape) for a in arrays()]
  assert all(find_chain(a) is None for a in kernels((q @ k.transpose(-1, -2)).softmax(-1) @ wide))
  wide = Tensor.empty(2, L, 1000), Tensor.empty(2, N, 1000)
  assert all(find_chain(a) is None for a in kernels((wide[0] @ wide[1].transpose(-1, -2)).softmax(-1) @ Tensor.empty(2, N, 8)))


def test_blocks_of_which_nothing_counts_are_left_out() -> None:
  def loop(f: Score) -> Any:
    q, k, v = [Tensor.empty(2, n, D) for n in (512, 512, 512)]
    kernel, = kernels(weighed(q, k, v, f))
    return next(s for s in lower_one_pass(kernel, CPU).body if s.op is Ops.FOR)
  i, j = Tensor.arange(512).reshape(512, 1), Tensor.arange(512).reshape(1, 512)
  assert loop(lambda s: s).src[0].op is Ops.CONST
  assert loop(lambda s: (j <= i).where(s, -math.inf)).src[0].ranges                      # up to the diagonal
  assert loop(lambda s: s.masked_fill(j > i, -math.inf)).src[0].ranges
  assert loop(lambda s: ((j <= i) & (i - j < 64)).where(s, -math.inf)).src[0].ranges
  assert loop(lambda s: (i // 64 == j // 64).where(s, -math.inf)).src[0].arg == 1   # one of eight blocks
  assert loop(lambda s: s.masked_fill(i // 64 != j // 64, -math.inf)).src[0].arg == 1


def halves(*shape: int) -> list[Tensor]:
  return [Tensor.empty(*shape, dtype=dtypes.bfloat16, requires_grad=True) for _ in range(3)]


@pytest.mark.parametrize("n, keep, looked", [
  (512, lambda i, j: j <= i, "in some blocks"), (512, lambda i, j: j >= i, "in some blocks"), (512, None, "never"),
  (512, lambda i, j: (j <= i) & (i - j < 300), "in some blocks"), (500, None, "in some blocks"),
  (512, lambda i, j: i // 128 == j // 128, "in some blocks"), (512, lambda i, j: (i + j) % 7 < 3, "always")])
def test_masks_are_looked_at_where_they_cut_a_block(n: int, keep: Any, looked: str) -> None:
  """In one loop, for a second one with products would have NVIDIA's assembler wait for each product of the first."""
  q, k, v = halves(16, n, 64)
  i, j = Tensor.arange(n).reshape(n, 1), Tensor.arange(n).reshape(1, n)
  kernel, = kernels(weighed(q, k, v, lambda s: s * 0.1 if keep is None else keep(i, j).where(s * 0.1, -math.inf)), target=GPU)
  loop, = [s for s in branch_masks(lower_one_pass(kernel, GPU), GPU).body if s.op is Ops.FOR]
  def compares(statements: Iterable[UOp]) -> bool:
    """Elements' places with something, but to read them."""
    return any(u.arg in (BinaryOps.CMPLT, BinaryOps.CMPLE) and u.ranges and not any(s.dtype.kind == "f" for s in u.src)
               for u in toposort(statements, lambda u: u.op is Ops.LOAD))
  branches = [s for s in loop.src[1:] if s.op is Ops.IF]
  always = compares(s for s in loop.src[1:] if s.op is not Ops.IF)
  assert ("always" if always else "in some blocks" if branches and compares(branches) else "never") == looked
  assert not (always and branches)


def test_nothing_is_rounded_between_products_of_blocks() -> None:
  """Of scores in bfloat16 only the weights are, which are multiplied; exponentials are powers of two."""
  kernel, = kernels(weighed(*halves(16, 512, 64), lambda s: (s * 0.1).tanh() * 3), target=GPU)  # type: ignore[arg-type]
  nodes = toposort(lower_one_pass(kernel, GPU).body)
  rounded = [u for u in nodes if u.op is Ops.CAST and u.dtype is dtypes.bfloat16]
  assert len(rounded) == 2   # and the result
  assert {u.arg for u in nodes if u.arg in (UnaryOps.EXP, UnaryOps.EXP2)} == {UnaryOps.EXP2}


def test_what_both_products_read_is_read_once() -> None:
  """The gradient of keys and values multiplies queries, and what arrives at the result, twice each."""
  q, k, v = halves(16, 512, 64)
  y = q.scaled_dot_product_attention(k, v)
  y.backward(Tensor.empty(*y.shape, dtype=dtypes.bfloat16))
  *_, last = [lower_one_pass(a, GPU) for a in kernels(y, q.grad, k.grad, v.grad, target=GPU)]
  loop, = [s for s in last.body if s.op is Ops.FOR]
  loads = [u for u in toposort(loop.src) if u.op is Ops.LOAD and u.src[0].op is Ops.DEFINE_GLOBAL]
  assert sum(u.dtype is dtypes.bfloat16 for u in loads) == 2


def test_kernels_that_share_a_factor_stay_apart() -> None:
  """Two gradients have a product in common; together they would need more registers than there are."""
  outputs = []
  k, v, slope = [Tensor.empty(16, 512, 64, dtype=dtypes.bfloat16, requires_grad=True).realize() for _ in range(3)]
  for _ in range(2):
    q = Tensor.empty(16, 512, 64, dtype=dtypes.bfloat16, requires_grad=True)
    k.grad = v.grad = None
    y = q.scaled_dot_product_attention(k, v)
    y.backward(slope)
    outputs += [y, q.grad, k.grad, v.grad]
  assert max(sum(len(r.arg[1]) == 1 for r in a.reduces) for a in kernels(*outputs, target=GPU)) <= 5


def test_widths_and_lengths_that_change_take_one_pass() -> None:
  """Lengths become run-time sizes. Widths do not: kernels of any width would store the scores."""
  machine = network_machines.MACHINES["sm_90"]
  device = network_machines.opened(machine)
  before = device.count
  for width, n in ((64, 1024), (128, 1024), (64, 2048), (128, 2048), (64, 3072), (128, 3072)):
    q, k, v = [Tensor.empty(4, 16, n, width, dtype=dtypes.bfloat16, device=machine.device).realize() for _ in range(3)]
    made = device.count
    q.scaled_dot_product_attention(k, v, is_causal=True).realize()
    assert device.count - made == (n < 3072)
  assert device.count - before == 4


@pytest.mark.parametrize("captured", [True, False])
@pytest.mark.usefixtures("nothing_compiled")
def test_scores_that_a_local_variable_holds_are_not_stored(captured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
  """Though the one kernel could do so: of a window of 512 it would compute all 16,384 x 16,384 then."""
  machine = network_machines.MACHINES["sm_90"]
  device, made = network_machines.opened(machine), list[Any]()
  monkeypatch.setattr(device, "compile", lambda specs: made.extend(specs) or type(device).compile(device, specs))
  Device.DEFAULT = machine.device
  q, k, v = [Tensor.empty(1, 16, 16384, 64, dtype=dtypes.bfloat16).realize() for _ in range(3)]
  def attend() -> Tensor:
    i, j = [Tensor.arange(16384).reshape(s) for s in ((-1, 1), (1, -1))]
    scores = ((j <= i) & (i - j < 512)).where((q @ k.transpose(-2, -1)).float() * 0.125, float("-inf"))
    weights = scores.softmax(-1).to(v.dtype)
    return (weights @ v).realize()
  call = jit(attend) if captured else attend
  for _ in range(2): call()
  Device.DEFAULT = None
  assert [s.nparams for s in made] == [4]


# ---- values

@long_where(lambda name: name not in ("causal", "mask", "soft cap"))
@pytest.mark.parametrize("name", SCORES)
def test_values(name: str) -> None:
  given = arrays(values=40)
  found = weighed(*[Tensor(a).realize() for a in given], SCORES[name][0]).numpy()
  assert np.allclose(found, expected(*given, SCORES[name][1]), rtol=2e-5, atol=2e-5)


@long_where(lambda name: name not in ("causal", "zeros within a mask"))
@pytest.mark.parametrize("name", SCORES)
def test_gradients(name: str) -> None:
  found = [t.numpy() for t in with_gradients(SCORES[name][0], arrays())]
  for a, b in zip(found, gradients_plainly(name)): assert np.allclose(a, b, rtol=1e-4, atol=2e-5 * max(np.abs(b).max(), 1))


@long_where(lambda width, values: width not in (1, 64))
@pytest.mark.parametrize("width, values", [(1, 1), (3, 17), (8, 1), (64, 64), (80, 33), (128, 128), (256, 256)])
def test_widths(width: int, values: int) -> None:
  given = arrays(width, values)
  found = weighed(*[Tensor(a).realize() for a in given], lambda s: s / math.sqrt(width)).numpy()
  assert np.allclose(found, expected(*given, lambda s: s / math.sqrt(width)), rtol=2e-5, atol=2e-5)


@long_where(lambda dtype: dtype is dtypes.float16)
@pytest.mark.parametrize("dtype, rtol", [(dtypes.float16, 4e-3), (dtypes.bfloat16, 3e-2)])
def test_narrow_floats(dtype: Any, rtol: float) -> None:
  given = [Tensor(a).cast(dtype).realize() for a in arrays()]
  found = weighed(*given, lambda s: s * 0.2).float().numpy()  # type: ignore[arg-type]
  assert np.allclose(found, expected(*[t.float().numpy() for t in given], lambda s: s * 0.2), rtol=rtol, atol=rtol)


def test_rows_without_anything_and_infinities() -> None:
  """A softmax of nothing is NaN, scaled_dot_product_attention of nothing 0; the first score that counts may come late."""
  q, k, v = arrays()
  keep = np.zeros((L, N), bool)
  keep[1, -1] = keep[2, 0] = keep[3:] = True
  mask = np.where(keep, 0, -np.inf).astype(np.float32)
  found = weighed(*[Tensor(a).realize() for a in (q, k, v)], lambda s: s + Tensor(mask)).numpy()
  wanted = expected(q, k, v, lambda s: s + mask)
  assert np.isnan(found[:, 0]).all() and np.allclose(found[:, 1:], wanted[:, 1:], rtol=2e-5, atol=2e-5)
  guarded = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), Tensor(keep), scale=1.0).numpy()
  assert (guarded[:, 0] == 0).all() and np.allclose(guarded[:, 1:], wanted[:, 1:], rtol=2e-5, atol=2e-5)
  mask[5, 7], mask[6, 3] = np.inf, np.nan
  found = weighed(*[Tensor(a).realize() for a in (q, k, v)], lambda s: s + Tensor(mask)).numpy()
  assert np.isnan(found[:, [5, 6]]).all() and np.isfinite(found[:, 7:]).all()
  low = weighed(*[Tensor(a).realize() for a in (q, k, v)], lambda s: s - 1e4).numpy()   # far below where exp gives 0
  assert np.allclose(low, expected(q, k, v, lambda s: s), rtol=2e-2, atol=2e-2)


def test_the_same_bits_each_time() -> None:
  given = [Tensor(a).realize() for a in arrays()]
  assert len({weighed(*given, SCORES["causal"][0]).numpy().tobytes() for _ in range(5)}) == 1


def test_several_lengths_share_a_kernel() -> None:
  r = np.random.default_rng(3)
  with config(dynamic="always"):
    for n in (70, 100, 129):
      given = [r.standard_normal((500, n, 16)).astype(np.float32) for _ in range(3)]
      found = weighed(*[Tensor(a).realize() for a in given], lambda s: s).numpy()
      assert np.allclose(found, expected(*given, lambda s: s), rtol=2e-5, atol=2e-5)


# ---- gradients of what scores are made of: a bias for each score, for each column or row, for several matrices of scores

BIASES: dict[str, tuple[tuple[int, ...], Callable[[Any, Any], Any], int]] = {   # how many kernels with the other gradients
  "scores": ((2, 3, 37, 45), lambda s, b: s + b, 3), "one matrix": ((1, 1, 37, 45), lambda s, b: s + b, 4),
  "heads": ((3, 37, 45), lambda s, b: s + b, 4), "batch": ((2, 1, 37, 45), lambda s, b: s + b, 4),
  "columns": ((2, 3, 1, 45), lambda s, b: s + b, 3), "columns of all heads": ((2, 1, 1, 45), lambda s, b: s + b, 4),
  "rows": ((2, 3, 37, 1), lambda s, b: s + b, 3), "a number for each head": ((3, 1, 1), lambda s, b: s + b, 4),
  "factors": ((2, 3, 37, 45), lambda s, b: s * b, 3), "temperature": ((3, 1, 1), lambda s, b: s * b, 4),
  "moved": ((3, 2, 45, 37), lambda s, b: s + b.permute(1, 0, 3, 2), 3), "curved": ((2, 3, 37, 45), lambda s, b: s + b * b, 4),
  "masked": ((2, 3, 37, 45), lambda s, b: (Tensor.arange(45) <= Tensor.arange(37).reshape(37, 1) + 5).where(s + b, -math.inf), 3)}


def with_bias(name: str, dtype: Any = dtypes.float32) -> list[Tensor]:
  """A result and gradients of queries, keys, values and of a bias."""
  shape, f, _ = BIASES[name]
  r = np.random.default_rng(0)
  q, k, v, b, g = [Tensor(r.standard_normal(s).astype(np.float32)).cast(dtype).realize()
                   for s in ((2, 3, 37, 24), (2, 3, 45, 24), (2, 3, 45, 24), shape, (2, 3, 37, 24))]
  for t in (q, k, v, b): t.requires_grad = True
  y = f(q @ k.transpose(-1, -2) * 0.3, b).softmax(-1) @ v
  y.backward(g)
  return [y, *[t.grad for t in (q, k, v, b)]]


def are_close(a: np.ndarray, b: np.ndarray) -> bool:
  """As far as float32 goes. A number for each head has 0, the sum of 74 rows that are 0 each but for their rounding."""
  rows = 74 if b.size == 3 else 1
  return np.allclose(a, b, rtol=1e-5, atol=3e-6 * max(np.abs(b).max(), 1) * rows ** 0.5)


def biases_plainly(name: str) -> list[np.ndarray]:
  with config(noopt=1): return [t.numpy() for t in with_bias(name, dtypes.float64)]


@pytest.fixture
def for_few_scores(monkeypatch: pytest.MonkeyPatch) -> None:
  """Devices take one pass for few scores, the oracle too."""
  target = replace(get_device("CPU").renderer.target, least_scores=1 << 10)
  for name in ("CPU", "NUMPY"): monkeypatch.setattr(get_device(name).renderer, "target", target)


@pytest.mark.parametrize("name", BIASES)
def test_gradients_of_biases(name: str, for_few_scores: None) -> None:
  """What is asked for of each score is stored in the loop, sums beside other sums; nothing else has the scores' shape."""
  wanted, found = biases_plainly(name), with_bias(name)
  items = schedule_graph(sinks_of(found), get_device("CPU").renderer.target)[1]
  assert len(items) == BIASES[name][2]
  if name != "curved":   # whose bias is made by a kernel of its own
    large = [n for i in items for n in i.writes if math.prod(n.shape) >= 2 * 3 * 37 * 45]
    assert len(large) == (math.prod(BIASES[name][0]) == 2 * 3 * 37 * 45)
  assert all(are_close(a.numpy(), b) for a, b in zip(found, wanted))
  assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(found, with_bias(name)))


@long_where(lambda name: name != "masked")
@pytest.mark.parametrize("name", BIASES)
def test_gradients_of_biases_by_the_oracle(name: str, for_few_scores: None, monkeypatch: pytest.MonkeyPatch) -> None:
  wanted = biases_plainly(name)
  monkeypatch.setattr(Device, "assigned", "NUMPY")
  found = [t.numpy() for t in with_bias(name)]
  assert all(map(are_close, found, wanted))


@pytest.mark.parametrize("dtype, most", [(dtypes.float16, 4e-3), (dtypes.bfloat16, 3e-2)])
def test_gradients_of_narrow_biases(dtype: Any, most: float, for_few_scores: None) -> None:
  for a, b in zip(with_bias("masked", dtype), biases_plainly("masked")):
    assert np.abs(a.float().numpy() - b).max() <= most * max(np.abs(b).max(), 1)


@long_where(lambda name: name not in ("scores", "columns"))
@pytest.mark.parametrize("name", BIASES)
def test_gradients_of_biases_in_blocks(name: str, request: pytest.FixtureRequest) -> None:
  wanted = biases_plainly(name)
  request.getfixturevalue("interpreted")
  with config(allow_tf32=1): found = [t.numpy() for t in with_bias(name)]
  for a, b in zip(found, wanted): assert np.allclose(a, b, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("shape, count", [
  ((2, 8, 512, 512), 3), ((8, 512, 512), 4), ((512, 512), 4), ((2, 1, 512, 512), 4), ((2, 8, 1, 512), 3), ((8, 1, 1), 4)])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_biases_on_a_gpu(shape: tuple[int, ...], count: int, causal: bool) -> None:
  q, k, v = halves(2, 8, 512, 64)
  bias = Tensor.empty(*shape, requires_grad=True)
  i, j = Tensor.arange(512).reshape(512, 1), Tensor.arange(512)
  s = (q @ k.transpose(-1, -2)).float() * 0.125 + bias
  y = ((j <= i).where(s, -math.inf) if causal else s).softmax(-1).cast(dtypes.bfloat16) @ v
  y.backward(Tensor.empty(*y.shape, dtype=dtypes.bfloat16))
  assert len(kernels(y, *[t.grad for t in (q, k, v, bias)], target=HOPPER)) == count  # type: ignore[arg-type]


# ---- by Triton's interpreter, which multiplies blocks

@pytest.mark.parametrize("name", SCORES)
def test_values_in_blocks(name: str, interpreted: Any) -> None:
  given = arrays(heads=2)
  with config(allow_tf32=1): found = weighed(*[Tensor(a).realize() for a in given], SCORES[name][0]).numpy()
  assert np.allclose(found, expected(*given, SCORES[name][1]), rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("lengths", [(330, 400), (256, 256)])
@pytest.mark.parametrize("keep", [lambda i, j: j <= i, lambda i, j: j > i - 5, lambda i, j: (j <= i) & (i - j < 150),
                                  lambda i, j: (j <= i + 100) & (j > 40), lambda i, j: abs(i - j) < 90,
                                  lambda i, j: i // 70 == j // 70, lambda i, j: j // 100 + 1 == (i + 9) // 100])
def test_parts_of_masks_in_blocks(keep: Any, lengths: tuple[int, int], interpreted: Any) -> None:
  """Blocks that masks cut, leave whole or leave out, in any order, and the last one that is no whole block."""
  l, n = lengths
  r = np.random.default_rng(0)
  q, k, v = [r.standard_normal((1, m, 16)).astype(np.float32) for m in (l, n, n)]
  tensors = Tensor.arange(l).reshape(l, 1), Tensor.arange(n).reshape(1, n)
  seen = keep(np.arange(l)[:, None], np.arange(n)[None])
  for dynamic in ("auto", "always"):
    with config(allow_tf32=1, dynamic=dynamic):
      found = weighed(*[Tensor(a).realize() for a in (q, k, v)], lambda s: keep(*tensors).where(s, -math.inf)).numpy()
    assert np.allclose(found, expected(q, k, v, lambda s: np.where(seen, s, -np.inf)), rtol=5e-3, atol=5e-3, equal_nan=True)


@pytest.mark.parametrize("name", ["causal", "soft cap", "mask"])
def test_gradients_in_blocks(name: str, request: pytest.FixtureRequest) -> None:
  plain = gradients_plainly(name, 2)
  request.getfixturevalue("interpreted")
  with config(allow_tf32=1): found = [t.numpy() for t in with_gradients(SCORES[name][0], arrays(heads=2))]
  for a, b in zip(found, plain): assert np.allclose(a, b, rtol=1e-2, atol=1e-2)


def of_maxima() -> list[np.ndarray]:
  """Attention by scores that are maxima of sums, and its gradients."""
  q, k, v = inputs = [Tensor(a, requires_grad=True).realize() for a in arrays(heads=2)]
  s = (q.unsqueeze(-2) + k.unsqueeze(-3)).amax(-1)
  y = s.softmax(-1) @ v
  y.square().sum().backward()
  return [t.numpy() for t in (y, *[t.grad for t in inputs])]


def test_gradients_of_maxima_in_blocks(request: pytest.FixtureRequest) -> None:
  """One kernel stores the scores, which others that make them once more ask for too."""
  with config(noopt=1): plain = of_maxima()
  request.getfixturevalue("interpreted")
  for a, b in zip(of_maxima(), plain): assert np.allclose(a, b, rtol=1e-4, atol=1e-4 * max(np.abs(b).max(), 1))


def second_order(heads: int) -> list[np.ndarray]:
  """Attention's gradients of the sum of squares of its gradients."""
  inputs = [Tensor(a, requires_grad=True).realize() for a in arrays(heads=heads)]
  y = weighed(*inputs, lambda s: s * 0.2)  # type: ignore[arg-type]
  first = autograd.grad(y.square().sum(), inputs, create_graph=True)
  return [t.numpy() for t in autograd.grad(sum(t.square().sum() for t in first), inputs)]


@long
def test_second_order(request: pytest.FixtureRequest) -> None:
  with config(noopt=1): plain = second_order(2)
  request.getfixturevalue("interpreted")
  with config(allow_tf32=1): found = second_order(2)
  for a, b in zip(found, plain): assert np.allclose(a, b, rtol=2e-2, atol=1e-2 * np.abs(b).max())


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Any:
  with triton.installed():
    from ntgrad import Device
    from ntgrad.backends.cuda.interpreter import InterpreterDevice
    from ntgrad.engine import device as devices
    monkeypatch.setitem(devices._open, triton.NAME, InterpreterDevice())
    monkeypatch.setattr(Device, "assigned", triton.NAME)


# ---- any score

_STEPS: list[tuple[Score, Score]] = [
  (lambda s: s * 0.7, lambda s: s * 0.7), (lambda s: s - 1.5, lambda s: s - 1.5),
  (lambda s: s.tanh() * 2, lambda s: np.tanh(s) * 2),
  (lambda s: s + Tensor(BIAS), lambda s: s + BIAS), (lambda s: -s, lambda s: -s), (lambda s: s.abs() / 2, lambda s: abs(s) / 2),
  (lambda s: s.relu(), lambda s: np.maximum(s, 0)), *[SCORES[n] for n in ("causal", "window", "mask", "prefix", "relative")]]


@long
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(st.integers(0, len(_STEPS) - 1), max_size=4), width=st.integers(1, 40), values=st.integers(1, 40),
       seed=st.integers(0, 1000))
def test_any_score(steps: list[int], width: int, values: int, seed: int) -> None:
  """Masks come last: what is made of -inf afterwards is another thing for each library."""
  masks = {i for i, s in enumerate(_STEPS) if any(s is SCORES[n] for n in ("causal", "window", "mask", "prefix"))}
  steps = sorted(steps, key=lambda i: i in masks)
  given_arrays = arrays(width, values, seed)
  def tensor(s: Any) -> Any:
    for i in steps: s = _STEPS[i][0](s)
    return s
  def array(s: Any) -> Any:
    for i in steps: s = _STEPS[i][1](s)
    return s
  y = weighed(*[Tensor(a).realize() for a in given_arrays], lambda s: tensor(s / width ** 0.5))
  assert len(kernels(y)) == 1 or width == 1   # whose products are no sums
  assert np.allclose(y.numpy(), expected(*given_arrays, lambda s: array(s / width ** 0.5)), rtol=5e-5, atol=5e-5)


# ---- exchanged sums

def test_the_gradient_of_a_softmax_that_weighs_values_sums_no_weights() -> None:
  """It is made of the result and its gradient: queries' gradients take two products less."""
  q, k, v = [Tensor.empty(2, 512, 64, requires_grad=True) for _ in range(3)]
  y = q.scaled_dot_product_attention(k, v)
  (y * y).sum().backward()
  found = [i.ast for i in create_schedule([y, q.grad, k.grad, v.grad])]
  # one stores the result, with the maxima and sums of rows, and none the sums of weights alone
  assert len(found) == 3 and all(any(p.written and p.shape[-1] == 64 for p in a.params) for a in found)


def dropped() -> list[np.ndarray]:
  """Attention with dropout, and its gradients."""
  manual_seed(5)
  with Tensor.train():
    inputs = [Tensor(a, requires_grad=True).realize() for a in arrays()]
    y = inputs[0].scaled_dot_product_attention(*inputs[1:], dropout_p=0.3)
    y.backward(Tensor(np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)).realize())
    outputs = [y, *[t.grad for t in inputs]]
    if not config.noopt: assert len(kernels(*outputs)) == 4   # that of what is dropped, and the three
    return [t.numpy() for t in outputs]


@long
def test_dropped_weights() -> None:
  found = dropped()
  with config(noopt=1): wanted = dropped()
  for a, b in zip(found, wanted): assert np.allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.float16, dtypes.float32])
def test_a_result_that_is_stored_rounded(dtype: Any, first: int) -> None:
  """Gradients are made of the result itself, and as many kernels wherever it is asked for."""
  given = arrays()
  def found() -> list[np.ndarray]:
    inputs = [Tensor(a, requires_grad=True).realize() for a in given]
    y = inputs[0].scaled_dot_product_attention(*inputs[1:])
    z = y.cast(dtype)
    y.backward(Tensor(np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)).realize())
    outputs = [*[t.grad for t in inputs]]
    outputs.insert(3 * first, z)
    assert config.noopt or len(kernels(*outputs)) == 3
    Tensor.realize(*outputs)
    return [t.grad.numpy() for t in inputs]
  mine = found()
  with config(noopt=1): wanted = found()
  for a, b in zip(mine, wanted): assert np.allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("turned, times", [(False, (2.0, 2.0)), (True, (2.0, 2.0)), (False, (2.0, 4.0)), (False, (2.0, 1.0))])
def test_masks_and_numbers_that_differ_are_not_exchanged(turned: bool, times: tuple[float, float]) -> None:
  r = np.random.default_rng(0)
  p, g, v, m = r.random((64, 64)), r.standard_normal((64, 8)), r.standard_normal((64, 8)), r.random((64, 64)) < 0.5
  tensors = [Tensor(a.astype(np.float32) if a.dtype != bool else a).realize() for a in (p, g, v, m)]
  def both(p: Any, g: Any, v: Any, m: Any, where: Any) -> tuple[Any, Any]:
    d = where(m.T if turned else m, g @ v.T, 0.0)
    for n in times: d = d * n
    return where(m, p * 2.0 * 2.0, 0.0) @ v, (p * d).sum(-1)
  y, found = both(*tensors, lambda m, a, b: m.where(a, b))
  Tensor.realize(y, found)
  assert np.allclose(found.numpy(), both(p, g, v, m, np.where)[1], rtol=1e-4, atol=1e-4)


@long_where(lambda target, width, causal: (target, width, causal) != ("sm_80", 64, True))
@triton.needs_triton
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("causal", [True, False])
def test_cubins_keep_blocks_in_registers(target: str, width: int, causal: bool) -> None:
  """No more than a few of a thread's, by what NVIDIA's assembler says of their PTX; all multiply by matrix units, of which none
  waits for the one before."""
  from ntgrad.backends.cuda import compiler
  from ntgrad.backends.cuda.renderer import TARGET, TritonRenderer
  q, k, v = [Tensor.empty(4, 16, 1024, width, dtype=dtypes.bfloat16, requires_grad=True) for _ in range(3)]
  y = q.scaled_dot_product_attention(k, v, is_causal=causal)
  y.backward(Tensor.empty(*y.shape, dtype=dtypes.bfloat16))
  found = kernels(y, q.grad, k.grad, v.grad, target=TARGET)
  assert len(found) == 3
  device: Any = SimpleNamespace(renderer=TritonRenderer(capability=compiler.capability(target)), name=target)
  folder = Path(importlib.import_module("triton").__file__ or "").parent / "backends" / "nvidia" / "bin"
  assembler = sorted(folder.glob("ptxas*"))[-1]   # the newest
  for n, kernel in enumerate(found):
    spec, _ = rendered(kernel, chosen_for(kernel, device, f"k{n}")[1], device, f"k{n}")
    binary = compiler.work(compiler.request(spec, target))
    assert "tl.dot" in spec.source.text and "mma" in binary.ptx
    said = subprocess.run([assembler, "-v", f"--gpu-name={target}{'a' * (target == 'sm_90')}", "-", "-o", "/dev/null"],
                          input=binary.ptx, capture_output=True, text=True, check=False).stderr
    assert "spill stores" in said and "serialized" not in said, said
    assert int(re.findall(r"(\d+) bytes spill stores", said)[0]) <= (64 if width <= 64 else 160), f"kernel {n}: {said}"
