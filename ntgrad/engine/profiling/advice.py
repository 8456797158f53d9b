"""What follows from a profile's numbers, in sentences: what takes the time or the memory, at which line, and what to do."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ntgrad.codegen.choose.bound import Unit
from ntgrad.engine.report import bytes_text, time_text
from ntgrad.graph.origins import text_of_lines

from .findings import BUILT_ANEW, MAKING, WAITING, Findings, place_text
from .sampler import BUILDING, USER

MOST = 6             # sentences
WORTH_SAYING = 0.3   # a part of the time, or of the peak, that is worth a sentence
SOME = 0.1           # of the time, of what can be had without it
SLOW = 0.25          # of its bound that a slow kernel reaches at most
SMALL_SECONDS = 5e-5         # seconds of a kernel that is too small to be fast
SEVERAL = 3          # plans of one kind that are many
LARGE = 1 << 20      # bytes that are worth a sentence
_MEMORY = Unit.MEMORY, Unit.CACHE
# operations that compute nothing
_COPIES = frozenset("""permute transpose contiguous T mT movedim swapaxes t flip clone cast to half float double bfloat16 type
astype int long""".split())
_SLOW = {
  "small kernels": "each is over before it is well begun; larger batches, or fewer and larger operations, come nearer",
  "layout": "most often one reads across the order of memory, as of a transposed or strided tensor; keep a .contiguous() copy "
            "that is made once, or have the last dimension be the one that is read in a row",
  "slow kernels": "larger sizes, multiples of 16, and float16 where it will do, come nearer"}
# why a plan was made anew: what differs, and what to do
_ANEW = {
  "size": ("for other sizes",
           "pad to a few sizes, or declare the dimension with a Variable (docs/shapes.md), which has one plan for all"),
  "constant": ("for other numbers", "pass the number as a Tensor, or round it to a few values"),
  "structure": ("of a new structure", "the code that ran is another each time: branches on values, lists of another length, "
                "layers that are made in the loop")}


class Advice(NamedTuple):
  """A sentence, the class of its cause, and the seconds or the bytes that it is about."""
  kind: str
  text: str
  weight: float


def advice(f: Findings) -> list[Advice]:
  """What is worth saying, what it is most about first; memory at the end."""
  later = f.wall if f.steps is None else sum(f.steps.later.values()) * (len(f.steps.ends) - 1)
  found = [a for a in _plans(f) if a.weight >= SOME * f.wall]
  found += [a for a in (*_host(f), *_kernels(f)) if a.weight >= SOME * later]
  return [*sorted(found, key=lambda a: -a.weight), *_memory(f)][:MOST]


def _host(f: Findings) -> Iterator[Advice]:
  """Steps that are built anew each time; Python that is none of ntgrad's; values that are asked for in every step."""
  steps = f.steps
  kinds, times = (f.kinds, 1) if steps is None else (steps.later, len(steps.ends) - 1)
  whole, what = sum(kinds.values()), "the time" if steps is None else "a later step"
  ours = sum(kinds[k] for k in BUILT_ANEW if k != USER)
  if steps is not None and ours > WORTH_SAYING * whole and kinds[BUILDING] + kinds["gradients"] > SOME * whole:
    yield Advice("uncaptured", (
      f"{ours / whole:.0%} of {what} ({time_text(ours)} of {time_text(whole)}) is Python that builds, plans and launches the "
      f"same graphs again: put the code of a step, which ends at {steps.line}, into a function and call ntgrad.jit(function); "
      f"about {time_text(max(whole - ours, 0))} a step are left"), ours * times)
  if kinds[USER] > WORTH_SAYING * whole:
    lines = [line for line in f.lines() if not line.operations] or f.lines()
    at = f", most of it at {place_text(lines[0].place)}" if lines else ""
    yield Advice("host", (
      f"{kinds[USER] / whole:.0%} of {what} ({time_text(kinds[USER])}) is Python outside of ntgrad{at}, which the device waits "
      "for: prepare data once before the loop, or in workers of ntgrad.utils.data.DataLoader"), kinds[USER] * times)
  if steps is not None and (waiting := f.kinds[WAITING]) >= WORTH_SAYING * f.wall:
    yield Advice("waits", (
      f"{waiting / f.wall:.0%} of the time the host waits for the device while no kernel runs, most often at {steps.line}: read "
      "values every so many steps"), waiting)


def _plans(f: Findings) -> Iterator[Advice]:
  """Kernels that are made again and again."""
  plans, said = f.watched.plans, False
  ends = f.steps.ends if f.steps is not None else ()
  # what is still made after a quarter of the steps: a captured function has its kernels by then
  later = [p for p in plans if p.at > ends[len(ends) // 4].at] if ends else plans[1:]
  for kind, (what, then) in _ANEW.items():
    mine = [p for p in later if p.kind == kind]
    if len(mine) < SEVERAL: continue
    said, seconds, kernels = True, sum(p.seconds for p in mine), sum(p.kernels for p in mine)
    line = Counter([text_of_lines(p.made) for p in mine]).most_common(1)[0][0] or "an unknown line"
    yield Advice(f"compiled for each {kind}", (
      f"{len(mine)} plans with {kernels} new kernels were made {what} in {time_text(seconds)}, most often at {line} (the last "
      f"one: {mine[-1].why}): {then}"), seconds)
  making = sum(f.kinds[k] for k in MAKING)
  if not said and making > WORTH_SAYING * f.wall:
    yield Advice("first step", (
      f"{making / f.wall:.0%} of the time ({time_text(making)}) is making {sum(p.kernels for p in plans)} kernels for the first "
      "time: the next run of the script finds them on disk"), making)


def _kernels(f: Findings) -> Iterator[Advice]:
  """Kernels that are far from their bound; those that only move or cast what others could read as it is."""
  rows = [r for r in f.rows if r.fraction < SLOW and r.lost > 0 and (r.count > 1 or f.steps is None)]
  for kind, mine in (("small kernels", [r for r in rows if r.each < SMALL_SECONDS]),
                     ("layout", [r for r in rows if r.each >= SMALL_SECONDS and r.unit in _MEMORY]),
                     ("slow kernels", [r for r in rows if r.each >= SMALL_SECONDS and r.unit not in _MEMORY])):
    if not mine: continue
    lost, lines = sum(r.lost for r in mine), f.lines({(r.name, r.device) for r in mine})
    part = sum(r.bound for r in mine) / sum(r.seconds for r in mine)
    worst = max(lines, key=lambda line: line.lost, default=None)
    at = f", most for {place_text(worst.place)} {', '.join(worst.operations)}" if worst is not None and worst.lost else ""
    which = f"{len(mine)} kernels run at {part:.0%} of their bounds" if len(mine) > 1 else \
      f"{mine[0].name} runs at {part:.0%} of its bound"
    quick = " (some were built quickly: longer runs get optimised ones)" if any(r.quick for r in mine) else ""
    yield Advice(kind, f"{which}{quick}, which lost {time_text(lost)}{at}: {_SLOW[kind]}", lost)
  for line in f.lines():
    if line.operations and {*line.operations} <= _COPIES and line.launches >= 2 * SEVERAL:
      yield Advice("copies", (
        f"{place_text(line.place)} {', '.join(line.operations)} moves {bytes_text(line.nbytes / line.launches)} in each of "
        f"{line.launches:.0f} launches, in {time_text(line.kernels)}, only to copy, cast or transpose: do it once before the "
        "loop"),
        line.kernels)


def _memory(f: Findings) -> Iterator[Advice]:
  """What grows from step to step; what is most of the peak."""
  growth, more = f.grown()
  if more and f.steps is not None and growth * len(f.steps.ends) > LARGE:
    text, nbytes, n = more[0]
    yield Advice("leak", (
      f"memory grows by {bytes_text(growth)} a step: {n} piece{'s' * (n != 1)} ({bytes_text(nbytes)}) from {text} are kept by "
      "something that lives on, such as a list: keep .item() of them, or .detach() where the graph beneath them is not "
      "needed"), nbytes)
  peak, pieces = f.watched.peak, f.pieces(f.watched.at_peak)
  # (the inner buffers of a replay are one piece, too)
  if pieces and pieces[0][1] > max(WORTH_SAYING * peak, 16 * LARGE) and pieces[0][2] == 1 and not pieces[0][0].startswith("jit "):
    text, nbytes, _ = pieces[0]
    yield Advice("huge temporary", (
      f"{bytes_text(nbytes)} of the {bytes_text(peak)} at the peak is one piece, from {text}: split the work along a dimension, "
      "or use a function that needs no such value"), nbytes)
