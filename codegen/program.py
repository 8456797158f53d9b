"""From a kernel whose body is a sequence of statements to its list of UOps.

Each STORE and ATOMIC is lowered as a small kernel of its own: what surrounds it (the program's position, the FORs) is a number there, its own
axes take the Opts that the target likes. Its nodes are then written where they belong: index arithmetic as far out as it can stand, once;
what touches memory that the kernel writes exactly where the statement stands.
"""
from __future__ import annotations

from typing import Any, Callable, Iterable, Sequence, Union

from . import index as ix
from .axes import merge_axes, split_axes
from .config import config
from .costs import profile
from .dtype import DType, dtypes
from .errors import OptError
from .expand import Expander
from .kernel import EFFECTS, Axis, AxisKind, Kernel, Param, Variable, inner, is_variable
from .linearizer import Emitter, Lowering, limit_additions, lower_index, positions
from .optimize import Search, overlapping
from .opts import CacheRead, Vectorize
from .rewrite import substitute
from .uop import BinaryOps, Ops, TernaryOps, UnaryOps, UOp, UOpList, identity, prod, toposort

PRIVATE_BYTES = 16 << 10       # larger variables are local memory: a CPU's stack is small
PANEL_BYTES = 128 << 10        # what is copied to local memory stays in a level-2 cache,
PANEL_STEP = 512               # pays where neighbours in the loop are further apart than this,
PANEL_AGAIN = 8                # and is read at least as often
Work = Union[UOp, Callable[[], None]]   # a statement, or what ends a region
_COPIED = (AxisKind.UPCAST, AxisKind.UNROLL, AxisKind.LANE, AxisKind.LOCAL)


class Writer:
  """A linear program while it is written: a tree of blocks, each with what stands in it and what can be used again there."""

  def __init__(self) -> None:
    self.root: list[Any] = []
    self.blocks: list[list[Any]] = [self.root]           # the open ones
    self.opened: list[int] = []                          # in each but the last, where that begins which is open inside it
    self.again: list[dict[UOp, UOp]] = [{}]              # for each open block: a node as it would be interned -> the one that stands there
    self.home: dict[UOp, int] = {}                       # every node that stands somewhere -> how many blocks are round it

  @property
  def depth(self) -> int: return len(self.blocks) - 1

  def pure(self, u: UOp, src: tuple[UOp, ...], hoist: bool) -> UOp:
    """A node without effect: the one that stands in an open block, or a new one, with ``hoist`` as far out as its sources allow."""
    like = UOp(u.op, u.dtype, src, u.arg)
    for table in reversed(self.again):
      if like in table: return table[like]
    new = UOp.fresh(u.op, u.dtype, src, u.arg) if like in self.home else like
    depth = max((self.home[s] for s in src), default=0) if hoist else self.depth
    self.again[depth][like] = new
    return self._place(new, depth)

  def fresh(self, u: UOp, src: tuple[UOp, ...]) -> UOp:
    """A node that stands here and is no other's equal."""
    return self._place(UOp.fresh(u.op, u.dtype, src, u.arg), self.depth)

  def _place(self, new: UOp, depth: int) -> UOp:
    block = self.blocks[depth]
    if depth == self.depth: block.append(new)
    else:
      block.insert(self.opened[depth], new)
      self.opened[depth] += 1
    self.home[new] = self.home[new.src[0]] if new.op is Ops.PHI else depth
    return new

  def open(self, opener: UOp) -> UOp:
    """``opener`` stands here, what follows inside it."""
    self.opened.append(len(self.blocks[-1]))
    self._begin(opener)
    return opener

  def otherwise(self, u: UOp) -> None:
    """The ELSE of what is open."""
    self.blocks.pop()
    self.again.pop()
    self._begin(u)

  def _begin(self, u: UOp) -> None:
    block: list[Any] = []
    self.blocks[-1] += [u, block]
    self.blocks.append(block)
    self.again.append({})
    self.home[u] = self.depth

  def close(self, end: UOp) -> None:
    """``end`` ends what is open."""
    self.blocks.pop()
    self.again.pop()
    self.opened.pop()
    self.blocks[-1].append(end)
    self.home[end] = self.depth

  def list(self) -> UOpList:
    """Everything in order; params, variables, positions and constants first."""
    first = {Ops.DEFINE_GLOBAL: 0, Ops.DEFINE_LOCAL: 1, Ops.SPECIAL: 2, Ops.CONST: 3}
    head = [u for u in self.root if isinstance(u, UOp) and u.op in first]
    head.sort(key=lambda u: (first[u.op], u.arg[0] if u.op is Ops.DEFINE_GLOBAL else 0))
    out = UOpList(head)
    todo = self.root[::-1]
    while todo:
      u = todo.pop()
      if isinstance(u, list): todo.extend(u[::-1])
      elif u.op not in first: out.append(u)
    return out


class Program:
  """Lowers one kernel. ``run`` gives its list of UOps."""

  def __init__(self, kernel: Kernel, target: Any = None):
    self.kernel, self.target = kernel, target
    self.keeps_blocks = bool(getattr(target, "blocks", False))
    self.axes = {a.id: a for a in kernel.axes}
    self.order = [a.id for a in kernel.axes]
    self.written = set(kernel.written)
    self.writer = Writer()
    self.around: dict[UOp, UOp] = {a.rng: positions(kernel)[a.id] for a in kernel.of_kind(AxisKind.GRID, AxisKind.LOCAL) if a.size > 1}
    self.loops: dict[UOp, UOp] = {}                       # what stands for a FOR's axis in a statement -> its LOOP
    self.arrays: dict[UOp, UOp] = {}                      # variables and staged arrays -> as they stand in the list
    self.staged = 0                                       # bytes of staged arrays
    self.names: set[str] = {v.arg[0] for v in kernel.variables}

  @property
  def chooses(self) -> bool:
    """Whether Opts are chosen for the statements."""
    return not (config.noopt or self.keeps_blocks or self.target is None or self.target.lanes == 1 or self.target.locals)

  def run(self) -> UOpList:
    for p in self.kernel.params: self.writer.pure(p.uop, (), True)
    self.body(self.kernel.body)
    return lower_index(self.writer.list())

  # ---- statements

  def body(self, statements: Iterable[UOp]) -> None:
    """Write statements, and what regions among them have: a region gives what is to be done for it, in order."""
    todo: list[Work] = [*statements]
    todo.reverse()
    while todo:
      s = todo.pop()
      if not isinstance(s, UOp): s()
      elif s.op in EFFECTS: self.effect(s)
      elif s.op is Ops.FOR: todo.extend(self.loop(s)[::-1])
      elif s.op is Ops.WHILE: todo.extend(self.while_(s)[::-1])
      elif s.op is Ops.IF: todo.extend(self.branch(s)[::-1])
      else: raise OptError(f"{s.op} is no statement")

  def loop(self, s: UOp) -> Sequence[Work]:
    """FOR: LOOP .. ENDLOOP"""
    axis = self.axes[s.arg]
    end = s.src[0]
    if end.op is Ops.CONST and end.arg <= 0: return ()
    if end.op is Ops.CONST and axis.size == 1: return s.src[1:]
    start, stop = self.value(ix.const(0)), self.value(ix.least(end, axis.size))
    loop = self.writer.open(UOp.fresh(Ops.LOOP, dtypes.index, (start, stop)))
    index = UOp(Ops.SPECIAL, dtypes.index, (), ("for", axis.id, axis.size))
    before = self.around, self.loops
    self.loops = {**self.loops, index: loop}
    if axis.size > 1: self.around = {**self.around, axis.rng: index}
    def end_loop() -> None:
      self.around, self.loops = before
      self.writer.close(UOp.fresh(Ops.ENDLOOP, dtypes.index, (loop,)))
    return (*s.src[1:], end_loop)

  def while_(self, s: UOp) -> Sequence[Work]:
    """WHILE, the condition, BREAK, .. ENDWHILE"""
    top = self.writer.open(UOp.fresh(Ops.WHILE, dtypes.bool))
    self.writer.fresh(UOp(Ops.BREAK, dtypes.bool), (self.value(s.src[0]),))
    return (*s.src[1:], lambda: self.writer.close(UOp.fresh(Ops.ENDWHILE, dtypes.bool, (top,))))

  def branch(self, s: UOp) -> Sequence[Work]:
    """IF .. [ELSE ..] ENDIF"""
    condition, (yes, no) = s.src[0], inner(s)
    if condition.op is Ops.CONST: return yes if condition.arg else no
    if not yes: condition, yes, no = UOp.alu(UnaryOps.NOT, condition), no, ()
    top = self.writer.open(UOp.fresh(Ops.IF, dtypes.bool, (self.value(condition),)))
    other: Sequence[Work] = (lambda: self.writer.otherwise(UOp.fresh(Ops.ELSE, dtypes.bool, (top,))), *no) if no else ()
    return (*yes, *other, lambda: self.writer.close(UOp.fresh(Ops.ENDIF, dtypes.bool, (top,))))

  def effect(self, s: UOp) -> None:
    """A STORE or ATOMIC, by way of other statements where one will not do."""
    value = s.src[2]
    if value.op in (Ops.SCAN, Ops.SORT):
      if not any(r.arg[0] == value.arg[1 if value.op is Ops.SCAN else 0] for r in value.ranges): s = with_value(s, value.src[0])  # one element
      elif not self.keeps_blocks: return self.scan(s) if value.op is Ops.SCAN else self.sort(s)
    s, = substitute((s,), self.around)
    if not isinstance(s.arg, tuple) and not self.keeps_blocks:   # what is read elsewhere than it is written must be read before
      elsewhere = [u for u in toposort(s.src[1:]) if u.op is Ops.LOAD and u.src[0] is s.src[0] and u.src[1] is not s.src[1]]
      for u in elsewhere:
        if any(n is u for n in toposort((s.src[1], *s.src[3:]))): s, = substitute((s,), {u: self.keep(u)})
      if any(n in elsewhere for n in toposort((s.src[2],))): s = with_value(s, self.keep(s.src[2]))
    if s.op is Ops.ATOMIC and not self.keeps_blocks and has_reduce(s.src[2]): s = with_value(s, self.keep(s.src[2]))
    self.store(s)

  def store(self, s: UOp) -> None:
    """Where a tile may hang over an edge, most do not: IF whole .. without masks, ELSE .. as it is."""
    whole = self.whole(s) if s.op is Ops.STORE and self.chooses else {}
    condition = ix.both(*whole.values())
    if not whole or condition is ix.FALSE:
      self.lower(s)
      return
    top = self.writer.open(UOp.fresh(Ops.IF, dtypes.bool, (self.lower(condition),)))
    self.lower(substitute((s,), {c: ix.TRUE for c in whole})[0])
    self.writer.otherwise(UOp.fresh(Ops.ELSE, dtypes.bool, (top,)))
    self.lower(s)
    self.writer.close(UOp.fresh(Ops.ENDIF, dtypes.bool, (top,)))

  def whole(self, s: UOp) -> dict[UOp, UOp]:
    """Conditions of gates that depend on the statement's own axes, each with what makes it true for all their values."""
    out: dict[UOp, UOp] = {}
    for u in toposort((s,)):
      for c in ix.conjuncts(u.src[2] if u.op is Ops.LOAD and len(u.src) > 2 else u.src[3] if u.op is Ops.STORE and len(u.src) > 3 else None):
        if not c.ranges or c.op is not Ops.ALU or c.arg is not BinaryOps.CMPLT or c.src[0].dtype is not dtypes.index: continue
        terms, n = ix.linear(ix.sub(c.src[0], c.src[1]))   # below 0
        top = ix.const(n)
        for t, k in terms:
          if t.ranges and t.op is not Ops.RANGE: break
          top = ix.add(top, ix.mul(t, k) if t.op is not Ops.RANGE else ix.const(max(k, 0) * ix.vmax(t)))
        else:
          if not any(x.op is Ops.LOAD for x in top.toposort()): out[c] = ix.lt(top, 0)
    return {c: always for c, always in out.items() if always is not ix.FALSE}

  def keep(self, value: UOp) -> UOp:
    """Compute a value now, into a variable; gives what reads it."""
    ids = {r.arg[0] for r in value.ranges}
    axes = [self.axes[i] for i in self.order if i in ids]
    v = self.variable(value.dtype, tuple(a.size for a in axes))
    at = UOp(Ops.INDEX, dtypes.index, tuple(a.rng for a in axes))
    self.store(UOp.fresh(Ops.STORE, value.dtype, (v, at, value)))
    return UOp(Ops.LOAD, value.dtype, (v, at))

  def variable(self, dtype: DType, shape: tuple[int, ...]) -> UOp:
    name = self.unique("t")
    v = UOp(Ops.DEFINE_LOCAL, dtype, (), (name, shape, "private"))
    self.written.add(v)
    return v

  def unique(self, stem: str) -> str:
    n = 0
    while f"{stem}{n}" in self.names: n += 1
    self.names.add(f"{stem}{n}")
    return f"{stem}{n}"

  def scan(self, s: UOp) -> None:
    """for a: run = fn(run, value(a)); out[a] = run"""
    fn, axis, reverse = s.src[2].arg
    a = self.axes[axis]
    value = s.src[2].src[0]
    if has_reduce(value) or any(n.op is Ops.LOAD and n.src[0] is s.src[0] and n.src[1] is not s.src[1] for n in toposort((value,))):
      value = self.keep(substitute((value,), self.around)[0])
    if reverse:
      back = {a.rng: ix.sub(ix.const(a.size - 1), a.rng)}
      value, *rest = substitute((value, s.src[1], *s.src[3:]), back)
    else: rest = [s.src[1], *s.src[3:]]
    others = [self.axes[r.arg[0]] for r in sorted(value.ranges, key=lambda r: self.order.index(r.arg[0]))
              if r.arg[0] != axis and r not in self.around]
    run = self.variable(value.dtype, tuple(o.size for o in others))
    at = UOp(Ops.INDEX, dtypes.index, tuple(o.rng for o in others))
    now = UOp(Ops.LOAD, value.dtype, (run, at))
    self.effect(UOp.fresh(Ops.STORE, value.dtype, (run, at, UOp.const(value.dtype, identity(fn, value.dtype)))))
    step = UOp.fresh(Ops.STORE, value.dtype, (run, at, UOp.alu(fn, now, value)))
    out = UOp.fresh(Ops.STORE, s.dtype, (s.src[0], rest[0], now, *rest[1:]))
    self.body([UOp.fresh(Ops.FOR, dtypes.index, (ix.const(a.size), step, out), axis)])

  def sort(self, s: UOp) -> None:
    """Each element goes to its rank: how many stand before it."""
    axis, descending = s.src[2].arg
    a = self.axes[axis]
    value = s.src[2].src[0]
    x = self.keep(substitute((value,), self.around)[0])
    other = self.axis(a.size)
    y, = substitute((x,), {a.rng: other.rng})
    more, less = (x, y) if descending else (y, x)
    before, same = UOp.alu(BinaryOps.CMPLT, more, less), UOp.alu(BinaryOps.CMPEQ, x, y)
    if value.dtype.kind == "f":   # NaN stands after everything else
      xn, yn = UOp.alu(UnaryOps.ISNAN, x), UOp.alu(UnaryOps.ISNAN, y)
      before = UOp.alu(BinaryOps.OR, before, UOp.alu(BinaryOps.AND, xn, UOp.alu(UnaryOps.NOT, yn)))
      same = UOp.alu(BinaryOps.OR, same, UOp.alu(BinaryOps.AND, xn, yn))
    first = UOp.alu(BinaryOps.OR, before, UOp.alu(BinaryOps.AND, same, ix.lt(ix.sub(other.rng, a.rng), 0)))
    one = UOp.alu(TernaryOps.WHERE, first, UOp.const(dtypes.int32, 1), UOp.const(dtypes.int32, 0))
    rank = self.keep(UOp(Ops.REDUCE, dtypes.int32, (one,), (BinaryOps.ADD, (other.id,))))
    rest = substitute((s.src[1], *s.src[3:]), {a.rng: UOp(Ops.CAST, dtypes.index, (rank,))})
    self.effect(UOp.fresh(Ops.STORE, s.dtype, (s.src[0], rest[0], x, *rest[1:])))

  def axis(self, size: int) -> Axis:
    """A new axis of a statement."""
    a = Axis(max(self.axes) + 1, size, AxisKind.TILE)
    self.axes[a.id] = a
    self.order.append(a.id)
    return a

  # ---- one statement

  def own(self, u: UOp) -> list[Axis]:
    """The axes that a statement (with numbers for those around it) is a function of, and those that it goes through."""
    ids = {r.arg[0] for r in u.ranges}
    for n in toposort((u,)):
      if n.op is Ops.REDUCE: ids.update(n.arg[1])
    return [self.axes[i] for i in self.order if i in ids]

  def value(self, u: UOp) -> UOp:
    """A scalar value computed here."""
    u, = substitute((u,), self.around)
    if has_reduce(u) and not self.keeps_blocks: u = self.keep(u)
    return self.lower(u)

  def lower(self, root: UOp) -> UOp:
    """Write a statement, or a value, as a kernel of its own axes."""
    kernel = self.small(root)
    roots = Expander(kernel).run()
    if not roots: return root  # a gate that is never true
    low = Lowering(kernel, roots)
    return self.write(Emitter(low).out, low)

  def small(self, root: UOp) -> Kernel:
    axes = [a if self.keeps_blocks or a.kind in _COPIED else Axis(a.id, a.size, AxisKind.LOOP) for a in self.own(root)]
    params: list[Param] = list(self.kernel.params)
    for i, v in enumerate(u for u in toposort((root,)) if is_variable(u)): params.append(Variable(-1 - i, v.arg[1], v.dtype, True, v))
    kernel = limit_additions(Kernel(tuple(params), tuple(axes), (root,)))
    if root.op is not Ops.STORE or not axes or any(a.kind in _COPIED for a in axes): return kernel
    if not self.chooses:
      arrays = getattr(self.target, "name", "") == "numpy" and not config.noopt
      return whole_axis(kernel) if arrays else kernel
    kernel = merge_axes(split_axes(kernel))
    for opt in Search(kernel, self.target).best(): kernel = opt.apply(kernel)
    return self.panel(kernel)

  def panel(self, kernel: Kernel) -> Kernel:
    """What a product reads again for each of its rows, in long strides, is copied to local memory first."""
    lanes = kernel.of_kind(AxisKind.LANE)
    loops = [a for a in kernel.of_kind(AxisKind.LOOP) if a.id in kernel.bound]
    if not lanes or lanes[0].id in kernel.bound or not loops or len(kernel.reduces) != 1 or not self.target.local_memory: return kernel
    lane, last = lanes[0].id, loops[-1].id
    for x in profile(kernel).accesses:
      if x.write or x.gated or x.node.src[0].op is not Ops.DEFINE_GLOBAL or lane not in x.axes or not x.axes & kernel.bound: continue
      if x.steps.get(lane) == 1 and (x.steps.get(last) or 0) * x.itemsize < PANEL_STEP: continue
      again = prod(a.size for a in kernel.of_kind(AxisKind.LOOP) if a.id not in kernel.bound and a.id not in x.axes)
      size = x.itemsize * prod(a.size for a in kernel.axes if a.id in x.axes)
      if again < PANEL_AGAIN or size > PANEL_BYTES or self.staged + size > self.target.local_memory // 2 or overlapping(kernel, x): continue
      self.staged += size
      return CacheRead(x.node.src[0].arg[0], lane).apply(kernel)
    return kernel

  def write(self, nodes: UOpList, low: Lowering) -> UOp:
    """Put the nodes of a statement into the program; gives what its root became."""
    w = self.writer
    base = w.depth
    new: dict[UOp, UOp] = {}
    for u in nodes:
      if u.op is Ops.SPECIAL and u in self.loops: new[u] = self.loops[u]
      elif u.op is Ops.DEFINE_LOCAL: new[u] = self.array(u)
      else:
        src = tuple([new[s] for s in u.src])
        if u.op is Ops.LOOP: new[u] = w.open(UOp.fresh(u.op, u.dtype, src, u.arg))
        elif u.op is Ops.ENDLOOP: w.close(UOp.fresh(u.op, u.dtype, src))
        elif u.op in (Ops.STORE, Ops.ATOMIC, Ops.DEFINE_ACC, Ops.PHI): new[u] = w.fresh(u, src)
        elif u.op is Ops.LOAD: new[u] = w.fresh(u, src) if u.src[0] in self.written or u.src[0].op is Ops.DEFINE_LOCAL else w.pure(u, src, False)
        else: new[u] = w.pure(u, src, w.depth == base)
    return new[low.out[-1]]

  def array(self, u: UOp) -> UOp:
    """A variable, or a staged array, as it stands at the top of the list."""
    found = self.arrays.get(u)
    if found is None:
      name, shape, where = u.arg
      if is_variable(u):
        size = prod(shape)
        if size * u.dtype.itemsize > PRIVATE_BYTES: where = "local"
      else: name, size = self.unique("stage"), shape
      found = self.arrays[u] = UOp.fresh(Ops.DEFINE_LOCAL, u.dtype, (), (name, size, where))
      self.writer._place(found, 0)
    return found


def whole_axis(kernel: Kernel) -> Kernel:
  """For an evaluator with arrays: an axis that is contiguous wherever it is seen, as one vector."""
  accesses = profile(kernel).accesses
  fits = [a for a in kernel.axes if a.id not in kernel.bound and 1 < a.size <= 1024 and all(x.steps.get(a.id, 0) in (0, 1) for x in accesses)]
  best = max(fits, key=lambda a: a.size, default=None)
  return kernel if best is None else Vectorize(best.id).apply(kernel)


def has_reduce(u: UOp) -> bool: return any(n.op is Ops.REDUCE for n in toposort((u,)))


def with_value(s: UOp, value: UOp) -> UOp: return UOp.fresh(s.op, s.dtype, (*s.src[:2], value, *s.src[3:]), s.arg)


def linearize_program(kernel: Kernel, target: Any = None) -> UOpList:
  """The linear UOps of a kernel whose statements have an order. Without a target they are scalar; with ``target.blocks`` its TILE axes stay."""
  return Program(kernel, target).run()
