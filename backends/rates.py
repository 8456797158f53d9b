"""Peak rates of devices, from which the bound of a kernel is computed (``codegen/choose/bound.py``): operations of a core in a
clock, times cores, times the clock. No launch can be faster. A "core" of a cloud machine may be half of one, and a GPU's clock
falls under load, so products reach 80 % at most."""
from __future__ import annotations

from ntgrad.codegen.ir import Rates

# Of one core (an SM) in one clock. A fused multiplication and addition counts as two.
#
# - vector: by dtype; 16-bit floats are computed with as float32. GPUs multiply and add int32 at half the rate of float32.
# - matrix: of dense products, by the dtype of their factors; those of float64 from capability 80 on.
# - special: exp, log, sin, 1/x, sqrt. GPUs have a unit for them; a CPU computes them with 10 or more vector operations.
# - cache: bytes from the last cache.
PER_CLOCK: dict[int | str, tuple[str, str, float, float]] = {
  # a CPU, for each 32-bit lane of a vector register: two units that multiply and add
  "lane": ("float32 4 float64 2 int8 16 int16 8 int32 4 int64 2", "", 0.25, 4),
  # an OpenCL GPU of which nothing else is known
  "unit": ("float32 256 float64 16 int32 128 int64 32", "", 16, 64),
  # NVIDIA, by compute capability: Volta, Turing, Ampere (A100, others), Ada, Hopper, Blackwell (data centre, others)
  70: ("float32 128 float64 64 int32 128 int64 32", "float16 1024", 16, 64),
  75: ("float32 128 float64 4 int32 128 int64 32", "float16 1024 int8 2048", 16, 64),
  80: ("float32 128 float64 64 int32 128 int64 32", "float16 2048 bfloat16 2048 tf32 1024 float64 128 int8 4096", 16, 64),
  86: ("float32 256 float64 4 int32 128 int64 32", "float16 1024 bfloat16 1024 tf32 256 int8 2048", 16, 64),
  89: ("float32 256 float64 4 int32 128 int64 32",
       "float16 1024 bfloat16 1024 float8_e4m3 2048 float8_e5m2 2048 tf32 512 int8 2048", 16, 64),
  90: ("float32 256 float64 128 int32 128 int64 32",
       "float16 4096 bfloat16 4096 float8_e4m3 8192 float8_e5m2 8192 tf32 2048 float64 256 int8 8192", 16, 64),
  100: ("float32 256 float64 128 int32 128 int64 32",
        "float16 8192 bfloat16 8192 float8_e4m3 16384 float8_e5m2 16384 tf32 4096 float64 128 int8 16384", 16, 64),
  120: ("float32 256 float64 4 int32 256 int64 32",
        "float16 1024 bfloat16 1024 float8_e4m3 2048 float8_e5m2 2048 tf32 512 int8 2048", 16, 64)}
_CLOCK = 3e9   # of a CPU that does not tell


def _rates(kind: int | str, clocks: float) -> Rates:
  vector, matrix, special, cache = PER_CLOCK[kind]
  def of(text: str) -> dict[str, float]:
    words = text.split()
    return {name: int(n) * clocks for name, n in zip(words[::2], words[1::2])}
  return Rates(of(vector) | {f"u{name}": n for name, n in of(vector).items() if name[0] == "i"}, of(matrix), special * clocks,
               cache * clocks)


def of_cpu(cores: int, lanes: int, hertz: float = 0) -> Rates:
  """The rates of a CPU whose vectors have so many 32-bit ``lanes``; ``hertz`` 0 for a clock that is not known."""
  return _rates("lane", cores * lanes * (hertz or _CLOCK))


def of_units(units: int, hertz: float = 0) -> Rates:
  """The rates of a GPU with so many compute units, of which nothing else is known."""
  return _rates("unit", units * (hertz or _CLOCK / 2))


def of_nvidia(capability: int, cores: int, hertz: float) -> Rates:
  """The rates of an NVIDIA GPU with so many SMs. A ``capability`` that is not in the table has those of the one before it."""
  known = [c for c in PER_CLOCK if isinstance(c, int)]
  return _rates(max([c for c in known if c <= capability], default=min(known)), cores * hertz)
