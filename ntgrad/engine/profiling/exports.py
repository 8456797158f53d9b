"""A profile as text, as data, and as a trace that Perfetto (https://ui.perfetto.dev) and Chrome show."""
from __future__ import annotations

from bisect import bisect_right
from typing import Any

from ntgrad.backends import workers
from ntgrad.engine.report import bytes_text, time_text, unit_text
from ntgrad.graph import origins

from .advice import advice
from .findings import Findings, added, place_text
from .rows import fitted, kernel_table

TABLE_ROWS = 10     # rows of each table
_HOST, _DEVICES, _WORKERS = 1, 2, 3   # processes of a trace
_MOST = 200_000   # events of a trace, from which on it has no arrows


def full_text(f: Findings) -> str:
  """All of it, in 120 columns; advice comes last."""
  said = "\n".join([f"- {a.text}" for a in advice(f)])
  parts = [_times(f), _lines(f), _modules(f), kernel_table(f.rows, TABLE_ROWS), _plans(f), _memory(f), said]
  return "\n\n".join(filter(None, parts))


def _seconds(s: float) -> str: return f"{unit_text(s, 's'):>10}"


def _times(f: Findings) -> str:
  """Where the time went: of all, of the first step, of a later one."""
  s, wall = f.steps, max(f.wall, 1e-12)
  head = time_text(f.wall)
  if s is not None:
    first, later = (time_text(sum(x.values())) for x in (s.first, s.later))
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
  rows = [
    f"{'line':34}{'host':>10}{'of all':>8}{'kernels':>10}{'launches':>10}{'bytes':>10}{'lost':>10}  operations",
    *[f"{fitted(place_text(x.place), 34)}{_seconds(x.host)}{x.host / f.wall:8.1%}{_seconds(x.kernels)}{x.launches:10.0f}"
      f"{unit_text(x.nbytes, 'B'):>10}{_seconds(x.lost)}  {', '.join(x.operations)}"[:120].rstrip() for x in lines]]
  return "\n".join(rows)


def _modules(f: Findings) -> str:
  rows = [f"{fitted(path, 44)}{_seconds(seconds)}{launches:10.0f}" for path, seconds, launches in f.modules()[:TABLE_ROWS]]
  return "\n".join([f"{'module':44}{'kernels':>10}{'launches':>10}", *rows]) if rows else ""


def _plans(f: Findings) -> str:
  """Plans that were made, by why."""
  if not (plans := f.watched.plans): return ""
  keys = [(p.kind, origins.text_of_lines(p.made)) for p in plans]
  last = {key: p.why for key, p in zip(keys, plans)}
  found = added([(key, p.seconds, p.kernels, 1) for key, p in zip(keys, plans)])
  rest = added([("others", *numbers) for _, *numbers in found[TABLE_ROWS:]])
  return "\n".join([
    f"{'plans made':14}{'of lines':66}{'kernels':>8}{'time':>10}  why",
    *[f"{n:<14}{fitted(key[1] or 'unknown', 66)}{kernels:8}{_seconds(seconds)}  {last[key]}"
      for key, seconds, kernels, n in found[:TABLE_ROWS]],
    *[f"{n:<14}{name:66}{kernels:8}{_seconds(seconds)}" for name, seconds, kernels, n in rest]])


def _memory(f: Findings) -> str:
  """The peak, and what there was."""
  w = f.watched
  if not w.peak: return ""
  rows = [f"memory: {bytes_text(w.peak)} at most, {bytes_text(w.at_end)} at the end; at the peak"]
  pieces = f.pieces(w.at_peak)
  rows += [f"  {unit_text(nbytes, 'B'):>10}  {n:5d}  {line}"[:120] for line, nbytes, n in pieces[:TABLE_ROWS // 2]]
  rest = w.peak - sum(nbytes for _, nbytes, _ in pieces[:TABLE_ROWS // 2])
  if rest > 0: rows.append(f"  {unit_text(rest, 'B'):>10}         others, and what there was before")
  return "\n".join(rows)


def side_by_side(f: Findings, other: Findings) -> str:
  """Two profiles side by side: by kind of time, and the kernels that differ most."""
  what = "a later step" if f.steps is not None and other.steps is not None else "all"
  both = [x.kinds if x.steps is None else x.steps.later for x in (f, other)]
  mine, theirs = ({**kinds, what: sum(kinds.values())} for kinds in both)
  rows = [f"{what:28}{'this':>10}{'other':>10}{'ratio':>8}"]
  for kind, a in mine.items():
    if max(a, b := theirs[kind]) < 0.001 * max(mine[what], theirs[what]): continue
    rows.append(f"  {kind:26}{_seconds(a)}{_seconds(b)}{f'{a / b:8.2f}' if b else ''}")
  took = [{(r.name, r.device): r.seconds for r in x.rows} for x in (f, other)]
  kernels = [(key[0], took[0].get(key, 0.0), took[1].get(key, 0.0)) for key in {**took[0], **took[1]}]
  rows += ["", f"{'kernel':28}{'this':>10}{'other':>10}"]
  kernels.sort(key=lambda x: -abs(x[1] - x[2]))
  rows += [f"{fitted(name, 28)}{_seconds(a)}{_seconds(b)}" for name, a, b in kernels[:TABLE_ROWS]]
  return "\n".join(rows)


# ---- for programs

def data(f: Findings) -> dict[str, Any]:
  """Everything as numbers, texts, lists and dicts. Seconds and bytes."""
  s, w = f.steps, f.watched
  return {
    "seconds": f.wall, "kinds": f.kinds,
    "steps": None if s is None else {"line": s.line, "count": len(s.ends), "first": s.first, "later": s.later},
    "lines": [{**x._asdict(), "place": place_text(x.place)} for x in f.lines()],
    "modules": [{"path": path, "seconds": seconds, "launches": n} for path, seconds, n in f.modules()],
    "kernels": [{"name": r.name, "device": r.device, "sizes": r.sizes, "count": r.count, "timed": r.timed, "seconds": r.seconds,
                 "bound": r.bound, "lost": r.lost, "fraction": r.fraction, "by": r.unit.value, "quick": r.quick} for r in f.rows],
    "plans": [{**p._asdict(), "made": origins.text_of_lines(p.made), "at": p.at - w.began} for p in w.plans],
    "memory": {"peak": w.peak, "at_peak": [{"made": line, "bytes": n, "count": k} for line, n, k in f.pieces(w.at_peak)],
               "over_time": [[at - w.began, n] for at, n in w.memory]},
    "advice": [a._asdict() for a in advice(f)]}


def trace(f: Findings) -> dict[str, Any]:
  """Events in Chrome's format: the host's phases and where values were asked for, launches that were timed on their devices, jobs
  of compile workers, memory; arrows from the user's line to the launching, and from there to each kernel."""
  w, out = f.watched, list[dict[str, Any]]()
  tracks = {name: i for i, name in enumerate(dict.fromkeys(track for *_, track, _ in w.events if track), 1)}
  def add(ph: str, name: str, pid: int, tid: int = 1, began: float = w.began, **more: Any) -> None:
    out.append({"ph": ph, "name": name, "pid": pid, "tid": tid, "ts": round((began - w.began) * 1e6, 3), **more})
  def arrow(began: float, pid: int, tid: int, ended: float) -> None:
    number = len(out)
    if number < _MOST: add("s", "flow", _HOST, began=began, id=number, cat="flow")
    if number < _MOST: add("f", "flow", pid, tid, ended, id=number, cat="flow", bp="e")
  for name, pid in (("host", _HOST), ("devices", _DEVICES), ("compile workers", _WORKERS)):
    add("M", "process_name", pid, args={"name": name})
  for name, tid in tracks.items(): add("M", "thread_name", _DEVICES, tid, args={"name": name})
  starts = sorted([began for name, began, *_ in w.events if name.startswith("launching")])
  for name, began, took, track, by in w.events:
    pid, tid, lines = (_DEVICES, tracks[track], origins.text_of_lines(by)) if track else (_HOST, 1, "")
    add("X", name, pid, tid, began, dur=round(took * 1e6, 3), args={"lines": lines} if lines else {})
    if track and (i := bisect_right(starts, began)): arrow(starts[i - 1], pid, tid, began)
  for a in w.asks:
    add("i", place_text(origins.place_of(a.line)[0]) if a.line is not None else "values asked for", _HOST, began=a.at, s="t")
    if (i := bisect_right(starts, a.at)) < len(starts): arrow(a.at, _HOST, 1, starts[i])
  for number, name, began, ended in workers.history:
    if began > w.began: add("X", name, _WORKERS, number, began, dur=round((ended - began) * 1e6, 3))
  for when, nbytes in w.memory: add("C", "memory", _HOST, began=when, args={"bytes": nbytes})
  return {"traceEvents": out, "displayTimeUnit": "ms"}
