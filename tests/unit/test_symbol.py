"""Symbols: arithmetic, equality, printing and bounds, all against Python's own integers."""
from __future__ import annotations

import operator
import pickle
import subprocess
import sys
from typing import Any, Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ntgrad.codegen.ir.errors import ArgumentError
from ntgrad.graph.symbol import Condition, Symbol, block_size, bounds_of, cdiv, evaluate, maximum, minimum, symbols_of
from support.marks import long

S, M, N, x, y, B = (Symbol(n) for n in ("S", "M", "N", "x", "y", "BLOCK"))

PRINTED: list[tuple[Any, str]] = [
  (Symbol("BLOCK_SIZE_M") * Symbol("BLOCK_SIZE_N"), "BLOCK_SIZE_M * BLOCK_SIZE_N"),
  ((x + y) // 2, "(x + y) // 2"),
  (cdiv(M, B), "cdiv(M, BLOCK)"),
  (1 - x, "1 - x"),
  (x - 1, "x - 1"),
  (-x, "-x"),
  (-(x // 2), "-(x // 2)"),
  (-x // 2, "-cdiv(x, 2)"),
  (y - x // 2, "y - x // 2"),
  (y + -x // 2, "y - cdiv(x, 2)"),
  (3 * (x // 2), "3 * (x // 2)"),
  (x // 2 // 3, "x // 6"),
  (x // (y // 2), "x // (y // 2)"),
  (x * y // 3, "x * y // 3"),
  (x - (y - 1), "x - y + 1"),
  (2 * x * y - 1, "2 * x * y - 1"),
  (x**2 + 3 * x, "x**2 + 3 * x"),
  (2**x, "2**x"),
  ((x + 1) ** 2, "x**2 + 2 * x + 1"),
  ((x + 1) * (y + 2), "x * y + 2 * x + y + 2"),
  (x % 3 * 2, "2 * (x % 3)"),
  ((x // 3) % y, "x // 3 % y"),
  (maximum(x - 2, 0) + 1, "max(x - 2, 0) + 1"),
  (minimum(4, N), "min(N, 4)"),
  (5 % x, "5 % x"),
  (7 // x, "7 // x"),
  (cdiv(7, x), "cdiv(7, x)"),
  (2 * cdiv(M * N, B) + 3, "2 * cdiv(M * N, BLOCK) + 3"),
  (cdiv(M, 16) * B - 1, "BLOCK * cdiv(M, 16) - 1"),
  (B * (M // B), "BLOCK * (M // BLOCK)"),
  ((M + 16) // 16 * 16, "16 * (M // 16) + 16"),
  (x == 3, "x == 3"),
  (7 - 2 * x, "7 - 2 * x"),
  (-x - y, "-x - y"),
  (x < 3, "x < 3"),
  (3 >= x + 1, "x + 1 <= 3"),
]


@pytest.mark.parametrize("e, text", PRINTED, ids=[t for _, t in PRINTED])
def test_prints_as_written(e: Any, text: str) -> None: assert str(e) == text


EQUAL: list[tuple[Any, Any]] = [
  (S + 1 - 1, S),
  (x + y, y + x),
  ((x + 1) * y, x * y + y),
  (2 * (x + y), 2 * x + 2 * y),
  (x - x, 0),
  (x // 1, x),
  (x % 1, 0),
  (x * y // y, x),
  ((x * B + x * B) // B, 2 * x),
  (cdiv(x * B, B), x),
  (cdiv(M, 1), M),
  (cdiv(x, x), 1),
  (cdiv(cdiv(M, B), cdiv(M, B)), 1),
  (cdiv(x, B), (x + B - 1) // B),
  (x % 3, x - x // 3 * 3),
  ((4 * x + 2) // 4, x + (2 // 4)),
  ((6 * x + 4) // 4, x + (x + 2) // 2),
  (x // 2 // 3, x // 6),
  ((x + 6) // 3, x // 3 + 2),
  (x % 4 + x // 4 * 4, x),
  (maximum(x, x + 1), x + 1),
  (minimum(x, x - 2), x - 2),
  (x**2, x * x),
  (x**0, 1),
  (+x, x),
  (x + np.int64(2), x + 2),
  (True + x, x + 1),
  (cdiv(7, 2), 4),
  (cdiv(-7, 2), -3),
  (Symbol("x + 2*y"), x + 2 * y),
  (Symbol(5), 5),
  (Symbol(x), x),
  (Symbol("cdiv(x, 2) - -1"), cdiv(x, 2) + 1),
  (cdiv(M * x, M), x),
  (-(-N // 16), cdiv(N, 16)),
  (-(-N // B), cdiv(N, B)),
  (cdiv(-x, y), -(x // y)),
  ((16 * x + y) * N, N * y + x * N * 16),
  (M // B * B + M % B, M),
  ((M // B * B + M % B) * N, M * N),
  (M % B, M - M // B * B),
  (M % B * x, M * x - M // B * B * x),
  (N * x // (N * y), x // y),
  ((x * (N + 1) + y * (N + 1)) // (N + 1), x + y),
  (x // y // M, x // (y * M)),
  (N * x % (N * y), N * (x % y)),
  ((B - 1) // B, 0),
  ((x * B + B - 1) // B, x),
  (x // -3, -cdiv(x, 3)),
  (x % -3, -(-x % 3)),
  (maximum(x, y), maximum(y, x)),
  (2**x * 2**x, 2**x * 2**x),
]


@pytest.mark.parametrize("a, b", EQUAL, ids=[f"{a}, {b}" for a, b in EQUAL])
def test_equal(a: Any, b: Any) -> None:
  assert a == b and b == a and not a != b and hash(a) == hash(b)


def test_unequal() -> None:
  for a, b in ((x, y), (x, 1), (x + 1, x), (x // 2, x // 3), (cdiv(x, 2), x // 2), (x * y, x + y), (x, "x")):
    assert a != b and not a == b


def test_constants_are_ints() -> None:
  for e, n in ((x - x + 3, 3), (x // x, 1), (cdiv(3 * x, x), 3), (0 * x, 0), (x % x, 0)): assert e == n and type(e) is int


def test_names() -> None:
  e = cdiv(M * 2 + N, B) - M
  assert symbols_of(e) == {M, N, B} and symbols_of(3) == frozenset() and symbols_of(M < N) == {M, N}
  assert symbols_of(M - M + N) == {N} or symbols_of(M - M + N) == {M, N}
  assert M.is_name and not e.is_name and M.name == "M"


def test_evaluate() -> None:
  e = cdiv(M * 2 + 1, B) + M % 4
  assert evaluate(e, {"M": 7, "BLOCK": 4, "unused": 1}) == 4 + 3 and evaluate(5, {}) == 5 and evaluate(np.int32(5), {}) == 5
  assert evaluate(M < N, {"M": 1, "N": 2}) is True
  with pytest.raises(ArgumentError, match="no value for BLOCK, M"): evaluate(e, {"N": 1})
  with pytest.raises(ArgumentError, match="division by 0 where"): evaluate(M // N, {"M": 1, "N": 0})


def test_subs() -> None:
  e = cdiv(M * 2 + 1, B) + M % 4
  assert e.subs({"M": 7, B: 4}) == 7 and e.subs({M: 7}) == cdiv(15, B) + 3 and e.subs({"N": 1}) is e
  assert (M + N).subs({"M": N}) == 2 * N and (M < N).subs({"M": 1, "N": 2}) is True and str((M < N).subs({"M": 1})) == "1 < N"


def test_options() -> None:
  b = Symbol("TILE", meta=True, upper_bound=256)
  assert b.constexpr and b.meta and b.power_of_two and b.bounds == (16, 256)
  assert Symbol("K", constexpr=True, upper_bound=8).bounds == (None, 8) and not Symbol("K", constexpr=True).meta
  assert Symbol("T", meta=True, upper_bound=8).bounds == (8, 8) and Symbol("T", meta=True, lower_bound=2048).bounds == (
    2048,
    2048,
  )
  assert Symbol("T", meta=True, power_of_two=False).power_of_two is False
  restored = pickle.loads(pickle.dumps(cdiv(N, b) * 2))
  assert restored == cdiv(N, b) * 2 and {s.name: s.bounds for s in symbols_of(restored)} == {"TILE": (16, 256), "N": (None, None)}


def test_block_size() -> None:
  a, b = block_size(), block_size(lower_bound=32, upper_bound=64)
  assert (
    a != b and a.meta and a.power_of_two and a.bounds == (16, 1024) and b.bounds == (32, 64) and a.name.startswith("BLOCK_SIZE_")
  )


def test_conditions() -> None:
  n = Symbol("n", lower_bound=1, upper_bound=8)
  known: list[tuple[Any, bool]] = [
    (n > 0, True),
    (n >= 1, True),
    (n < 1, False),
    (n < 9, True),
    (n <= 8, True),
    (n > 8, False),
    (0 < n, True),
    (-n < 0, True),
    (n * n > 0, True),
    (n - 9 < 0, True),
    (n <= n, True),
    (n < n, False),
    (n + 1 > n, True),
    (x + 1 > x, True),
    (x >= x + 1, False),
    (cdiv(n, 4) > 0, True),
    (n % 3 < 3, True),
    (n // 3 <= 2, True),
    (2**n >= 2, True),
  ]
  m = Symbol("m", lower_bound=1)
  known += [(n * m >= n, True), (n * m < m, False), (m * m - 2 * m + 1 >= 0, True), (m * m * m >= m, True)]   # by sympy
  for got, want in known: assert got is want
  assert (
    maximum(n, 1) == n and minimum(n, 1) == 1 and cdiv(n, 8) == 1 and n // 9 == 0 and n % 9 == n and cdiv(1, block_size()) == 1
  )
  unknown = n > 1
  assert isinstance(unknown, Condition) and unknown == (n > 1) and unknown != (n < 1) and len({unknown, n > 1}) == 1
  with pytest.raises(ArgumentError, match="n > 1: not known before n has a value"): bool(unknown)


REFUSED: list[tuple[str, Callable[[], object]]] = [
  ("a // b rounds down", lambda: x / 2),
  ("cdiv\\(a, b\\) rounds up", lambda: 2 / x),
  ("negative power", lambda: x**-1),
  ("divided by 0", lambda: x // 0),
  ("divided by 0", lambda: cdiv(1, 0)),
  ("divided by 0", lambda: cdiv(x, 0)),
  ("whether it is 0", lambda: bool(x)),
  ("greater than the upper bound", lambda: Symbol("a", lower_bound=3, upper_bound=2)),
  ("bounds are ints", lambda: Symbol("a", lower_bound=1.5)),  # type: ignore[arg-type]
  ("no power of two from 5 to 7", lambda: Symbol("a", meta=True, lower_bound=5, upper_bound=7)),
  ("sizes of 1 or more", lambda: Symbol("a", meta=True, lower_bound=0)),
  ("options are those of a name", lambda: Symbol("a + b", meta=True)),
  ("neither a name nor an expression", lambda: Symbol("a.b + 1")),
  ("neither a name nor an expression", lambda: Symbol("a +")),
  ("a name, an expression or an int", lambda: Symbol(1.5)),  # type: ignore[arg-type]
  ("different options", lambda: Symbol("a", constexpr=True) + Symbol("a", upper_bound=8)),
]


@pytest.mark.parametrize("text, use", REFUSED, ids=[t for t, _ in REFUSED])
def test_refusals(text: str, use: Callable[[], object]) -> None:
  with pytest.raises(ArgumentError, match=text): use()


def test_other_operands_are_type_errors() -> None:
  for fn in (operator.add, operator.mul, operator.floordiv, operator.mod, operator.lt):
    with pytest.raises(TypeError): fn(x, "1")
    with pytest.raises(TypeError): fn(1.5, x)


# ---- random expressions: the same numbers as Python's

BOUNDED = {
  n: Symbol(n, lower_bound=lo, upper_bound=hi) for n, (lo, hi) in {"a": (0, 9), "b": (1, 7), "c": (-4, 4), "d": (1, 1)}.items()
}
_OPS: dict[str, Callable[[Any, Any], Any]] = {
  "+": operator.add,
  "-": operator.sub,
  "*": operator.mul,
  "//": operator.floordiv,
  "%": operator.mod,
  "cdiv": cdiv,
  "max": maximum,
  "min": minimum,
}
Tree = Any
TREES = st.recursive(
  st.one_of(st.sampled_from(sorted(BOUNDED)), st.integers(-6, 6)),
  lambda t: st.one_of(
    st.tuples(st.just("-"), st.just(0), t),
    st.tuples(st.sampled_from(["+", "-", "*", "max", "min"]), t, t),
    st.tuples(st.sampled_from(["//", "%", "cdiv"]), t, st.one_of(st.integers(1, 6), st.just("b"))),
  ),
  max_leaves=9,
)


def build(tree: Tree, names: dict[str, Any]) -> Any:
  if isinstance(tree, tuple): return _OPS[tree[0]](build(tree[1], names), build(tree[2], names))
  return names[tree] if isinstance(tree, str) else tree


VALUES = st.fixed_dictionaries({n: st.integers(*s.bounds) for n, s in BOUNDED.items()})


@settings(max_examples=150, deadline=None)
@given(TREES, st.lists(VALUES, min_size=3, max_size=3))
def test_random_expressions(tree: Tree, points: list[dict[str, int]]) -> None:
  e = build(tree, BOUNDED)
  lo, hi = bounds_of(e)
  again = Symbol(str(e)).subs(BOUNDED)
  for values in points:
    want = build(tree, values)
    assert evaluate(e, values) == want and (lo is None or lo <= want) and (hi is None or want <= hi)
    assert evaluate(again, values) == want, f"{e} reads as {again}"
    assert (e if isinstance(e, int) else e.subs(values)) == want
  assert again == e and again == Symbol(str(again)).subs(BOUNDED)
  assert isinstance(e, int) or hash(e) == hash(build(tree, BOUNDED))


@long
@settings(max_examples=150, deadline=None)
@given(TREES, TREES, st.lists(VALUES, min_size=4, max_size=4))
def test_random_comparisons(s: Tree, t: Tree, points: list[dict[str, int]]) -> None:
  a, b = build(s, BOUNDED), build(t, BOUNDED)
  for fn in (operator.lt, operator.le, operator.gt, operator.ge):
    got = fn(a, b)
    for values in points:
      want = fn(build(s, values), build(t, values))
      assert (got if isinstance(got, bool) else evaluate(got, values)) == want
      if a == b: assert build(s, values) == build(t, values)


def test_importing_ntgrad_leaves_sympy_alone() -> None:
  code = "import sys, ntgrad; sys.exit('sympy' in sys.modules)"
  assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


def test_options_are_no_part_of_equality() -> None:
  bounded = Symbol("x", lower_bound=1)
  assert bounded == x and not bounded != x and hash(bounded + y) == hash(x + y) and bounded + 1 == x + 1 and bounded + 1 != x + 2


# ---- sympy

SYMPY = """
import sympy
from ntgrad.graph.symbol import Condition, Symbol, cdiv, condition_of, evaluate, maximum
N, M = Symbol("N", lower_bound=1), Symbol("M")
q = sympy.Symbol("q")
n = sympy.sympify(N)
assert n == sympy.Symbol("N", integer=True, positive=True) and N + q == q + n and not isinstance(q + N, Symbol)
assert isinstance(N + q, Symbol) and N + q == N + Symbol("q") and Symbol(n) == N
e = cdiv(N, 16) * M + N % 4 - maximum(M, 2) ** 2
s = sympy.sympify(e)
assert Symbol(s).subs({"N": N, "M": M}) == e, (Symbol(s), e)
assert s.subs({"N": 1, n: 33, sympy.Symbol("M", integer=True): 5}) == evaluate(e, {"N": 33, "M": 5})
assert Symbol(sympy.floor((q + 1) / 2)) == (Symbol("q") + 1) // 2
assert Symbol(sympy.ceiling(q / 3 + sympy.Rational(1, 2))) == cdiv(2 * Symbol("q") + 3, 6)
c = Symbol("M") > q + 1
assert isinstance(c, Condition) and evaluate(c, {"M": 4, "q": 1}) is True
c = condition_of(sympy.Eq(q % 4, 0))
assert evaluate(c, {"q": 8}) is True and evaluate(c, {"q": 9}) is False and condition_of(sympy.Gt(n, 0)) is True
for bad, why in ((q / 2, "not a whole number"), (sympy.sqrt(q), "no meaning"), (sympy.sin(q), "no meaning")):
  try: Symbol(bad)
  except Exception as e: assert why in str(e), e
  else: raise AssertionError(bad)
"""


def test_sympy() -> None:
  subprocess.run([sys.executable, "-c", SYMPY], timeout=120, check=True)
