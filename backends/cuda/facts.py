"""What the renderer asks of a program before it writes: the axes of every value, sizes as Triton wants them, the dimensions of
variables, which accesses go by descriptor, what stands inline."""
from __future__ import annotations

import keyword
import math
import operator
import re
from collections import defaultdict
from sys import maxsize
from typing import Callable, Mapping, NamedTuple, Sequence

from ntgrad.codegen.index import Size
from ntgrad.codegen.ir import COMPARE, BinaryOps, CompileError, DType, Ops, UnaryOps, UOp, power_of_two, toposort
from ntgrad.codegen.kernel import NARROW, accesses_variable, accumulator, is_dot, linear, named_sources, terms

from ..writer import Usage, Writer
from .descriptors import AxisIds, Box, find_boxes

# a bit less is another number
_STEPS = frozenset((UnaryOps.FLOOR, UnaryOps.CEIL, UnaryOps.TRUNC, UnaryOps.ROUND, BinaryOps.IDIV, BinaryOps.MOD))
_LONGEST, _LONGEST_READ = 90, 59   # characters of a value, and of an access of a variable, where they stand inline
WIDEST = 16                        # bytes that a thread reads or writes at once
# names that nothing of a program can have as its own
TAKEN = re.compile(
  r"(data|unused|desc|gidx|acc|alu|cast|val|red|dot|scan|sort|next|go|var|ni|i|r|m)\d+|_.*|tl|triton|libdevice|range|float|min|max|"
  rf"{'|'.join(keyword.kwlist)}")
_TYPE = {"bool": "int1", "float8_e4m3": "uint8", "float8_e5m2": "uint8"}   # others have numpy's name
_ARITHMETIC: dict[object, Callable[[int, int], int]] = {
  BinaryOps.ADD: operator.add, BinaryOps.SUB: operator.sub, BinaryOps.MUL: operator.mul,
  BinaryOps.IDIV: lambda a, b: a // b if b else 0, BinaryOps.MOD: lambda a, b: a % b if b else 0}


class Place(NamedTuple):
  """How an access goes through a dimension of a variable: by all of a TILE axis, or by ``terms`` and a constant."""
  axis: int | None
  terms: dict[UOp, int]
  start: int


def triton_type(dtype: DType) -> str:
  """What a value of ``dtype`` is called: ``tl.float32``. Raises CompileError for a vector."""
  if dtype.count > 1:
    raise CompileError(f"Triton has no vectors ({dtype}): blocks are TILE axes; render the kernel without LANE axes")
  return f"tl.{_TYPE.get(dtype.name, dtype.name)}"


class Facts(Writer):
  """A linear program and what is true of it. ``descriptors`` says that the chip has tensor descriptors. ``called`` are the names
  of the sizes that a launch gives, ``dims`` the TILE axes of every value, ``order`` their order in every block, ``sizes`` and
  ``padded`` their elements as they are and rounded up."""

  def __init__(self, name: str, uops: Sequence[UOp], arguments: Mapping[Size, DType], descriptors: bool):
    super().__init__(name, uops, arguments, TAKEN)
    self.used = dict[str, None]()                     # by the source: helpers, and the element numbers and masks of axes
    self.params = [u for u in uops if u.op is Ops.DEFINE_GLOBAL]
    self.arguments = arguments
    self.sizes: dict[int, int] = {u.arg[0]: u.arg[1] for u in uops if u.op is Ops.RANGE}
    self.folds = [u for u in uops if u.op is Ops.FOLD]
    self.dims = linear.block_axes(uops)
    self.order = linear.axis_order(uops)
    self.shapes = self._shapes(uops)                    # of each variable
    self.places = {u: self._places(u) for u in map(placed, uops) if accesses_variable(u)}
    through = defaultdict[tuple[UOp, int], set[int]](set)   # the axes along each dimension of each variable
    for u, places in self.places.items():
      for dim, place in enumerate(places):
        if place.axis is not None: through[u.src[0], dim].add(place.axis)
    for u in self.folds:   # all of one shape
      for dim in range(len(u.arg.shape)):
        through.update(dict.fromkeys([(v, dim) for v in u.src], set().union(*[through[v, dim] for v in u.src])))
    self.padded = self._padded(uops, through)
    self.padded_shapes = {
      v: tuple(max([power_of_two(n), *(self.padded[i] for i in through[v, dim])]) for dim, n in enumerate(shape))
      for v, shape in self.shapes.items()}
    self.boxes = dict[UOp, Box]()
    self.pointers = dict[str, str]()                  # params whose marked accesses are no boxes, and why
    if descriptors: self.boxes, self.pointers = find_boxes(uops, self.dims, self.padded)
    self.uops = linear.prune(uops, self.sources)               # without what only indices of boxes and variables needed
    self.at = {u: i for i, u in enumerate(self.uops)}
    self.ends = {u.src[0]: i for i, u in enumerate(self.uops) if u.op in (Ops.ENDLOOP, Ops.ENDWHILE)}   # of each LOOP and WHILE
    self.exact = self._exact()                          # values whose last bits are seen
    self.inline = dict[UOp, int]()                    # value that may stand where it is used -> how long its text may be
    self.reads: dict[UOp, frozenset[UOp]] = defaultdict(frozenset)   # accumulators and variables that a value's text names
    self._analyse()

  def refuse(self, u: UOp, why: str = "") -> CompileError:
    return CompileError(f"kernel {self.name}: Triton cannot express {u!r}{why and f': {why}'}")

  def axes(self, dims: AxisIds) -> list[int]: return [i for i in self.order if i in dims]
  def ragged(self, axis: int) -> bool: return self.padded[axis] != self.sizes[axis]

  def body(self, loop: UOp) -> list[UOp]: return self.uops[self.at[loop] + 1:self.ends[loop]]   # what stands in a LOOP or WHILE

  def sources(self, u: UOp) -> Sequence[UOp]:
    """What the text of a node names."""
    if u not in self.boxes: return named_sources(u)
    return (u.src[0], *u.src[2:3], *self.boxes[u].atoms) if u.op is Ops.STORE else (u.src[0], *self.boxes[u].atoms)

  def reads_in_steps(self, axis: int) -> bool:
    """Whether all reads along a block's only axis step over elements, as windows with a stride do, and a store does not."""
    reads, writes = ([u.src[1] for u in self.uops if u.op is op and u.src[0].op is Ops.DEFINE_GLOBAL]
                     for op in (Ops.LOAD, Ops.STORE))
    return bool(reads) and all(self.dims[i] == {axis} and abs(step_along(i, axis)) > 1 for i in reads) and all(
      step_along(i, axis) == 1 for i in writes)

  def neighbours(self, axis: int) -> int:
    """How many elements along an axis a thread has side by side: Triton gives it those that the widest access takes at once."""
    widest = 1
    for u in self.uops:
      if u.op not in (Ops.LOAD, Ops.STORE) or u.src[0].op is not Ops.DEFINE_GLOBAL: continue
      found, begin = terms(u.src[1])
      if {x.arg[0]: k for x, k in found.items() if x.op is Ops.RANGE}.get(axis) != 1: continue
      widest = max(widest, math.gcd(WIDEST // u.src[0].dtype.itemsize, begin, *[
        k for x, k in found.items() if x.op is not Ops.RANGE or x.arg[0] != axis]))
    return widest

  def target(self, u: UOp) -> AxisIds:
    """The axes that the sources of ``u`` are broadcast to; of a dot, those of its first factor."""
    if u in self.boxes: return frozenset(self.boxes[u].axes)
    if u.op in (Ops.LOAD, Ops.STORE, Ops.ATOMIC): return frozenset().union(*(self.dims[s] for s in named_sources(u)))
    return self.dims[u.src[0]] if u.op is Ops.REDUCE else self.dims[u]

  # ---- variables

  def _shapes(self, uops: Sequence[UOp]) -> dict[UOp, tuple[int, ...]]:
    """The shape of each variable: that of an access which takes all of it, else one dimension."""
    out = {v: u.arg.shape for u in self.folds for v in u.src}
    for u in uops:
      if not accesses_variable(u := placed(u)): continue
      found = linear.layout(u.src[0].arg[1], u.src[1])
      if found is not None and len(found) > len(out.get(u.src[0], ())): out[u.src[0]] = found
    return {u: out.get(u, () if u.arg[1] == 1 else (u.arg[1],)) for u in uops if u.op is Ops.DEFINE_LOCAL}

  def _places(self, u: UOp) -> list[Place]:
    """How an access of a variable goes through each dimension. Raises CompileError where its index cannot be told apart."""
    shape, (atoms, c) = self.shapes[u.src[0]], terms(u.src[1])
    out = []
    stride = math.prod(shape)
    for n in shape:
      stride //= n
      here = {x: k // stride for x, k in atoms.items() if abs(k) >= stride and k % stride == 0}
      for x in here: del atoms[x]
      start, c = divmod(c, stride)
      axis = next((x.arg[0] for x, k in here.items() if k == 1 and x.op is Ops.RANGE and x.arg[1] == n), None)
      out.append(Place(axis, {}, 0) if axis is not None and len(here) == 1 and not start else Place(None, here, start))
    if atoms or c: raise self.refuse(u, f"an index that is not made of those into its dimensions {shape}")
    return out

  def _padded(self, uops: Sequence[UOp], through: dict[tuple[UOp, int], set[int]]) -> dict[int, int]:
    """The size of each TILE axis as Triton wants it: a power of two; for a dot at least 16 (its inner one 32 for a byte); the
    same for all axes that go through one dimension of a variable."""
    out = {i: power_of_two(n) for i, n in self.sizes.items()}
    for u in uops:
      if not is_dot(u): continue
      for i in self.dims[u.src[0]] ^ self.dims[u.src[1]] | {*u.arg[1]}:   # but those of a batch
        out[i] = max(out[i], 32 if i in u.arg[1] and u.src[0].dtype.itemsize == 1 else 16)
    while any(len({out[i] for i in axes}) > 1 for axes in through.values()):
      for axes in through.values(): out.update(dict.fromkeys(axes, max(out[i] for i in axes)))
    return out

  # ---- the text

  def _exact(self) -> set[UOp]:
    """The floats whose last bits are seen: stored as float32 or more, or decided by. Others become narrower floats."""
    exact = set[UOp]()
    def see(u: UOp) -> None:
      """Also what it is computed from, up to where that is rounded."""
      stack = [u]
      while stack:
        x = stack.pop()
        if x in exact or x.dtype in NARROW: continue
        exact.add(x)
        stack += [s for s in x.src if s.dtype.kind == "f"]
    before = -1
    while len(exact) != before:   # accumulators and variables are read before they are written, in the order of a loop
      before = len(exact)
      local = {u.src[0] for u in exact if u.op is Ops.LOAD and accesses_variable(u)}.union(*[u.src for u in self.folds])
      for u in self.uops:
        op, src = u.op, u.src
        if op in (Ops.STORE, Ops.ATOMIC):
          wide = src[0] in local if src[0].op is Ops.DEFINE_LOCAL else src[0].dtype not in NARROW
          if wide and src[2].dtype.kind == "f": see(src[2])
        elif op is Ops.PHI and accumulator(u) in exact: see(u)
        elif src and src[0].dtype.kind == "f" and (op is Ops.ALU and (u.arg in COMPARE or u.arg in _STEPS) or
                                                   op is Ops.CAST and u.dtype.kind != "f" or op is Ops.BITCAST):
          for s in src: see(s)
    return exact - self._rough()

  def _rough(self) -> set[UOp]:
    """Exponentials of what matrix units add up of small floats, which rounds more than the chip's own instruction does."""
    made, found = set[UOp](), set[UOp]()
    for u in self.uops:
      if not (is_dot(u) and u.src[0].dtype in NARROW or any(s in made for s in u.src)): continue
      if u.op is not Ops.STORE: made.add(u)
      elif u.src[0].op is Ops.DEFINE_LOCAL: made.add(u.src[0])
      if u.arg in (UnaryOps.EXP, UnaryOps.EXP2): found.add(u)
    return found

  def _analyse(self) -> None:
    """``inline``: values used once, in their block, by something over the same axes, before what they read is written again."""
    usage = Usage(self.uops, lambda u: [*self.sources(u)] * (1 + (u.arg is UnaryOps.ISNAN)),
                  (Ops.LOOP, Ops.IF, Ops.WHILE, Ops.ELSE, Ops.BREAK))
    blocks, reads = usage.blocks, self.reads
    for at, u in enumerate(self.uops):
      users = usage.users[u]
      if u.op in (Ops.DEFINE_ACC, Ops.PHI): reads[u] = frozenset((accumulator(u),))
      elif u.op is Ops.LOAD and accesses_variable(u):
        # while nothing is stored to a variable, its name stands for the value; a loop that begins after this and reads the value
        # may store in one iteration and read in the next
        reads[u] = frozenset(u.src[:1])
        last = max([at, *users, *(self.ends[b] for p in users for b in blocks[p] if b in self.ends and self.at[b] > at)])
        if usage.written(reads[u], at, last): reads[u] = frozenset()
        else: self.inline[u] = _LONGEST_READ
      elif len(users) != 1: continue
      else:
        p = users[0]
        user = self.uops[p]
        if u.op in (Ops.ALU, Ops.CAST, Ops.BITCAST) or is_dot(u) and len(u.src) == 3:
          reads[u] = frozenset().union(*[reads[s] for s in u.src])
          same = blocks[p] == blocks[at] and self.dims[u] in (frozenset(), self.target(user))
          if same and not usage.written(reads[u], at, p): self.inline[u] = maxsize if is_dot(u) else _LONGEST
          else: reads[u] = frozenset()
        elif u.op in (Ops.LOAD, Ops.REDUCE, Ops.SCAN, Ops.SORT) and p == at + 1 and user.op is Ops.STORE and \
            accesses_variable(user) and user.src[2] is u: self.inline[u] = maxsize   # it gets the variable's name


def placed(u: UOp) -> UOp:
  """The STORE of what an ATOMIC gives, if it gives something to a variable; any other node as it is."""
  return UOp(Ops.STORE, u.dtype, (*u.src[4:6], u)) if u.op is Ops.ATOMIC and u.src[4:] else u


def step_along(index: UOp, axis: int) -> int:
  """What a flat index moves by from the first to the second element of a block along an axis, everything else being 0."""
  values = {}
  for u in toposort((index,)):
    op, arg = u.op, u.arg
    if op is Ops.RANGE and arg[0] == axis: values[u] = 0, 1
    elif op is Ops.CONST: values[u] = int(arg), int(arg)
    elif op is Ops.CAST: values[u] = values[u.src[0]]
    elif op is Ops.ALU and arg in _ARITHMETIC and len(u.src) == 2:
      a, b = zip(*[values[s] for s in u.src])
      values[u] = _ARITHMETIC[arg](*a), _ARITHMETIC[arg](*b)
    else: values[u] = 0, 0
  first, second = values[index]
  return second - first
