"""A profile as data, and as a trace that Perfetto (https://ui.perfetto.dev) and Chrome show."""
from __future__ import annotations

from bisect import bisect_right
from typing import Any

from ntgrad.backends import workers
from ntgrad.graph import origins

from .advice import advice
from .findings import Findings, place_text

_HOST, _DEVICES, _WORKERS = 1, 2, 3   # processes of a trace
_MOST = 200_000   # events of a trace, from which on it has no arrows


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
  tracks = {name: i for i, name in enumerate(dict.fromkeys(e.track for e in w.events if e.track), 1)}
  def add(ph: str, name: str, pid: int, tid: int = 1, began: float = w.began, **more: Any) -> None:
    out.append({"ph": ph, "name": name, "pid": pid, "tid": tid, "ts": round((began - w.began) * 1e6, 3), **more})
  def arrow(began: float, pid: int, tid: int, ended: float) -> None:
    number = len(out)
    if number < _MOST: add("s", "flow", _HOST, began=began, id=number, cat="flow")
    if number < _MOST: add("f", "flow", pid, tid, ended, id=number, cat="flow", bp="e")
  for name, pid in (("host", _HOST), ("devices", _DEVICES), ("compile workers", _WORKERS)):
    add("M", "process_name", pid, args={"name": name})
  for name, tid in tracks.items(): add("M", "thread_name", _DEVICES, tid, args={"name": name})
  launching = sorted([e for e in w.events if e.name.startswith("launching")], key=lambda e: e.began)
  starts = [e.began for e in launching]
  for e in w.events:
    pid, tid, lines = (_DEVICES, tracks[e.track], origins.text_of_lines(e.by)) if e.track else (_HOST, 1, "")
    add("X", e.name, pid, tid, e.began, dur=round(e.took * 1e6, 3), args={"lines": lines} if lines else {})
    if e.track and (i := bisect_right(starts, e.began)): arrow(starts[i - 1], pid, tid, e.began)
  for a in w.asks:
    add("i", place_text(origins.place_of(a.line)[0]) if a.line is not None else "values asked for", _HOST, began=a.at, s="t")
    if (i := bisect_right(starts, a.at)) < len(starts): arrow(a.at, _HOST, 1, starts[i])
  for number, name, began, ended in workers.history:
    if began > w.began: add("X", name, _WORKERS, number, began, dur=round((ended - began) * 1e6, 3))
  for when, nbytes in w.memory: add("C", "memory", _HOST, began=when, args={"bytes": nbytes})
  return {"traceEvents": out, "displayTimeUnit": "ms"}
