"""A profile as text."""
from __future__ import annotations

from ntgrad.engine.report import unit_text
from ntgrad.graph import origins

from .advice import advice
from .findings import Findings, place_text
from .rows import Row, fitted, kernel_table

TABLE_ROWS = 10     # rows of each table but that of kernels
KERNEL_ROWS = 10


def full_text(f: Findings) -> str:
  """All of it, in 120 columns; advice comes last."""
  parts = [_times(f), _lines(f), _modules(f), kernel_table(f.rows, KERNEL_ROWS), _plans(f), _memory(f), _advice(f)]
  return "\n\n".join(filter(None, parts))


def _seconds(s: float) -> str: return f"{unit_text(s, 's'):>10}"


def _times(f: Findings) -> str:
  """Where the time went: of all, of the first step, of a later one."""
  s, wall = f.steps, max(f.wall, 1e-12)
  head = f"{unit_text(f.wall, 's').strip()}"
  if s is not None:
    first, later = (unit_text(sum(x.values()), "s").strip() for x in (s.first, s.later))
    head += f", in which {len(s.ends)} steps ended at {s.line}: the first after {first}, then one each {later}"
  lines = [head, f"{'':26}{'all':>10}{'':>8}{'first step':>12}{'a later one':>14}" if s is not None else ""]
  for kind, seconds in f.kinds.items():
    if seconds < 0.0005 * wall and not (s and s.first[kind] + s.later[kind] > 0.001 * wall): continue
    more = f"  {_seconds(s.first[kind])}    {_seconds(s.later[kind])}" if s is not None else ""
    lines.append(f"  {kind:24}{_seconds(seconds)}{seconds / wall:8.1%}{more}")
  return "\n".join(filter(None, lines))


def _lines(f: Findings) -> str:
  """By line of the user's code."""
  lines = [x for x in f.lines() if x.host + x.kernels > 0.001 * f.wall][:TABLE_ROWS]
  if not lines: return ""
  rows = [f"{'line':34}{'host':>10}{'of all':>8}{'kernels':>10}{'launches':>10}{'bytes':>10}{'lost':>10}  operations"]
  for x in lines:
    rows.append(f"{fitted(place_text(x.place), 34)}{_seconds(x.host)}{x.host / f.wall:8.1%}{_seconds(x.kernels)}"
                f"{x.launches:10.0f}{unit_text(x.nbytes, 'B'):>10}{_seconds(x.lost)}  {', '.join(x.operations)}"[:120].rstrip())
  return "\n".join(rows)


def _modules(f: Findings) -> str:
  rows = [f"{fitted(path, 44)}{_seconds(seconds)}{launches:10.0f}" for path, seconds, launches in f.modules()[:TABLE_ROWS]]
  return "\n".join([f"{'module':44}{'kernels':>10}{'launches':>10}", *rows]) if rows else ""


def _plans(f: Findings) -> str:
  """Plans that were made, by why."""
  if not (plans := f.watched.plans): return ""
  rows = [f"{'plans made':14}{'of lines':66}{'kernels':>8}{'time':>10}  why"]
  kinds: dict[tuple[str, str], list[float]] = {}
  last: dict[tuple[str, str], str] = {}
  for p in plans:
    key = p.kind, origins.text_of_lines(p.made)
    at = kinds.setdefault(key, [0, 0, 0.0])
    at[:] = at[0] + 1, at[1] + p.kernels, at[2] + p.seconds
    last[key] = p.why
  found = sorted(kinds.items(), key=lambda x: -x[1][2])
  rows += [f"{n:<14.0f}{fitted(lines or 'unknown', 66)}{kernels:8.0f}{_seconds(seconds)}  {last[kind, lines]}"
           for (kind, lines), (n, kernels, seconds) in found[:TABLE_ROWS]]
  if rest := found[TABLE_ROWS:]:
    n, kernels, seconds = map(sum, zip(*[v for _, v in rest]))
    rows.append(f"{n:<14.0f}{'others':66}{kernels:8.0f}{_seconds(seconds)}")
  return "\n".join(rows)


def _memory(f: Findings) -> str:
  """The peak, and what there was."""
  w = f.watched
  if not w.peak: return ""
  rows = [f"memory: {unit_text(w.peak, 'B').strip()} at most, {unit_text(w.at_end, 'B').strip()} at the end; at the peak"]
  pieces = f.pieces(w.at_peak)
  rows += [f"  {unit_text(nbytes, 'B'):>10}  {n:5d}  {line}"[:120] for line, nbytes, n in pieces[:TABLE_ROWS // 2]]
  rest = w.peak - sum(nbytes for _, nbytes, _ in pieces[:TABLE_ROWS // 2])
  if rest > 0: rows.append(f"  {unit_text(rest, 'B'):>10}         others, and what there was before")
  return "\n".join(rows)


def _advice(f: Findings) -> str:
  return "\n".join(f"- {a.text}" for a in advice(f))


def side_by_side(f: Findings, other: Findings) -> str:
  """Two profiles side by side: by kind of time, and the kernels that differ most."""
  def each(x: Findings) -> tuple[dict[str, float], float]:
    kinds = x.steps.later if x.steps is not None else x.kinds
    return kinds, sum(kinds.values())
  (mine, all_mine), (theirs, all_theirs) = each(f), each(other)
  what = "a later step" if f.steps is not None and other.steps is not None else "all"
  rows = [f"{what:28}{'this':>10}{'other':>10}{'ratio':>8}"]
  for kind, seconds in [*mine.items(), (what, all_mine)]:
    theirs_ = all_theirs if kind == what else theirs[kind]
    if max(seconds, theirs_) < 0.001 * max(all_mine, all_theirs): continue
    rows.append(f"  {kind:26}{_seconds(seconds)}{_seconds(theirs_)}{f'{seconds / theirs_:8.2f}' if theirs_ else ''}")
  a, b = ({(r.name, r.device): r for r in x.rows} for x in (f, other))
  def took(rows: dict[tuple[str, str], Row], at: tuple[str, str]) -> float: return rows[at].seconds if at in rows else 0.0
  keys = sorted({*a, *b}, key=lambda k: -abs(took(a, k) - took(b, k)))
  rows += ["", f"{'kernel':28}{'this':>10}{'other':>10}"]
  rows += [f"{fitted(k[0], 28)}{_seconds(took(a, k))}{_seconds(took(b, k))}" for k in keys[:TABLE_ROWS]]
  return "\n".join(rows)
