"""What follows from a profile's numbers, in sentences: what takes the time or the memory, at which line, and what to do."""
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from math import prod
from typing import Any, NamedTuple

from ntgrad.codegen.choose.bound import Unit, Work
from ntgrad.codegen.index import count
from ntgrad.engine.report import bytes_text, time_text
from ntgrad.graph.origins import place_of, text_of_lines

from .findings import BUILT_ANEW, MAKING, WAITING, Findings, place_text
from .rows import Row
from .sampler import BUILDING, COPYING, USER, FileLine

MOST = 6             # sentences
WORTH_SAYING = 0.3   # a part of the time, or of the peak, that is worth a sentence
IDLE = 0.8           # of the time of a line, in which the processor does nothing for it
SOME = 0.1           # of the time, of what can be had without it
SLOW = 0.25          # of its bound that a slow kernel reaches at most
SMALL_SECONDS = 5e-5         # seconds of a kernel that is too small to be fast
PLACES_A_BYTE = 64   # places that a kernel goes through for each of its bytes, where elements meet each other
MANY = 16            # values that a step reads, one by one
SEVERAL = 3          # plans of one kind that are many
LARGE = 1 << 20      # bytes that are worth a sentence
_MEMORY = Unit.MEMORY, Unit.CACHE
# operations that compute nothing
_COPIES = frozenset("""permute transpose contiguous T mT movedim swapaxes t flip clone cast to half float double bfloat16 type
astype int long""".split())
_JOINS = frozenset({"cat", "stack", "vstack", "hstack", "dstack", "append"})
# what is so of kernels, and what to do
_KERNELS = {
  "float64": "in float64, which takes twice the time and the memory of float32: where that will do, make the arrays float32 that "
             "Tensors are made of (array.astype(np.float32))",
  "pairs": "each element meets each other one; where a shape (N, 1) stands beside (N,) by mistake, give both the same shape",
  "small kernels": "each is over before it is well begun; larger batches, or fewer and larger operations, come nearer",
  "layout": "they read across the order of memory, a few bytes here and there; keep a .contiguous() copy that is made once, or "
            "have the last dimension be the one that is read in a row",
  "quick": "they were built quickly: longer runs get optimised ones",
  "slow kernels": "larger sizes, multiples of 16, and float16 where it will do, come nearer; BEAM=2 tries other Opts",
  "memory": "so long takes moving that many bytes; a .contiguous() or .realize() that is not needed, a large dtype, and what "
            "nobody needs of a tensor cost as much",
  "computing": "so long take that many operations; smaller sizes, or float16, take less"}
_WHOLE = "float64", "pairs", "memory", "computing"   # where all of the time counts, not what is beyond the bound
# why a plan was made anew: what differs, and what to do
_ANEW = {
  "size": ("for other sizes",
           "pad to a few sizes, or declare the dimension with a Variable (docs/shapes.md), which has one plan for all"),
  "constant": ("for other numbers", "pass the number as a Tensor, or round it to a few values"),
  "structure": ("of a new structure", "the code that ran is another each time: branches on values, lists of another length, "
                "layers that are made in the loop"),
  "anew": ("", "call ntgrad.jit once, before the loop, and keep what it gives: each captured function begins from nothing")}
_RERUN = "call it with arguments of one kind, in the same modes"


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
  yield from (anew := [*_made_anew(f, ours)])
  plain = [a for a in steps.ends[1:] if not a.replay] if steps is not None else []
  captured = 2 * len(plain) < times or any([a.kind == "not replayed" for a in anew])
  again = not captured and kinds[BUILDING] + kinds["gradients"] > SOME * whole
  if steps is not None and again and ours > WORTH_SAYING * whole:
    yield Advice("uncaptured", (
      f"{ours / whole:.0%} of {what} ({time_text(ours)} of {time_text(whole)}) is Python that builds, plans and launches the "
      f"same graphs again: put the code of a step, which ends at {steps.line}, into a function and call ntgrad.jit(function); "
      f"about {time_text(max(whole - ours, 0))} a step are left"), ours * times)
  if kinds[USER] > WORTH_SAYING * whole:
    line, then = f.line_of(USER), "prepare data once before the loop, or in workers of ntgrad.utils.data.DataLoader"
    at = f", most of it at {place_text(line)}" if line else ""
    if line and f.watched.sampler.idle[line] > IDLE * f.watched.sampler.lines[line, USER]:
      at += ", where it computes nothing (it waits for a time, a file, a lock, another thread)"
    if f.elsewhere > f.launches / 2:
      then = f"{f.elsewhere} of {f.launches} kernels were launched by other threads: profile those, with ntgrad.profile() in them"
    yield Advice("host", (
      f"{kinds[USER] / whole:.0%} of {what} ({time_text(kinds[USER])}) is Python outside of ntgrad{at}, which the device waits "
      f"for: {then}"), kinds[USER] * times)
  if kinds[COPYING] > WORTH_SAYING * whole:
    at = f", most of it at {place_text(line)}" if (line := f.line_of(COPYING)) else ""
    yield Advice("transfers", (
      f"{kinds[COPYING] / whole:.0%} of {what} ({time_text(kinds[COPYING])}) is copies between arrays of the host and "
      f"devices{at}: hand on Tensors, which stay there, and ask for values of small results alone"), kinds[COPYING] * times)
  each, reading = f.watched.copies / (times + 1), ours + kinds[COPYING]
  if each > MANY and reading > WORTH_SAYING * whole and (line := f.line_of(BUILDING)):
    yield Advice("reads", (
      f"values go between the host and devices {each:,.0f} times in {what}, most of it at {place_text(line)}, "
      f"{time_text(reading)} in all: read a whole tensor at once (.numpy(), .tolist()), and make one of a whole array"),
      reading * times)
  if steps is not None and (waiting := f.kinds[WAITING]) >= WORTH_SAYING * f.wall:
    yield Advice("waits", (
      f"{waiting / f.wall:.0%} of the time the host waits for the device while no kernel runs, most often at {steps.line}: read "
      "values every so many steps"), waiting)


def _in_later_steps(f: Findings, found: Iterable[tuple[Any, Any, float]]) -> list[tuple[Any, list[Any]]]:
  """Of things with a key and a time those that still came after a quarter of the steps, and often, by their keys."""
  if f.steps is None: return []
  ends, by = f.steps.ends, defaultdict[Any, list[Any]](list)
  for key, x, at in list(found):
    if at > ends[len(ends) // 4].at: by[key].append(x)
  return [(key, mine) for key, mine in by.items() if len(mine) >= max(SEVERAL, SOME * len(ends))]


def _made_anew(f: Findings, python: float) -> Iterator[Advice]:
  """Optimizers, layers and captured functions that are made in every step; captured functions that run their own code, which
  takes ``python`` seconds of a step."""
  builds = [(f"{place_text(place_of(line)[0])} made {what}", 0, at) for what, line, at in f.watched.builds]
  for text, mine in _in_later_steps(f, builds):
    yield Advice("made anew", (f"{text} {len(mine)} times in later steps, and each forgets what the one before had learned: make "
                               "one before the loop"), f.wall)
  for code, reasons in _in_later_steps(f, f.watched.plainly_run):
    kind = Counter([kind for kind, _ in reasons]).most_common(1)[0][0]
    why, then = dict(reasons)[kind], _ANEW.get(kind, ("", _RERUN))[1]
    yield Advice("not replayed", (
      f"{code.co_qualname.rpartition('<locals>.')[2]} ({place_text((code.co_filename, code.co_firstlineno))}), a function for "
      f"ntgrad.jit, ran its own code in {len(reasons)} later calls, in place of a replay of its kernels (the last time: {why}): "
      f"{then}"), python * len(reasons))


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


def _kind(row: Row, work: Work) -> str:
  """The class of what takes a kernel's time."""
  flops, nbytes = count(work.flops), count(work.bytes)
  if 2 * sum(count(o.count) for o in work.operations if o.dtype == "float64") > flops: return "float64"
  product = any([o.unit is Unit.MATRIX for o in work.operations])
  if prod(map(count, work.axes)) > PLACES_A_BYTE * nbytes and not product: return "pairs"
  if row.fraction >= SLOW: return "memory" if row.unit in _MEMORY else "computing"
  if row.each < SMALL_SECONDS: return "small kernels"
  if count(work.beside) > nbytes: return "layout"
  return "quick" if row.quick else "slow kernels"


def _kernels(f: Findings) -> Iterator[Advice]:
  """Kernels that have much to do, or are far from their bound; those that only move or cast what others could read as it is."""
  works, kinds, told = f.works(), defaultdict[str, list[Row]](list), set[FileLine]()
  for line in f.lines():
    if not line.operations or line.launches < 2 * SEVERAL or not {*line.operations} <= _COPIES | _JOINS: continue
    told.add(line.place)
    why, then = ("copy, cast or transpose", "do it once before the loop") if {*line.operations} <= _COPIES else \
      ("join tensors", "keep them in a list, and join them once after the loop")
    yield Advice("copies", (
      f"{place_text(line.place)} {', '.join(line.operations)} moves {bytes_text(line.nbytes / line.launches)} in each of "
      f"{line.launches:.0f} launches, in {time_text(line.kernels)}, only to {why}: {then}"), line.kernels)
  for r in f.rows:
    if (r.name, r.device) in works and (r.count > 1 or f.steps is None): kinds[_kind(r, works[r.name, r.device])].append(r)
  for kind, mine in kinds.items():
    seconds, least, lost = (sum(getattr(r, n) for r in mine) for n in ("seconds", "bound", "lost"))
    if not seconds: continue
    worst = max(f.lines({(r.name, r.device) for r in mine}), key=lambda line: line.kernels, default=None)
    at = ""
    if worst is not None and worst.kernels:
      if worst.place in told: continue
      at = (f", most for {place_text(worst.place)} {', '.join(worst.operations)} (each time "
            f"{bytes_text(worst.nbytes / worst.launches)}, {worst.flops / worst.launches:,.0f} operations)")
    which = f"{len(mine)} kernels run at {least / seconds:.0%} of their bounds" if len(mine) > 1 else \
      f"{mine[0].name} runs at {least / seconds:.0%} of its bound"
    took = f"take {time_text(seconds)}" if kind in _WHOLE else f"lost {time_text(lost)}"
    yield Advice(kind, f"{which}, which {took}{at}: {_KERNELS[kind]}", seconds if kind in _WHOLE else lost)


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
