"""NCCL: what it is asked, of a library that notes it; and ranks with a GPU each, where the machine has two."""
from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntgrad import config, distributed as dist, dtypes
from ntgrad.backends.cuda.driver import available
from ntgrad.distributed import nccl
from ntgrad.distributed.collective import Operation
from ntgrad.distributed.nccl import NCCLTransport
from ntgrad.distributed.transport import Doing, Reports
from ntgrad.errors import DistributedError, DTypeError
from support.launched import results, started
from support.ranks import operations, train

FROM = "every rank of a group calls the same operations"
needs_gpus = pytest.mark.skipif(not available("CUDA:1")[0], reason="needs two GPUs: " + available("CUDA:1")[1])


class FakeNCCL:
  """Notes the calls of NCCL's functions, and their arguments."""

  def __init__(self) -> None: self.calls: list[tuple[Any, ...]] = []
  def __getattr__(self, name: str) -> Any:
    def call(*args: Any) -> int:
      self.calls.append((name, *[a.value if hasattr(a, "value") else a for a in args]))
      return 5 if name == "ncclBroadcast" else 0
    return call
  def ncclGetErrorString(self, result: int) -> bytes: return f"error {result}".encode()   # noqa: N802


def test_arguments_of_nccl() -> None:
  library = FakeNCCL()
  t: Any = object.__new__(NCCLTransport)
  t.library, t.comm, t.size = library, 77, 2
  t.enqueue("all_reduce", 200, 100, 6, 6, 7, 4, "avg", 0, 9)
  t.enqueue("reduce_scatter", 200, 100, 6, 3, 9, 2, "max", 0, 9)
  t.enqueue("all_gather", 200, 100, 3, 6, 1, 1, "", 0, 9)
  t.enqueue("all_to_all", 200, 100, 4, 4, 7, 4, "", 0, 9)
  t.enqueue("send", 200, 100, 4, 4, 7, 4, "", 1, 9)
  assert library.calls == [
    ("ncclAllReduce", 100, 200, 6, 7, 4, 77, 9), ("ncclReduceScatter", 100, 200, 3, 9, 2, 77, 9),
    ("ncclAllGather", 100, 200, 3, 1, 77, 9), ("ncclGroupStart",),
    ("ncclSend", 100, 2, 7, 0, 77, 9), ("ncclRecv", 200, 2, 7, 0, 77, 9), ("ncclSend", 108, 2, 7, 1, 77, 9),
    ("ncclRecv", 208, 2, 7, 1, 77, 9), ("ncclGroupEnd",), ("ncclSend", 100, 4, 7, 1, 77, 9)]
  with pytest.raises(DistributedError, match="ncclBroadcast: error 5"): t.enqueue("broadcast", 200, 100, 6, 6, 7, 4, "", 1, 9)


class FakeGPU:
  """A device whose memory has what two ranks have said that they are about to do."""
  name, other, is_done = "CUDA", b"", False
  before_reading: Any = staticmethod(lambda: None)

  def __init__(self) -> None: self.events, self.said = self, np.zeros(0, np.uint8)
  def here(self) -> None: pass
  enter = here
  def record(self) -> Any: return self   # an event, which never ends
  def stream_handle(self) -> int: return 9
  def alloc(self, nbytes: int) -> int: return 1000
  def free(self, raw: int, nbytes: int) -> None: pass
  def at(self, raw: int, offset: int) -> int: return raw + offset
  def copyin(self, raw: int, data: np.ndarray) -> None: self.said = data
  def copyout(self, raw: int, nbytes: int) -> np.ndarray:
    self.before_reading()
    theirs = np.frombuffer(self.other.ljust(512), np.uint8) if self.other else self.said
    return np.concatenate([self.said, theirs])


def test_nccl_compares_before_the_first_operation_of_a_kind() -> None:
  library, device = FakeNCCL(), FakeGPU()
  t: Any = object.__new__(NCCLTransport)
  t.library, t.comm, t.size, t.rank, t.ranks, t.name, t.device = library, 77, 2, 0, (0, 1), "world", "CUDA"
  t.known, t.asked = set(), None
  o = Operation("all_reduce", dtypes.float32, (3,), (3,), "CUDA", "world", "sum", 0, "a.py:1")
  def native(o: Operation) -> None: t.native(o, o.doing(0), device, 200, 100)
  seen: list[Any] = []
  device.before_reading = lambda: seen.append(t.asked)
  native(o)
  native(o)
  assert seen == [(o.doing(0), o.doing(0))]   # a rank that does not come for the comparison is noticed too
  names = [name for name, *_ in library.calls]
  assert names == ["ncclAllGather", "ncclAllReduce", "ncclAllReduce"]
  assert library.calls[1] == ("ncclAllReduce", 100, 200, 3, 7, 0, 77, 9) and t.asked == (o.doing(0), o.doing(0))
  device.other = b"broadcast from rank 0 of float32 (3,)\nb.py:2"
  with pytest.raises(DistributedError, match=FROM) as e: native(replace(o, op="max"))
  assert "rank 0: all_reduce (max) of float32 (3,) (a.py:1)\n" in str(e.value) and "(3,) (b.py:2)" in str(e.value)
  with pytest.raises(DTypeError, match="NCCL has no"): native(replace(o, dtype=dtypes.uint16))
  with pytest.raises(DistributedError, match="carries tensors on CUDA alone"): t.start(1, [], [])


@pytest.mark.parametrize(("error", "said"), [
  (0, "all_reduce of x (a.py:1), or an operation after it, up to broadcast of y (b.py:2),: not done after 0 s;"),
  (5, "NCCL: error 5")])
def test_what_does_not_end_and_errors_end_the_process(
    error: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
  class Failing(FakeNCCL):
    def ncclCommGetAsyncError(self, comm: Any, state: Any) -> None: state._obj.value = error   # noqa: N802
  monkeypatch.setattr(nccl, "get_device", lambda name: FakeGPU())
  monkeypatch.setattr(nccl, "_LOOK", 0.01)
  ended = threading.Event()
  class Ending(NCCLTransport):
    def abort(self, why: str) -> None:
      self.closed.set()
      ended.set()
  t = Ending(Failing(), 77, "CUDA", "world", (0, 1), 0, 0.05, Reports())
  t._note(Doing("all_reduce of x", "a.py:1"))
  t._note(Doing("broadcast of y", "b.py:2"))
  assert ended.wait(10) and f"ntgrad: rank 0 of 2: {said}" in capsys.readouterr().err


# ---- with a GPU each
@needs_gpus
def test_operations_by_nccl(tmp_path: Path) -> None:
  assert results(2, tmp_path, "operations", launcher="nccl") == dist.run(operations, 2)


@needs_gpus
@pytest.mark.parametrize(("kind", "how"), [
  ("mlp", "ddp"), ("cnn", "ddp"), ("gpt", "ddp"), ("mlp", "zero"), ("gpt", "both"), ("mlp", "jit"), ("gpt", "jit")])
def test_losses_by_nccl_are_those_of_one_device(tmp_path: Path, kind: str, how: str) -> None:
  found = results(2, tmp_path / "a", "train", kind, how, launcher="nccl")
  with config(dynamic="never"): alone = np.array(train(kind))   # on the CPU
  assert found[0] == found[1] and np.abs(np.array(found[0]) / alone - 1).max() < 1e-6
  assert results(2, tmp_path / "b", "train", kind, how, launcher="nccl") == found


@needs_gpus
@pytest.mark.parametrize(("what", "said"), [
  ("raise", "rank 1 of 2 failed after 1 operations: ValueError: the data is bad"),
  ("exit", "ended with exit code 3"),
  ("kill", r"rank 1 of 2 \(process \d+\) was killed after 1 operations"), ("stop", "not done after 3 s"),
  ("memory", "rank 1 of 2 failed after 1 operations: OutOfMemoryError")])
def test_faults_end_the_job(what: str, said: str) -> None:
  begun = time.monotonic()
  found = started(2, "fault", what, launcher="nccl", seconds=90)
  assert found.returncode != 0 and re.search(said, found.stderr), found.stderr
  assert time.monotonic() - begun < 40   # of which the processes take some to begin
