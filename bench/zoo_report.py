"""What ``bench/zoo.py`` measured: its files of results, the reference of torch's times, and the tables."""
from __future__ import annotations

import datetime
import json
import math
import os
from pathlib import Path
from statistics import median
from typing import Any, Sequence

from zoo_rows import APART, GROUPS, Row

NOTHING = 0.01                       # a row that fails counts as this ratio: 0 has no geometric mean
MOST = 3.0                           # and none counts as more than this
MUST = {"CUDA": 0.5, "CPU": 0.6}     # what every row must reach
FIT = 0.05                           # how far the calibrating rows may be from those of the reference

Data = dict[str, Any]


def load(path: Path) -> Data: return json.loads(path.read_text()) if path.exists() and path.stat().st_size else {}


def save(path: Path, data: Data) -> None:
  """Write a file as a whole or not at all."""
  other = path.with_name(f".{path.name}.{os.getpid()}")
  other.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
  os.replace(other, path)


class Results:
  """Rows that were measured: the first file is written, all are read."""

  def __init__(self, paths: Sequence[str]) -> None: self.paths = [Path(p) for p in paths]

  def read(self) -> Data:
    """All rows; where files have the same row, that of the first."""
    out: Data = {"rows": {}}
    for path in reversed(self.paths):
      data = load(path)
      rows = {**out["rows"], **data.get("rows", {})}
      out = {**out, **data, "rows": rows, "calibrations": [*out.get("calibrations", []), *data.get("calibrations", [])]}
    return out

  def add(self, name: str, row: Data) -> None:
    """One more row."""
    data = load(self.paths[0])
    data.setdefault("rows", {})[name] = {**row, "date": str(datetime.date.today())}
    save(self.paths[0], data)

  def about(self, machine: Data, calibration: Data | None) -> None:
    """Which machine and versions these are of."""
    data = {**load(self.paths[0]), **machine}
    if calibration is not None: data.setdefault("calibrations", []).append(calibration)
    save(self.paths[0], data)


# ---- the reference

def keep_reference(path: Path, data: Data) -> None:
  """Add what was measured of torch to the reference file."""
  new = {name: row["torch"] for name, row in data["rows"].items() if row.get("torch", {}).get("measured")}
  if not new: return
  old = load(path)
  seen = data.get("calibrations", [])
  if old.get("device") != data.get("device"): old = {}   # of another machine
  rows = {**old.get("rows", {}), **{k: {a: b for a, b in v.items() if a != "measured"} for k, v in new.items()}}
  about = {k: data.get(k) for k in ("device", "versions")} if seen else {}
  calibration = {k: median([c[k] for c in seen]) for k in seen[0]} if seen else old.get("calibration", {})
  save(path, {**old, **about, "date": str(datetime.date.today()), "calibration": calibration, "rows": rows})


def refusal(reference: Data, device: str, calibration: Data) -> str:
  """What speaks against using a reference file here; nothing if it fits."""
  if not reference.get("calibration"): return ""
  found = [f"it is of {reference['device']}, this is {device}"] if reference.get("device") != device else []
  for name, then in reference["calibration"].items():
    now = calibration[name]
    if abs(now / then - 1) > FIT:
      found.append(f"the calibrating {name} takes {now * 1e3:.3f} ms, there {then * 1e3:.3f} ms ({now / then - 1:+.0%})")
  return f"the reference file does not fit: {'; '.join(found)}. --remeasure measures torch again" if found else ""


# ---- verdicts

def ratio(row: Data) -> float | None:
  """torch's time over ours; 0 for a row that failed or is wrong, None where there is nothing to compare with."""
  if "failed" in row or row.get("right") is False: return 0.0
  return row["theirs"] / row["ours"] if row.get("theirs") else None


def geometric(ratios: Sequence[float]) -> float:
  return math.exp(sum(math.log(min(MOST, max(NOTHING, r))) for r in ratios) / len(ratios)) if ratios else math.nan


def means(found: Sequence[Row], rows: Data) -> dict[str, float]:
  """The geometric mean of each group's ratios."""
  out = {}
  for g in GROUPS:
    ratios = [x for r in found if r.kind.group == g and r.name in rows and (x := ratio(rows[r.name])) is not None]
    if ratios: out[g] = geometric(ratios)
  return out


def verdict(found: Sequence[Row], rows: Data) -> str:
  """How many rows there are and what they come to."""
  by = means(found, rows)
  counted = [v for g, v in by.items() if g not in APART]
  whole = f", mean over groups {sum(counted) / len(counted):.2f}" if counted else ""
  return f"{sum(r.name in rows for r in found)} of {len(found)} rows measured{whole}"


def time_text(s: float) -> str: return f"{s * 1e6:.1f} µs" if s < 1e-3 else f"{s * 1e3:.2f} ms" if s < 1 else f"{s:.2f} s"
def bytes_text(n: float) -> str: return f"{n / 1e9:.2f} GB" if n >= 1e9 else f"{n / 1e6:.1f} MB"
def error_text(x: float | None) -> str: return "–" if x is None else f"{x:.1e}"


def line(r: Row, row: Data, must: float) -> str:
  """A row of the table."""
  x = ratio(row)
  if "failed" in row:
    why = row["failed"].replace("|", "/").replace("\n", " ")[:160]
    return f"| {r.name} | {why} | – | 0 | – | **no** |"
  ours = time_text(row["ours"]) + (f", {row['kernels']} kernels" if row.get("kernels", 1) > 1 else "")
  if r.kind.model: ours += f", first step {row['first']:.1f} s, peak {bytes_text(row['peak'])}"
  theirs = f"{time_text(row['theirs'])} {row['torch']['way']}" if row.get("theirs") else "–"
  if row.get("torch", {}).get("peak"): theirs += f", peak {bytes_text(row['torch']['peak'])}"
  wrong = row.get("right") is False
  value = "–" if not row.get("theirs") else f"{row['theirs'] / row['ours']:.2f}" + (", wrong: 0" if wrong else "")
  errors = f"{error_text(row.get('error'))} / {error_text(row.get('torch_error'))}"
  ok = "–" if x is None else "yes" if x >= must and row.get("captured", True) else "**no**"
  return f"| {r.name} | {ours} | {theirs} | {value} | {errors} | {ok} |"


def document(found: Sequence[Row], data: Data, named: str, note: str = "") -> str:
  """The file of results."""
  rows, must = data["rows"], MUST[named.upper()]
  by = means(found, rows)
  measured = [r for r in found if r.name in rows]
  judged = [(r, x) for r in measured if r.kind.group not in APART and (x := ratio(rows[r.name])) is not None]
  counted = [v for g, v in by.items() if g not in APART]
  short = [r for r, x in judged if x < must]
  lines = [
    f"# What `bench/zoo.py --device {named.upper()}` measured", "",
    f"{datetime.date.today()}, {data.get('device', '')}, {data.get('versions', '')}", "", *([note, ""] if note else []),
    f"Ratios are torch's time over ours, torch being the best of the ways it has. A row must reach {must}; one that fails,",
    f"or whose error against float64 is more than twice torch's, counts as {NOTHING}, and none as more than {MOST:g}. A group's",
    "number is the geometric mean of its rows.", "",
    f"**{len(measured)} of {len(found)} rows measured; {len(judged) - len(short)} of {len(judged)} reach {must}; the mean over "
    f"groups is {sum(counted) / max(1, len(counted)):.2f}**" + (f" ({', '.join(APART)} left out)." if APART else "."), "",
    "| group | rows | below | mean |", "| --- | --: | --: | --: |"]
  for g, v in by.items():
    of = [ratio(rows[r.name]) for r in measured if r.kind.group == g]
    lines.append(f"| {g} | {len(of)} | {sum(x is not None and x < must for x in of)} | {v:.2f} |")
  for g in GROUPS:
    mine = [r for r in measured if r.kind.group == g]
    if not mine: continue
    lines += ["", f"## {g}", "", "| work | ntgrad | torch | ratio | error, torch's | ok |",
              "| --- | --- | --- | --: | --- | --- |"]
    lines += [line(r, rows[r.name], must) for r in mine]
  return "\n".join(lines) + "\n"
