"""Two ways of building a kernel: quickly, and optimised. One may take the other's place between two launches because both give
the same bits. That is so for what kernels are made of, which ``SOURCES`` has: arithmetic (with products and sums that a compiler
may join), every function of the driver's library at every width, conversions, atomics, local memory behind barriers, functions of
their own. Of drivers in ``KNOWN`` this is known (tests/conformance/test_tiers.py); any other is tested by a worker, when there is
nothing else to do, and has one way until then. A kernel that calls anything else is built once, optimised.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ntgrad.codegen.index.records import BOOL
from ntgrad.codegen.ir import DeviceError

from .. import cache
from ..base import Program, ProgramSpec, Sizes
from ..cstyle.functions import FUNCTIONS
from .program import Part
from .selftest import NUMBERS, widths

if TYPE_CHECKING:
  from .device import OpenCLDevice
  from .program import OpenCLProgram

KNOWN = "PoCL 3.0", "LLVM 14."   # parts of a platform's version
TABLE = "opencl-tiers"
ITEMS = 64                       # work-items of a group
COUNT = 4 * ITEMS                # numbers of a test
_TYPES = {"float": "f4", "double": "f8"}


def _loop(base: str, n: int, value: str, at: int) -> str:
  """A loop that writes a value of ``n`` lanes for all numbers of the inputs ``a`` and ``b``, from one place of the output on."""
  t = f"{base}{'' if n == 1 else n}"
  if n == 1: body = f"{t} x = a[i], y = b[i]; out[{at} + i] = {value};"
  else: body = f"{t} x = vload{n}(i, a), y = vload{n}(i, b); vstore{n}({value}, i, out + {at});"
  return f"  for (int i = 0; i < {COUNT // n}; i++) {{ {body} }}"


def sources() -> Iterator[tuple[str, str, int, str]]:
  """The kernels of the test: a name, the base of inputs and output, work-items, and the source."""
  values = {"arithmetic": "x * y + x - y * y / (x + y)", "polynomial": "((x * y + x) * x + y) * y - x", "negated": "-(x * y) - x"}
  values |= {name: f"{name}({', '.join('xy'[:args])})" for name, args in FUNCTIONS.items()}
  for base in _TYPES:
    for name, value in values.items():
      loops = "\n".join(_loop(base, n, value, k * COUNT) for k, n in enumerate((1, max(widths(base)))))
      head = f"__kernel void test_{name}(__global const {base}* a, __global const {base}* b, __global {base}* out)"
      yield f"test_{name}", base, 1, f"{head} {{\n{loops}\n}}\n"
  for base in _TYPES:
    yield f"shared_{base}", base, ITEMS, f"""
static {base} halves({base} x, {base} y) {{ return x * ({base})0.5 + y * ({base})0.25; }}
__kernel void shared_{base}(__global const {base}* a, __global const {base}* b, __global {base}* out) {{
  __local {base} kept[{ITEMS}];
  __local int count[1];
  int i = get_local_id(0);
  if (i == 0) count[0] = 0;
  kept[i] = halves(a[i], b[i]);
  barrier(CLK_LOCAL_MEM_FENCE);
  atomic_add(count, (int)a[i] * 3 + i);
  {base} sum = 0;
  for (int k = 0; k < {ITEMS}; k++) sum += kept[(i + k) % {ITEMS}] * b[k];
  barrier(CLK_LOCAL_MEM_FENCE);
  out[i] = sum;
  out[{ITEMS} + i] = ({base})(count[0]) + ({base})(short)(int)a[i] * ({base})(uchar)(int)b[i];
  out[{2 * ITEMS} + i] = max(a[i], b[i]) + min((int)a[i], (int)b[i]);
}}
"""


def equal(device: OpenCLDevice) -> bool:
  """Whether a driver gives the same bits for both ways. Raises DeviceError where it cannot be asked."""
  numbers = np.resize(np.array([x for x in NUMBERS if abs(x) < 1e4], "f8"), COUNT)
  for name, base, items, text in sources():
    a, b = [np.roll(numbers, k).astype(_TYPES[base]) for k in (0, 5)]
    first, second = [device.run(text, name, [a, b], 2 * COUNT, items, quick) for quick in (False, True)]
    if first.tobytes() != second.tobytes(): return False
  return True


def known(identity: tuple[str, ...]) -> bool | None:
  """Whether a driver gives the same bits for both ways; None where nobody has tested it yet."""
  if all(part in identity[1] for part in KNOWN): return True
  return cache.get(TABLE, cache.key(TABLE, identity), BOOL)


def test(device: OpenCLDevice) -> bool:
  """Find that out, for processes to come."""
  try: same = equal(device)
  except DeviceError: same = False
  cache.put(TABLE, cache.key(TABLE, device.compiler.identity), BOOL, same)
  return same


class BothWays(Program):
  """A kernel built both ways (``TIERS=check``). Each launch runs both on the same memory, and compares all of it."""

  def __init__(self, device: OpenCLDevice, quick: OpenCLProgram, optimised: OpenCLProgram):
    self.device, self.first, self.program = device, quick, optimised

  @property
  def spec(self) -> ProgramSpec: return self.program.spec
  @spec.setter
  def spec(self, new: ProgramSpec) -> None: self.first.spec = self.program.spec = new

  def ready(self) -> None:
    for p in self.first, self.program: p.ready()

  def __call__(self, buffers: Sequence[Any], wait: bool = False, sizes: Sizes = ()) -> float | None:
    """Raises DeviceError where they differ, beside what a launch raises."""
    wholes = list({id(raw): raw for raw in [b.raw if isinstance(b, Part) else b for b in buffers]}.values())
    self.device.drain()
    before = [np.array(raw.host) for raw in wholes]
    self.first(buffers, False, sizes)
    self.device.drain()
    first = [np.array(raw.host) for raw in wholes]
    for raw, data in zip(wholes, before): raw.host[:] = data
    seconds = self.program(buffers, wait, sizes)
    self.device.drain()
    for i, (raw, data) in enumerate(zip(wholes, first)):
      if raw.host.tobytes() == data.tobytes(): continue
      at = int(np.flatnonzero(raw.host != data)[0])
      raise DeviceError(f"kernel {self.spec.label}: built quickly and optimised it gives other bits, first at byte {at} of its "
                        f"{i}. piece of memory; TIERS=0 builds it optimised only")
    return seconds
