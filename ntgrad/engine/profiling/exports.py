"""A profile as data, and as a trace that Perfetto (https://ui.perfetto.dev) and Chrome show."""
from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ntgrad.backends import workers
from ntgrad.graph import origins

from .advice import advice
from .findings import Findings, place_text

_HOST, _DEVICES, _WORKERS = 1, 2, 3   # processes of a trace
_FLOWS = 20_000   # arrows of a trace


def data(f: Findings) -> dict[str, Any]:
  """Everything as numbers, texts, lists and dicts. Seconds and bytes."""
  s, w = f.steps, f.watched
  return {
    "seconds": f.wall, "kinds": f.kinds,
    "steps": None if s is None else {"line": s.line, "count": len(s.ends), "first": s.first, "later": s.later},
    "lines": [{**asdict(x), "place": place_text(x.place), "operations": [*x.operations]} for x in f.lines()],
    "modules": [{"path": path, "seconds": seconds, "launches": n} for path, seconds, n in f.modules()],
    "kernels": [{"name": r.name, "device": r.device, "sizes": r.sizes, "count": r.count, "timed": r.timed, "seconds": r.seconds,
                 "bound": r.bound, "lost": r.lost, "fraction": r.fraction, "by": r.unit.value, "quick": r.quick} for r in f.rows],
    "plans": [{**p._asdict(), "made": origins.text_of_lines(p.made), "at": p.at - w.began} for p in w.plans],
    "memory": {"peak": w.peak, "at_peak": [{"made": line, "bytes": n, "count": k} for line, n, k in f.pieces(w.at_peak)],
               "over_time": [[at - w.began, n] for at, n in w.memory]},
    "advice": [a._asdict() for a in advice(f)]}


def trace(f: Findings) -> dict[str, Any]:
  """Events in Chrome's format: the host's phases, launches that were timed on their devices, the jobs of compile workers, memory;
  an arrow from the host's launching to each kernel."""
  w = f.watched
  tracks = {name: i for i, name in enumerate(dict.fromkeys(e.track for e in w.events if e.track), 1)}
  def at(seconds: float) -> float: return round((seconds - w.began) * 1e6, 3)
  out: list[dict[str, Any]] = [{"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
                               for pid, name in ((_HOST, "host"), (_DEVICES, "devices"), (_WORKERS, "compile workers"))]
  out += [{"ph": "M", "pid": _DEVICES, "tid": tid, "name": "thread_name", "args": {"name": name}} for name, tid in tracks.items()]
  launching = [e for e in w.events if not e.track and e.name == "launching"]
  n = 0
  for e in w.events:
    pid, tid = (_DEVICES, tracks[e.track]) if e.track else (_HOST, 1)
    out.append({"ph": "X", "pid": pid, "tid": tid, "name": e.name, "ts": at(e.began), "dur": round(e.took * 1e6, 3),
                "args": {"lines": origins.text_of_lines(e.by)} if e.by else {}})
  kernels = sorted([e for e in w.events if e.track], key=lambda e: e.began)
  for e in sorted(launching, key=lambda e: e.began):
    while n < min(len(kernels), _FLOWS) and kernels[n].began < e.began + e.took:
      k = kernels[n]
      if k.began >= e.began:
        for ph, pid, tid, ts in (("s", _HOST, 1, max(e.began, k.began - 1e-6)), ("f", _DEVICES, tracks[k.track], k.began)):
          out.append({"ph": ph, "pid": pid, "tid": tid, "id": n, "name": "launch", "cat": "launch", "ts": at(ts), "bp": "e"})
      n += 1
  for number, name, began, ended in workers.history:
    if ended > w.began:
      out.append({"ph": "X", "pid": _WORKERS, "tid": number, "name": name, "ts": at(began), "dur": (ended - began) * 1e6})
  out += [{"ph": "C", "pid": _HOST, "name": "memory", "ts": at(when), "args": {"bytes": nbytes}} for when, nbytes in w.memory]
  for a in w.asks: out.append({"ph": "i", "pid": _HOST, "tid": 1, "name": "values asked for", "ts": at(a.at), "s": "t"})
  return {"traceEvents": out, "displayTimeUnit": "ms"}


def write_trace(f: Findings, file: str | Path) -> None:
  """Write a trace to a file."""
  Path(file).write_text(json.dumps(trace(f)))
