"""Which line made an operation: in tables of kernels and in errors, through everything that graphs are rewritten by."""
from __future__ import annotations

import inspect
import re
import weakref
from contextvars import Context, copy_context
from operator import methodcaller
from typing import Any, Callable

import pytest

import ntgrad
from ntgrad import Device, Tensor, nn
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.errors import CompileError, DeviceError, NtgradError, VerifyError
from ntgrad.codegen.ir.recent import Recent
from ntgrad.codegen.ir.uop import toposort
from ntgrad.engine import keeping, planner, report
from ntgrad.graph import origins
from ntgrad.graph.recipes import written_out
from ntgrad.schedule import create_schedule, lower
from support.marks import long

pytestmark = pytest.mark.usefixtures("nothing_compiled")


def line() -> int:
  """The caller's."""
  frame = inspect.currentframe()
  assert frame is not None and frame.f_back is not None
  return frame.f_back.f_lineno


def made(t: Tensor) -> list[str]:
  """The lines of each kernel that computes a tensor."""
  return origins.lines_of([item.given for item in create_schedule([t])], toposort(written_out([t.lazydata])))


def rows(run: Callable[[], Any], capsys: pytest.CaptureFixture[str], **settings: Any) -> list[str]:
  """What the tables that ``run`` prints say of where each kernel comes from."""
  capsys.readouterr()
  with config(debug=3, color=0, **{"cache": 0, **settings}): run()
  found = re.findall(r"^ +\d+[ *] .*?<- (.*)$", capsys.readouterr().out, re.M)
  return [re.sub(r"^((b\d+|nothing)(, )?)*( +\w+=\d+,?)* *", "", x) for x in found]


def test_line_and_operations() -> None:
  x = Tensor.empty(64, 32)
  n = line()
  y = x.relu() + 1
  z = (y
       .softmax(-1)
       .sum(0))
  z = z[3:] < \
    2
  assert made(z) == [f"test_origins.py:{n + 1} relu, add · test_origins.py:{n + 3} softmax", f"test_origins.py:{n + 3} softmax",
                     f"test_origins.py:{n + 3} softmax · test_origins.py:{n + 4} sum · test_origins.py:{n + 5} less"]


def test_what_rewrites_add_is_what_they_were_added_for() -> None:
  """Partial sums, padded copies, statistics in one pass: nothing without a line."""
  x, w = Tensor.empty(1 << 17), Tensor.empty(8, 4, 3, 3)
  n = line()
  assert made(x.sum()) == [f"test_origins.py:{n + 1} sum"] * 2
  assert made(Tensor.empty(2, 4, 16, 16).conv2d(w, padding=1)) == [f"test_origins.py:{n + 2} conv2d"] * 2
  assert made(x.reshape(2, -1).softmax().sort()[0]) != [] and all(made(x.reshape(2, -1).softmax().sort()[0]))


@long
def test_a_training_step(capsys: pytest.CaptureFixture[str]) -> None:
  """Every kernel has a line: of the layer for its gradient, of the optimizer for the update."""
  model = [nn.Conv2d(1, 4, 3), Tensor.relu, nn.BatchNorm(4), lambda t: t.max_pool2d((2, 2)).flatten(1), nn.Linear(36, 10)]
  optimizer = nn.optim.Adam(nn.state.get_parameters(model), lr=0.01)
  x, y = Tensor.rand(8, 1, 8, 8).realize(), Tensor([1, 2, 3, 4, 5, 6, 7, 8])
  def step() -> None:
    with Tensor.train():
      loss = x.sequential(model).sparse_categorical_crossentropy(y)
      loss.backward()
      optimizer.step()
  step()
  found = rows(step, capsys, dynamic="never")
  assert len(found) >= 4 and all("test_origins.py:" in r for r in found), found
  here, first = " ".join(found), inspect.getsourcelines(test_a_training_step)[1]
  for what, at in (("gradient of sparse_categorical_crossentropy", 8), ("gradient of sequential", 8), ("step", 10)):
    assert re.search(rf"test_origins.py:{first + at} [^·]*\b{what}\b", here), (what, here)


@pytest.mark.parametrize("dynamic", ["auto", "always"])
def test_numbers_and_sizes_that_are_arguments(capsys: pytest.CaptureFixture[str], dynamic: str) -> None:
  def run() -> None:
    for n, k in ((32, 3.25), (32, 4.5), (48, 5.75), (64, 6.25)): (Tensor([1.0] * n, device="NUMPY").realize().exp() * k).realize()
  found = rows(run, capsys, dynamic=dynamic)
  n = inspect.getsourcelines(run)[1] + 1
  assert found and set(found) == {f"test_origins.py:{n} exp, mul"}


def asked(t: Tensor) -> list[str]:
  """The lines of each kernel that computes a tensor, as its user sees them."""
  wanted = origins.lines_asked({t.lazydata: [t._alias]})
  return origins.lines_of([item.given for item in create_schedule([t])], t.lazydata.toposort(), wanted)


@pytest.mark.parametrize("of", [methodcaller("__add__", 1), methodcaller("softmax"), methodcaller("logsumexp", 0)])
def test_a_later_line_renames_no_earlier_one(of: Callable[[Tensor], Tensor]) -> None:
  """Two lines that make the same nodes: each is named for what is made of it, whether the other is dropped, held or computed."""
  x = Tensor.empty(8, 8)
  for _ in range(6):   # recipes make it from the third time on
    first = of(x)
    dropped, held, n = of(x).lazydata, of(x), line()
    assert dropped is held.lazydata is first.lazydata
    end = first * 2, held * 3, line()
    made_first, made_held = f"test_origins.py:{n - 1} of", f"test_origins.py:{n} of"
    assert {made_first} == {*asked(first)} and {made_held} == {*asked(held)}
    assert asked(end[0])[-1].startswith((f"{made_first} · ", f"test_origins.py:{end[2]} mul"))
    assert made_held not in " ".join(asked(end[0])) and made_first not in " ".join(asked(end[1]))
    del first, dropped, held, end


def test_one_node_of_several_lines_names_all_that_use_it() -> None:
  x = Tensor.empty(8)
  a, n = x + 1, line()
  b = x + 1
  c = a * 2 + b.T * 3
  assert {*asked(c)[0].split(" · ")} == {f"test_origins.py:{n + i} {'mul, ' * (i == 2)}add" for i in range(3)}
  d = (x + 1) * 2
  e = (x + 1) * 2
  assert asked(d) == [f"test_origins.py:{n + 4} add, mul"] and asked(e) == [f"test_origins.py:{n + 5} add, mul"]


@pytest.mark.parametrize("of", [methodcaller("cumsum", 0), methodcaller("sum", 0, keepdim=True), methodcaller("__mul__", 3)])
def test_several_values_of_one_node_are_asked_for_together(of: Callable[[Tensor], Tensor]) -> None:
  x = Tensor([[1.0, 2.0], [3.0, 4.0]], device="NUMPY").realize()
  first = of(x)
  second = of(x)
  both = origins.lines_asked({first.lazydata: [t._alias for t in (first, second)]})
  assert all(len(lines) == 2 for lines in both.values())
  first.realize(second)
  assert first.tolist() == second.tolist()


def test_errors_name_the_line_that_was_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
  x = Tensor([1.0, 2.0], device="NUMPY").realize()
  first, again, n = x.exp(), x.exp(), line()
  second = x.exp()
  assert first.lazydata is second.lazydata and again is not first
  assert rows(second.realize, capsys) == [f"test_origins.py:{n + 1} exp"]
  third = x.log()
  fourth = x.log()
  for t, at in ((fourth, n + 5), (third, n + 4)):
    monkeypatch.setattr("ntgrad.engine.realize.run_step", refusing(DeviceError("no")))
    with pytest.raises(DeviceError, match=f"test_origins.py:{at} log$"): t.realize()


class _Attention(nn.Module):
  def __init__(self) -> None:
    super().__init__()
    self.q, self.scale = nn.Linear(4, 4), nn.Parameter(Tensor.ones(4))
  def forward(self, x: Tensor) -> Tensor: return self.q(x) * self.scale * nn.Identity()(x)


class _Net(nn.Module):
  def __init__(self) -> None:
    super().__init__()
    self.layers = nn.ModuleList([_Attention(), _Attention()])
  def forward(self, x: Tensor) -> Tensor:
    for layer in self.layers: x = layer(x)
    return x + 1


def modules(t: Tensor) -> set[str]:
  """The paths that the lines of a tensor's kernels name."""
  u = t.lazydata
  return {path for lines in origins.of(u.toposort(), origins.lines_asked({u: [t._alias]})).values() for _, _, path, *_ in lines}


@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_modules_stand_beside_the_line(known: bool) -> None:
  """Also where the nets have been called before: both calls of a layer then make the same nodes."""
  net, x = _Net(), Tensor.empty(2, 4)
  for _ in range(3 * known): net(x)
  n = inspect.getsourcelines(_Attention)[1] + 4
  inner = {"", "layers.0", "layers.0.q", "layers.1", "layers.1.q"}
  y = net(x)
  assert modules(y) == inner
  assert any(f"test_origins.py:{n} q, mul in layers.1.q, layers.1" in line for line in made(y)), made(y)
  assert modules(net.layers[0](x)) == {"", "q"} and modules(x + 1) == {""}   # the outermost has no name
  net.first, net.layers = net.layers[1], nn.ModuleList([_Attention(), net.layers[0]])   # found again
  assert modules(net(x)) == inner
  assert modules(nn.Sequential(net)(x)) == {"", "0", *[f"0.{path}" for path in inner if path]}
  with pytest.raises(NtgradError): net(Tensor.empty(3, 3))
  assert origins.calling.path == "" and modules(x * 2) == {""}


@pytest.mark.parametrize("copied", [False, True], ids=["own context", "copied context"])
def test_modules_of_two_threads(copied: bool) -> None:
  """Each is in its own, also where the context of a thread that has called Modules is copied (ranks, asyncio.to_thread)."""
  import threading
  nn.Sequential(nn.Identity())(Tensor.empty(2))
  net, there, found = _Net(), threading.Barrier(2), list[set[str]]()
  class Waits(nn.Module):
    def __init__(self) -> None: self.inner = net.layers[0]
    def forward(self, x: Tensor) -> Tensor:
      there.wait()
      y = self.inner(x)
      there.wait()
      return y
  def run(name: str) -> None:
    model = nn.Sequential(*[nn.Identity()] * (name == "b"), Waits())
    found.append(modules(model(Tensor.empty(2, 4))))
  contexts = [copy_context() for _ in "ab"] if copied else [Context(), Context()]
  threads = [threading.Thread(target=context.run, args=(run, name)) for context, name in zip(contexts, "ab")]
  for t in threads: t.start()
  for t in threads: t.join()
  assert origins.calling.path == ""
  assert sorted(map(sorted, found)) == [["", "0.inner", "0.inner.q"], ["", "1.inner", "1.inner.q"]]


def test_without_a_source_the_nodes_say_what_they_do() -> None:
  names: dict[str, Any] = {"x": Tensor.empty(8, 8)}
  exec(compile("y = x.exp()\nz = y.max()", "<nowhere>", "exec"), names)
  assert made(names["z"]) == ["<nowhere>:1 exp · <nowhere>:2 max"]


class _Local: pass


def test_nothing_is_kept_alive() -> None:
  """Not what lies in the frames, and no note beyond its node."""
  def within() -> tuple[Tensor, weakref.ref[_Local]]:
    local = _Local()
    return Tensor.empty(7).exp(), weakref.ref(local)
  t, local = within()
  assert local() is None and t.lazydata.origin[0] is within.__code__
  node = weakref.ref(t.lazydata)
  del t
  assert node() is None
  for i in range(3 * origins.FILES): assert not origins.is_internal(f"<{i}>")
  assert len(origins.internal) <= origins.FILES and origins.is_internal(origins.__file__)


def test_it_can_be_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
  with config(origins=0):
    t = Tensor.empty(9, device="NUMPY").exp() * 2
    assert t.lazydata.origin is None
    assert made(t) == [""]
  assert rows(t.realize, capsys, origins=0) == [""]
  layer, x = nn.Linear(3, 7, device="NUMPY"), Tensor.empty(5, 3, device="NUMPY")
  def step() -> tuple[str, str]:
    y = layer(x).relu()
    y.sum().backward()
    return made(y)[-1], made(layer.weight.grad)[-1]
  with config(origins=0):
    for _ in range(4): assert step() == ("", "")
  n = inspect.getsourcelines(step)[1]   # what was recorded meanwhile has lines
  value, gradient = step()
  assert f"test_origins.py:{n + 1} layer, relu" in value and "gradient of relu, gradient of layer" in gradient


def refusing(error: Exception) -> Callable[..., Any]:
  def call(*args: Any, **kwargs: Any) -> Any: raise error
  return call


@pytest.mark.parametrize("what", ["schedule", "render", "compile", "wait", "run", "run of a plan on disk", "elsewhere"])
@pytest.mark.parametrize("again", [False, True])
def test_errors_name_the_line(monkeypatch: pytest.MonkeyPatch, what: str, again: bool) -> None:
  """Of the kernel that they are about, and of this graph where the plan is one that another graph had."""
  x, y = Tensor([1.0] * 77).realize(), Tensor([1.0] * 77).realize()
  def compute(a: Tensor) -> tuple[int, Tensor]:
    n = line()
    b = a.exp().cumsum()
    return n, b - b.sum()
  settings: dict[str, Any] = {"dynamic": "never", "cache": 0}
  if what == "run of a plan on disk": settings |= {"cache": 1, "verify": 0}
  with config(**settings):
    if again or "disk" in what: compute(y)[1].realize()
    if "disk" in what: monkeypatch.setattr(planner, "_plans", Recent(8))
    n, t = compute(x)
    if what == "schedule":
      monkeypatch.setattr(planner, "_plans", Recent(8))
      monkeypatch.setattr(lower, "make_item", refusing(VerifyError("no")))
    elif what == "elsewhere":
      monkeypatch.setattr(planner, "_plans", Recent(8))
      monkeypatch.setattr(keeping, "schedule_graph", refusing(VerifyError("no")))
    elif what in ("render", "compile"):
      from ntgrad.engine import compile as programs
      monkeypatch.setattr(planner, "_plans", Recent(8))
      monkeypatch.setattr(programs, "_programs", Recent(8))
      monkeypatch.setattr(programs, "rendered" if what == "render" else "from_specs", refusing(CompileError("no")))
    elif what == "wait":
      if not again: monkeypatch.setattr(report, "wait_until_compiled", refusing(CompileError("no")))
      else: monkeypatch.setattr("ntgrad.engine.realize.run_step", refusing(DeviceError("no")))
    else: monkeypatch.setattr("ntgrad.engine.realize.run_step", refusing(DeviceError("no")))
    with pytest.raises(NtgradError) as e, config(debug=1 if what == "wait" else 0): t.realize()
  said, at = str(e.value).split("\ncomputing what was made at ")
  assert said == "no" and at == f"test_origins.py:{n + 2} sub" if what == "elsewhere" else f"test_origins.py:{n + 1} exp, cumsum"


def test_errors_of_replays_and_of_waiting_name_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
  """A replay goes through no graph, and what a device finds later is about all that was launched before."""
  x = Tensor([1.0] * 5).realize()
  step = ntgrad.jit(lambda t: (t * 3).realize())
  for _ in range(3): step(x)
  with monkeypatch.context() as m:
    m.setattr("ntgrad.engine.replay.Replay._launch", refusing(DeviceError("no")))
    with pytest.raises(DeviceError) as e: step(x)
  n = line() - 1
  assert str(e.value) == f"no\nin a replay of {step.name}, called at test_origins.py:{n}"
  device = Device[x.device]
  monkeypatch.setattr(device, "synchronize", refusing(DeviceError("no")))
  monkeypatch.setattr(device, "copyout", refusing(DeviceError("no")))
  for wait in (Device.synchronize, x.numpy):
    with pytest.raises(DeviceError) as e: wait()
    assert str(e.value) == f"no\nfound when the device was waited for at test_origins.py:{line() - 1}"


def test_an_error_is_what_it_was() -> None:
  """Only messages of our errors grow, once; nothing is said where nothing is known."""
  t = Tensor.empty(4).exp()
  order = t.lazydata.toposort()
  error = DeviceError("lost", 3)
  for _ in range(2): origins.blame(error, order[-1:], order)
  assert error.args[1:] == (3,) and str(error.args[0]).count("computing what was made at") == 1
  other, plain = ValueError("x"), DeviceError("y")
  origins.blame(other, order[-1:], order)
  origins.blame(plain, [], order)
  assert other.args == ("x",) and plain.args == ("y",)
