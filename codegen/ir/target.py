"""A Target describes a device to the heuristics: every number that they need of a machine is one of its fields.

What a heuristic merely prefers (how many copies it tries, how many statements it writes out) stands as a constant where it is
used."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping

from .dtype import DType, dtypes


@dataclass(frozen=True)
class Rates:
  """The most that a device can do in a second: what the bound of a kernel is made of (``bound.py``), and no heuristic. A fused
  multiplication and addition are two operations. The defaults are one core of a CPU with vectors of 256 bits at 3 GHz;
  ``backends/rates.py`` has the table of what others can do."""
  # additions and multiplications, by the dtype's name; of a dtype that is not there (16-bit floats) as of float32
  vector: Mapping[str, float] = field(default_factory=lambda: {"float32": 96e9, "float64": 48e9})
  # operations of products by matrix units, by the dtype of the factors ("tf32": rounded float32); no entry: they cannot do them
  matrix: Mapping[str, float] = field(default_factory=dict)
  special: float = 8e9                   # exp, log, sin, sqrt, 1/x: functions that take several operations, each as one
  cache: float = 96e9                    # bytes between the last cache and the cores


@dataclass(frozen=True)
class Target:
  """A device, or a kind of them. The defaults for vectors and caches were measured with PoCL on two cores of a Zen 3 and on
  AVX-512, those for blocks on an H100 (bench/RESULTS-cuda.md); sizes in bytes unless said otherwise."""
  name: str                              # "opencl", "numpy", "triton"
  dtypes: tuple[DType, ...] = dtypes.all
  # ---- programs
  cores: int = 1                         # GRID values that run at the same time
  start_cycles: int = 15_000             # a CPU's program shorter than this is not worth its start
  start_bytes: int = 2000                # that could have been moved while a program starts
  iteration: float = 1e-7                    # seconds that an iteration of a loop takes on a chip with blocks, whatever it loads
  # ---- vectors, in a CPU's registers
  lanes: int = 1                         # 32-bit elements of the widest vector register worth using; 1: no LANE axes
  registers: int = 16                    # vector registers
  long_index: bool = False               # what is computed from run-time sizes has 64 bits: it costs nothing there
  # ---- work-items, where blocks are not made by the compiler
  locals: bool = False                   # LOCAL axes (work-items of a group) are worth using
  work_items: int = 256                  # of a group, at most
  # ---- memory
  local_memory: int = 0                  # that CACHE_READ, or a block's pipeline, may use; 0: none
  private_memory: int = 16 << 10         # of a program's variable; a larger one is local memory, for a CPU's stack is small
  core_cache: int = 512 << 10            # of the cache that each core has for itself (level 2)
  cache: int = 1 << 20                   # of the last cache, which all cores share
  stream: int = 16 << 20                 # outputs from this size on do not stay in a cache anyway
  bandwidth: float = 20e9                # bytes a second between memory and cores
  # of values between products that need not be stored, from which on they are made in one pass (schedule/chains.py)
  least_scores: int = 1 << 14
  # ---- for bounds only: neither part of what a target is, nor of any cache key
  rates: Rates = field(default_factory=Rates, repr=False, compare=False)
  # ---- blocks: TILE axes that the target's own compiler makes all at once
  blocks: bool = False
  descriptors: bool = False              # blocks can be copied by the chip's tensor descriptors
  fp8_dots: bool = False                 # blocks of fp8 can be multiplied
  double_dots: bool = False              # and of float64
  # float32 is multiplied fastest by groups of four warps, which need both factors to lie along what is summed
  warp_groups: bool = False
  # 128×256 of float32 fill half of an SM's registers; on a CPU, a quarter of a level-2 cache
  accumulators: int = 128 << 10
  mapped: int = 1024                     # elements of a program that only maps elements
  row: int = 16384                       # elements of a row that is read once and stays in registers
  block: int = 4096                      # elements of the block of a reduction, in rows and what is reduced
  # of the output of a product by tensor cores, best first
  dots: tuple[tuple[int, int], ...] = (128, 256), (128, 128), (64, 256), (64, 128), (64, 64)
  exact_dot: tuple[int, int, int] = 64, 64, 32   # of a float32 product that rounds no factor, with what it sums at a time
  double_dot: tuple[int, int, int] = 64, 64, 16  # the same for float64
  turned_dot: tuple[int, int, int] = 64, 64, 32  # and for float32 that is rounded, without warp groups
  row_bytes: int = 128                   # of a row of a factor, that a product reads at a time
  # rows of blocks whose programs run together: what they share of the other factor stays in the cache
  group: int = 8
  waves: int = 3                         # from so many programs a core on, persistent programs and go on to the next block win
  # ---- the cost model of blocks (codegen/choose/gpu_cost.py). From an H200: bench/RESULTS-cuda.md has what was measured, and
  # NVIDIA's tuning guide the limits of an SM
  latency: float = 0.8e-6                # seconds from a load of memory until its value is there, while others load as well
  start: float = 0.4e-6                  # seconds until a program has begun to load,
  starts: float = 1e-7                   # and between two starts on a core
  join: float = 0.3e-6                   # seconds for the threads of a program to combine their values
  clock: float = 1.7e9                   # cycles a second; in each, a core makes so many operations of float32:
  alu_lanes: int = 128
  line: int = 128                        # bytes of a cache's line: a core takes one a cycle
  cache_bandwidth: float = 9.5e12        # bytes a second between the last cache and cores (products of 1024³ to 4096³)
  double_flops: float = 5e13             # of float64
  dot_flops: float = 7.9e14              # operations a second of the best blocks of 16-bit products, all cores together
  round: float = 7e-8                    # seconds that an iteration of a product takes beside its loads and products
  launch: float = 2.5e-6                 # seconds that one more kernel costs
  register_file: int = 64 << 10          # 32-bit registers of a core
  warps: int = 64                        # that a core has at a time,
  resident: int = 32                     # and programs

  @property
  def keeps_blocks(self) -> bool:
    """Whether a program keeps blocks of values between products: in registers, or by vectors in a core's own cache."""
    return self.blocks or self.lanes > 1 and not self.locals

  def dot_rate(self, rows: int, columns: int) -> float:
    """Part of the rate of the best blocks with which blocks of these sizes are multiplied: a warp group multiplies 64 rows at a
    time, and reads these and all columns from shared memory for it, which with few columns takes longer than to multiply them."""
    return min(1.0, 1.25 * columns / (columns + 64), rows / 64)
