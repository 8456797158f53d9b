"""What a profile has of one kernel, and the table of all."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from ntgrad.codegen.choose.bound import Bound, Unit
from ntgrad.engine.report import unit_text

ROWS = 20                           # that a table has
_NAME, _SIZES, _DEVICE = 28, 22, 6  # columns of a table, in characters


@dataclass
class Row:
  """All launches of one kernel on one device. Times are seconds. ``axes``: the least and the greatest size of each axis (of a
  copy: its bytes); ``bounds``: those of the launches by the unit that each was bound by; ``timed``: how many of the launches were
  timed; ``ratios``: how many times their bounds these took: the rest is taken to be like the middle one, as a first launch takes
  longer; ``quick``: whether those were of code that is built without optimisation."""
  name: str
  device: str
  axes: tuple[tuple[int, int], ...] = ()
  count: int = 0
  timed_seconds: float = 0.0
  bounds: dict[Unit, float] = field(default_factory=dict)
  timed: int = 0
  ratios: list[float] = field(default_factory=list)
  quick: bool = False

  @property
  def typical(self) -> float:
    """Seconds of a launch that was not timed."""
    seconds = median(self.ratios) * sum(self.bounds.values()) if self.ratios else self.timed_seconds
    return seconds / max(self.timed, 1)

  @property
  def seconds(self) -> float:
    """What all launches took."""
    return self.timed_seconds + self.typical * max(self.count - self.timed, 0)

  @property
  def each(self) -> float:
    """Seconds of one launch, as the mean of all."""
    return self.seconds / max(self.count, 1)

  @property
  def bound(self) -> float:
    """What the launches would take at least."""
    return sum(self.bounds.values()) * self.count / max(self.timed, 1)

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

  def add(self, axes: Sequence[int], seconds: float, least: Bound, quick: bool = False) -> None:
    """Time one launch more. Times of code that is replaced by optimised code do not count any more."""
    old = self.axes if len(self.axes) == len(axes) else zip(axes, axes)
    self.axes = tuple((min(low, n), max(high, n)) for (low, high), n in zip(old, axes))
    if self.quick and not quick: self.timed, self.timed_seconds, self.bounds, self.ratios = 0, 0.0, {}, []
    self.quick = quick
    self.timed += 1
    self.timed_seconds += seconds
    if least.seconds: self.ratios.append(seconds / least.seconds)
    self.bounds[least.unit] = self.bounds.get(least.unit, 0.0) + least.seconds


def kernel_table(rows: Sequence[Row], most: int = ROWS) -> str:
  """Rows as text, ``most`` of them and a line for all others, in 120 columns."""
  if not rows: return "nothing was launched"
  shown, others = rows[:most], rows[most:]
  lost, several = sum(r.lost for r in rows), len({r.device for r in rows}) > 1
  third = _DEVICE + 1 if several else 0
  head = f"{'kernel':{_NAME}}{'sizes':{_SIZES}}{'device' if several else '':{third}}"
  lines = [f"{head}{'count':>7}{'time':>10}{'bound':>10}{'lost':>10}{'of lost':>9}{'of bound':>10}  by"]
  lines += [f"{fitted(r.name, _NAME)}{fitted(r.sizes, _SIZES)}{fitted(r.device, third) if several else ''}{_numbers([r], lost)}  "
            f"{r.unit.value}{' (quick build)' * r.quick}" for r in shown]
  if others: lines.append(f"{f'{len(others)} other' + 's' * (len(others) > 1):{len(head)}}{_numbers(others, lost)}")
  return "\n".join([*lines, f"{'all':{len(head)}}{_numbers(rows, lost)}"])


def fitted(text: str, width: int) -> str:
  """A text in so many columns, the last one blank."""
  return f"{text if len(text) < width else text[:width - 2] + '…':{width}}"


def _numbers(rows: Sequence[Row], all_lost: float) -> str:
  count, seconds, least, lost = map(sum, zip(*[(r.count, r.seconds, r.bound, r.lost) for r in rows]))
  times = "".join(f"{unit_text(t, 's'):>10}" for t in (seconds, least, lost))
  return f"{count:7d}{times}{lost / all_lost if all_lost else 0.0:9.1%}{least / seconds if seconds else 0.0:10.1%}"
