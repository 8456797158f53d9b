"""Random kernels, arrangements and sizes: a call is refused exactly where something would be read or written that is not there.

What is right is found by numpy, see ``support/checked.py``; what is accepted runs on NUMPY, which sees accesses out of bounds. A
kernel is called with several sizes, so that its kernels for numbers and for many sizes, and the way past all checks for sizes
like those before, are reached.
"""
from __future__ import annotations

from typing import Any, Callable

import numpy as np
from hypothesis import given, settings, strategies as st

import ntgrad
from ntgrad.codegen.ir.config import config
from ntgrad.errors import NtgradError, ShapeError, VerifyError
from support.checked import LOOP, REDUCE, SPAN, TILE, Case, Cut, Part, Piece, Refused, elements, reference
from support.marks import long

Shapes = list[tuple[int, ...]]
Draw = Callable[[st.SearchStrategy[Any]], Any]
KINDS = ("map", "map", "atomic", "inplace", "sum", "loopsum", "loops", "product", "pick", "dynamic")
BOUNDS = {"B0": (2, 9), "B1": (1, 6), "B2": (0, 40)}
EXPRESSIONS: list[Callable[[str], tuple[Any, ...]]] = [
  lambda a: (f"2 * {a} + 1", (a,), lambda n: 2 * n + 1), lambda a: (f"{a} // 2", (a,), lambda n: n // 2),
  lambda a: (f"{a} + 1", (a,), lambda n: n + 1), lambda a: (f"{a} + Q", (a, "Q"), lambda n, q: n + q),
  lambda a: (f"{a} * Q", (a, "Q"), lambda n, q: n * q), lambda a: (f"3 * {a}", (a,), lambda n: 3 * n)]


def often(draw: Draw, *values: Any) -> Any:
  """The first of values half of the time."""
  return values[0] if draw(st.booleans()) else draw(st.sampled_from(values[1:]))


def declared(draw: Draw, label: int, n: int) -> Any:
  """What a source dimension of a label is declared as."""
  what = often(draw, None, None, "?", "shared", "shared", "own", "number", "bounds", "expression")
  match what:
    case "shared": return f"L{label}"
    case "own": return f"{draw(st.sampled_from('UVW'))}{label}"
    case "number": return n
    case "bounds": return f"B{label}"
    case "expression": return draw(st.sampled_from(EXPRESSIONS))(often(draw, f"L{label}", f"E{label}"))
    case _: return what


def piece(draw: Draw, cut: Cut, label: int, n: int) -> Piece:
  hows: list[tuple[Any, ...]] = [(), ("flip",), ("slice", 1, 0), ("slice", 0, 2), ("slice", 1, 1), ("pad", 1, 0), ("pad", 0, 2)]
  if cut.role != SPAN: hows += [("step", 2), ("flatten",)]
  how = often(draw, (), *hows)
  count = 2 if how == ("flatten",) else 1
  return Piece(tuple([declared(draw, label, n) for _ in range(count)]), how)


def case_of(draw: Draw) -> tuple[Case, list[int]]:
  """A kernel, and sizes of its labels that it was drawn for."""
  kind = draw(st.sampled_from(KINDS))
  reduces = kind in REDUCE
  rank = 3 if kind == "product" else draw(st.integers(1 + reduces, 3 if kind in ("map", "inplace") else 2))
  cuts = []
  for d in range(rank):
    role = LOOP if kind != "sum" else SPAN
    if d < rank - 1 or kind in ("map", "atomic", "inplace"): role = TILE if kind == "product" else often(draw, TILE, SPAN)
    size = draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    cuts.append(Cut(role, size))
  if rank == 1 or kind in ("map",):   # windows
    d = draw(st.integers(0, rank - 1))
    if cuts[d].role == TILE and draw(st.integers(0, 3)) == 0:
      cuts[d] = Cut(TILE, cuts[d].size, draw(st.integers(1, 5)), draw(st.integers(1, 3)))
  base = [size_of(draw, c) for c in cuts]
  parts = []
  inputs = 1 if kind in ("pick", "dynamic") else 2 if kind == "product" else draw(st.integers(1, 2))
  for i in range(inputs):
    have = [d for d in range(rank) if (reduces or "loop" in kind) and d == rank - 1 or draw(st.integers(0, 3))]
    if kind == "product": have = [i, 2]
    parts.append({d: piece(draw, cuts[d], d, base[d]) for d in have or [0]})
  parts.append({d: piece(draw, cuts[d], d, base[d]) for d in range(rank - reduces)})
  floor = draw(st.integers(0, 5)) == 0
  named = [Part(n, p, floor, draw(st.integers(0, 3)) == 0) for n, p in zip(("x", "y")[:inputs] + ("z",), parts)]
  picks = tuple([draw(st.sampled_from([0, 0, 1, -1, 2])) for _ in range(2)])
  windows = any(c.stride != -1 for c in cuts)
  if windows:   # what is written twice is a race
    d = next(d for d, c in enumerate(cuts) if c.stride != -1)
    if cuts[d].stride < cuts[d].size * cuts[d].gap: cuts[d] = Cut(TILE, cuts[d].size, -1, 1)
  even = draw(st.integers(0, len(named[-1].declared) - 1)) if draw(st.integers(0, 9)) == 0 else None
  if even is not None and isinstance(named[-1].declared[even], (int, tuple)): even = None
  return Case(kind, cuts, named, picks, BOUNDS, even), base


def size_of(draw: Draw, c: Cut) -> int:
  return draw(st.one_of(st.integers(1, 12), st.sampled_from([c.size, 2 * c.size, 3 * c.size, 1, 5, 17])))


def called(kernel: Any, case: Case, shapes: Shapes, tensors: bool, i: int) -> tuple[np.ndarray, NtgradError | None]:
  """What the last parameter has after a call, and how it was refused."""
  data = [elements(s, n) for n, s in enumerate(shapes)]
  scalars = [i] if case.kind == "dynamic" else []
  given: list[Any] = [ntgrad.Tensor(d).realize() for d in data] if tensors else data
  try: kernel(*scalars, *given)
  except NtgradError as e: return data[-1], e
  finally:
    if tensors: data[-1][...] = given[-1].numpy()
  return data[-1], None


def check(draw: Draw) -> None:
  case, base = case_of(draw)
  tensors, mode = draw(st.booleans()), draw(st.sampled_from(["auto", "auto", "never", "always"]))
  calls = []
  for _ in range(draw(st.integers(1, 5))):
    sizes = [often(draw, n, size_of(draw, c), 0) if draw(st.integers(0, 3)) == 0 else size_of(draw, c) if calls else n
             for n, c in zip(base, case.cuts)]
    each = [[n + draw(st.sampled_from([1, -1, 3, 8])) if draw(st.integers(0, 15)) == 0 else n for n in sizes] for _ in case.parts]
    calls.append([p.shape([max(n, 0) for n in e]) for p, e in zip(case.parts, each)])
  calls += draw(st.permutations(calls))[:2]
  i = draw(st.integers(-1, 3))
  with config(dev="NUMPY", dynamic=mode):
    wanted = [outcome(case, shapes, i) for shapes in calls]
    try: kernel = case.make()
    except NtgradError as e:
      assert isinstance(e, ShapeError), f"{case}: make raises {type(e).__name__} {e}"
      if "square" not in str(e): assert all(isinstance(w, Refused) for w in wanted), f"{case}: {calls}: make refuses {e}"
      return
    for shapes, want in zip(calls, wanted):
      told = f"\n{case}\n{mode} {tensors} {calls}\nat {shapes} {i}"
      got, error = called(kernel, case, shapes, tensors, i)
      if isinstance(want, Refused):
        if error is None and not want.surely: continue
        assert error is not None, f"not refused: {want}{told}"
        assert not isinstance(error, VerifyError), f"{error}{told}"
        assert np.array_equal(got, elements(shapes[-1], len(shapes) - 1)), f"written before it was refused{told}"
        named = not want.said or any(all(part in str(error) for part in each) for each in want.said)
        assert named, f"the message for {want} is {error}{told}"
      else:
        assert error is None, f"refused: {type(error).__name__} {error}{told}"
        assert np.array_equal(got, want), f"{got}\nwanted {want}{told}"


def outcome(case: Case, shapes: Shapes, i: int) -> np.ndarray | Refused:
  try: return reference(case, shapes, [elements(s, n) for n, s in enumerate(shapes)], i)
  except Refused as e: return e


@long
@settings(max_examples=40)
@given(st.data())
def test_calls_are_refused_where_something_is_not_there(data: st.DataObject) -> None: check(data.draw)


# ---- tensor code: names of dimensions, Variables

OPERATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
  "add": (lambda x, y: x + y, lambda x, y: x + y), "maximum": (lambda x, y: x.maximum(y), np.maximum),
  "matmul": (lambda x, y: x @ y.transpose(), lambda x, y: x @ y.T),
  "cat": (lambda x, y: x.cat(y), lambda x, y: np.concatenate([x, y])),
  "stack": (lambda x, y: x.stack(y), lambda x, y: np.stack([x, y]))}


@settings(max_examples=60)
@given(st.sampled_from(sorted(OPERATIONS)), st.tuples(*[st.integers(1, 4)] * 2), st.tuples(*[st.integers(1, 4)] * 2),
       st.sampled_from(["names", "variables"]))
def test_tensors_are_refused_by_name(op: str, left: tuple[int, ...], right: tuple[int, ...], how: str) -> None:
  ours, numpys = OPERATIONS[op]
  if how == "variables": left, right = ((a + 1, b + 1) for a, b in (left, right))   # a size of 1 broadcasts, and is no Variable
  variables = [[ntgrad.Variable(f"{t}{d}", 1, 64) for d in range(2)] for t in "xy"]
  bound = [[v.bind(n) for v, n in zip(vs, s)] for vs, s in zip(variables, (left, right))]
  shapes = bound if how == "variables" else [left, right]
  with config(dev="NUMPY"):
    x, y = (ntgrad.Tensor.ones(*s) for s in shapes)
    if how == "names": x, y = x.named("rows", "columns"), y.named("other" if op == "matmul" else "rows", "columns")
    try: want = numpys(np.ones(left), np.ones(right))
    except ValueError: want = None
    try: got = ours(x, y).numpy()
    except NtgradError as e:
      text = str(e)
      assert want is None and isinstance(e, ShapeError), e
      wrong = [d for d in range(2) if left[d] != right[d] and not (op in ("matmul", "cat") and d == 0)]
      def said(d: int) -> bool:
        if how == "variables": return f"x{d} = {left[d]}" in text and f"y{d} = {right[d]}" in text
        return ("rows", "columns")[d] in text and str(left[d]) in text and str(right[d]) in text
      assert any(map(said, wrong)), e
    else: np.testing.assert_array_equal(got, want)
