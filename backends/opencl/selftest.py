"""Whether a driver's builtin functions of vectors can be called: each, at each width, against the same function of scalars. A
driver may get a lane wrong for what its neighbours hold: PoCL 3.0 takes ``sin(0.001f)`` for 0.008 beside a large number. A
function is tested when a kernel first needs it for vectors, all widths in one small program, once for a driver's version; the
result is cached on disk. In place of widths that are wrong ``prelude`` calls vectors of half the width, down to single numbers.
"""
from __future__ import annotations

import sys
from typing import Any, Callable

import numpy as np

from ntgrad.codegen.index.records import COUNTS
from ntgrad.codegen.ir import DeviceError, config

from .. import cache
from .prelude import LIBRARY, Type, either, registers

TABLE = "opencl-functions"
WIDTHS = 2, 3, 4, 8, 16   # lanes of vectors
# numbers that take all ways through the functions, in lanes beside each other
NUMBERS = tuple(map(float, """0 -0 1 -1 0.5 2 3 -2 1e-3 10 88 -88 700 1e4 1e-30 inf -inf nan 2.5 -1.5 -3 1e-40 0.1
1e30""".split()))
COUNT = len(NUMBERS) ** 2          # every pair of them; all widths divide it
CLOSE = {"float": 1e-5, "double": 1e-13}   # far more than functions may differ by, far less than a spoilt lane does

# source, kernel's name, inputs, elements of the output. Raises DeviceError
Run = Callable[[str, str, list[np.ndarray], int], np.ndarray]


def nowhere(text: str, name: str, inputs: list[np.ndarray], n: int) -> np.ndarray:
  """Where a kernel cannot be run."""
  raise RuntimeError(f"{name} is tested by the process that has the device")


class Functions:
  """What is known of a driver's functions. ``run`` runs a kernel with one work-item, ``identity`` is the driver's version.
  ``elsewhere`` runs it in a worker process, which does not have this device's object."""

  def __init__(self, identity: str, run: Run, elsewhere: Run = nowhere):
    self.identity, self.run, self.elsewhere = identity, run, elsewhere
    self.known = dict[tuple[str, str], frozenset[int]]()

  def __reduce__(self) -> Any:
    """For another process: what it does not know it asks the disk cache, then tests it itself or gives up."""
    return Functions, (self.identity, self.elsewhere), {"known": self.known}

  def __call__(self, name: str, base: str) -> frozenset[int]:
    """The widths at which a function of ``base`` elements is wrong."""
    if (name, base) not in self.known: self.known[name, base] = self._tested(name, base)
    return self.known[name, base]

  def _tested(self, name: str, base: str) -> frozenset[int]:
    text = source(name, base)
    k = cache.key(self.identity, text)
    if (found := cache.get(TABLE, k, COUNTS)) is not None: return frozenset(found)
    what = "is wrong"
    try:
      bad = frozenset(wrong(name, base, lambda inputs, n: self.run(text, f"test_{name}", inputs, n)))
      cache.put(TABLE, k, COUNTS, tuple(sorted(bad)))
    except DeviceError as e: bad, what = frozenset(widths(base)), f"cannot be tested ({str(e).splitlines()[0]})"
    if bad and config.debug >= 1:
      print(f"ntgrad: the driver's {name} of {', '.join(f'{base}{n}' for n in sorted(bad))} {what}; smaller vectors are used",
            file=sys.stderr)
    return bad


def widths(base: str) -> list[int]:
  """Those at which a function is called as it is; wider vectors go in pieces of them."""
  return [n for n in WIDTHS if registers(Type(base, n)) is not None]


def source(name: str, base: str) -> str:
  """A kernel that writes a function of every element, then of every vector of each width."""
  args = "ab"[:LIBRARY[name]]
  loops = [f"  for (int i = 0; i < {COUNT}; i++) out[i] = {name}({', '.join(f'{x}[i]' for x in args)});"]
  for at, n in enumerate(widths(base), 1):
    call = f"{name}({', '.join(f'vload{n}(i, {x})' for x in args)})"
    loop = f"  for (int i = 0; i < {COUNT // n}; i++) vstore{n}({call}, i, out + {at * COUNT});"
    loops.append(either(registers(Type(base, n)), loop, f"for (int i = 0; i < {COUNT}; i++) out[i + {at * COUNT}] = out[i];"))
  return "\n".join([
    f"__kernel void test_{name}({', '.join(f'__global const {base}* {x}' for x in args)}, __global {base}* out) {{",
    *loops, "}\n"])


def inputs(name: str, base: str) -> list[np.ndarray]:
  """Every number, with every other as the second argument, in an order that has them beside each other."""
  order = np.random.default_rng(0).permutation(COUNT)
  numbers = np.array(NUMBERS).astype("f4" if base == "float" else "f8")
  return [numbers[order // len(numbers)], numbers[order % len(numbers)]][:LIBRARY[name]]


def wrong(name: str, base: str, run: Callable[[list[np.ndarray], int], np.ndarray]) -> list[int]:
  """The widths at which some lane is not what the function gives for its number alone."""
  tested = widths(base)
  want, *got = run(inputs(name, base), COUNT * (1 + len(tested))).reshape(-1, COUNT)
  with np.errstate(all="ignore"):
    return [n for n, x in zip(tested, got) if not np.isclose(x, want, CLOSE[base], np.finfo(x.dtype).tiny, equal_nan=True).all()]
