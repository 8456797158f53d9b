"""NCCL: what it is asked, of a library that notes it; and ranks with a GPU each, where the machine has two."""
from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ntgrad import config, distributed as dist, dtypes
from ntgrad.backends.cuda.driver import available
from ntgrad.distributed import comparing, nccl
from ntgrad.distributed.collective import Operation
from ntgrad.distributed.comparing import Comparison, Messages
from ntgrad.distributed.nccl import NCCLTransport
from ntgrad.distributed.transport import Doing
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
  """A device whose operations do not end."""
  name, is_done = "CUDA", False
  def __init__(self) -> None: self.events = self
  def here(self) -> None: pass
  enter = here
  def record(self) -> Any: return self   # an event
  def stream_handle(self) -> int: return 9


def connected(n: int) -> list[Messages]:
  """The messages of n ranks."""
  pairs = [socket.socketpair() for _ in range(n - 1)]
  return [Messages(0, {r: a for r, (a, _) in enumerate(pairs, 1)}), *[Messages(r, {0: b}) for r, (_, b) in enumerate(pairs, 1)]]


def compared(n: int) -> list[Comparison]: return [Comparison(m, "world", range(n), r) for r, m in enumerate(connected(n))]
def doing(text: str, line: int = 1) -> Doing: return Doing(text, f"a.py:{line}")


def until(so: Callable[[], bool]) -> bool:
  """Whether something is so within five seconds."""
  end = time.monotonic() + 5
  while not (found := so()) and time.monotonic() < end: time.sleep(0.01)
  return found


def found_by(ranks: Sequence[Comparison]) -> dict[int, str]:
  """What each rank sees of the next one, as its newest operation."""
  out = {}
  for c in ranks:
    try: c.reached(c.history.last[-1])
    except DistributedError as e: out[c.mine] = str(e)
  return out


@pytest.mark.parametrize("n", [2, 3, 5])
def test_ranks_that_do_the_same_see_that(n: int) -> None:
  ranks = compared(n)
  for i in range(3): assert [c.reached(c.history.add(doing(f"x{i}"))) for c in ranks] == [False] * (n - 1) + [True]
  assert [c.reached(c.history.last[-1]) for c in ranks] == [True] * n
  ahead = ranks[0].history.add(doing("y"))
  assert not ranks[0].reached(ahead) and found_by(ranks[1:]) == {}
  ranks[1].history.add(doing("y", 7))   # another line is no other operation
  assert ranks[0].reached(ahead)


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("other", [0, 1])
@pytest.mark.parametrize("after", [0, 1, 40])
def test_ranks_that_differ_find_the_first_operation_that_does(n: int, other: int, after: int) -> None:
  """Also where it was no new one for any of them, and some have begun more since."""
  ranks = compared(n)
  for c in ranks:
    for i in range(100): c.history.add(doing(f"x{i % 3}", i))
    c.history.add(doing("all_reduce of x", 500) if c.mine != other else doing("all_reduce of y", 501))
    for i in range(after if c.mine in (0, other) else 0): c.history.add(doing("x0", i))
  found = found_by(ranks)
  assert sorted(found) == sorted({(other - 1) % n, other})
  said = {f"rank {r}: all_reduce of x (a.py:500)" for r in range(n) if r != other} | {f"rank {other}: all_reduce of y (a.py:501)"}
  for text in found.values():
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0].endswith("as operation 101 of group world:") and {*lines[1:3]} <= said and lines[3].startswith(FROM)


def test_differences_before_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(comparing, "KEPT", 8)
  ranks = compared(2)
  for c in ranks:
    for i in range(50): c.history.add(doing(f"x{i}" if i != 20 or c.mine else "y", i))
  assert "as operation 43 of group world:" in found_by(ranks)[0]   # the first that they have
  slow = compared(2)
  begun = slow[0].history.add(doing("x0"))
  for i in range(50): slow[1].history.add(doing(f"x{i}"))
  assert slow[0].reached(begun)   # long ago


def test_a_rank_that_has_ended_answers_no_more() -> None:
  ranks = compared(3)
  for c in ranks: c.history.add(doing("x"))
  ranks[2].messages.close()
  begun = time.monotonic()
  assert not ranks[1].reached(ranks[1].history.last[-1]) and ranks[1].messages.lost == {2}
  assert time.monotonic() - begun < 3 and ranks[0].reached(ranks[0].history.last[-1])
  others = compared(3)
  for c in others: c.history.add(doing("x"))
  others[0].messages.close()   # and with rank 0 all messages: ranks 1 and 2 go on, and are not compared
  y = others[1].history.add(doing("y"))
  assert until(lambda: others[1].reached(y)) and others[1].messages.cut and not others[1].ended
  assert not others[2].reached(others[2].history.last[-1]) and until(lambda: others[2].ended)


@pytest.mark.parametrize("data", [b"x" * 1024, b"[]".ljust(1024), b'["ask", 1, 0, 0, "world", {}, "", "", 0]'.ljust(1024),
                                  b'["ask", 7, 1, 0, "world", 1, "", "", 0]'.ljust(1024), b"short"])
def test_what_is_no_message_ends_a_connection_and_nothing_else(data: bytes) -> None:
  mine, theirs = socket.socketpair()
  messages = Messages(0, {1: mine})
  theirs.sendall(data)
  theirs.shutdown(socket.SHUT_WR)
  assert until(lambda: messages.lost == {1}) and messages.ask(1, "world", 1) is None
  theirs.close()


class Known(NCCLTransport):
  """With a library that notes calls, on a device that does nothing."""

  def __init__(self, messages: Messages, rank: int, timeout: float, library: FakeNCCL | None = None):
    self.ended = threading.Event()
    super().__init__(library or FakeNCCL(), 77, "CUDA", messages, "world", (0, 1), rank, timeout)
  def abort(self, why: str) -> None:
    self.closed.set()
    self.ended.set()


def native(t: NCCLTransport, o: Operation, doing: Doing | None = None) -> None:
  """Put an operation into the device's stream."""
  doing = doing or o.doing(t.rank)
  t.begin(o, doing, FakeGPU())   # type: ignore[arg-type]
  t.put(o, 200, 100, 9)
  t.begun(doing)


def test_nccl_compares_before_the_first_operation_of_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(nccl, "get_device", lambda name: FakeGPU())
  monkeypatch.setattr(nccl, "QUIET", 60.0)
  first, second = [Known(m, r, 1.0) for r, m in enumerate(connected(2))]
  o = Operation("all_reduce", dtypes.float32, (3,), (3,), "CUDA", "world", "sum", 0, "a.py:1")
  other = threading.Thread(target=native, args=(second, o))
  other.start()
  native(first, o)
  other.join()
  native(first, o)   # it waits for nobody
  assert first.library.calls == [c for c in first.library.calls if c[0] == "ncclCommGetAsyncError"] + \
    [("ncclAllReduce", 100, 200, 3, 7, 0, 77, 9)] * 2
  assert first.asked == (o.doing(0), o.doing(0))
  with pytest.raises(DistributedError, match=FROM) as e: native(second, replace(o, op="max", line="b.py:2"))
  assert "rank 1: all_reduce (max) of float32 (3,) (b.py:2)\n  rank 0: all_reduce (sum) of float32 (3,) (a.py:1)" in str(e.value)
  with pytest.raises(DTypeError, match="NCCL has no"): native(first, replace(o, dtype=dtypes.uint16))
  with pytest.raises(DistributedError, match="carries tensors on CUDA alone"): first.start(1, [], [])
  for t in first, second: t.closed.set()


def test_a_rank_that_does_not_come_or_has_ended_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(nccl, "get_device", lambda name: FakeGPU())
  first, second = [Known(m, r, 0.3) for r, m in enumerate(connected(2))]
  o = Operation("all_reduce", dtypes.float32, (3,), (3,), "CUDA", "world", "sum", 0, "a.py:1")
  with pytest.raises(DistributedError, match=r"\(a.py:1\): no answer from rank 1 after 0 s \(operation 1 of group world\)"):
    native(first, o)
  second.messages.close()
  with pytest.raises(DistributedError, match="rank 1 has ended and will not take part"):
    native(first, replace(o, op="max"), Doing("other", ""))
  for t in first, second: t.closed.set()


@pytest.mark.parametrize(("error", "said"), [
  (0, "all_reduce of x (a.py:1), or an operation after it, up to broadcast of y (b.py:2),: not done after 0 s;"),
  (5, "NCCL: error 5")])
def test_what_does_not_end_and_errors_end_the_process(
    error: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
  class Failing(FakeNCCL):
    def ncclCommGetAsyncError(self, comm: Any, state: Any) -> None: state._obj.value = error   # noqa: N802
  monkeypatch.setattr(nccl, "get_device", lambda name: FakeGPU())
  monkeypatch.setattr(nccl, "_LOOK", 0.01)
  t = Known(connected(2)[0], 0, 0.05, Failing())
  t.asked = Doing("all_reduce of x", "a.py:1"), Doing("broadcast of y", "b.py:2")
  assert t.ended.wait(10) and f"ntgrad: rank 0 of 2: {said}" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["differs", "has ended"])
def test_operations_in_the_stream_are_compared_too(
    what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
  """Those that were known, which a rank does not compare before: the thread that watches does."""
  monkeypatch.setattr(nccl, "get_device", lambda name: FakeGPU())
  monkeypatch.setattr(nccl, "_LOOK", 0.01)
  monkeypatch.setattr(nccl, "QUIET", 0.1)
  first, second = [Known(m, r, 60) for r, m in enumerate(connected(2))]
  o = Operation("all_reduce", dtypes.float32, (3,), (3,), "CUDA", "world", "sum", 0, "a.py:1")
  for t in first, second: t.known |= {o.doing(0).text, replace(o, op="max").doing(0).text}
  native(first, o)
  if what == "differs": native(second, replace(o, op="max", line="b.py:2"))
  else: second.messages.close()
  assert first.ended.wait(10)
  said = capsys.readouterr().err
  if what == "has ended": assert "all_reduce (sum) of float32 (3,) (a.py:1): rank 1 has ended and will not take part" in said
  else: assert "rank 0: all_reduce (sum) of float32 (3,) (a.py:1)\n  rank 1: all_reduce (max) of float32 (3,) (b.py:2)" in said
  for t in first, second: t.closed.set()


def test_leaving_gives_back_graphs_first(monkeypatch: pytest.MonkeyPatch) -> None:
  """NCCL's end of a group waits for graphs that have its work."""
  order = list[str]()
  class GPU(FakeGPU):
    recorded = (SimpleNamespace(release=lambda: order.append("graph")),)
    def synchronize(self) -> None: order.append("done")
  class Ending(FakeNCCL):
    def ncclCommDestroy(self, comm: Any) -> None: order.append("group")   # noqa: N802
  monkeypatch.setattr(nccl, "get_device", lambda name: GPU())
  Known(connected(2)[0], 0, 60.0, Ending()).close()
  assert order == ["done", "graph", "group"]


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
  ("memory", "rank 1 of 2 failed after 1 operations: OutOfMemoryError"), ("shape", FROM), ("order", FROM)])
def test_faults_end_the_job(what: str, said: str) -> None:
  begun = time.monotonic()
  found = started(2, "fault", what, launcher="nccl", seconds=90)
  assert found.returncode != 0 and re.search(said, found.stderr), found.stderr
  assert time.monotonic() - begun < 40   # of which the processes take some to begin
