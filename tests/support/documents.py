"""The programs of the documents that ntgrad descends from, short, with the imports that they have there; and what they print.

``here`` changes the roots of the imports: ``tinygrad`` is ``ntgrad``, ``ninetoothed`` is ``ntgrad.tile``.
"""
from __future__ import annotations

import re

ROOTS = (
  (r"^from tinygrad\b", "from ntgrad"),
  (r"^from ninetoothed\b", "from ntgrad.tile"),
  (r"^import ninetoothed$", "import ntgrad.tile as ninetoothed"),
  (r"^import ninetoothed\.", "import ntgrad.tile."),
)


def here(program: str) -> str:
  """A program with the roots of its imports changed, and nothing else."""
  for there, root in ROOTS: program = re.sub(there, root, program, flags=re.MULTILINE)
  return program


# ---- notes on tinygrad

HAND = """\
from tinygrad import Tensor
from tinygrad.codegen.linearizer import Linearizer
from tinygrad.engine.schedule import create_schedule
from tinygrad.renderer.cstyle import MetalLanguage, uops_to_cstyle
a, b = Tensor(A).realize(), Tensor(B).realize()
s = create_schedule([a.dot(b).lazydata])[0]
k = Linearizer(*s.ast)
if UPCAST: k.upcast()
k.linearize()
k.uops.print()
print(uops_to_cstyle(MetalLanguage(), 'codegen', k.uops.uops))
"""

# of whole numbers, four of them; the notes have it with three floats too
LISTING = """\
   0 UOps.DEFINE_GLOBAL  : ptr.dtypes.int            []                               (0, 'data0', True)
   1 UOps.DEFINE_GLOBAL  : ptr.dtypes.int            []                               (1, 'data1', False)
   2 UOps.DEFINE_GLOBAL  : ptr.dtypes.int            []                               (2, 'data2', False)
   3 UOps.DEFINE_ACC     : dtypes.int                []                               0
   4 UOps.CONST          : dtypes.int                []                               0
   5 UOps.CONST          : dtypes.int                []                               4
   6 UOps.LOOP           : dtypes.int                [4, 5]                           None
   7 UOps.LOAD           : dtypes.int                [1, 6]                           None
   8 UOps.LOAD           : dtypes.int                [2, 6]                           None
   9 UOps.ALU            : dtypes.int                [7, 8]                           BinaryOps.MUL
  10 UOps.ALU            : dtypes.int                [9, 3]                           BinaryOps.ADD
  11 UOps.PHI            : dtypes.int                [3, 10, 6]                       None
  12 UOps.ENDLOOP        :                           [6]                              None
  13 UOps.STORE          :                           [0, 4, 11]                       None
"""
FLOATS = """\
   0 UOps.DEFINE_GLOBAL  : ptr.dtypes.float          []                               (0, 'data0', True)
   1 UOps.DEFINE_GLOBAL  : ptr.dtypes.float          []                               (1, 'data1', False)
   2 UOps.DEFINE_GLOBAL  : ptr.dtypes.float          []                               (2, 'data2', False)
   3 UOps.DEFINE_ACC     : dtypes.float              []                               0.0
   4 UOps.CONST          : dtypes.int                []                               0
   5 UOps.CONST          : dtypes.int                []                               3
   6 UOps.LOOP           : dtypes.int                [4, 5]                           None
   7 UOps.LOAD           : dtypes.float              [1, 6]                           None
   8 UOps.LOAD           : dtypes.float              [2, 6]                           None
   9 UOps.ALU            : dtypes.float              [7, 8]                           BinaryOps.MUL
  10 UOps.ALU            : dtypes.float              [9, 3]                           BinaryOps.ADD
  11 UOps.PHI            : dtypes.float              [3, 10, 6]                       None
  12 UOps.ENDLOOP        :                           [6]                              None
  13 UOps.STORE          :                           [0, 4, 11]                       None
"""
METAL = """\
kernel void codegen(device int* data0, const device int* data1, const device int* data2, uint3 gid \
[[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
  int acc0 = 0;
  for (int ridx0 = 0; ridx0 < 4; ridx0++) {
    int val0 = *(data1+ridx0);
    int val1 = *(data2+ridx0);
    acc0 = ((val0*val1)+acc0);
  }
  *(data0+0) = acc0;
}
"""

# ---- NineToothed: the basics, and the same in Chinese

TORCH = """\
import torch
dtype, device = torch.float16, DEVICE
"""
ADDITION = """\
import ninetoothed
from ninetoothed import Tensor
def arrangement(x, y, z, BLOCK_SIZE=BLOCK):
  return x.tile((BLOCK_SIZE,)), y.tile((BLOCK_SIZE,)), z.tile((BLOCK_SIZE,))
def application(x, y, z):
  z = x + y
kernel = ninetoothed.make(arrangement, application, (Tensor(1), Tensor(1), Tensor(1)))
""" + TORCH + """\
x = torch.tensor((1, 2, 3), dtype=dtype, device=device)
y = torch.tensor((4, 5, 6), dtype=dtype, device=device)
z = torch.empty_like(x)
kernel(x, y, z)
assert torch.allclose(z, torch.tensor((5, 7, 9), dtype=dtype, device=device))
"""
PRODUCT = """\
import ninetoothed
import ninetoothed.language as ntl
from ninetoothed import Tensor
BLOCK_SIZE_M = ninetoothed.block_size()
BLOCK_SIZE_N = ninetoothed.block_size()
BLOCK_SIZE_K = ninetoothed.block_size()
def arrangement(input, other, output):
  output_arranged = output.tile((BLOCK_SIZE_M, BLOCK_SIZE_N))
  input_arranged = input.tile((BLOCK_SIZE_M, BLOCK_SIZE_K)).tile((1, -1)).expand((-1, output_arranged.shape[1]))
  input_arranged.dtype = input_arranged.dtype.squeeze(0)
  other_arranged = other.tile((BLOCK_SIZE_K, BLOCK_SIZE_N)).tile((-1, 1)).expand((output_arranged.shape[0], -1))
  other_arranged.dtype = other_arranged.dtype.squeeze(1)
  return input_arranged, other_arranged, output_arranged
def application(input, other, output):
  accumulator = ntl.zeros(output.shape, dtype=ntl.float32)
  for k in range(input.shape[0]):
    accumulator += ntl.dot(input[k], other[k])
  output = accumulator
kernel = ninetoothed.make(arrangement, application, (Tensor(2), Tensor(2), Tensor(2)))
""" + TORCH + """\
lhs = torch.tensor(((1, 2), (3, 4)), dtype=dtype, device=device)
rhs = torch.tensor(((5, 6), (7, 8)), dtype=dtype, device=device)
output = torch.empty((lhs.shape[0], rhs.shape[1]), dtype=dtype, device=device)
kernel(lhs, rhs, output)
assert torch.allclose(output, torch.tensor(((19, 22), (43, 50)), dtype=dtype, device=device))
"""

# ---- NineToothed's readme

ANNOTATED = """\
import ninetoothed
from ninetoothed import Symbol, Tensor
BLOCK_SIZE = Symbol("BLOCK_SIZE", meta=True)
@ninetoothed.jit
def add_kernel(
  x: Tensor(1).tile((BLOCK_SIZE,)),
  y: Tensor(1).tile((BLOCK_SIZE,)),
  z: Tensor(1).tile((BLOCK_SIZE,)),
):
  z = x + y
BLOCK_SIZE_M = Symbol("BLOCK_SIZE_M", meta=True)
BLOCK_SIZE_N = Symbol("BLOCK_SIZE_N", meta=True)
BLOCK_SIZE_K = Symbol("BLOCK_SIZE_K", meta=True)
a_tiled = Tensor(2).tile((BLOCK_SIZE_M, BLOCK_SIZE_K)).tile((1, -1))
b_tiled = Tensor(2).tile((BLOCK_SIZE_K, BLOCK_SIZE_N)).tile((-1, 1))
c_tiled = Tensor(2).tile((BLOCK_SIZE_M, BLOCK_SIZE_N))
a_tiled = a_tiled.expand((-1, c_tiled.shape[1]))
b_tiled = b_tiled.expand((c_tiled.shape[0], -1))
a_tiled.dtype = a_tiled.dtype.squeeze(0)
b_tiled.dtype = b_tiled.dtype.squeeze(1)
@ninetoothed.jit
def matmul_kernel(a: a_tiled, b: b_tiled, c: c_tiled):
  accumulator = ninetoothed.language.zeros(c.shape, dtype=ninetoothed.language.float32)
  for k in range(a.shape[0]):
    accumulator += ninetoothed.language.dot(a[k], b[k])
  c = accumulator.to(ninetoothed.language.float16)
""" + TORCH + """\
x, y = torch.ones(8192, device=device), torch.ones(8192, device=device)
z = torch.empty_like(x)
add_kernel(x, y, z)
assert torch.allclose(z, x + y)
a, b = torch.ones((48, 30), dtype=dtype, device=device), torch.ones((30, 65), dtype=dtype, device=device)
c = torch.empty((48, 65), dtype=dtype, device=device)
matmul_kernel(a, b, c)
assert torch.allclose(c, a @ b)
"""
