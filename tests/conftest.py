"""For all tests: the flags ``--all`` and ``--update-golden``, a compile cache of the session's own, hypothesis profiles."""
from __future__ import annotations

import gc
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from inspect import signature
from weakref import WeakValueDictionary

import pytest
from hypothesis import HealthCheck, settings

from support.golden import golden  # noqa: F401 (a fixture)

# Before ntgrad is imported, which reads its settings then. xdist's workers inherit the folder, so all share one.
_OWN_CACHE = None
if "CACHE_DIR" not in os.environ:
  _OWN_CACHE = os.environ["CACHE_DIR"] = tempfile.mkdtemp(prefix="ntgrad-test-cache-")

# The processes that tests start, some hundred, find what the first of them has compiled of Python, where none may leave it beside
# the sources; xdist's workers are such processes too.
_PYTHON = None
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None) is not None and "PYTHONPYCACHEPREFIX" not in os.environ:
  _PYTHON = os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="ntgrad-test-python-")

os.environ.setdefault("WORKERS", "1")  # the cores are busy with tests
os.environ.setdefault("TUNE", "0")     # one choice of block sizes; the tuner's own tests ask for a search
os.environ.setdefault("VERIFY", "1")   # every graph, kernel and linear program is checked
os.environ.setdefault("POISON", "1")   # new memory has NaN and -1: what reads before it is written shows

_slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile(
  "ci", derandomize=True, max_examples=25, deadline=None, database=None, print_blob=True, suppress_health_check=_slow
)
settings.register_profile("dev", max_examples=200, deadline=None, suppress_health_check=_slow)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
  parser.addoption("--all", action="store_true", help="run what is marked long, too")
  parser.addoption("--update-golden", action="store_true", help="write what the golden tests got to tests/golden/expected")


@pytest.hookimpl(tryfirst=True)   # before pytest goes by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
  """What is marked long runs with --all, where a mark is asked for (``-m long``), and where it is named (``file.py::test``)."""
  for item in items:
    for mark in item.iter_markers("long_where"):
      names, given = signature(mark.args[0]).parameters, item.callspec.params if hasattr(item, "callspec") else {}
      if names.keys() - given.keys(): raise pytest.UsageError(f"{item.nodeid}: long_where names {[*names]}, there is {[*given]}")
      if mark.args[0](**{name: given[name] for name in names}): item.add_marker("long")
  if config.option.all or config.option.markexpr: return
  named = [config.rootpath.joinpath(a.partition("::")[0]) for a in config.args if "::" in a]
  long = {item for item in items if item.get_closest_marker("long") and item.path not in named}
  config.hook.pytest_deselected(items=[*long])
  items[:] = [item for item in items if item not in long]


def pytest_unconfigure(config: pytest.Config) -> None:
  for folder in (_OWN_CACHE, _PYTHON):
    if folder is not None: shutil.rmtree(folder, ignore_errors=True)


_tests = itertools.count(1)


@pytest.fixture(autouse=True)
def _older_objects_are_not_looked_through() -> None:
  """Whoever collects garbage, as every plan does that keeps values, looks through what the last tests have made: all that an old
  process has took a tenth of a second each time."""
  if next(_tests) % 16 != 1: return
  gc.collect()
  gc.freeze()


@pytest.fixture
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
  """A kernel is printed when it is made, once a process: a test that reads what was printed must not be the second."""
  from ntgrad.codegen.ir.recent import Recent
  from ntgrad.engine import compile, planner, report
  for module, name in ((compile, "_programs"), (planner, "_plans"), (report, "_known")):
    monkeypatch.setattr(module, name, Recent(64))
  monkeypatch.setattr(compile, "_by_spec", WeakValueDictionary())   # what older tests still hold has an older name
  monkeypatch.setattr(report, "_counts", {})   # a kernel's name has no number yet


@pytest.fixture(autouse=True)
def _settings_are_given_back() -> Iterator[None]:
  """A test that leaves the default device or a mode changed would change the ones that come after it in its process."""
  from ntgrad import Device, Tensor  # not before the settings above

  def state() -> tuple[object, ...]: return Device.assigned, Tensor.training
  before = state()
  yield
  left = state()
  Device.assigned, Tensor.training = before
  assert left == before, f"the test leaves (Device.DEFAULT, Tensor.training) as {left}, found as {before}"


@pytest.fixture(autouse=True)
def _what_is_chosen_applies() -> Iterator[None]:
  """A list of Opts that a chooser made and the kernel refuses is a defect, though the user gets another list."""
  from ntgrad.codegen.choose.candidates import refusals
  refusals.clear()
  yield
  left = list(map(str, refusals))
  assert not left, "Opts that were chosen were dropped: " + "; ".join(left)
