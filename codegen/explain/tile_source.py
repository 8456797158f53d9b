"""Writes a scheduled kernel as a file of the tile language: the inverse of reading one.

GRID axes are programs, all others dimensions of blocks. A parameter has the arrangement of its first access that is a chain of
meta-operations. At other places it is read and written as ``source.at(index, …)``. A value has a dimension for each block axis
that it varies along, in the kernel's order. Operands with fewer are given dimensions of 1, ``data1[:, None]``."""
from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple, Sequence

from .. import index as ix
from ..index import sources_first, text_of
from ..ir import BinaryOps, DType, ExportError, NtgradError, Ops, TernaryOps, UnaryOps, UOp, acc_dtype, dtypes, toposort
from ..ir.spelling import ATOM, BIT_AND, CONDITIONAL, PYTHON, UNARY, Text, infix, inside
from ..kernel import LOAD_OR_STORE, Axis, AxisKind, Kernel, Param, gate_or_true, substitute
from ..kernel.arrangement import Arrangement
from ..opts import Opts
from .arrangements import ArrangedAccess, derive
from .printing import combiner_text, constant_text, dtype_name

_CALLS = {
  BinaryOps.MAX: "maximum", BinaryOps.MIN: "minimum", BinaryOps.POW: "pow", BinaryOps.THREEFRY: "threefry",
  UnaryOps.RECIP: "reciprocal"}
_SUMS = BinaryOps.ADD, BinaryOps.MUL, BinaryOps.MAX, BinaryOps.MIN   # of reductions, and those that a scan may have
_LETTERS = "MNKPQRSTUVWXYZ"
_LONG = 90   # characters: a longer value gets a line and a name of its own

Dims = tuple[int, ...]   # ids of the block axes that a text varies along
_Block = tuple[str, int, Dims]   # a value: its text, how tightly that binds, what it varies along


def kernel_key(kernel: Kernel) -> str:
  """What a kernel is, as 16 hexadecimal digits: the same for equal parameters, axes and bodies, in any process."""
  text = [repr([(p.slot, p.shape if all(isinstance(n, int) for n in p.shape) else list(map(text_of, p.shape)), str(p.dtype),
                 p.written) for p in kernel.params])]
  text += [str(a) for a in kernel.axes]
  number: dict[UOp, int] = {}
  for u in toposort(kernel.body):
    number[u] = len(number)
    arg = u.arg
    # what a variant for some sizes says more of them is left out: one file stands for all variants
    if u.op is Ops.SIZE: arg = arg.name, arg.unit
    elif u.op is Ops.RANGE and isinstance(arg[1], UOp): arg = arg[0], text_of(arg[1])
    text.append(f"{u.op.name} {u.dtype} {[number[s] for s in u.src]} {arg!r}")
  text.append(repr([number[s] for s in kernel.body]))
  return hashlib.sha256("\n".join(text).encode()).hexdigest()[:16]


def tile_source(kernel: Kernel, name: str, opts: Sequence[Opts] | None = None) -> str:
  """A kernel as a Python file that makes it with the tile language: ``kernel``, with the ``OPTS`` of each of its parts (None:
  to be chosen) and the ``KEY`` of what it stands for. Raises ExportError for what the language does not have."""
  return Export(kernel).file(name, opts)


def short_source(kernel: Kernel) -> list[str]:
  """A kernel as a person reads it: what is written, from what, and sizes; then the application's lines. Raises ExportError."""
  e = Export(kernel)
  def said(p: Param) -> str: return f"data{p.slot} ({', '.join(e.shape(p))}) {dtype_name(p.dtype)}"
  read = {u.src[0] for u in kernel.nodes if u.op is Ops.LOAD}
  out = ", ".join(said(p) for p in kernel.params if p.written)
  given = ", ".join(said(p) for p in kernel.params if p.uop in read)
  sizes = ", ".join(f"{name} = {n}" for name, n in e.names.values.items())
  return [f"{out} <- {given or 'nothing'}{'; ' if sizes else ''}{sizes}", *e.application()]


class _Names(NamedTuple):
  """What the sizes of a kernel are called: by axis, by slot and dimension of a parameter, and the number that each name is."""
  axes: dict[int, str]
  dims: dict[tuple[int, int], str]
  values: dict[str, int]


def names_of_sizes(kernel: Kernel) -> _Names:
  """A name for the size of each axis that goes through whole dimensions of parameters; one for axes that go through the same."""
  along: dict[tuple[int, int], list[int]] = {}   # the axes that go through a dimension
  for u in kernel.nodes:
    if u.op not in LOAD_OR_STORE or (p := kernel.by_uop.get(u.src[0])) is None: continue
    for d, (at, n) in enumerate(zip(u.src[1].src, p.shape)):
      if at.op is Ops.RANGE and at.arg[1] == n and isinstance(n, int): along.setdefault((p.slot, d), []).append(at.arg[0])
  first = {a.id: a.id for a in kernel.axes}   # of the axes that go through the same
  for ids in [*along.values(), *([u.arg[0], u.src[1].arg[0]] for u in kernel.sorts if u.src[1].op is Ops.RANGE and not u.arg[3])]:
    mine = {first[i] for i in ids}
    first = {i: min(mine) if of in mine else of for i, of in first.items()}
  sizes = {a.id: a.size for a in kernel.axes}
  known = list(dict.fromkeys(first[a.id] for a in kernel.axes if any(a.id in ids for ids in along.values())))
  letters = dict(zip(known, ["N"] if len(known) == 1 else _LETTERS))   # beyond these sizes are numbers
  axes = {i: letters[first[i]] for i in sizes if first[i] in letters and isinstance(sizes[i], int)}
  dims = {place: axes[ids[0]] for place, ids in along.items() if ids[0] in axes}
  return _Names(axes, dims, {name: n for i, name in letters.items() if isinstance(n := sizes[i], int)})


def with_names(kernel: Kernel, names: _Names) -> Kernel:
  """The kernel with run-time sizes where sizes have names."""
  size = {n: ix.Size(n, 2).node for n in names.values}
  axes = tuple(replace(a, size=size[names.axes[a.id]]) if a.id in names.axes else a for a in kernel.axes)
  params = tuple(replace(p, shape=tuple(size[m] if (m := names.dims.get((p.slot, d))) else n for d, n in enumerate(p.shape)))
                 for p in kernel.params)
  return kernel.with_(params=params, axes=axes, body=substitute(kernel.body, {a.rng: b.rng for a, b in zip(kernel.axes, axes)}))


class Export:
  """Makes the parts of the file."""
  def __init__(self, kernel: Kernel):
    if not kernel.stores_only: raise ExportError("statements with an order")
    if units := [f"{s.name} of {s.unit}" for s in kernel.sizes if s.unit != 1]:
      raise ExportError(f"a variant for sizes that are multiples, {', '.join(units)}; it has a file where one is not")
    self.kernel = kernel
    self.params = kernel.by_uop
    self.grid = [a.id for a in kernel.grid]
    self.blocks = {a.id: a for a in kernel.axes if a.kind is not AxisKind.GRID}
    if any(a.kind is not AxisKind.LOOP for a in self.blocks.values()): raise ExportError("a kernel after its Opts")
    self.names = names_of_sizes(kernel)
    self.free = with_names(kernel, self.names)
    self.arranged: dict[UOp, ArrangedAccess] = {}
    self.chains: dict[UOp, tuple[str, ...]] = {}   # how each is written
    for u in sorted((u for u in kernel.nodes if u.op in LOAD_OR_STORE), key=lambda u: u.op is Ops.LOAD): self.arrange(u)
    self.known: dict[UOp, _Block] = {}
    self.lines: list[str] = []
    self.made: dict[str, str] = {}       # names of axes as values -> how they are made

  # ---- arrangement
  def arrange(self, access: UOp) -> None:
    """Take the arrangement of an access for its parameter, where it is one and there is none yet."""
    buffer = access.src[0]
    if buffer in self.arranged or buffer not in self.params: return
    found = derive(self.kernel, self.params[buffer], access.op is Ops.STORE, access.src[1], gate_or_true(access))
    if found.arrangement is None or found.where or not found.is_of(found.arrangement): return
    for chain in (self.chain_with_names(found), found.arrangement.chain):
      try: self.chained("x", found, chain)
      except ExportError: continue
      self.arranged[buffer], self.chains[buffer] = found, chain
      return

  def chain_with_names(self, a: ArrangedAccess) -> tuple[str, ...]:
    """The meta-operations of an arrangement with names for sizes; as they are where it is another one then."""
    assert a.arrangement is not None
    if not self.names.values: return a.arrangement.chain
    table = {x.rng: y.rng for x, y in zip(self.kernel.axes, self.free.axes)}
    index, gate = substitute((a.index, a.gate), table)
    named = derive(self.free, next(p for p in self.free.params if p.slot == a.param.slot), a.stored, index, gate).arrangement
    if named is None: return a.arrangement.chain
    space = {"x": Arrangement.of(a.param.shape), **self.names.values, "cdiv": lambda m, n: -(-m // n), "min": min, "max": max}
    try:
      again = eval("x" + "".join(named.chain), space)   # noqa: S307 (what we have just written)
      if again.levels == a.arrangement.levels and a.is_of(again): return named.chain
    except (NtgradError, NameError): pass   # NameError: of a run-time size, which has no number here
    return a.arrangement.chain

  def is_tile(self, access: UOp) -> bool:
    """Whether an access is what the parameter's own name stands for."""
    found = self.arranged.get(access.src[0])
    return found is not None and found.index is access.src[1] and found.gate is gate_or_true(access)

  def chained(self, name: str, a: ArrangedAccess, chain: Sequence[str]) -> list[str]:
    """The meta-operations of an arrangement, a line for each run of one level. Raises ExportError for one that no Tensor has."""
    lines: list[str] = []
    calls = [c for step in [ast.parse("x" + link, mode="eval").body for link in chain] for c in _calls(step)]
    if "GRID" not in a.names and a.axes[0]:   # no axis is a grid's: one program has it all
      n = len(a.axes[0])
      calls += [(0, f".tile(({'-1, ' * n}))".replace(", )", ",)" if n == 1 else ")")), (0, f".squeeze({_tuple(range(n))})")]
    for level, text in calls:
      target = name + ".dtype" * level
      if lines and lines[-1].startswith(f"{target} = "): lines[-1] += text
      else: lines.append(f"{target} = {target}{text}")
    return lines

  def arrangement(self, p: Param) -> list[str]:
    found = self.arranged.get(p.uop)
    return self.everywhere(p) if found is None else self.chained(f"data{p.slot}", found, self.chains[p.uop])

  def everywhere(self, p: Param) -> list[str]:
    """The lines for a parameter that every program sees whole."""
    n, name = len(p.shape), f"data{p.slot}"
    text = f"{name} = {name}.tile({_tuple([-1] * n, True)}).squeeze({_tuple(range(n))})" + ".unsqueeze(0)" * len(self.grid)
    return [text + (f".expand({_tuple([self.size(self.kernel.axis(i)) for i in self.grid], True)})" if self.grid else "")]

  # ---- application
  def application(self) -> list[str]:
    uses = Counter(s for u in self.kernel.nodes for s in u.src)
    stored = {s.src[2] for s in self.kernel.body}
    reads: dict[UOp, bool] = {}   # whether a value is read from memory that the kernel writes
    for u in self.kernel.nodes:
      reads[u] = u.op is Ops.LOAD and u.src[0] in self.kernel.written or any(reads[s] for s in u.src)
      if u.op is Ops.STORE: self.store(u)
      elif u.op is not Ops.INDEX and u.dtype.kind != "v" and u.op not in (Ops.RANGE, Ops.DEFINE_GLOBAL, Ops.SIZE):
        text, _, dims = self.known[u] = self.text(u)
        again = uses[u] > 1 and u.op not in (Ops.CONST, Ops.LOAD) and not text.isidentifier()
        # values that are read from what the kernel writes have no name: it would have to be kept from the writing
        if (again or len(text) > _LONG and u not in stored) and not reads[u]:
          name = f"v{sum(line.startswith('v') for line in self.lines)}"
          self.lines.append(f"{name} = {text}")
          self.known[u] = name, ATOM, dims
    made = [f"a{i} = {self.made[f'a{i}']}" for i in sorted(int(n[1:]) for n in self.made)]
    return used([*made, *self.meetings(), *self.lines])

  def order(self, lines: Sequence[str]) -> list[int]:
    """The axes in the order in which reading the lines makes them: the grid's, then those of what is read, as it comes."""
    out = dict.fromkeys(self.grid)
    tiles = {f"data{a.param.slot}": tuple(x.id for x in a.axes[-1]) for a in self.arranged.values() if a.names[-1] != "GRID"}
    for line in lines:
      if found := re.match(r"a(\d+) = tl\.arange", line): out[int(found[1])] = None
      read = re.findall(r"\bdata\d+\b(?!\.source)", re.sub(r"^data\d+ = ", "", line))
      out.update(dict.fromkeys(i for name in read for i in tiles.get(name, ())))
    for u in self.kernel.sorts:   # makes an axis for its places, then one of its own to go through
      for i in (*(r.arg[0] for r in u.src[1].ranges), u.arg[0]):
        out.pop(i, None)
        out[i] = None
    return list(out)

  def meetings(self) -> list[str]:
    """Lines that make dimensions of several parameters one axis, where several sums go through it."""
    out: list[str] = []
    loads = [u for u in self.kernel.nodes if u.op is Ops.LOAD and self.is_tile(u)]
    for i in self.blocks:
      binding = [r for r in self.kernel.reduces if i in r.arg[1]]
      free = any(r.arg[0] == i for s in self.kernel.body for r in s.ranges if r.op is Ops.RANGE)
      mine = [self.known[u] for u in loads if i in self.dims(u)]
      if f"a{i}" in self.made: mine.append((f"a{i}", ATOM, (i,)))
      if len(mine) < 2 or len(binding) + free < 2: continue
      texts = dict.fromkeys(self.fitted(t, _union(mine)) for t in mine)
      line = f"tl.broadcast({', '.join(texts)})"
      if len(texts) > 1 and line not in out: out.append(line)
    return out

  def size(self, a: Axis) -> str: return self.names.axes.get(a.id) or text_of(a.size)

  def shape(self, p: Param) -> list[str]: return [self.names.dims.get((p.slot, d)) or text_of(n) for d, n in enumerate(p.shape)]

  def dims(self, u: UOp) -> Dims: return tuple(sorted(r.arg[0] for r in u.ranges if r.arg[0] in self.blocks))

  def block(self, t: _Block, dims: Dims) -> Text:
    """A text as an operand whose block has ``dims``."""
    own = t[2]
    shown = [":" if d in own else "None" for d in dims]
    while shown and shown[0] == "None": shown.pop(0)   # broadcasting does that
    return (f"{inside(t[:2])}[{', '.join(shown)}]", ATOM) if own and "None" in shown else t[:2]

  def fitted(self, t: _Block, dims: Dims, most: int = CONDITIONAL) -> str: return inside(self.block(t, dims), most)

  def get(self, u: UOp) -> _Block:
    def operands(n: UOp) -> list[UOp]:
      if n in self.known or n.op is Ops.RANGE or n.dtype is dtypes.index and ix.of_sizes(n): return []
      return [s for s in n.src if s.op not in (Ops.INDEX, Ops.DEFINE_GLOBAL)]
    for n in sources_first(u, operands):   # index expressions are made when they are needed
      if n not in self.known: self.known[n] = self.text(n)
    return self.known[u]

  def typed(self, u: UOp) -> _Block:
    """The text of a node, its dtype said where it is a constant."""
    if u.op is Ops.CONST and u.dtype is not dtypes.index: return _call("cast", (), constant_text(u), _dtype(u.dtype))
    return self.get(u)

  def text(self, u: UOp) -> _Block:
    op = u.op
    if op is Ops.CONST: return _literal(constant_text(u))
    if op is not Ops.RANGE and u.dtype is dtypes.index and ix.of_sizes(u): return f"({text_of(u)})", ATOM, ()
    if op in (Ops.CAST, Ops.BITCAST):
      t = self.typed(u.src[0])
      return _call("position", t[2], t[0]) if u.dtype is dtypes.index else _call(op.name.lower(), t[2], t[0], _dtype(u.dtype))
    way = {Ops.RANGE: self.position, Ops.LOAD: self.load, Ops.REDUCE: self.reduce, Ops.SCAN: self.scan, Ops.SORTED: self.sorted,
           Ops.ALU: self.alu}.get(op)
    if way is None: raise ExportError(f"{op.name}, which the tile language does not have")
    return way(u)

  def position(self, r: UOp) -> _Block:
    i = r.arg[0]
    within = i in self.blocks
    self.made[f"a{i}"] = f"tl.arange(0, {self.size(self.blocks[i])})" if within else f"tl.program_id({self.grid.index(i)})"
    return f"a{i}", ATOM, (i,) * within

  def alu(self, u: UOp) -> _Block:
    fn, src = u.arg, u.src
    read = list(map(self.get, src))
    if fn is TernaryOps.WHERE:
      if src[1].op is src[2].op is Ops.CONST: read[2] = self.typed(src[2])
      if src[0].op is Ops.CONST: raise ExportError("a choice by a constant")
    elif isinstance(fn, UnaryOps) or src[0].op is src[1].op is Ops.CONST: read[0] = self.typed(src[0])
    dims = _union(read)
    if fn in (UnaryOps.NEG, UnaryOps.NOT): return f"{'-' if fn is UnaryOps.NEG else '~'}{inside(read[0][:2], UNARY)}", UNARY, dims
    if fn in PYTHON:
      left, right = read
      if u.dtype is dtypes.index and fn is BinaryOps.ADD and right[0].startswith("-") and right[0][1:].isdigit():
        fn, right = BinaryOps.SUB, _literal(right[0][1:])
      return *infix(fn, self.block(left, dims), self.block(right, dims)), dims
    return _call(_CALLS.get(fn, fn.name.lower()), dims, *(self.fitted(t, dims) for t in read))

  def reduce(self, u: UOp) -> _Block:
    fn, ids = u.arg
    if fn not in (*_SUMS, BinaryOps.AND, BinaryOps.OR): raise ExportError(f"a reduction by {fn.name}")
    text, _, dims = self.typed(u.src[0])
    if missing := [i for i in ids if i not in dims]: raise ExportError(f"a sum along a{missing[0]} of what does not vary with it")
    at = [dims.index(i) for i in ids]
    args = [f"axis={_tuple(at)}"] * (len(at) < len(dims))
    if fn is BinaryOps.ADD and acc_dtype(u.dtype) is not u.dtype: args.append(f"dtype={_dtype(u.dtype)}")
    return _call(combiner_text(fn), tuple(i for i in dims if i not in ids), text, *args)

  def scan(self, u: UOp) -> _Block:
    fn, i, reverse, *every = u.arg
    text, _, dims = self.typed(u.src[0])
    if fn not in _SUMS or fn is BinaryOps.ADD and acc_dtype(u.dtype) is not u.dtype:
      raise ExportError(f"a scan by {fn.name} of {u.dtype}")
    if i not in dims: raise ExportError(f"a scan along a{i} of what does not vary along it")
    args = [f"axis={dims.index(i)}", *["reverse=True"] * bool(reverse), *[f"every={n}" for n in every if n]]
    return _call(f"cum{combiner_text(fn)}", dims, text, *args)

  def sorted(self, u: UOp) -> _Block:
    i, low, high, keep, bitonic = u.arg
    text, _, dims = self.typed(u.src[0])
    if i not in dims: raise ExportError(f"a sort along a{i} of what does not vary along it")
    args = [f"axis={dims.index(i)}", *[f"keep={keep}"] * bool(keep), *["bitonic=True"] * bitonic]
    said = _call("sort_bits", dims, text, low, high, *args)[0]
    if u.src[1].op is not Ops.RANGE:   # the least one alone
      return f"{said}[{', '.join('0' if d == i else ':' for d in dims)}]", ATOM, tuple(d for d in dims if d != i)
    now = [u.src[1].arg[0] if d == i else d for d in dims]
    order = sorted(range(len(now)), key=now.__getitem__)
    if order != list(range(len(now))): said = f"tl.permute({said}, {_tuple(order, True)})"
    return said, ATOM, tuple(sorted(now))

  def place(self, access: UOp) -> tuple[str, list[str], Dims]:
    """``data1.source.at(…)``, ``mask=`` what is left of the gate, and the dimensions of both."""
    p = self.params[access.src[0]]
    indices = [self.get(i.src[0] if i.op is Ops.CAST else i) for i in access.src[1].src]
    bounds = {c for i, n in zip(access.src[1].src, p.shape) for t in (ix.ge(i, 0), ix.lt(i, n)) for c in ix.conjuncts(t)}
    gate = ix.conjuncts(gate_or_true(access))
    known = not bounds <= set(gate)   # the kernel knows without looking
    masks = [self.get(c) for c in gate if known or c not in bounds]
    dims = _union([*indices, *masks])
    mask = [f"mask={' & '.join(self.fitted(m, dims, BIT_AND - 1) for m in masks)}"] * bool(masks)
    at = [*(self.fitted(i, dims) for i in indices), *["inside=True"] * known]
    return f"data{p.slot}.source.at({', '.join(at)})", mask, dims

  def load(self, u: UOp) -> _Block:
    buffer = u.src[0]
    if len(u.src) > 3: raise ExportError("a load with another value")
    if buffer not in self.params: raise ExportError(f"a load from {buffer.op.name}")
    if self.is_tile(u): return f"data{self.params[buffer].slot}", ATOM, self.dims(u.src[1])
    text, mask, dims = self.place(u)
    return _call("load", dims, text, *mask)

  def store(self, s: UOp) -> None:
    if s.arg is not None: return self.put(s)
    name, value = f"data{self.params[s.src[0]].slot}", self.get(s.src[2])
    if self.is_tile(s):
      self.lines.append(f"{name} = {self.fitted(value, self.dims(s.src[1]))}")
      return
    text, mask, dims = self.place(s)
    self.lines.append(_call("store", dims, text, self.fitted(value, dims), *mask)[0])

  def put(self, s: UOp) -> None:
    """A line that writes one element after another along some axes."""
    if not isinstance(s.arg, tuple): raise ExportError(f"a store {s.arg!r}")
    how, ids = s.arg
    (text, mask, dims), value = self.place(s), self.get(s.src[2])
    dims = tuple(sorted({*dims, *value[2]}))
    if missing := [i for i in ids if i not in dims]: raise ExportError(f"writes in order along a{missing[0]}, all at one place")
    args = [self.fitted(value, dims), *mask, f"axis={_tuple([dims.index(i) for i in ids])}", *["add=True"] * (how == "add")]
    self.lines.append(_call("put", dims, text, *args)[0])

  # ---- the file
  def file(self, name: str, opts: Sequence[Opts] | None) -> str:
    k = self.kernel
    names = ", ".join(f"data{p.slot}" for p in k.params)
    body = self.application()
    arranged = [line for p in k.params for line in self.arrangement(p)]
    order, mine = self.order(body), [a.id for a in k.axes if a.size != 1]
    used = sorted({type(o).__name__ for part in opts or () for o in part})
    chosen = "None   # chosen by the target's model" if opts is None else f"{list(map(list, opts))}   # of each part"
    lines = [f'"""{name}: {", ".join(map(str, k.axes)) or "one element"}."""',
             *[f"from ntgrad.codegen.opts import {', '.join(used)}"] * bool(used),
             "import ntgrad.tile as tile", "import ntgrad.tile.language as tl",
             *["from ntgrad.tile import cdiv"] * any("cdiv(" in line for line in arranged), ""]
    lines += [f'KEY = "{kernel_key(k)}"   # of the kernel that this stands for', f"OPTS = {chosen}"]
    axes = {i: order.index(i) for i in mine if i in order}
    if any(i != n for i, n in axes.items()) or len(axes) < len(mine):
      lines.append(f"AXES = {axes}   # the number that Opts have: the place as read here; in the order of the loops")
    if any(aligns := tuple(p.align for p in k.params)):
      lines.append(f"ALIGNS = {aligns}   # of parameters that are parts of a memory, in bytes")
    if any(re.search(r"\b(inf|nan)\b", line) for line in body): lines.append('inf, nan = float("inf"), float("nan")')
    if v := self.names.values:
      lines.append(f"{', '.join(v)} = {', '.join(map(str, v.values()))}   # sizes; numbers below may be made of them")
    for s in k.sizes:
      most = "" if s.upper is None else f", upper_bound={s.upper}"
      lines.append(f'{s.name} = tile.Symbol("{s.name}", lower_bound={s.lower}{most})')
    tensors = [f"tile.Tensor(shape={_tuple(self.shape(p), True)}, dtype={_dtype(p.dtype)})" for p in k.params]
    lines += ["", f"def arrangement({names}):", *(f"  {line}" for line in arranged), f"  return {names}", "",
              f"def application({names}):", *(f"  {line}" for line in body or ["pass"]), "",
              "tensors = (", *(f"  {t}," for t in tensors), ")",
              f'kernel = tile.make(arrangement, application, tensors, kernel_name="{name}")']
    return "\n".join(lines) + "\n"


def used(lines: Sequence[str]) -> list[str]:
  """The lines without those that name what no later one uses; values numbered in order."""
  names: set[str] = set()
  out: list[str] = []
  for line in reversed(lines):
    name = line.partition(" = ")[0]
    if not re.fullmatch(r"[av]\d+", name) or name in names:
      out.append(line)
      names.update(re.findall(r"\b[av]\d+\b", line.partition(" = ")[2] or line))
  order = [found[0] for line in reversed(out) if (found := re.match(r"v\d+(?= = )", line))]
  number = {name: f"v{i}" for i, name in enumerate(order)}
  return [re.sub(r"\bv\d+\b", lambda m: number[m[0]], line) for line in reversed(out)]


def _calls(step: ast.expr) -> list[tuple[int, str]]:
  """A link of an arrangement's chain as methods of a Tensor, each with the level that it is for."""
  if isinstance(step, ast.Subscript): return [(0, f"[{ast.unparse(step.slice)}]")]
  assert isinstance(step, ast.Call) and isinstance(step.func, ast.Attribute)
  name, args = step.func.attr, [ast.unparse(a) for a in step.args]
  named = {k.arg: ast.unparse(k.value) for k in step.keywords}
  level = int(named.pop("level", "0"))
  if "shift_inwards" in named: raise ExportError("tiles that are shifted inwards")
  if name == "ravel" and "levels" in named: raise ExportError("some levels made one")
  if name == "index": return [(level, f"[{args[0].strip('()')}]")]
  if name == "shrink":
    pairs: Any = step.args[0]
    return [(level, f"[{', '.join(':'.join(map(ast.unparse, pair.elts)) for pair in pairs.elts)}]")]
  if name == "flatten" and args: args[1] = str(int(args[1]) + 1)   # Tensor's end is not included
  return [(level, f".{name}({', '.join([*args, *(f'{k}={v}' for k, v in named.items())])})")]


def _literal(text: str) -> _Block: return text, UNARY if text.startswith("-") else ATOM, ()


def _union(texts: Sequence[_Block]) -> Dims: return tuple(sorted({d for *_, dims in texts for d in dims}))


def _tuple(xs: Sequence[object] | range, always: bool = False) -> str:
  """Numbers as written; one alone without brackets unless ``always``."""
  return str(xs[0]) if len(xs) == 1 and not always else f"({', '.join(map(str, xs))}{',' * (len(xs) == 1)})"


def _dtype(d: DType) -> str: return f"tl.{d.name}"


def _call(name: str, dims: Dims, *args: object) -> _Block: return f"tl.{name}({', '.join(map(str, args))})", ATOM, dims
