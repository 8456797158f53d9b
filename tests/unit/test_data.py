"""Batches: the same with threads as without, in an order that can be gone on with, and errors that say where."""
from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ntgrad
from ntgrad import Device, Tensor, nn
from ntgrad.errors import (
  ArgumentError,
  CaptureError,
  DeviceError,
  DTypeError,
  IndexOutOfRangeError,
  NtgradError,
  ShapeError,
  StateError,
)
from ntgrad.nn.data import (
  BatchSampler,
  ConcatDataset,
  DataLoader,
  Dataset,
  IterableDataset,
  RandomSampler,
  SequentialSampler,
  Subset,
  SubsetRandomSampler,
  TensorDataset,
  WeightedRandomSampler,
  default_collate,
  random_split,
)


@pytest.fixture(autouse=True)
def _numpy() -> Iterator[None]:
  Device.DEFAULT = "NUMPY"
  yield
  Device.DEFAULT = None
  gc.collect()
  until = time.monotonic() + 10
  while any(t.name.startswith("DataLoader-") for t in threading.enumerate()):
    assert time.monotonic() < until, "threads live on"
    time.sleep(0.005)


X, Y = np.arange(22.0).reshape(11, 2), np.arange(11, dtype=np.int32)


class Rows(Dataset[Any]):
  """Rows one by one; ``slow``: earlier ones take longer."""
  def __init__(self, n: int = 11, bad: int = -1, slow: bool = False): self.n, self.bad, self.slow = n, bad, slow
  def __len__(self) -> int: return self.n
  def __getitem__(self, index: Any) -> Any:
    if self.slow: time.sleep(0.002 * (self.n - index) / self.n)
    if index == self.bad: raise KeyError(f"row {index} is bad")
    return {"x": X[index % 11], "y": int(index)}


class Counting(IterableDataset[int]):
  def __iter__(self) -> Iterator[int]: return iter(range(10))


def ys(loader: Any) -> list[list[int]]: return [(b["y"] if isinstance(b, dict) else b[1]).tolist() for b in loader]


# ---- batches

@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_of_arrays(workers: int) -> None:
  got = list(DataLoader(TensorDataset(X, Y), 4, num_workers=workers))
  assert [(x.shape, y.tolist()) for x, y in got] == [((4, 2), [0, 1, 2, 3]), ((4, 2), [4, 5, 6, 7]), ((3, 2), [8, 9, 10])]
  assert got[0][0].dtype == np.float64 and got[0][1].dtype == np.int32 and got[0][0].device == "NUMPY"
  np.testing.assert_array_equal(np.concatenate([x.numpy() for x, _ in got]), X)
  loader = DataLoader(TensorDataset(X, Y), 4, drop_last=True, num_workers=workers, device="NUMPY")
  assert ys(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]] and len(loader) == 2


@pytest.mark.parametrize("workers", [0, 3])
def test_datasets_of_all_kinds(workers: int) -> None:
  def of(d: Any, **k: Any) -> Any: return DataLoader(d, 3, num_workers=workers, **k)
  assert [b.tolist() for b in of(Y[:4])] == [b.tolist() for b in of(Tensor(Y[:4]))] == [[0, 1, 2], [3]]
  assert [b.tolist() for b in of([1.5, 2, 3])] == [[1.5, 2.0, 3.0]] and of(range(2)).dataset == range(2)
  assert list(of("abcd")) == [["a", "b", "c"], ["d"]]
  assert ys(of(Subset(TensorDataset(Tensor(X), Tensor(Y)), [5, -1, 2, 2]))) == [[5, 10, 2], [2]]
  both = TensorDataset(X, Y) + Subset(TensorDataset(X, Y), [7, 8])
  assert len(both) == 13 and both[-1][1] == 8 and ys(DataLoader(both, batch_sampler=[[12, 0, 11], [3]])) == [[8, 0, 7], [3]]
  mixed = ConcatDataset([TensorDataset(Tensor(Y)), TensorDataset(Tensor(Y))])
  assert [b[0].tolist() for b in DataLoader(mixed, batch_sampler=[[21, 0, 11]], num_workers=workers)] == [[10, 0, 0]]
  assert ys(of(ConcatDataset([Rows(2), Rows(2)]))) == [[0, 1, 0], [1]]
  assert [b.tolist() for b in of(Counting())] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
  assert [b.tolist() for b in of(Counting(), drop_last=True)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
  assert list(DataLoader(Counting(), None, num_workers=workers)) == list(range(10))
  assert [x["x"].tolist() for x in DataLoader(Rows(2), None, num_workers=workers)] == [[0.0, 1.0], [2.0, 3.0]]
  assert list(of(Rows(4), collate_fn=len)) == [3, 1]
  assert isinstance(next(iter(of(Rows(4), collate_fn=lambda rows: np.stack([r["x"] for r in rows])))), Tensor)


def test_rows_are_taken_at_once() -> None:
  """And row by row where a subclass changes what a row is."""
  class Once(TensorDataset):
    def __getitem__(self, index: Any) -> Any: raise AssertionError
    def __getbatch__(self, rows: Any) -> Any: return super().__getbatch__(rows)
  class Shifted(TensorDataset):
    def __getitem__(self, index: Any) -> Any: return super().__getitem__(index)[1] + 100
  class Several(Dataset[int]):
    def __len__(self) -> int: return 3
    def __getitems__(self, rows: list[int]) -> list[int]: return [r * 10 for r in rows]
  assert ys(DataLoader(Once(X, Y), 11)) == [Y.tolist()]
  assert [b.tolist() for b in DataLoader(Shifted(X, Y), 6)][1] == [106, 107, 108, 109, 110]
  assert [b.tolist() for b in DataLoader(Several(), 3)] == [[0, 10, 20]]


def test_collate() -> None:
  Point = namedtuple("Point", "x y")
  p = default_collate([Point(1, np.float32(2)), Point(3, np.float32(4))])
  assert isinstance(p, Point) and p.x.tolist() == [1, 3] and p.x.dtype == np.int32 and p.y.dtype == np.float32
  d = default_collate([{"a": [1.0, ("s", True)]}, {"a": [2.0, ("t", False)]}])
  assert d["a"][0].dtype == np.float32 and d["a"][1][0] == ["s", "t"] and d["a"][1][1].dtype == bool
  assert default_collate([Tensor([1, 2]), Tensor([3, 4])]).tolist() == [[1, 2], [3, 4]]
  assert default_collate([np.float64(1), np.float64(2)]).dtype == np.float64
  for rows, error, said in (
    ([], ArgumentError, "no rows"), ([[1], [1, 2]], ShapeError, "lists of 1 and of 2"),
    ([1, "a"], DTypeError, "numbers and text"),
    ([np.ones(2), np.ones(3)], ShapeError, r"\(2,\) and \(3,\)"), ([object()], DTypeError, "collate_fn"),
    ([{"a": 1}, {"b": 1}], ShapeError, "keys"), ([np.ones(2), np.ones(2, int)], DTypeError, "float64 and int64"),
    ([np.array(["a"])], DTypeError, "dtype")):
    with pytest.raises(error, match=said): default_collate(rows)


# ---- orders

def test_shuffled() -> None:
  def orders(**k: Any) -> list[list[int]]:
    loader = DataLoader(TensorDataset(X, Y), 4, True, **k)
    return [sum(ys(loader), []) for _ in range(3)]
  a = orders(seed=1)
  assert all(sorted(o) == list(range(11)) for o in a) and len({tuple(o) for o in a}) == 3
  assert a == orders(generator=1, num_workers=2) == orders(generator=ntgrad.Generator(1)) != orders(seed=2)
  assert orders(generator=np.random.default_rng(0)) == orders(generator=np.random.default_rng(0))
  Tensor.manual_seed(1)
  assert orders() == a
  loader = DataLoader(TensorDataset(X, Y), 4, True, seed=1)
  for _ in loader: break    # an epoch that is left is over
  assert sum(ys(loader), []) == a[1] and loader.epoch == 2


def test_samplers() -> None:
  r = RandomSampler(range(5), generator=0)
  assert sorted(r) == list(range(5)) and list(r) != list(r) and len(r) == 5 and r.epoch == 3
  assert len(list(RandomSampler(range(3), True, 7, 0))) == 7 and sorted(RandomSampler(range(3), False, 6)) == [0, 0, 1, 1, 2, 2]
  assert sorted(SubsetRandomSampler([3, 5, 9], 0)) == [3, 5, 9]
  w = list(WeightedRandomSampler([0, 1, 3], 4000, generator=0))
  assert 0 not in w and 2800 < sum(i == 2 for i in w) < 3200
  assert sorted(WeightedRandomSampler([0, 1, 3], 2, False, 0)) == [1, 2]
  b = BatchSampler(SequentialSampler(range(5)), 2)
  assert list(b) == [[0, 1], [2, 3], [4]] and len(b) == 3 and list(BatchSampler("abc", 2, True)) == [["a", "b"]]
  assert ys(DataLoader(TensorDataset(X, Y), batch_sampler=b)) == [[0, 1], [2, 3], [4]]
  assert ys(DataLoader(TensorDataset(X, Y), 2, sampler=[3, 1, -1])) == [[3, 1], [10]]
  Keys = type("Keys", (Rows,), {"__getitem__": lambda self, key: {"y": len(key)}})
  assert ys(DataLoader(Keys(), 2, sampler=["a", "bcd"])) == [[1, 3]]


def test_random_split() -> None:
  a, b = random_split(range(10), [7, 3], 0)
  assert sorted([*a, *b]) == list(range(10)) and [len(s) for s in (a, b)] == [7, 3]
  assert list(random_split(range(10), [7, 3], 0)[0]) == list(a) != list(random_split(range(10), [7, 3], 1)[0])
  assert [len(s) for s in random_split(range(11), [0.5, 0.25, 0.25])] == [6, 3, 2]
  for wrong in ([5, 4], [0.5, 0.6], [], [-1, 11], [float("nan")], [float("inf")], [2.5, 7.5]):
    with pytest.raises(ArgumentError, match="random_split: lengths"): random_split(range(10), wrong)


# ---- going on

@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_goes_on_where_it_was(workers: int, at: int) -> None:
  """With batches computed ahead that were not given."""
  def make(seed: int | None) -> DataLoader: return DataLoader(TensorDataset(X, Y), 4, True, num_workers=workers, seed=seed)
  a = make(5)
  list(a)
  it = iter(a)
  for _ in range(at): next(it)
  state = a.state_dict()
  left = [(x.numpy().tobytes(), y.tolist()) for x, y in it], ys(a)
  assert state == {"epoch": 1, "position": at, "seed": 5, "batch_size": 4, "rows": 11} and len(left[0]) == 3 - at
  b = make(None)
  next(iter(b))
  b.load_state_dict(state)
  assert b.state_dict() == state
  assert ([(x.numpy().tobytes(), y.tolist()) for x, y in b], ys(b)) == left
  assert b.state_dict() == a.state_dict() == {**state, "epoch": 3, "position": 0}


def test_goes_on_in_other_orders() -> None:
  for make in (lambda: DataLoader(Counting(), 3, num_workers=2), lambda: DataLoader(Rows(), 3, sampler=list(range(10))),
               lambda: DataLoader(Rows(), batch_sampler=BatchSampler(RandomSampler(range(11), generator=3), 3)),
               lambda: DataLoader(Rows(), batch_sampler=[[0], [1, 2], [3]]), lambda: DataLoader(Rows(), None)):
    a, b = make(), make()
    it = iter(a)
    next(it)
    b.load_state_dict(a.state_dict())
    assert repr([str(x) for x in it]) == repr([str(x) for x in b])
  a, it = make(), iter(make())
  old = iter(a)
  next(old)
  list(a)
  next(old, None)   # one that is not the newest says nothing of where the loader is
  assert (a.state_dict()["epoch"], a.state_dict()["position"]) == (2, 0)


def test_states_of_something_else() -> None:
  loader = DataLoader(TensorDataset(X, Y), 4, True)
  good = loader.state_dict()
  for change, said in (({"rows": 12}, "rows 12, this one has 11"), ({"batch_size": 5}, "batch_size 5"), ({"seed": None}, "shuff"),
                       ({"epoch": -1}, "epoch is -1"), ({"position": 1.5}, "position is 1.5"), ({"more": 1}, "is no state")):
    with pytest.raises(StateError, match=said): loader.load_state_dict({**good, **change})
  with pytest.raises(StateError, match="is no state"): loader.load_state_dict({})
  assert loader.state_dict() == good


# ---- errors, threads

@pytest.mark.parametrize("workers", [0, 1, 3])
def test_errors_come_where_the_batch_would(workers: int) -> None:
  loader = DataLoader(Rows(11, bad=7, slow=True), 3, num_workers=workers)
  seen, it = [], iter(loader)
  with pytest.raises(KeyError, match="row 7 is bad") as e:
    for b in it: seen.append(b["y"].tolist())
  assert next(it, None) is None
  assert seen == [[0, 1, 2], [3, 4, 5]] and any("rows 6, 7, 8" in note for note in e.value.__notes__)
  assert (workers > 0) == any("in thread" in note for note in e.value.__notes__)
  assert loader.state_dict()["position"] == 2
  def ends(rows: Any) -> Any: raise StopIteration
  with pytest.raises(ArgumentError, match="raised StopIteration for rows 0, 1"):
    list(DataLoader(Rows(), 2, collate_fn=ends, num_workers=workers))
  def numbers() -> Iterator[int]:
    yield 0
    raise OSError("gone")
  with pytest.raises(OSError, match="gone"): list(DataLoader(Rows(), 1, sampler=numbers(), num_workers=workers))
  with pytest.raises(IndexOutOfRangeError, match="row 11 of 11"):
    list(DataLoader(TensorDataset(X, Y), 2, sampler=[0, 11], num_workers=workers))


def test_settings_hold_in_threads() -> None:
  class Modes(Rows):
    def __getitem__(self, index: Any) -> Any: return {"y": int(bool(Tensor.no_grad)) * 2 + int(Tensor.training)}
  with Tensor.train(), Tensor.no_grad(): assert ys(DataLoader(Modes(2), 2, num_workers=2)) == [[3, 3]]
  assert ys(DataLoader(Modes(2), 2, num_workers=2)) == [[0, 0]]


def test_no_more_than_asked_for_is_computed_ahead() -> None:
  asked: list[int] = []
  class Asked(Rows):
    def __getitem__(self, index: Any) -> Any:
      asked.append(index)
      return {"y": index}
  it = iter(DataLoader(Asked(100), 1, num_workers=2, prefetch_factor=3))
  assert next(it)["y"].item() == 0
  until = time.monotonic() + 5
  while len(asked) < 7 and time.monotonic() < until: time.sleep(0.005)
  time.sleep(0.05)
  assert len(asked) == 7


def test_threads_end_when_an_iteration_is_left() -> None:
  """The fixture looks."""
  loader = DataLoader(Rows(50, slow=True), 1, num_workers=3)
  for i, _ in enumerate(loader):
    if i == 2: break
  it = iter(loader)
  next(it)
  del loader
  assert next(it)["y"].tolist() == [1]
  with pytest.raises(KeyError):
    for _ in DataLoader(Rows(50, bad=3), 1, num_workers=3): pass


def test_the_process_ends() -> None:
  code = """
import time, numpy as np
from ntgrad import Device
from ntgrad.nn.data import DataLoader, Dataset
Device.DEFAULT = "NUMPY"
class Slow(Dataset):
  def __len__(self): return 100
  def __getitem__(self, i):
    if i > 3: time.sleep(1000)
    return i
it = iter(DataLoader(Slow(), 1, num_workers=3))
print(next(it).item(), flush=True)
"""
  r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
  assert (r.returncode, r.stdout.strip(), r.stderr) == (0, "0", "")


def test_not_within_a_captured_function() -> None:
  for workers in (0, 2):
    it = iter(DataLoader(Rows(), 2, num_workers=workers))
    step = ntgrad.jit(lambda x, it=it: x + next(it)["y"].sum())
    with pytest.raises(CaptureError, match="take it before the call"): step(Tensor([1.0]).realize())
    assert next(it)["y"].tolist() == [0, 1]
    del it, step


def test_a_captured_function_with_threads() -> None:
  total = Tensor.zeros(2, dtype="float64").contiguous().realize()
  @ntgrad.jit
  def add(x: Tensor) -> Tensor: return total.assign(total + x.sum(0)).realize()
  for _ in range(3):
    for x, _ in DataLoader(TensorDataset(X, Y), 1, True, num_workers=3): add(x)
  assert total.tolist() == (X.sum(0) * 3).tolist()


@pytest.mark.parametrize("make, said", [
  (lambda: DataLoader(5), "no dataset"), (lambda: DataLoader({"a": 1}), "no dataset"),
  (lambda: DataLoader([1], 0), "batch_size 0"),
  (lambda: DataLoader([1], True), "batch_size"), (lambda: DataLoader([1], 1, True, [0]), "leave shuffle out"),
  (lambda: DataLoader([1], 2, batch_sampler=[[0]]), "says it all"), (lambda: DataLoader([1], num_workers=300), "num_workers 300"),
  (lambda: DataLoader([1], prefetch_factor=0), "prefetch_factor 0"), (lambda: DataLoader([1], None, drop_last=True), "drop_last"),
  (lambda: DataLoader(Counting(), shuffle=True), "own order"), (lambda: DataLoader([1], seed=1, generator=2), "say the same"),
  (lambda: DataLoader([1], generator="a"), "generator 'a'"), (lambda: DataLoader([1], device="X"), "no such device"),
  (lambda: TensorDataset(), "no tensors"), (lambda: TensorDataset(np.ones(2), np.ones(3)), "2, 3 rows"),
  (lambda: TensorDataset(1.0), "no tensor"), (lambda: TensorDataset(np.array(1)), "one number"),
  (lambda: TensorDataset(np.array(["a"])), "str|dtype"), (lambda: Subset([1, 2], [2]), "rows 2 to 2 of 2"),
  (lambda: ConcatDataset([Counting()]), "no rows by number"), (lambda: len(DataLoader(Counting())), "has no length"),
  (lambda: Dataset()[0], "Dataset has no __getitem__"), (lambda: list(IterableDataset()), "has no __iter__"),
  (lambda: TensorDataset(X)["a"], "row 'a'"), (lambda: TensorDataset(X)[11], "row 11 of 11"),
  (lambda: BatchSampler([1], 0), "batch_size 0"), (lambda: RandomSampler(5), "has no length"),
  (lambda: WeightedRandomSampler([0.0], 1), "not all 0"), (lambda: WeightedRandomSampler([1, 0], 2, False), "num_samples 2")])
def test_refusals(make: Any, said: str) -> None:
  with pytest.raises(NtgradError, match=said): make()


def test_forks_and_names() -> None:
  assert nn.utils.data.DataLoader is DataLoader is nn.data.DataLoader
  assert TensorDataset(X, Y)[2:4][1].tolist() == [2, 3]
  it = iter(DataLoader(Rows(), 2, num_workers=1))
  next(it)
  it.source.process = -1   # as in a fork
  with pytest.raises(DeviceError, match="forked"): next(it)


# ---- workers, as PyTorch's loader has them
def test_workers_begin_with_a_function() -> None:
  """In each epoch, or with persistent workers in the first."""
  for persistent, times in (False, 2), (True, 1):
    begun: list[int] = []
    loader = DataLoader(Rows(), 2, num_workers=3, worker_init_fn=begun.append, persistent_workers=persistent, prefetch_factor=4,
                        multiprocessing_context="spawn", pin_memory_device="cuda", in_order=True, timeout=10)
    for _ in range(2): assert ys(loader) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10]]
    assert sorted(begun) == sorted([0, 1, 2] * times)
  def fails(number: int) -> None: raise ValueError(f"worker {number}")
  with pytest.raises(ValueError, match="worker"): ys(DataLoader(Rows(), 2, num_workers=2, worker_init_fn=fails))


def test_a_batch_that_does_not_come() -> None:
  go_on = threading.Event()
  class Waits(Rows):
    def __getitem__(self, index: Any) -> Any:
      if index == 5: go_on.wait(10)
      return super().__getitem__(index)
  with pytest.raises(DeviceError, match="0.05 seconds"): ys(DataLoader(Waits(), 1, num_workers=1, timeout=0.05))
  go_on.set()


def test_workers_share_one_dataset() -> None:
  """A dataset that splits itself among PyTorch's workers gives all its rows once."""
  class Splits(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
      info: Any = ntgrad.utils.data.get_worker_info()
      return iter(range(10) if info is None else range(info.id, 10, info.num_workers))
  for workers in 0, 3:
    assert [b.tolist() for b in DataLoader(Splits(), 4, num_workers=workers)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("wrong", [dict(timeout=-1), dict(persistent_workers=True), dict(worker_init_fn=3), dict(timeout="1")])
def test_wrong_workers(wrong: dict[str, Any]) -> None:
  with pytest.raises(ArgumentError): DataLoader(Rows(), 2, **wrong)
