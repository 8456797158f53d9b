"""Index arithmetic: the canonical form keeps values, bounds hold, equal indices are the same node."""
from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any, Callable
from weakref import ref

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import algebra
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.uop import BinaryOps, Ops, UOp
from ntgrad.codegen.kernel.rewrite import fold_node, substitute
from support.indices import at_points

SIZES = (2, 3, 4, 6)
AXES = [ix.rng(i, n) for i, n in enumerate(SIZES)]
POINTS = {r: np.arange(n).reshape([-1 if i == d else 1 for i in range(len(SIZES))]) for d, (r, n) in enumerate(zip(AXES, SIZES))}
A, B, C, D = AXES


@dataclass
class Both:
  """An index and what it means."""
  node: UOp
  value: Any
  text: str


def _build(draw: Callable[..., Any], depth: int) -> Both:
  if depth == 0 or draw(st.integers(0, 5)) == 0:
    if draw(st.booleans()):
      i = draw(st.integers(0, 3))
      return Both(AXES[i], POINTS[AXES[i]], f"a{i}")
    n = draw(st.integers(-9, 9))
    return Both(ix.const(n), np.asarray(n), str(n))
  kind = draw(st.sampled_from(("add", "add", "sub", "mul", "fdiv", "mod")))
  x = _build(draw, depth - 1)
  if kind in ("add", "sub"):
    y = _build(draw, depth - 1)
    if kind == "add": return Both(ix.add(x.node, y.node), x.value + y.value, f"({x.text} + {y.text})")
    return Both(ix.sub(x.node, y.node), x.value - y.value, f"({x.text} - {y.text})")
  n = draw(st.integers(-6, 12) if kind == "mul" else st.sampled_from((1, 2, 3, 4, 6, 8, 12)))
  if kind == "mul": return Both(ix.mul(x.node, n), x.value * n, f"({x.text} * {n})")
  if kind == "fdiv": return Both(ix.fdiv(x.node, n), x.value // n, f"({x.text} // {n})")
  return Both(ix.mod(x.node, n), x.value % n, f"({x.text} % {n})")


@st.composite
def indices(draw: Callable[..., Any]) -> Both: return _build(draw, draw(st.integers(1, 5)))


@given(st.lists(st.tuples(indices(), st.integers(0, 12)), max_size=5))
def test_a_sum_at_once_is_the_sum_of_its_parts(parts: list[tuple[Both, int]]) -> None:
  added = ix.ZERO
  for x, n in parts: added = ix.add(added, ix.mul(x.node, n))
  assert ix.weighted_sum([(x.node, n) for x, n in parts]) is added


def test_places_on_a_diagonal() -> None:
  """Quotient and remainder join before another remainder is added."""
  rows, columns = ix.fdiv(D, 3), ix.mod(D, 3)
  assert ix.weighted_sum(zip((rows, columns, columns), (9, 3, 1))) is ix.add(ix.mul(D, 3), columns)


@given(indices())
def test_values_and_bounds(x: Both) -> None:
  got = at_points(x.node, POINTS)
  assert (got == x.value).all(), x.text
  lo, hi = ix.bounds(x.node)
  assert lo <= np.min(got) and np.max(got) <= hi, x.text


@given(indices())
def test_canonical_form_is_a_fixed_point(x: Both) -> None:
  again = x.node
  for n in x.node.toposort():  # rebuilding a canonical node changes nothing
    if n.op is Ops.ALU: assert fold_node(n) in (None, n), x.text
  terms, c = ix.linear(again)
  assert len({t for t, _ in terms}) == len(terms) and all(k for _, k in terms), x.text
  total = ix.const(c)
  for t, k in reversed(terms): total = ix.add(total, ix.mul(t, k))
  assert total is x.node, x.text


@given(indices())
def test_dividends_are_not_negative(x: Both) -> None:
  for n in x.node.toposort():  # C's truncating operators are right, and fast
    if n.op is Ops.ALU and n.arg in (BinaryOps.IDIV, BinaryOps.MOD): assert ix.vmin(n.src[0]) >= 0, x.text


@given(indices(), st.integers(-20, 20))
def test_conditions(x: Both, n: int) -> None:
  for fn, want in ((ix.lt, x.value < n), (ix.ge, x.value >= n), (ix.eq, x.value == n)):
    assert (at_points(fn(x.node, n), POINTS) == want).all(), f"{fn.__name__}({x.text}, {n})"


@given(indices(), st.integers(0, 3), indices())
def test_substitute(x: Both, axis: int, by: Both) -> None:
  out, = substitute((x.node,), {AXES[axis]: by.node})
  env = {**POINTS, AXES[axis]: at_points(by.node, POINTS)}
  assert (at_points(out, POINTS) == at_points(x.node, env)).all(), f"{x.text} with a{axis} = {by.text}"


X = ix.rng(9, 24)
EQUAL: list[tuple[str, UOp, UOp]] = [
  ("sums in any order", ix.add(ix.add(A, B), A), ix.add(B, ix.mul(A, 2))),
  ("terms cancel", ix.sub(ix.add(A, B), B), A),
  ("whole parts of //", ix.fdiv(ix.add(ix.mul(A, 8), B), 8), A),
  ("whole parts of %", ix.mod(ix.add(ix.mul(A, 8), B), 8), B),
  ("// of //", ix.fdiv(ix.fdiv(X, 3), 4), ix.fdiv(X, 12)),
  ("// of // and a sum", ix.fdiv(ix.add(ix.mul(A, 16), ix.fdiv(X, 7)), 28), ix.fdiv(ix.add(ix.mul(A, 112), X), 196)),
  ("rows of pictures", ix.add(ix.add(ix.mul(ix.fdiv(ix.add(ix.mul(A, 28), X), 49), 784),
                                     ix.mul(ix.mod(ix.fdiv(ix.add(ix.mul(A, 112), ix.mul(X, 4)), 7), 28), 28)),
                              ix.mod(ix.add(ix.mul(A, 448), ix.mul(X, 16)), 28)), ix.add(ix.mul(A, 448), ix.mul(X, 16))),
  ("% of //", ix.mod(ix.fdiv(X, 3), 4), ix.fdiv(ix.mod(X, 12), 3)),
  ("% of // and a sum", ix.mod(ix.fdiv(ix.add(ix.mul(A, 32), X), 3), 3), ix.fdiv(ix.mod(ix.add(ix.mul(A, 32), X), 9), 3)),
  ("% within a %", ix.mod(ix.add(B, ix.mul(ix.mod(X, 6), 2)), 4), ix.mod(ix.add(B, ix.mul(X, 2)), 4)),
  ("a digit and what is below", ix.add(ix.mul(ix.fdiv(ix.mod(X, 12), 4), 4), ix.mod(X, 4)), ix.mod(X, 12)),
  ("% of %", ix.mod(ix.mod(X, 12), 4), ix.mod(X, 4)),
  ("split and joined", ix.add(ix.mul(ix.fdiv(X, 4), 4), ix.mod(X, 4)), X),
  ("split in three and joined", ix.add(ix.add(ix.mul(ix.fdiv(X, 12), 12), ix.mul(ix.mod(ix.fdiv(X, 4), 3), 4)), ix.mod(X, 4)), X),
  ("joined in the other order", ix.add(ix.mul(ix.add(ix.mul(ix.fdiv(X, 12), 3), ix.mod(ix.fdiv(X, 4), 3)), 4), ix.mod(X, 4)), X),
  ("a small part does not carry", ix.fdiv(ix.add(ix.mul(D, 4), C), 8), ix.fdiv(D, 2)),
  ("nor into a %", ix.mod(ix.add(ix.mul(D, 4), C), 8), ix.add(ix.mul(ix.mod(D, 2), 4), C)),
  ("with a constant", ix.fdiv(ix.add(ix.add(ix.mul(D, 4), A), 2), 8), ix.fdiv(D, 2)),
  ("common factors", ix.mod(ix.mul(X, 2), 8), ix.mul(ix.mod(X, 4), 2)),
  ("negative", ix.fdiv(ix.sub(ix.mul(A, -4), 1), 4), ix.sub(ix.mul(A, -1), 1)),
  ("backwards", ix.fdiv(ix.sub(ix.const(23), X), 4), ix.add(ix.fdiv(ix.sub(ix.const(31), X), 4), -2)),
  ("axis of one", ix.rng(7, 1), ix.const(0))]


@pytest.mark.parametrize("name, one, other", EQUAL, ids=[n for n, _, _ in EQUAL])
def test_same_node(name: str, one: UOp, other: UOp) -> None: assert one is other


def test_conditions_that_ranges_prove() -> None:
  assert ix.lt(ix.add(A, B), 4) is ix.TRUE and ix.lt(A, 0) is ix.FALSE and ix.ge(ix.add(C, 1), 1) is ix.TRUE
  assert ix.eq(ix.mod(ix.mul(X, 2), 2), 0) is ix.TRUE and ix.eq(A, 5) is ix.FALSE
  assert ix.lt(ix.add(X, 3), 10) is ix.lt(X, 7) and ix.ge(ix.sub(X, 2), 1) is ix.ge(X, 3)


def test_both_is_a_set() -> None:
  p, q = ix.lt(A, 1), ix.lt(B, 2)
  assert (
    ix.both(p, q, p) is ix.both(q, p)
    and ix.both() is ix.TRUE
    and ix.both(p, ix.FALSE) is ix.FALSE
    and ix.both(p, ix.TRUE) is p
  )
  assert set(ix.conjuncts(ix.both(p, q))) == {p, q}


def test_product_of_unknowns_stays() -> None:
  p = ix.mul(A, B)
  assert p is ix.mul(B, A) and (at_points(p, POINTS) == POINTS[A] * POINTS[B]).all() and ix.bounds(p) == (0, 2)


def test_bounds_of_what_is_no_number_of_an_index() -> None:
  """Floats on the way (a cast of infinity) have no bounds, and are no error."""
  inf = UOp.const(dtypes.float32, float("-inf"))
  assert ix.bounds(UOp(Ops.CAST, dtypes.int32, (UOp.alu(BinaryOps.ADD, inf, inf),))) == (-(1 << 31), (1 << 31) - 1)


# ---- run-time sizes

M, N, K = (UOp(Ops.SIZE, ix.INT, (), ix.Size(n, 1)) for n in "MNK")
NUMBERS = ((1, 1, 1), (4, 3, 2), (1, 5, 7), (6, 2, 3), (16, 1, 5))


def points_of(values: tuple[int, ...], axes: dict[int, UOp]) -> dict[UOp, Any]:
  """Numbers for the sizes, and every value of each axis along a dimension of its own."""
  known = {s: np.asarray(v) for s, v in zip((M, N, K), values)}
  points: dict[UOp, Any] = dict(known)
  for d, r in axes.items():
    size = r.arg[1]
    count = int(at_points(size, known)) if isinstance(size, UOp) else size
    points[r] = np.arange(count).reshape([-1 if i == d else 1 for i in range(len(axes))])
  return points


SIZED = {i: ix.rng(i + 10, n) for i, n in enumerate((M, N, ix.mul(N, K), ix.cdiv(M, 4), 3))}


def _sized(draw: Callable[..., Any], depth: int) -> UOp:
  if depth == 0 or draw(st.integers(0, 5)) == 0:
    kind = draw(st.integers(0, 5))
    if kind < 3: return SIZED[draw(st.integers(0, len(SIZED) - 1))]
    return draw(st.sampled_from((M, N, K))) if kind < 5 else ix.const(draw(st.integers(-9, 9)))
  kind = draw(st.sampled_from(("add", "add", "sub", "mul", "times", "fdiv", "mod", "fdiv size", "mod size", "min", "max")))
  x = _sized(draw, depth - 1)
  if kind in ("add", "sub", "min", "max"):
    y = _sized(draw, depth - 1)
    return {"add": ix.add, "sub": ix.sub, "min": ix.least, "max": ix.greatest}[kind](x, y)
  if kind == "mul": return ix.mul(x, draw(st.integers(-6, 12)))
  if kind == "times": return ix.mul(x, draw(st.sampled_from((M, N, K))))
  by: Any = draw(st.sampled_from((M, N, K, ix.mul(N, K)) if kind.endswith("size") else (2, 3, 4, 8)))
  return (ix.fdiv if kind.startswith("fdiv") else ix.mod)(x, by)


@st.composite
def sized_indices(draw: Callable[..., Any]) -> UOp: return _sized(draw, draw(st.integers(1, 4)))


def where_defined(points: dict[UOp, Any]) -> bool: return all(p.size for p in points.values())


@given(sized_indices(), sized_indices(), st.integers(-4, 4))
def test_sizes_are_sound(x: UOp, y: UOp, n: int) -> None:
  """Bounds hold and what is built of two indices has the values that it should have, for whatever the sizes are."""
  made = {"+": ix.add(x, y), "-": ix.sub(x, y), "*": ix.mul(x, y), "//": ix.fdiv(x, M), "%": ix.mod(x, M), "//4": ix.fdiv(x, 4),
          "%4": ix.mod(x, 4), "min": ix.least(x, y), "max": ix.greatest(x, y), "<": ix.lt(x, y), ">=": ix.ge(x, y),
          "<n": ix.lt(x, n), ">=n": ix.ge(x, n), "==": ix.eq(x, y)}
  for values in NUMBERS:
    points = points_of(values, SIZED)
    if not where_defined(points): continue
    a, b, m = at_points(x, points), at_points(y, points), values[0]
    want = {"+": a + b, "-": a - b, "*": a * b, "//": a // m, "%": a % m, "//4": a // 4, "%4": a % 4, "min": np.minimum(a, b),
            "max": np.maximum(a, b), "<": a < b, ">=": a >= b, "<n": a < n, ">=n": a >= n, "==": a == b}
    for what, node in made.items():
      got = at_points(node, points)
      assert (got == want[what]).all(), (what, str(node), values)
    lo, hi = ix.bounds(x)
    assert lo <= np.min(a) and np.max(a) <= hi, values


def test_bounds_by_the_ends_of_axes() -> None:
  i, j = ix.rng(0, ix.fdiv(N, 16)), ix.rng(1, 16)
  at = ix.add(ix.mul(i, 16), j)
  assert ix.lt(at, N) is ix.TRUE and ix.ge(at, 0) is ix.TRUE and ix.bounds(ix.sub(at, N))[1] == -1
  assert ix.lt(ix.add(at, 1), N) is not ix.TRUE                        # N may be a multiple of 16
  row, column = ix.rng(2, M), ix.rng(3, N)
  flat = ix.add(ix.mul(row, N), column)
  assert ix.lt(flat, ix.mul(M, N)) is ix.TRUE and ix.fdiv(flat, N) is row and ix.mod(flat, N) is column
  assert ix.bounds(column) == (0, ix.FAR - 1) and ix.bounds(ix.rng(4, ix.mod(N, 8))) == (0, 6)


def test_conditions_have_sizes_on_the_right() -> None:
  i = ix.rng(0, ix.cdiv(N, 4))
  assert ix.lt(ix.mul(i, 4), N) is ix.TRUE                             # the first of each four
  at = ix.add(ix.mul(i, 4), ix.rng(1, 4))
  assert ix.lt(ix.sub(at, N), 0) is ix.lt(at, N) and ix.lt(at, N).src == (at, N)
  assert ix.lt(ix.add(at, 1), N).src == (at, ix.sub(N, 1))
  assert ix.ge(ix.sub(N, at), 1) is ix.lt(at, N)                       # N - i >= 1
  assert ix.lt(ix.sub(N, at), 1).src == (ix.sub(N, 1), at)             # N - i < 1, i > N - 1


def test_hints_and_multiples() -> None:
  n = UOp(Ops.SIZE, ix.INT, (), ix.Size("n", 1, unit=16, hint=5))
  assert ix.hint(ix.mul(n, 16)) == 80 and ix.hint(ix.cdiv(ix.mul(n, 16), 64)) == 2 and ix.count(7) == 7
  assert ix.hint(N) == 1024 and ix.hint(UOp(Ops.SIZE, ix.INT, (), ix.Size("n", 1, 8))) == 8
  assert ix.hint(ix.sub(n, 100)) == -95 and ix.count(ix.sub(n, 100)) == 0
  assert ix.divides(8, ix.mul(n, 16)) and not ix.divides(32, ix.mul(n, 16)) and not ix.divides(2, N) and ix.divides(3, 12)


def test_data_has_no_sizes() -> None:
  """A loaded value of 64 bits may be anything, wherever it is read."""
  x = UOp(Ops.DEFINE_GLOBAL, dtypes.int64, (), (0, "data0", False))
  loaded = UOp(Ops.CAST, ix.INT, (UOp(Ops.LOAD, dtypes.int64, (x, ix.mul(N, 2))),))
  assert not ix.has_sizes(loaded) and ix.has_sizes(ix.add(loaded, N)) and ix.has_sizes(ix.rng(0, N))


def test_a_condition_that_another_implies_goes() -> None:
  a = ix.rng(0, 8)
  assert ix.both(ix.lt(a, 4), ix.lt(a, 3)) is ix.lt(a, 3) is ix.both(ix.lt(a, 3), ix.lt(a, 4))


def test_what_terms_join_with_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
  """A sum of many quotients and remainders, made term by term: not looked for anew by each."""
  x = [ix.add(ix.mul(ix.rng(2*i, 50), 3), ix.rng(2*i + 1, 17)) for i in range(900, 930)]
  terms = [ix.mul(fn(a, 7), 100 + i) for i, a in enumerate(x) for fn in (ix.fdiv, ix.mod)]
  calls = [0]
  real = ix.fdiv
  def counted(a: UOp, by: UOp | int) -> UOp:
    calls[0] += 1
    return real(a, by)
  monkeypatch.setattr(ix, "fdiv", counted)
  total = ix.ZERO
  for t in terms: total = ix.add(total, t)
  assert len(ix.linear(total)[0]) == len(terms) and calls[0] <= 2 * len(terms)


def test_joined_terms_go_when_nobody_holds_them() -> None:
  """What a remainder joins with has the quotient, and the other way round: neither keeps the other."""
  gc.collect()
  gc.disable()
  try:
    x = ix.add(ix.mul(ix.rng(951, 50), 3), ix.rng(952, 17))
    quotient, remainder = ix.fdiv(x, 7), ix.mod(x, 7)
    assert ix.add(ix.mul(quotient, 14), ix.mul(remainder, 2)) is ix.mul(x, 2)
    assert ix.sub(ix.mul(x, 2), ix.mul(quotient, 14)) is ix.mul(remainder, 2)
    gone = [ref(quotient), ref(remainder), ref(x)]
    del x, quotient, remainder
    assert [r() for r in gone] == [None] * 3
  finally: gc.enable()


def test_work_for_long_sums_grows_with_their_terms(monkeypatch: pytest.MonkeyPatch) -> None:
  """Bounds are those of the terms, not of the sums of the first of them; polynomials are divided without a new sum for each."""
  calls = {"_interval": 0, "_build": 0}
  def counted(name: str) -> None:
    fn = getattr(algebra, name)
    def call(*args: object) -> object:
      calls[name] += 1
      return fn(*args)
    monkeypatch.setattr(algebra, name, call)
  def work(n: int) -> tuple[int, int]:
    """How often each is called for a sum of n terms that nobody has asked about."""
    sizes = [ix.Size(f"work{n}_{i}", 2).node for i in range(n)]
    total = ix.weighted_sum([(ix.mul(ix.rng(i, s), s), 3 + i) for i, s in enumerate(sizes)])
    calls.update(_interval=0, _build=0)
    ix.bounds(total)
    found = calls["_interval"], calls["_build"]
    divided = ix.sub(ix.mul(total, sizes[0]), 1)
    calls.update(_build=0)
    assert algebra._long_division(divided, sizes[0]) == (total, ix.const(-1)) and calls["_build"] == 2
    return found
  for name in calls: counted(name)
  few, many = work(8), work(32)
  assert all(m <= 4 * f + 8 for f, m in zip(few, many)), (few, many)
