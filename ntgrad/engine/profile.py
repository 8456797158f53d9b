"""Where the time of a program goes: ``with ntgrad.profile() as p: ...; print(p)``, and ``python -m ntgrad profile script.py``.
Every launch is timed by itself, as with ``DEBUG=2``, and compared with its bound (``codegen/choose/bound.py``): a row a
kernel."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Sequence

from ntgrad.backends.base import Device, ProgramSpec
from ntgrad.codegen.choose.bound import Bound, Unit
from ntgrad.codegen.ir import config
from ntgrad.graph.lock import lock

from . import report
from .device import open_devices
from .report import unit_text

ROWS = 20                           # that a table has
KERNELS = 4096                      # that have a row of their own; what comes after shares one
_NAME, _SIZES, _DEVICE = 28, 22, 6  # columns of a table, in characters


@dataclass
class Row:
  """All launches of one kernel on one device. Times are seconds. ``axes``: the least and the greatest size of each axis (of a
  copy: its bytes); ``bounds``: those of the launches by the unit that each was bound by."""
  name: str
  device: str
  axes: tuple[tuple[int, int], ...] = ()
  count: int = 0
  seconds: float = 0.0
  bounds: dict[Unit, float] = field(default_factory=dict)

  @property
  def bound(self) -> float:
    """What the launches would take at least."""
    return sum(self.bounds.values())

  @property
  def lost(self) -> float:
    """What they took beyond that; 0 where they were faster, for what they read was still in a cache."""
    return max(self.seconds - self.bound, 0.0)

  @property
  def fraction(self) -> float:
    """The part of the bound that was reached: 1 is as fast as can be."""
    return self.bound / self.seconds if self.seconds else 0.0

  @property
  def unit(self) -> Unit:
    """What bounds most of the time that the launches need."""
    return max(self.bounds, key=self.bounds.__getitem__, default=Unit.MEMORY)

  @property
  def sizes(self) -> str:
    """The axes as text: ``1024x64``, and ``1024x16..64`` where launches differ."""
    return "x".join(f"{low}" if low == high else f"{low}..{high}" for low, high in self.axes) or "1"

  def add(self, axes: Sequence[int], seconds: float, least: Bound) -> None:
    """Count one launch more."""
    old = self.axes if len(self.axes) == len(axes) else zip(axes, axes)
    self.axes = tuple((min(low, n), max(high, n)) for (low, high), n in zip(old, axes))
    self.count += 1
    self.seconds += seconds
    self.bounds[least.unit] = self.bounds.get(least.unit, 0.0) + least.seconds


class Profile:
  """Times every launch of the process while its ``with`` block lasts, whichever thread makes it, and replays of ``ntgrad.jit``
  too. Launches are made one by one, so what would overlap does not.

  It can be entered again, and goes on counting then. Profiles may be nested: each sees what is launched within it. ``print`` it
  for a table of what is lost most, as often as you like, also in the block.
  """

  def __init__(self) -> None:
    self._rows: dict[Any, Row] = {}
    self._entered = 0
    self._optimised = config(tiers=0)   # what is timed is what it will be

  def __enter__(self) -> Profile:
    with lock:
      self._entered += 1
      if self._entered == 1:
        self._optimised = config(tiers=0)
        self._optimised.__enter__()
        for device in open_devices(): device.optimise()
        report.launch_watchers.append(self.launched)
    return self

  def __exit__(self, *_: object) -> None:
    with lock:
      self._entered -= 1
      if self._entered > 0: return
      report.launch_watchers.remove(self.launched)
      self._optimised.__exit__(None, None, None)

  def launched(self, spec: ProgramSpec, device: Device, seconds: float, least: Bound) -> None:
    """A launch, see ``report.launch_watchers``; whoever launches holds the lock."""
    key: Any = device.name, spec.label
    axes = [n for n in spec.work.axes if isinstance(n, int)]
    with lock:
      if key not in self._rows and len(self._rows) >= KERNELS: key, axes = None, []
      if key not in self._rows: self._rows[key] = Row(spec.label, device.name) if key else Row("other kernels", "")
      self._rows[key].add(axes, seconds, least)

  @property
  def rows(self) -> list[Row]:
    """A row a kernel and device, what lost most first."""
    with lock: return sorted(self._rows.values(), key=lambda r: -r.lost)

  @property
  def total(self) -> float:
    """Seconds that all launches took."""
    return sum(r.seconds for r in self.rows)

  @property
  def lost(self) -> float:
    """Seconds that they took beyond their bounds."""
    return sum(r.lost for r in self.rows)

  def table(self, most: int = ROWS) -> str:
    """The rows as text, ``most`` of them and a line for all others, in 120 columns."""
    if not (rows := self.rows): return "nothing was launched"
    shown, others = rows[:most], rows[most:]
    lost, several = self.lost, len({r.device for r in rows}) > 1
    third = _DEVICE + 1 if several else 0
    head = f"{'kernel':{_NAME}}{'sizes':{_SIZES}}{'device' if several else '':{third}}"
    lines = [f"{head}{'count':>7}{'time':>10}{'bound':>10}{'lost':>10}{'of lost':>9}{'of bound':>10}  by"]
    lines += [f"{_fit(r.name, _NAME)}{_fit(r.sizes, _SIZES)}{_fit(r.device, third) if several else ''}{_numbers([r], lost)}  "
              f"{r.unit.value}" for r in shown]
    if others: lines.append(f"{f'{len(others)} other' + 's' * (len(others) > 1):{len(head)}}{_numbers(others, lost)}")
    return "\n".join([*lines, f"{'all':{len(head)}}{_numbers(rows, lost)}"])

  def __str__(self) -> str: return self.table()
  def __repr__(self) -> str: return f"<profile of {len(self._rows)} kernels>"


def _fit(text: str, width: int) -> str:
  """A text in so many columns, the last one blank."""
  return f"{text if len(text) < width else text[:width - 2] + '…':{width}}"


def _numbers(rows: Sequence[Row], all_lost: float) -> str:
  count, seconds, least, lost = map(sum, zip(*[(r.count, r.seconds, r.bound, r.lost) for r in rows]))
  times = "".join(f"{unit_text(t, 's'):>10}" for t in (seconds, least, lost))
  return f"{count:7d}{times}{lost / all_lost if all_lost else 0.0:9.1%}{least / seconds if seconds else 0.0:10.1%}"


def profile() -> Profile:
  """Times every launch in ``with ntgrad.profile() as p: ...``; then ``print(p)`` or ``p.rows``. See :class:`Profile`."""
  return Profile()
