"""What shares memory. An *Alias* is one value that several tensors see, each through a view. A write gives it its next version.

The graph stays pure: a write makes a new node, the value after it. ``engine/realize.py`` decides where that lies: an Alias with
memory of its own is written in place, after whoever still needs the old value; one that reads another's memory gets its own. See
https://dev-discuss.pytorch.org/t/functionalization-in-pytorch-everything-you-wanted-to-know/965
"""
from __future__ import annotations

from copy import deepcopy
from typing import Any, Callable, Collection, Iterable, Iterator, Sequence, TypeVar
from weakref import ref

from ntgrad.codegen.index import TRANSFORMS
from ntgrad.codegen.ir import AssignError, NodeTable, Ops, UOp

from . import nodes as graph, origins
from .lock import lock, synchronized

_T = TypeVar("_T")
MOST_RESULTS = 2048   # tensors that operations make without a value being asked for, until ``engine.realize.cut`` looks
Move = tuple[Ops, Any]
# from an Alias's value to what a tensor shows of it: movement without PAD, and DETACH; of Bits also BITCAST with a dtype
AliasView = tuple[Move, ...]

_ONTO = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP})     # movement that every element takes part in once


def alive(refs: Iterable[ref[_T]]) -> Iterator[_T]:
  """What weak references still refer to."""
  for r in list(refs):
    if (x := r()) is not None: yield x


class Alias:
  """A value that tensors share.

  ``node`` is the newest version. ``memory`` is the Buffer that a new version is written to, the last version that lies there;
  None where there is none yet, or another Alias writes it. ``tensors`` are those alive that see it. ``packed``: for quantised
  weights, the tensor that the value is unpacked from wherever it is used; nobody may write it. ``differentiated``: whether
  gradients of it, or of what is made of it, have been asked for.
  """
  __slots__ = "node", "memory", "tensors", "place", "packed", "differentiated", "made", "line", "earlier", "__weakref__"
  node: UOp
  memory: Any
  tensors: dict[ref[Any], None]
  place: str   # where the last write stands, in the user's code
  packed: Any
  differentiated: bool
  made: int    # how many tensors there were before it
  line: origins.Origin | None   # that made it, where another had made the node before
  earlier: UOp | None   # the version that gradients go on to, see ``pass_on``
  beneath: AliasView = ()   # what the value shows of another Alias's

  def __init__(self, node: UOp) -> None:
    self.node, self.memory, self.tensors, self.place, self.packed = node, None, {}, "", None
    self.differentiated, self.made, self.line, self.earlier = False, results[0], None, None
    if node.op is Ops.BUFFER and node.arg is not None: self.claim()   # a node of a recipe is in no memory
    _add(ref(self, _drop))

  def claim(self) -> bool:
    """Take the memory that the value lies in for this Alias's own. False where it is another's, or nobody may write it."""
    buffer, storage = self.node.arg, self.node.arg.storage
    with lock:
      if storage.writer is not None and storage.writer() is not None or buffer.stale: return False
      storage.writer = ref(self)
    if not storage.read_only: self.memory = buffer
    return not storage.read_only

  @property
  def pending(self) -> bool:
    """Whether memory of its own still has an older value."""
    return self.memory is not None and self.node is not self.memory.node

  def seen(self) -> Iterator[Any]: return alive(self.tensors)

  def _unsettle(self) -> None:
    """Tensors find anew what they show."""
    for t in self.seen(): t._node = None

  @synchronized
  def write(self, node: UOp, what: str) -> None:
    """``node`` is the value from now on."""
    for note in write_watchers: note(self)
    if self.memory is None and self.node.op is Ops.BUFFER: self.claim()
    self.place = f"{what} at {caller()}"
    origins.note_origin(node)
    if self.memory is not None: pending[ref(self, _forget)] = None
    else: unplaced[ref(self, _found)] = None
    self._unsettle()
    self.node = node   # last: an interrupt before it leaves the old value
    if followers: self.followed()

  def put(self, view: AliasView, value: UOp, index: UOp | None, what: str) -> None:
    """Write what a view shows, or rows of that."""
    self.write(written(self.history, view, value, index), what)

  def pass_on(self, before: UOp) -> None:
    """Gradients of the newest version, which was written where none are followed, go on to the one before, as in PyTorch."""
    while (u := before.src[0] if before.op is Ops.CONTIGUOUS else before).op is Ops.SLOPED and u.arg == "passed":
      before = u.src[1]
    self.earlier, node = before, graph.sloped("passed", self.node, before)
    for t in self.seen():
      if t._state == 1: t._node = apply_view(node, t._view)

  def followed(self, computed: bool = False) -> None:
    for b in alive(followers.get(ref(self), ())):
      if not computed or b.memory is None: b.follow(self)

  def settle(self, node: UOp, memory: Any) -> None:
    """The value has been computed: it is ``node``, memory or a view of it. Tensors that gradients go through keep the graph."""
    if node is self.node: return
    seen = list(self.seen())
    leaf = any([t._state == 2 for t in seen])   # its views find their way to it by themselves
    attached = [] if leaf else [t for t in seen if t._state == 1]
    if attached:
      for t in attached: t.lazydata  # noqa: B018 - known from here on
      history = self.history
      # the value lies elsewhere too, and may change there
      if memory is not None and values.get(history) is not node:
        history = UOp.unique(Ops.CONTIGUOUS, history.dtype, (history,))
        memory.is_value_of(history)
    for t in seen: t._node = None
    for t in attached: t._node = apply_view(history, t._view)
    self.node, self.memory = node, memory
    pending.pop(ref(self), None)
    if followers: self.followed(True)

  def __deepcopy__(self, memo: Any) -> Alias:
    """The same value, of its own. Nothing is copied until one of the two is written."""
    return Alias(self.node if self.node.op is Ops.BUFFER else graph.detach(self.node))

  def renew(self) -> None:
    """The same value, to be computed into memory of its own."""
    history = self.history
    self.node, self.memory = UOp.unique(Ops.CONTIGUOUS, history.dtype, (history,)), None
    self._unsettle()

  def leave_to_reader(self) -> None:
    """Have its last write done where somebody reads it, and not with those that wait."""
    pending.pop(ref(self), None)

  def overwritten(self, what: str) -> None:
    """A kernel that is not of the graph (``what``) has written over its memory: tensors see that."""
    self.memory = self.memory.overwritten(what)
    self.node = self.memory.node
    self._unsettle()
    if followers: self.followed()

  @property
  def history(self) -> UOp:
    """The newest version with the graph that gradients go through, if a tensor that needs it is alive."""
    found: Any = next((t for t in self.seen() if t._state == 1 and t._node is not None), None)
    if found is None or any([t._state == 2 for t in self.seen()]): return self.node   # the graph ends at a leaf
    u: UOp = found._node
    for _ in found._view: u = u.src[0]
    return u


class Bits(Alias):
  """The bits of another Alias's value as another dtype: computed from that one, with memory of its own perhaps.

  A write to either is seen in the other. When no tensor sees the other one, which is not kept alive, this is a value of its own,
  unless others show the same bits.
  """
  __slots__ = "source", "beneath", "beside"
  source: ref[Alias]
  beside: dict[ref[Bits], None]   # those that show bits of the same Alias, this one too

  def __init__(self, node: UOp, source: Alias, beneath: AliasView) -> None:
    super().__init__(node)
    if isinstance(source, Bits) and (root := source.source()) is not None:
      source, beneath = root, (*source.beneath, *beneath)
    self.source, self.beneath, self.packed = ref(source), beneath, source.packed
    if (beside := followers.get(self.source)) is None: beside = followers[ref(source, followers.pop)] = {}
    self.beside = beside
    beside[ref(self, beside.pop)] = None

  def follow(self, source: Alias) -> None:
    """Show the newest version of the other Alias, to be computed again."""
    self.node, self.memory = apply_view(source.node, self.beneath), None
    pending.pop(ref(self), None)
    self._unsettle()

  def put(self, view: AliasView, value: UOp, index: UOp | None, what: str) -> None:
    """Write to the other Alias, where some tensor sees it. Raises AssignError where none does and others may show the same."""
    source = self.source()
    for note in write_watchers: note(self)
    if source is not None: return source.put((*self.beneath, *view), value, index, what)
    if any(b is not self and not _apart(b.beneath, self.beneath) for b in alive(self.beside)):
      raise AssignError(f"{what}: bits of a tensor that is gone, which another bitcast shows too; keep the tensor and write to "
                        "it, or write to a .clone()")
    super().put(view, value, index, what)

  def __deepcopy__(self, memo: Any) -> Alias:
    source = self.source()
    return super().__deepcopy__(memo) if source is None else shown_of(deepcopy(source, memo), self.beneath)


def follows(a: Alias, storages: Collection[Any]) -> bool:
  """Whether an Alias shows bits of one whose memory is among these: it goes with what is written there."""
  return isinstance(a, Bits) and (s := a.source()) is not None and s.memory is not None and s.memory.storage in storages


def shown_of(source: Alias, beneath: AliasView) -> Bits: return Bits(apply_view(source.node, beneath), source, beneath)


class LiveAliases:
  """Every Alias that is alive, weakly held, in the order of their making: schedules have the same structure every time."""
  __slots__ = ("refs",)

  def __init__(self) -> None: self.refs: dict[ref[Alias], None] = {}
  def __iter__(self) -> Iterator[Alias]: return iter([a for r in list(self.refs) if (a := r()) is not None])
  def __len__(self) -> int: return len(self.refs)


live_aliases = LiveAliases()
_add: Callable[[Any], Any] = live_aliases.refs.setdefault
_drop: Callable[[Any], Any] = live_aliases.refs.pop
followers: dict[ref[Alias], dict[ref[Bits], None]] = {}   # those that show an Alias's bits
pending: dict[ref[Alias], None] = {}                   # those written since their memory was
unplaced: dict[ref[Alias], None] = {}                  # those written before they had memory
# where the value of a node lies that has been computed: a BUFFER, or a view of one
values: NodeTable[UOp] = NodeTable()
# values that are computed with others: the gradients that one backward pass has made
companions: dict[ref[Alias], Sequence[ref[Alias]]] = {}
results = [0]   # tensors that operations have made
next_look = [MOST_RESULTS]   # how many they are when it is looked whether any value has been asked for
write_watchers: list[Callable[[Alias], None]] = []           # told before every write: ntgrad.jit while a function runs


def compute_together(aliases: Iterable[Alias]) -> None:
  """Where one of these is computed, so are the others."""
  group = [ref(a, _alone) for a in aliases]
  companions.update(dict.fromkeys(group, group))


def waiting() -> list[Alias]:
  """The Aliases whose memory has an older value than they have."""
  return _those(pending, lambda a: a.pending)


def homeless() -> list[Alias]:
  """The Aliases that have been written and have no memory yet."""
  return _those(unplaced, lambda a: a.memory is None and a.node.op is not Ops.BUFFER)


def _those(among: dict[ref[Alias], None], still: Callable[[Alias], bool]) -> list[Alias]:
  """The Aliases of a list that still belong there; the others go."""
  for r in list(among):
    if (a := r()) is None or not still(a): among.pop(r, None)
  return list(alive(among))


def _alone(r: ref[Alias]) -> None: companions.pop(r, None)
def _forget(r: ref[Alias]) -> None: pending.pop(r, None)
def _found(r: ref[Alias]) -> None: unplaced.pop(r, None)


def apply_view(node: UOp, view: AliasView) -> UOp:
  """What a view shows of a node."""
  for op, arg in view:
    if op is Ops.DETACH: node = graph.detach(node)
    elif op is Ops.BITCAST: node = graph.bits(node, arg)
    else: node = graph.make(op, node.dtype, (node,), arg, TRANSFORMS[op].shape(node.shape, arg), node.device)
  return node


def through(view: AliasView) -> AliasView:
  """A view without its DETACHs."""
  return tuple([m for m in view if m[0] is not Ops.DETACH])


def beyond(view: AliasView, base: AliasView) -> AliasView | None:
  """What a view shows of what another view of the same Alias shows; None where it is no part of that. A DETACH of it stays."""
  rest, stops = list(view), False
  for m in through(base):
    while rest and rest[0][0] is Ops.DETACH: stops = bool(rest.pop(0))
    if not rest or rest.pop(0) != m: return None
  return *([(Ops.DETACH, None)] if stops else ()), *rest


def repeats(view: AliasView) -> bool:
  """Whether a view may show an element several times: then it cannot be written."""
  return any([op is Ops.EXPAND or op is Ops.TILE and any([0 < step < (n - 1) * gap + 1 for n, step, gap in arg])
              for op, arg in view])


def view_covers(view: AliasView) -> bool: return all([op in _ONTO or op is Ops.DETACH for op, _ in view])


def written(base: UOp, view: AliasView, value: UOp, index: UOp | None = None) -> UOp:
  """``base`` with the part that a view shows (of that the rows ``index``) replaced by ``value``: a pure node. Where the view
  shows everything, ``value`` seen from the other side; else UPDATE(base, value[, index]). Bits of another size are written as a
  whole."""
  view = through(view)
  for i in range(len(view) - 1, -1, -1):
    if view[i][0] is not Ops.BITCAST: continue
    below = apply_view(base, view[:i])
    if below.dtype.itemsize == view[i][1].itemsize: view = *view[:i], *view[i + 1:]   # movement after it may be before it
    else: value, index, view = written(graph.bits(below, view[i][1]), view[i + 1:], value, index), None, view[:i]
    value = graph.bits(value, below.dtype)
  if index is not None or not view_covers(view): return graph.update(base, value, view, index)
  shapes = [base.shape]
  for op, arg in view:
    shapes.append(arg if op is Ops.RESHAPE else tuple([shapes[-1][i] for i in arg]) if op is Ops.PERMUTE else shapes[-1])
  for (op, arg), shape in zip(reversed(view), reversed(shapes[:-1])):
    value = {Ops.RESHAPE: graph.reshape, Ops.PERMUTE: graph.permute_back, Ops.FLIP: graph.flip}[op](
      value, shape if op is Ops.RESHAPE else arg)
  return value


def _apart(a: AliasView, b: AliasView) -> bool:
  """Whether two views are known to share no element: both begin with parts that share none."""
  if not a or not b or not a[0][0] is b[0][0] is Ops.SHRINK: return False
  return any([p[1] <= q[0] or q[1] <= p[0] for p, q in zip(a[0][1], b[0][1])])


def caller() -> str:
  """File and line of the code that called into ntgrad."""
  return origins.frame_line(origins.user_frame())
