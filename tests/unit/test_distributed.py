"""Groups of ranks: operations, gradients, models, faults; by threads, and in processes of MPI where it is installed."""
from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ntgrad
from ntgrad import GradScaler, Tensor, config, distributed as dist, nn
from ntgrad.distributed.meeting import shared
from ntgrad.distributed.start import place_of
from ntgrad.distributed.transport import Reports
from ntgrad.engine import counters
from ntgrad.errors import ArgumentError, DistributedError, DTypeError, GradientError, ShapeError, StateError
from ntgrad.nn.data import DataLoader, DistributedSampler
from ntgrad.nn.parallel import (
  DistributedDataParallel,
  SyncBatchNorm,
  ZeroRedundancyOptimizer,
  load_checkpoint,
  save_checkpoint,
  sharded,
)
from support.launched import PATHS, SCRIPT, needs_mpi, results, started
from support.ranks import operations, train

FROM = "every rank of a group calls the same operations"


# ---- by threads
def test_operations() -> None:
  first, second = dist.run(operations, 2)
  assert all(first[k] == second[k] for k in first if k.split()[0] in ("small", "large", "half", "ints"))
  a, b = [np.random.default_rng(r).standard_normal(7).astype(np.float32) for r in (0, 1)]
  assert first["small sum"] == (a + b).tobytes().hex()[-64:] and first["small max"] == np.maximum(a, b).tobytes().hex()[-64:]
  assert first["gathered"] == second["gathered"] == [[0, 1, 2, 3], [10, 11, 12, 13]]
  assert second["spread"] == sum(first["gathered"], [])
  assert (first["part"], second["part"], first["one"]) == ([10, 12], [14, 16], [5, 6])
  assert (first["mixed"], second["mixed"]) == ([0, 1, 10, 11], [2, 3, 12, 13]) and second["lists"] == [1, 11]
  parts = [np.arange(60000, dtype=np.float32) + np.float32(60000 * r) for r in (0, 1)]   # each rank's part r, from all of them
  for found, part in zip((first, second), parts):
    assert np.allclose(found["over"], [(part + q).sum(dtype=np.float64) for q in (0, 1)])
  assert (first["sent"], first["got"], second["got"]) == ([1], [0, 0], [5, 6])
  assert first["pair"] == second["pair"] == [1, 0] and (first["rank in it"], second["rank in it"]) == (1, 0)


def test_order_of_addition_and_rounding() -> None:
  """float32 in the order of ranks, whatever the size; less than that in float32, rounded once."""
  def program() -> Any:
    rng = np.random.default_rng(dist.get_rank())
    x = rng.standard_normal(40000).astype(np.float32)
    whole, part, half = Tensor(x), Tensor(x[:100]), Tensor(x[:100]).cast("bfloat16")
    for t in (whole, part, half): dist.all_reduce(t)
    return whole.numpy(), part.numpy(), half.float().numpy()
  found = dist.run(program, 3)
  a, b, c = [np.random.default_rng(r).standard_normal(40000).astype(np.float32) for r in range(3)]
  for whole, part, half in found:
    assert np.array_equal(whole, (a + b) + c) and np.array_equal(part, ((a + b) + c)[:100])
    rounded = sum([Tensor(y[:100]).cast("bfloat16").float().numpy() for y in (a, b, c)])
    assert np.array_equal(half, Tensor(rounded).cast("bfloat16").float().numpy())


def test_gradients() -> None:
  """Of the sum of all ranks' losses."""
  f, w = dist.functional, np.arange(1, 5, dtype=np.float32)

  def program() -> Any:
    rank, out = dist.get_rank(), []
    for fn in (f.all_reduce, f.all_gather, f.reduce_scatter, f.all_to_all, lambda x: f.broadcast(x, 1),
               lambda x: f.all_reduce(x, "avg"), lambda x: f.reduce_scatter(x, "avg")):
      x = Tensor(w + rank, requires_grad=True)
      y = fn(x)
      (y * Tensor(np.arange(y.numel(), dtype=np.float32) + rank)).sum().backward()
      out.append(x.grad.tolist())
    return out
  first, second = dist.run(program, 2)
  assert first[0] == second[0] == [1, 3, 5, 7]                       # weights 0 1 2 3 and 1 2 3 4
  assert (first[1], second[1]) == ([1, 3, 5, 7], [9, 11, 13, 15])    # of 0 .. 7 and 1 .. 8
  assert first[2] == second[2] == [0, 1, 1, 2]                       # each part's weights on its rank
  assert (first[3], second[3]) == ([0, 1, 1, 2], [2, 3, 3, 4])
  assert (first[4], second[4]) == ([0, 0, 0, 0], [1, 3, 5, 7])
  assert first[5] == [0.5, 1.5, 2.5, 3.5] and second[6] == [0, 0.5, 0.5, 1]


def test_a_gradient_that_there_is_not() -> None:
  x = Tensor([1.0], requires_grad=True)
  def program() -> None: dist.functional.all_reduce(x, "max").sum().backward()
  with pytest.raises(GradientError, match="max has no gradient"): dist.run(program, 2)


def test_random_numbers_of_a_rank_are_its_own() -> None:
  """Whatever other threads draw meanwhile."""
  def program() -> Any:
    Tensor.manual_seed(3)
    found = []
    for _ in range(5):
      found.append(Tensor.rand(2).tolist())
      dist.barrier()
    return found
  Tensor.manual_seed(3)
  alone, before = [Tensor.rand(2).tolist() for _ in range(5)], ntgrad.get_rng_state().tolist()
  assert dist.run(program, 3) == [alone] * 3 and ntgrad.get_rng_state().tolist() == before


def test_results_nobody_reads_come_before_those_that_are_read() -> None:
  def program() -> Any:
    xs = [Tensor([float(dist.get_rank() + i)]) for i in range(4)]
    for x in xs: dist.all_reduce(x)
    return xs[3 - dist.get_rank()].item()   # each rank reads another one first
  assert dist.run(program, 2) == [7, 5]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_results_are_written_where_they_belong(n: int) -> None:
  """No copies: in place, as a tensor of its own, and beside a reader of the old value; right for every rank."""
  start = [np.arange(9000, dtype=np.float32) + r for r in range(n)]
  total, seen = np.sum(start, axis=0, dtype=np.float32), list[int]()

  def counted(*tensors: Tensor) -> list[np.ndarray]:
    before = counters.totals().kernels
    Tensor.realize(*tensors)
    if n == 1: seen.append(counters.totals().kernels - before)
    return [t.numpy() for t in tensors]

  def program() -> None:
    x = Tensor(start[dist.get_rank()]).realize()
    dist.all_reduce(x)
    assert np.array_equal(counted(x)[0], total)
    made, y = dist.functional.all_reduce(x), x + 1
    dist.all_reduce(x)
    dist.broadcast(x, n - 1)
    for found, right in zip(counted(made, x, y), (n * total, n * total, total + 1)): assert np.array_equal(found, right)
    dist.all_reduce(x)
    z = x * (x + 1)
    x.assign(z)   # read where it is written
    assert np.array_equal(counted(x)[0], (n * n * total) * (n * n * total + 1))
  dist.run(program, n)
  assert seen == ([1, 4, 2] if n == 1 else [])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_result_that_is_written_over_what_others_are_sent(n: int) -> None:
  def program() -> None:
    rank = dist.get_rank()
    x = Tensor(np.arange(6 * n, dtype=np.float32) + 100 * rank).realize()
    dist.all_to_all_single(x, x)
    mine = np.concatenate([np.arange(6 * rank, 6 * rank + 6, dtype=np.float32) + 100 * r for r in range(n)])
    assert np.array_equal(x.numpy(), mine)
    y = x[:6].clone().realize()
    dist.all_gather_into_tensor(x, y)
    dist.reduce_scatter_tensor(y, x)
    assert x[6 * rank:6 * rank + 6].tolist() == mine[:6].tolist() and y.tolist() == [n * v for v in mine[:6]]
  dist.run(program, n)


@pytest.mark.parametrize("dynamic", ["auto", "always", "never"])
def test_batches_of_other_sizes(dynamic: str) -> None:
  """From the third size on nothing is made anew."""
  w = Tensor(np.ones((5, 4), np.float32)).realize()

  def program() -> list[bool]:
    new = []
    for i in range(6):
      printed, rows = StringIO(), 8 + i % 4 + dist.get_rank()
      x = Tensor(np.ones((rows, 5), np.float32)).realize()
      with redirect_stdout(printed), config(debug=1, dynamic=dynamic):
        y = dist.functional.all_reduce((x @ w * (1.5 + i)).sum(0)) * (0.25 + i)
        assert y.tolist() == [rows * 5 * (1.5 + i) * (0.25 + i)] * 4
      new.append(", new, " in printed.getvalue())
    return new
  new, = dist.run(program, 1)
  assert dynamic == "never" or not any(new[2:])


@pytest.mark.parametrize(("kind", "how"), [("mlp", "ddp"), ("mlp", "zero"), ("mlp", "both")])
def test_losses_are_those_of_one_device(kind: str, how: str) -> None:
  alone = np.array(train(kind, steps=6))
  first, second = dist.run(train, 2, (kind, how, 6))
  assert first == second and np.abs(np.array(first) / alone - 1).max() < 1e-6


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize(("kind", "how"), [("mlp", "ddp"), ("cnn", "ddp"), ("cnn", "zero"), ("gpt", "ddp"), ("gpt", "both")])
def test_losses_over_20_steps(kind: str, how: str, n: int) -> None:
  with config(dynamic="never"):   # kernels for any sizes, which a second size brings, may add in another order
    alone = np.array(train(kind))
    found = dist.run(train, n, (kind, how))
    assert all(f == found[0] for f in found) and np.abs(np.array(found[0]) / alone - 1).max() < 1e-6
    assert dist.run(train, n, (kind, how))[0] == found[0]


def test_no_sync_gathers_gradients() -> None:
  def program() -> Any:
    model = DistributedDataParallel(nn.Linear(3, 2))
    x = Tensor(np.ones((2, 3), np.float32) * (1 + dist.get_rank()))
    with model.no_sync(): model(x).sum().backward()
    own = model.module.weight.grad.numpy()[0, 0]
    model(x).sum().backward()
    return own, model.module.weight.grad.numpy()[0, 0]
  assert dist.run(program, 2) == [(2, 6), (4, 6)]


class Two(nn.Module):
  """A model of which a call uses one half."""

  def __init__(self) -> None:
    super().__init__()
    self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)

  def forward(self, x: Tensor, first: bool) -> Tensor: return (self.a if first else self.b)(x)


def test_unused_parameters_are_named() -> None:
  def program(find: bool) -> Any:
    model = DistributedDataParallel(Two(), find_unused_parameters=find)
    for _ in range(2): model(Tensor.ones(1, 2), dist.get_rank() == 0).sum().backward()
    return model.module.a.bias.grad.tolist(), model.module.b.bias.grad.tolist()
  with pytest.raises(GradientError, match=r"no gradient of (a.weight, a.bias|b.weight, b.bias)"): dist.run(program, 2, (False,))
  assert dist.run(program, 2, (True,)) == [([1.0, 1.0], [1.0, 1.0])] * 2


def test_buckets() -> None:
  """From the last parameter to the first; a parameter that is larger than a bucket has its own."""
  def program() -> Any:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 300), nn.Linear(300, 2))
    buckets = DistributedDataParallel(model, bucket_cap_mb=0.003)._buckets
    return [[buckets.names[id(kind.params[i])] for i in which] for kind, which in buckets.buckets]
  assert dist.run(program, 1)[0] == [["2.weight", "2.bias"], ["1.bias"], ["1.weight"], ["0.weight", "0.bias"]]


def test_a_model_for_ranks_has_the_names_and_tensors_of_its_module() -> None:
  def program() -> Any:
    whole = DistributedDataParallel(model := nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    whole(Tensor.rand(5, 3)).sum().backward()
    assert list(whole.state_dict()) == [f"module.{k}" for k in model.state_dict()] and "Buckets" not in repr(whole)
    other = DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    other.load_state_dict(whole.state_dict())
    return [p.tolist() for p in other.parameters()] == [p.tolist() for p in model.parameters()]
  assert dist.run(program, 2) == [True, True]


def test_an_optimizer_in_parts_reduces_and_gathers_by_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
  """Two operations for each, and a launch that takes what others have written to its parameters; nothing else is copied."""
  alone, right = step_of("alone")
  monkeypatch.setattr(sharded, "BUCKET_MB", 0.0008)
  found = dist.run(step_of, 2, ("zero",))
  for values in [f[1] for f in found]:
    for a, b in zip(values, right): np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
  assert dist.run(step_of, 1, ("zero",))[0][0] == alone + 3 * (2 + 1)


def test_an_optimizer_in_parts_of_another_optimizers_parameters() -> None:
  """Their parts lie together, with zeros between them, also in the state."""
  def program(parts: bool) -> Any:
    Tensor.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 7), nn.Tanh(), nn.Linear(7, 5))
    kinds = [[p for p in model.parameters() if (p.ndim > 1) is wide] for wide in (True, False)]
    first = nn.optim.SGD([{"params": k} for k in kinds], lr=0.1)
    optimizer: Any = (ZeroRedundancyOptimizer if parts else lambda p, kind, **o: kind(p, **o))(
      list(model.parameters()), nn.optim.Adam, lr=0.1)
    for i in range(3):
      optimizer.zero_grad()
      (model(Tensor(np.full((2, 3), i + 1.0, np.float32))) ** 2).sum().backward()
      optimizer.step()
    between = list[float]()
    if parts:
      flat, = optimizer.optim.param_groups[0].flats
      assert len(flat.params) == 2 and flat.size > sum([p.numel() for p in flat.params]) and first is not None
      seen = np.zeros(flat.size, bool)
      for begin, end in flat.slices: seen[begin:end] = True
      between = [t.numpy()[~seen].max() for t in (flat.flat, *flat.states.values())]
    return [p.numpy() for p in model.parameters()], between
  right, _ = program(False)
  for values, between in dist.run(program, 2, (True,)):
    for a, b in zip(values, right): np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert between and not any(between)


def step_of(how: str, groups: bool = False, clip: bool = False) -> tuple[int, list[list[float]]]:
  """The kernels of the third step of a model, and its parameters then."""
  Tensor.manual_seed(0)
  model = nn.Sequential(nn.Linear(4, 40), nn.ReLU(), nn.Linear(40, 7), nn.ReLU(), nn.Linear(7, 3))
  whole = DistributedDataParallel(model, bucket_cap_mb=0.0012) if how in ("ddp", "both") else model
  assert whole is model or len(whole._buckets.buckets) == 3
  parameters: list[Any] = list(model.parameters())
  if groups: parameters = [{"params": parameters[::2], "weight_decay": 0.1}, {"params": parameters[1::2], "weight_decay": 0.0}]
  optimizer: Any = (ZeroRedundancyOptimizer(parameters, nn.optim.AdamW, lr=0.01) if how in ("zero", "both") else
                    nn.optim.AdamW(parameters, lr=0.01))
  for i in range(3):
    x = Tensor(np.random.default_rng(i).standard_normal((8, 4)).astype(np.float32)).realize()
    before = counters.totals().kernels
    optimizer.zero_grad()
    (whole(x).square().mean() * 10).backward()
    if clip: nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
  after = counters.totals().kernels - before
  return after, [p.flatten().tolist() for p in model.parameters()]


@pytest.mark.parametrize(("how", "groups", "operations"), [
  ("ddp", False, 3), ("zero", False, 2), ("both", False, 4), ("ddp", True, 4), ("zero", True, 4)])
@pytest.mark.parametrize("clip", [False, True])
def test_nothing_is_copied_for_other_ranks(how: str, groups: bool, operations: int, clip: bool) -> None:
  """A step has one launch more for each operation, and no other: what is reduced is a part of what the optimizer reads,
  parameters are gathered where they lie, and gradients of one piece are scaled as a whole."""
  (alone, right), (found, values) = step_of("alone", groups, clip), dist.run(step_of, 1, (how, groups, clip))[0]
  for a, b in zip(values, right): np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
  assert found == alone + operations if not clip else found <= alone + operations


@pytest.mark.parametrize("how", ["all", "one is gone", "one is elsewhere too", "one twice", "one alone"])
def test_the_norm_of_gradients_that_lie_in_one_piece(how: str) -> None:
  """It is that of the gradients that are given, whatever lies beside them."""
  def program() -> None:
    model = nn.Sequential(nn.Linear(4, 40), nn.ReLU(), nn.Linear(40, 7))
    whole = DistributedDataParallel(model)
    params = list(model.parameters())
    whole(Tensor(np.ones((3, 4), np.float32))).square().sum().backward()
    seen = params[2].grad[:2] if how == "one is elsewhere too" else None   # type: ignore[index]
    if how == "one is gone": params[1].grad = None
    if how == "one alone": params = params[:1]
    if how == "one twice": params.append(params[3])
    grads = [p.grad.numpy().copy() for p in params if p.grad is not None]
    before = {id(p): p.grad.numpy().copy() for p in model.parameters() if p.grad is not None}
    right = np.sqrt(sum([(g.astype(np.float64) ** 2).sum() for g in grads]))
    assert np.isclose(nn.utils.clip_grad_norm_(params, 0.5).item(), right, rtol=1e-5)
    for p in model.parameters():
      if p.grad is None: continue
      times = [id(x) for x in params].count(id(p))
      np.testing.assert_allclose(p.grad.numpy(), before[id(p)] * (0.5 / right) ** times, rtol=1e-4, atol=1e-7)
    if seen is not None: np.testing.assert_allclose(seen.numpy(), before[id(params[2])][:2] * 0.5 / right, rtol=1e-4, atol=1e-7)
  dist.run(program, 2)


def test_models_that_differ_are_refused() -> None:
  def program() -> None: DistributedDataParallel(nn.Linear(3, 2 + dist.get_rank()))
  with pytest.raises(DistributedError, match="parameters of rank 1 have other names"): dist.run(program, 2)


def test_sync_batch_norm_of_batches_of_other_sizes() -> None:
  x = np.random.default_rng(0).standard_normal((7, 3, 2, 2)).astype(np.float32)
  norm = nn.BatchNorm2d(3).train()
  alone = norm(Tensor(x, requires_grad=True))

  def program() -> Any:
    rank, norm = dist.get_rank(), SyncBatchNorm(3).train()
    mine = Tensor(x[:2] if rank == 0 else x[2:], requires_grad=True)
    y = norm(mine)
    (y * y * y).sum().backward()
    return y.numpy(), mine.grad.numpy(), norm.running_var.numpy()
  found = dist.run(program, 2)
  assert np.allclose(np.concatenate([f[0] for f in found]), alone.numpy(), rtol=0, atol=1e-6)
  assert np.allclose(found[1][2], norm.running_var.numpy(), atol=1e-6)
  t = Tensor(x, requires_grad=True)
  y = nn.BatchNorm2d(3).train()(t)
  (y * y * y).sum().backward()
  assert np.allclose(np.concatenate([f[1] for f in found]), t.grad.numpy(), atol=1e-5)


@pytest.mark.parametrize("megabytes", [25, 1e-4])
def test_an_optimizer_in_parts_has_the_state_of_one(megabytes: float, monkeypatch: pytest.MonkeyPatch) -> None:
  """Written by two ranks, taken by one, and by three; in one piece, or in two, where three ranks have one."""
  monkeypatch.setattr(sharded, "BUCKET_MB", megabytes)
  def steps(optimizer: Any, model: Any, n: int) -> None:
    for i in range(n):
      optimizer.zero_grad()
      (model(Tensor(np.full((2, 30), (i + 1) / 10, np.float32))) ** 2).mean().backward()
      optimizer.step()

  def begun() -> Any:
    model = nn.Linear(30, 50)
    model.weight.assign(Tensor(np.arange(1500, dtype=np.float32).reshape(50, 30) / 1000))
    model.bias.assign(Tensor.zeros(50))
    return model

  def program(n: int, state: Any = None, weights: Any = None) -> Any:
    model = begun()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), nn.optim.Adam, lr=0.1)
    if weights is not None: nn.state.load_state_dict(model, {k: Tensor(v) for k, v in weights.items()})
    if state is not None: optimizer.load_state_dict(state)
    kept = sum(t.numel() for s in optimizer.optim.state_dict()["state"].values() for k, t in s.items() if k != "step")
    steps(optimizer, model, n)
    state = optimizer.state_dict()
    plain = {"state": {i: {k: v.numpy() for k, v in s.items()} for i, s in state["state"].items()},
             "param_groups": state["param_groups"]}
    return plain, {k: v.numpy() for k, v in model.state_dict().items()}, kept
  def tensors(state: Any) -> Any:
    return {**state, "state": {i: {k: Tensor(v) for k, v in s.items()} for i, s in state["state"].items()}}
  model = begun()
  alone = nn.optim.Adam(list(model.parameters()), lr=0.1)
  steps(alone, model, 3)
  state, weights, kept = dist.run(program, 2, (3,))[0]
  assert kept < 0.6 * sum(t.numel() for s in alone.state_dict()["state"].values() for k, t in s.items() if k != "step")
  for i, s in alone.state_dict()["state"].items():
    for k, v in s.items(): assert np.allclose(v.numpy(), state["state"][i][k], rtol=1e-6), (i, k)
  steps(alone, model, 2)
  again = begun()
  nn.state.load_state_dict(again, {k: Tensor(v) for k, v in weights.items()})
  one = nn.optim.Adam(list(again.parameters()), lr=0.1)
  one.load_state_dict(tensors(state))
  steps(one, again, 2)
  for values in (again.weight.numpy(), dist.run(program, 3, (2, tensors(state), weights))[2][1]["weight"]):
    assert np.allclose(values, model.weight.numpy(), rtol=1e-5)


def test_what_an_optimizer_in_parts_refuses() -> None:
  def program(kind: Any) -> None:
    model = Two()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), kind, lr=0.1)
    model(Tensor.ones(1, 2), True).sum().backward()
    optimizer.step()
  with pytest.raises(GradientError, match=r"parameters number \[2, 3\] have no gradient"): dist.run(program, 2, (nn.optim.SGD,))
  with pytest.raises(ArgumentError, match="LAMB looks at each parameter as a whole"): dist.run(program, 1, (nn.optim.LAMB,))


def test_a_schedule_of_an_optimizer_in_parts() -> None:
  def program() -> Any:
    model = nn.Linear(4, 4)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), nn.optim.SGD, lr=1.0)
    schedule, before = nn.optim.lr_scheduler.StepLR(optimizer, 1, 0.5), model.bias.numpy()
    for _ in range(2):
      optimizer.zero_grad()
      model(Tensor.ones(1, 4)).sum().backward()
      optimizer.step()
      schedule.step()
    with pytest.raises(ArgumentError, match="GradScaler cannot look"): GradScaler().step(optimizer)
    return (before - model.bias.numpy()).tolist()
  assert dist.run(program, 2) == [[1.5] * 4] * 2


def test_sampler() -> None:
  rows = list(range(10))
  plain = [list(DistributedSampler(rows, 3, r, shuffle=False)) for r in range(3)]
  assert plain == [[0, 3, 6, 9], [1, 4, 7, 0], [2, 5, 8, 1]]
  left_out = [list(DistributedSampler(rows, 3, r, shuffle=False, drop_last=True)) for r in range(3)]
  assert left_out == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
  samplers = [DistributedSampler(rows, 2, r, seed=5) for r in range(2)]
  epochs = []
  for epoch in range(2):
    for s in samplers: s.set_epoch(epoch)
    epochs.append([list(s) for s in samplers])
    assert sorted(epochs[-1][0] + epochs[-1][1]) == rows
  assert epochs[0] != epochs[1]
  batches = [b.tolist() for b in DataLoader(np.arange(10), batch_size=2, sampler=DistributedSampler(rows, 2, 1, shuffle=False))]
  assert batches == [[1, 3], [5, 7], [9]]
  with pytest.raises(ArgumentError, match="rank 3 of 3"): DistributedSampler(rows, 3, 3)
  assert dist.run(lambda: list(DistributedSampler(rows, shuffle=False)), 2)[1] == [1, 3, 5, 7, 9]


def test_checkpoints_of_any_number_of_ranks(tmp_path: Path) -> None:
  model = {"w": Tensor(np.arange(6, dtype=np.float32)), "b": Tensor([1, 2])}
  state = {"model": model, "step": 3, "parts": [(1.5, "x"), None], 7: True}
  dist.run(lambda: save_checkpoint(state, tmp_path / "a"), 3)
  assert len(list((tmp_path / "a").glob("*.safetensors"))) == 3
  save_checkpoint(state, tmp_path / "b")
  for folder in "a", "b":
    found = load_checkpoint(tmp_path / folder)
    assert found["model"]["w"].tolist() == [0, 1, 2, 3, 4, 5] and found["model"]["b"].tolist() == [1, 2]
    assert (found["step"], found["parts"], found[7]) == (3, [(1.5, "x"), None], True)
  dist.run(lambda: save_checkpoint({"step": Tensor([4])}, tmp_path / "a"), 2)
  assert load_checkpoint(tmp_path / "a")["step"].item() == 4 and len(list((tmp_path / "a").glob("*.safetensors"))) == 2
  with pytest.raises(StateError, match="step is"): save_checkpoint({"step": object()}, tmp_path / "a")
  nn.state.safe_save({"x": Tensor([1])}, tmp_path / "plain.safetensors")
  with pytest.raises(StateError, match="no checkpoint"): load_checkpoint(tmp_path / "plain.safetensors")


def test_a_checkpoint_that_one_rank_cannot_write_leaves_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  from ntgrad.nn.parallel import checkpoint
  dist.run(lambda: save_checkpoint({"x": Tensor([1, 2]), "y": Tensor([3])}, tmp_path), 2)
  written = checkpoint.safe_save

  def full(tensors: Any, path: Path) -> None:
    if dist.get_rank() == 1: raise OSError(28, "No space left on device")
    written(tensors, path)
  monkeypatch.setattr(checkpoint, "safe_save", full)
  caught = []

  def program() -> None:
    try: save_checkpoint({"x": Tensor([5, 6]), "y": Tensor([7])}, tmp_path)
    except Exception as e: caught.append(str(e))
  dist.run(program, 2)
  assert sorted(caught)[0] == "[Errno 28] No space left on device" and "rank 1 could not write" in sorted(caught)[1]
  assert load_checkpoint(tmp_path)["x"].tolist() == [1, 2] and len(list(tmp_path.glob("*.safetensors"))) == 2


# ---- what is refused, and what goes wrong
def test_outside_of_a_group() -> None:
  assert not dist.is_initialized() and dist.is_available()
  for call in dist.get_rank, dist.barrier, lambda: dist.all_reduce(Tensor([1.0])):
    with pytest.raises(DistributedError, match="in no group yet"): call()
  dist.destroy_process_group()


@pytest.mark.parametrize(("call", "error", "said"), [
  (lambda: dist.all_reduce(Tensor([1.0]), "mean"), ArgumentError, "ReduceOp has avg"),
  (lambda: dist.all_reduce(Tensor([1]), "avg"), DTypeError, "avg of int32"),
  (lambda: dist.broadcast(Tensor([1]), 5), ArgumentError, "rank 5 is not in"),
  (lambda: dist.send(Tensor([1]), dist.get_rank()), ArgumentError, "is this one"),
  (lambda: dist.all_gather([Tensor([1])], Tensor([1])), ArgumentError, "a list of 2 Tensors"),
  (lambda: dist.all_gather([Tensor([1]), Tensor([1, 2])], Tensor([1])), ShapeError, "expected int32"),
  (lambda: dist.functional.reduce_scatter(Tensor([1.0, 2.0, 3.0])), ShapeError, "a multiple of that"),
  (lambda: dist.new_group([0, 9]), ArgumentError, "from 0 to 1"),
  (lambda: dist.all_reduce(Tensor([1]), group=3), ArgumentError, "is no group"),
  (lambda: dist.all_reduce(Tensor([1]), group=dist.new_group([1 - dist.get_rank()])), DistributedError, "different|not in")])
def test_arguments_are_refused(call: Any, error: type[Exception], said: str) -> None:
  with pytest.raises(error, match=said): dist.run(call, 2, timeout=5)


@pytest.mark.parametrize("what", ["shape", "kind", "receive"])
def test_ranks_that_differ_are_told_both_lines(what: str) -> None:
  def program() -> None:
    x = Tensor([1.0, 2.0])
    if dist.get_rank() == 0: dist.all_reduce(x)
    elif what == "shape": dist.all_reduce(Tensor([1.0, 2.0, 3.0]))
    elif what == "kind": dist.broadcast(x, 1)
    else: dist.recv(x, 0)
    dist.barrier()
  with pytest.raises(DistributedError, match=FROM) as e: dist.run(program, 2, timeout=20)
  assert set(re.findall(r"test_distributed.py:(\d+)\)", str(e.value))) >= {str(program.__code__.co_firstlineno + 2)}
  assert len(set(re.findall(r"rank (\d): ", str(e.value)))) == 2


def test_a_rank_that_does_not_come_is_named() -> None:
  def program() -> None:
    if dist.get_rank() == 1: time.sleep(3)
    dist.barrier()
  with pytest.raises(DistributedError, match=r"no answer from rank 1 of 2 after \d s"): dist.run(program, 2, timeout=0.5)


def test_an_error_of_one_rank_ends_all() -> None:
  def program() -> None:
    if dist.get_rank() == 1: raise ValueError("the data is bad")
    dist.barrier()
  with pytest.raises(ValueError, match="the data is bad") as e: dist.run(program, 3)
  assert e.value.__notes__ == ["in rank 1 of 3"]


def test_what_failed_ranks_have_not_done_is_nobody_elses() -> None:
  """A captured function does what was written before it; not an operation of a group that is gone. Who reads it is told."""
  written = [Tensor([1.0, 2.0]).realize() for _ in range(2)]
  def program() -> None:
    dist.all_reduce(written[dist.get_rank()])
    written[dist.get_rank()] *= 2
    if dist.get_rank() == 1: raise ValueError("the data is bad")
    dist.barrier()
  with pytest.raises(ValueError) as held: dist.run(program, 2)
  f = ntgrad.jit(lambda x: x + 1)
  assert [f(Tensor([float(i)])).item() for i in range(4)] == [1, 2, 3, 4] and held.value.__traceback__ is not None
  with pytest.raises(DistributedError, match="in no group yet"): written[1].numpy()


def test_a_rank_that_has_ended_is_told() -> None:
  def program() -> None:
    if dist.get_rank() == 0: dist.barrier()
  with pytest.raises(DistributedError, match="rank 1 of 2 has ended"): dist.run(program, 2)


def test_who_a_process_is() -> None:
  env = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}
  assert place_of(-1, -1, env) == (1, 4, 0, "torchrun") and place_of(2, 3, env) == (2, 3, 0, "arguments")
  assert place_of(-1, -1, {"PMI_RANK": "3", "PMI_SIZE": "4"}) == (3, 4, 3, "MPICH") and place_of(-1, -1, {}) is None
  assert place_of(-1, -1, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}).by == "Open MPI"   # type: ignore[union-attr]
  assert place_of(-1, -1, {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"}) == (5, 8, 1, "SLURM")
  with pytest.raises(DistributedError, match="rank 4 of 4"): place_of(-1, -1, {"RANK": "4", "WORLD_SIZE": "4"})
  with pytest.raises(DistributedError, match="no numbers: RANK='a'"): place_of(-1, -1, {"RANK": "a", "WORLD_SIZE": "4"})
  with pytest.raises(ArgumentError, match="rank 2 of world_size 2"): place_of(2, 2, {})


def free() -> tuple[str, int]:
  with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    return s.getsockname()


def test_meeting() -> None:
  """Rank 0 gives what it has to all, whenever they come; strangers and wrong counts do not count."""
  at, found, links = free(), dict[int, bytes](), dict[int, dict[int, socket.socket]]()
  def rank(r: int) -> None: found[r], links[r] = shared(r, 3, at, 4, lambda: b"abcd", 10)
  threads = [threading.Thread(target=rank, args=(r,)) for r in (2, 0, 1)]
  for t in threads:
    t.start()
    time.sleep(0.05)
  for t in threads: t.join()
  assert found == dict.fromkeys(range(3), b"abcd")
  assert [sorted(links[r]) for r in range(3)] == [[1, 2], [0], [0]]
  for r in 1, 2:   # they stay connected
    links[0][r].sendall(bytes([r]))
    assert links[r][0].recv(10) == bytes([r])
  for s in [s for of in links.values() for s in of.values()]: s.close()


@pytest.mark.parametrize(("rank", "said"), [
  (0, "of 2 ranks 1 have not come to 127.0.0.1"), (1, "rank 0 does not answer at 127.0.0.1")])
def test_a_meeting_where_nobody_comes(rank: int, said: str) -> None:
  with pytest.raises(DistributedError, match=said): shared(rank, 2, free(), 4, lambda: b"abcd", 0.3)


def test_a_wrong_world() -> None:
  at = free()
  other = threading.Thread(target=lambda: pytest.raises(DistributedError, shared, 1, 3, at, 4, bytes, 1.0))
  other.start()
  with pytest.raises(DistributedError, match="rank 0 was started as one of 2, rank 1 as one of 3"): shared(0, 2, at, 4, bytes, 5)
  other.join()


def test_reports_that_are_none_are_left_out() -> None:
  reports = Reports()
  for data in (b"", b"[1", b"\xff\xfe", b"{}", b"[1, 2]", b'["waits", "x", 3, {}, [], 1]', b'["ended", 1, "", 0, "", ""]'):
    reports.take(data)
  assert reports.waiting == {} and reports.ended == {1: ""}


# ---- in processes of MPI
@needs_mpi
@pytest.mark.long
@pytest.mark.parametrize("n", [2, 3])
def test_operations_by_mpi(tmp_path: Path, n: int) -> None:
  assert results(n, tmp_path, "operations") == dist.run(operations, n)


@needs_mpi
@pytest.mark.long
@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize(("kind", "how"), [("mlp", "ddp"), ("cnn", "ddp"), ("gpt", "ddp"), ("gpt", "zero")])
def test_losses_by_mpi_are_those_of_threads(tmp_path: Path, kind: str, how: str, n: int) -> None:
  """In a process that has run nothing before: kernels for any sizes, which a second size brings, may add in another order."""
  found = results(n, tmp_path, "train", kind, how)
  threads = subprocess.run([sys.executable, str(SCRIPT), "train", kind, how], capture_output=True, text=True, timeout=300,
                           env={**os.environ, "PYTHONPATH": PATHS, "RANKS_THREADS": str(n)}, check=False)
  assert threads.returncode == 0, threads.stderr
  assert all(f == found[0] for f in found) and json.loads(threads.stdout) == found


@needs_mpi
@pytest.mark.long
def test_a_captured_step_by_mpi(tmp_path: Path) -> None:
  found = results(2, tmp_path, "train", "mlp", "jit")
  assert found[0] == found[1] and np.abs(np.array(found[0]) / np.array(train("mlp")) - 1).max() < 1e-6


@needs_mpi
@pytest.mark.long
@pytest.mark.parametrize(("what", "said"), [
  ("raise", "rank 1 of 2 failed after 1 operations: ValueError: the data is bad"),
  ("exit", "rank 1 of 2 has ended and will not take part"),
  ("kill", r"rank 1 of 2 \(process \d+\) was killed after 1 operations"),
  ("stop", "no answer from rank 1 of 2 after 3 s"),
  ("memory", "rank 1 of 2 failed after 1 operations: OutOfMemoryError"),
  ("shape", FROM), ("order", FROM), ("receive", FROM)])
def test_faults_end_the_job(what: str, said: str) -> None:
  begun = time.monotonic()
  found = started(2, "fault", what, launcher="launch", seconds=60)
  assert found.returncode != 0 and re.search(said, found.stderr), found.stderr
  told = "rank" if said is FROM else f".*{said}"
  assert re.search(f"python -m ntgrad launch: {told}", found.stderr), found.stderr
  assert time.monotonic() - begun < 20   # of which the processes take a few to begin


def test_whoever_ends_first_is_named(tmp_path: Path) -> None:
  """Whatever mpiexec says, which ends the others, and may name one of these."""
  from ntgrad.distributed.world import _NOTE
  from ntgrad.utils.command.launch import Job
  job, ranks = Job(tmp_path), [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(3)]
  for i, p in enumerate(ranks): Path(tmp_path, str(i)).write_bytes(_NOTE.pack(p.pid, 7))
  job._watch(0.0)
  for p in (ranks[1], ranks[0], ranks[2]):
    p.kill()
    p.wait()
    job._watch(5.0)
  job.named = ranks[0].pid
  assert job.reason(137, 3) == f"rank 1 of 3 (process {ranks[1].pid}) was killed after 7 operations"
  job.end()


@needs_mpi
@pytest.mark.long
@pytest.mark.parametrize(("how", "said"), [
  ("raise ValueError('no data')", "rank 1 of 2 failed before it joined the others: ValueError: no data"),
  ("sys.exit(0)", "rank 1 has ended before it joined the others, which wait for it")])
def test_a_rank_that_never_joins_ends_the_job(tmp_path: Path, how: str, said: str) -> None:
  script = tmp_path / "script.py"
  script.write_text(f"import os, sys\nif os.environ['PMI_RANK'] == '1': {how}\n"
                    "from ntgrad import distributed\ndistributed.init()\n")
  found = subprocess.run([sys.executable, "-m", "ntgrad", "launch", "-n", "2", str(script)], capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": PATHS}, timeout=60, check=False)
  assert found.returncode != 0 and f"python -m ntgrad launch: {said}" in found.stderr, found.stderr


@needs_mpi
@pytest.mark.long
def test_ctrl_c_ends_all() -> None:
  env = {**os.environ, "PYTHONPATH": PATHS}
  p = subprocess.Popen([sys.executable, "-m", "ntgrad", "launch", "-n", "2", str(SCRIPT), "fault", "sleep"], env=env,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  time.sleep(5)
  p.send_signal(signal.SIGINT)
  _, err = p.communicate(timeout=20)
  assert p.returncode == 128 + signal.SIGINT and "ended by SIGINT" in err
  ranks = [d for d in Path("/proc").iterdir() if d.name.isdigit() and f"{SCRIPT}\0fault\0sleep".encode() in _line(d)]
  assert ranks == []


@needs_mpi
@pytest.mark.long
def test_ranks_that_have_lost_mpiexec_end() -> None:
  p = subprocess.Popen([str(Path(sys.executable).with_name("mpiexec")), "-n", "2", sys.executable, str(SCRIPT), "fault", "sleep"],
                       env={**os.environ, "PYTHONPATH": PATHS}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
  def ranks() -> int:
    begin = "\0".join([sys.executable, str(SCRIPT), "fault", "sleep"]).encode()
    return sum([_line(d).startswith(begin) for d in Path("/proc").iterdir() if d.name.isdigit()])
  end = time.monotonic() + 60
  while ranks() < 2 and time.monotonic() < end: time.sleep(0.1)
  assert ranks() == 2
  p.kill()
  p.wait()
  end = time.monotonic() + 10
  while ranks() and time.monotonic() < end: time.sleep(0.1)
  assert ranks() == 0


@needs_mpi
@pytest.mark.long
def test_a_rank_that_is_killed_while_it_saves_leaves_the_last_checkpoint(tmp_path: Path) -> None:
  found = started(2, "saving", str(tmp_path), launcher="launch")
  assert found.returncode != 0 and re.search(r"rank 1 of 2 \(process \d+\) was killed", found.stderr), found.stderr
  assert load_checkpoint(tmp_path)["x"].tolist() == [1, 2] and load_checkpoint(tmp_path)["y"].tolist() == [3]


def _line(process: Path) -> bytes:
  try: return (process / "cmdline").read_bytes()
  except OSError: return b""


@needs_mpi
@pytest.mark.long
def test_prefixes_and_a_wrong_world() -> None:
  found = started(2, "train", "mlp", "ddp", launcher="launch")
  assert sorted(line[:4] for line in found.stdout.splitlines()) == ["[0] ", "[1] "] and found.returncode == 0
  wrong = subprocess.run([sys.executable, "-c", "from ntgrad import distributed; distributed.init('mpi', rank=1, world_size=2)"],
                         capture_output=True, text=True, timeout=60, check=False)
  assert "arguments says rank 1 of 2, MPI says 0 of 1" in wrong.stderr
