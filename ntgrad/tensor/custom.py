"""Gradients that are not found from the graph: ``Function``, whose gradient is written by hand, ``checkpoint``, which computes
again what its gradient needs, and ``ruled``, values whose gradients a rule has, made of tensors, so that they can be
differentiated again.

All give a DETACH that stands for their value, whose ``note`` is a *call* and the number of the output (``graph.Result``; see
docs/architecture.md). Nothing is computed for a gradient before somebody asks for it."""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

from ntgrad.codegen.ir import ArgumentError, GradientError, Ops, UOp, shown, toposort
from ntgrad.core import Base
from ntgrad.engine.buffer import Storage
from ntgrad.graph import as_tuple, checked, hooks, mode, no_grad, nodes as graph, values
from ntgrad.graph.recipes import stood_for

from .gradient import gradients, sources_of, walk

To = Callable[[UOp], UOp]
Pairs = list[tuple[UOp, UOp]]
Nodes = tuple[UOp, ...]
Numbered = Mapping[int, UOp]


def attached(t: Base, call: Any, number: int, needs: bool) -> Base:
  """A tensor whose gradient a call has, and which requires one where ``needs`` says so."""
  out = Base._from_node(graph.with_gradient(t.lazydata, call, number))
  out._state, out._names = int(needs), t._names
  return out


# ---- functions with a gradient written by hand
class Context:
  """What ``forward`` keeps for ``backward``: tensors by ``save_for_backward``, anything else as attributes. ``needs_input_grad``
  says of each argument whether its gradient is asked for: in ``forward``, whether it may be, which is so for every tensor of
  floats, as ``gradient(x)`` takes any."""
  needs_input_grad: tuple[bool, ...] = ()
  _saved: tuple[Any, ...] = ()
  _constant: tuple[Any, ...] = ()
  _zeros = True
  _get: Callable[[], tuple[Any, ...]] | None = None

  def save_for_backward(self, *tensors: Base | None) -> None:
    """Keep tensors (or None): arguments, results, or others. Gradients of gradients pass through arguments and results."""
    for t in tensors:
      if t is not None and not isinstance(t, Base):
        raise ArgumentError(f"save_for_backward: {shown(t)} is no Tensor; keep it as an attribute of ctx")
    self._saved = tensors
  @property
  def saved_tensors(self) -> tuple[Any, ...]:
    """What ``save_for_backward`` was given, with the values of then."""
    return self._saved if self._get is None else self._get()
  def mark_non_differentiable(self, *outputs: Base) -> None:
    """Results that no gradient goes through."""
    self._constant = outputs
  def set_materialize_grads(self, value: bool) -> None:
    """False: ``backward`` gets None, not zeros, for a result that nothing depends on."""
    self._zeros = value


def _differentiable(u: UOp) -> Base:
  """A tensor of a node, whose gradient is asked for where it is a float: of what ``backward`` makes of it, by a Function too."""
  t = Base._from_node(u)
  if u.dtype.kind == "f": t._state = 1
  return t


@dataclass(eq=False)
class _Call:
  """A call of a Function. The results' nodes are held weakly: they hold the call."""
  function: type[Function]
  ctx: Context
  sources: Nodes
  places: tuple[int, ...]
  like: Numbered
  saved: Sequence[Any]
  outputs: dict[int, ref[UOp]] = field(default_factory=dict)

  def _tensors(self) -> tuple[Any, ...]:
    """What was saved: a node, the number of a result, or None."""
    def node(x: Any) -> UOp: return x if isinstance(x, UOp) else x in self.outputs and self.outputs[x]() or self.like[x]
    return tuple([None if x is None else _differentiable(node(x)) for x in self.saved])

  def gradients(self, at: Numbered, sources: Nodes, need: Collection[UOp]) -> Pairs:
    """The gradients at the arguments that need them, from those at the results, by number."""
    name, ctx = self.function.__name__, self.ctx
    given = [_differentiable(at[i]) if i in at else Base._from_node(graph.const(0, u.dtype, u.shape)) if ctx._zeros else None
             for i, u in sorted(self.like.items())]
    before, mode.grad, ctx._get, might = mode.grad, True, self._tensors, ctx.needs_input_grad
    wanted = {i for s, i in zip(sources, self.places) if s in need}
    ctx.needs_input_grad = tuple([i in wanted for i in range(len(might))])
    try: found = self.function.backward(ctx, *given)
    finally: mode.grad, ctx._get, ctx.needs_input_grad = before, None, might   # or each would keep the other
    found = as_tuple(found)
    if len(found) != len(might):
      raise GradientError(f"{name}: backward gives {len(found)} gradients, forward takes {len(might)} arguments; "
                          "give one for each, None where there is none")
    out = []
    for source, i in zip(sources, self.places):
      if (g := found[i]) is None: continue
      if not isinstance(g, Base) or g.shape != source.shape:
        raise GradientError(
          f"{name}: the gradient of argument {i} is {f'one of shape {g.shape}' if isinstance(g, Base) else shown(g)}, "
          f"expected a Tensor of shape {source.shape}")
      out.append((source, graph.cast(g.lazydata, source.dtype)))
    return out

  def moved(self, to: To) -> _Call:
    ctx = Context()
    for k, v in vars(self.ctx).items(): setattr(ctx, k, Base._from_node(to(v.lazydata)) if isinstance(v, Base) else v)
    return _Call(self.function, ctx, tuple([to(s) for s in self.sources]), self.places,
                 {i: to(u) for i, u in self.like.items()}, [to(x) if isinstance(x, UOp) else x for x in self.saved])


class Function:
  """A function of tensors whose gradient is written by hand, as PyTorch has it: a class with two static methods.

  ``forward(ctx, *args)`` computes, from tensors that no gradients go through, a Tensor or a tuple of them; ``backward(ctx,
  *gradients)`` gets a gradient for each result, and gives one for each argument (None for what is no tensor). Call it as
  ``Name.apply(*args)``. Nothing is computed by that: both become part of the graph, under ``ntgrad.jit`` too, and what backward
  computes can be differentiated again. In place of ``ctx`` in ``forward``, a ``setup_context(ctx, inputs, output)`` may be given.

      class Exp(ntgrad.Function):
        @staticmethod
        def forward(ctx, x):
          y = x.exp()
          ctx.save_for_backward(y)
          return y

        @staticmethod
        def backward(ctx, gradient):
          y, = ctx.saved_tensors
          return gradient * y"""

  @staticmethod
  def forward(ctx: Any, *args: Any) -> Any:
    """To be defined: the results."""
    raise ArgumentError("Function: a class without forward cannot be applied; define it as a static method forward(ctx, *args)")
  @staticmethod
  def backward(ctx: Any, *gradients: Any) -> Any:
    """To be defined: a gradient for each argument of ``forward``."""
    raise GradientError("Function: a class without backward has no gradient; define it as a static method backward(ctx, ..)")

  @classmethod
  def apply(cls, *args: Any) -> Any:
    """What ``forward`` gives, with the gradient that ``backward`` has. Raises ArgumentError for a result that is no Tensor."""
    ctx = Context()
    ctx.needs_input_grad = tuple([isinstance(a, Base) and (a._state > 0 or mode.grad and a.dtype.kind == "f") for a in args])
    inner = [a.detach() if isinstance(a, Base) else a for a in args]
    setup: Any = getattr(cls, "setup_context", None)
    with no_grad():
      out = cls.forward(*inner) if setup is not None else cls.forward(ctx, *inner)
      if setup is not None: setup(ctx, tuple(inner), out)
    results = as_tuple(out)
    wrong = [x for x in results if not isinstance(x, Base)]
    if wrong: raise ArgumentError(f"{cls.__name__}: forward gives {shown(wrong[0])}, expected Tensors")
    if mode.grad and any(ctx.needs_input_grad): results = _with_gradient(cls, ctx, args, inner, results)
    return results if isinstance(out, (tuple, list)) else results[0]


def _with_gradient(cls: type[Function], ctx: Context, args: Sequence[Any], inner: Sequence[Any],
                   results: tuple[Any, ...]) -> tuple[Any, ...]:
  """The results of a Function as nodes that have its gradient."""
  def saved(t: Any) -> Any:
    for a, b in zip(args, inner):
      if t is b and t.lazydata is graph.detach(a.lazydata): return a.lazydata
    return next((i for i, r in enumerate(results) if t is r), None if t is None else t.lazydata)

  places = tuple([i for i, need in enumerate(ctx.needs_input_grad) if need])
  call = _Call(cls, ctx, tuple([args[i].lazydata for i in places]), places, {i: r.lazydata for i, r in enumerate(results)},
               [saved(t) for t in ctx._saved])
  constant = {id(t) for t in ctx._constant}
  ctx._saved = ctx._constant = ()
  needs = any([args[i]._state > 0 for i in places])
  return tuple([attached(r, call, i, needs) if r.dtype.kind == "f" and id(r) not in constant else r
                for i, r in enumerate(results)])


# ---- checkpoints
@dataclass(eq=False)
class _Again:
  """A call of a function whose values are computed again for its gradient. ``inside`` are the nodes that stand for its arguments
  while it runs, ``drawn`` the places of the random numbers that it draws; ``values`` are what it gave, made of these; ``sources``
  the arguments, and what else gradients go on to, which is not computed again."""
  inside: Nodes
  drawn: Nodes
  arguments: Nodes
  values: Numbered
  others: Nodes
  outputs: dict[int, ref[UOp]] = field(default_factory=dict)

  @property
  def sources(self) -> Nodes: return *self.arguments, *self.others

  def gradients(self, at: Numbered, sources: Nodes, need: Collection[UOp]) -> Pairs:
    """The gradients at the sources. What they are made of is another graph of the same values, which waits for the gradients from
    above: so it is computed then, and nothing of it is kept until then."""
    first = next((g for g in at.values() if graph.const_value(g) is None), None)
    def later(u: UOp) -> UOp: return u if first is None else _after(u, first)
    stand_ins = [graph.stand_in(later(u)) for u in self.arguments]
    copy = Copy(dict(zip(self.inside, stand_ins)) | {u: later(u) for u in self.drawn})
    roots = {copy(self.values[i]): g for i, g in at.items()}
    inner = [*stand_ins, *self.others]
    found = gradients(walk(*roots), roots, inner)
    for node, u in zip(stand_ins, self.arguments):   # for gradients of these gradients: each is its argument's
      node.note = graph.Result(Ruled(lambda grads, *_: grads, (u,), (u,), {0: ref(node)}), 0)
    return [(s, found[n]) for n, s in dict(zip(inner, sources)).items() if n in found]

  def moved(self, to: To) -> _Again:
    inside, drawn, arguments, others = [tuple([to(u) for u in us]) for us in (
      self.inside, self.drawn, self.arguments, self.others)]
    return _Again(inside, drawn, arguments, {i: to(u) for i, u in self.values.items()}, others)


def _after(u: UOp, other: UOp) -> UOp:
  """The same value, which cannot be computed before an element of another one is, nor be found to be the same."""
  if 0 in other.shape or other.device != u.device: return u
  one = graph.reshape(graph.shrink(other, [(0, 1)] * len(other.shape)), ())
  there = graph.ne(graph.seen_as(one, graph.UINTS[one.dtype.itemsize]) | 1, 0)   # always so
  return graph.where(graph.broadcast(there, u.shape), u, 0)


class Copy:
  """Nodes with others in place of some beneath them: ``table`` says which. A node that has been computed is made anew, and is
  computed again; what a recipe makes is written out, for gradients to go on to what it is made of."""

  def __init__(self, table: Mapping[UOp, UOp]):
    self.new = dict(table)
    self.calls: dict[Any, Any] = {}

  def __call__(self, root: UOp) -> UOp:
    for n in toposort((root,), lambda n: n in self.new or n.op is Ops.CALL):
      if n not in self.new: self.new[n] = n if n.op is Ops.CALL else self._made(n)   # a kernel's result is kept
    return self.new[root]

  def _made(self, n: UOp) -> UOp:
    if n.op is Ops.OUTPUT and n.src[0].arg.passes: return self(stood_for(n))
    src = tuple([self.new[s] for s in n.src])
    # a kernel's result is what it was, and has its gradient at other nodes
    if src == n.src and not (isinstance(n.note, graph.Result) and any([self(s) is not s for s in n.note[0].sources])): return n
    m = (UOp.unique if n.is_unique else UOp)(n.op, n.dtype, src, n.arg)
    for k in "shape", "device":
      if k in n.__dict__: m.__dict__[k] = n.__dict__[k]
    if n.op is Ops.CUSTOM and (value := values.get(n)) is not None: values.put(m, value)   # a kernel's result
    if not isinstance(n.note, graph.Result): m.note = n.note
    else:
      call, number = n.note
      if call not in self.calls: self.calls[call] = call.moved(self)
      m.note = graph.Result(self.calls[call], number)
      self.calls[call].outputs[number] = ref(m)
      hooks.carry_over(n, m)
    return m


@checked
def checkpoint(fn: Callable[..., Any], *args: Any, use_reentrant: Any = None, preserve_rng_state: bool = True,
               **kwargs: Any) -> Any:
  """``fn(*args, **kwargs)``, of which gradients keep nothing but the arguments: what they need of what ``fn`` computes is
  computed again (https://arxiv.org/abs/1604.06174). It takes more time and less memory. Results and gradients are the same, of
  random numbers drawn by ``fn`` too. ``fn`` itself runs once. It gives a Tensor, or a tuple, list or dict with Tensors.
  ``use_reentrant`` and ``preserve_rng_state`` are taken as PyTorch has them, without effect."""
  if not mode.grad: return fn(*args, **kwargs)
  start = Storage("", 0).serial
  inside, arguments = list[UOp](), list[UOp]()

  def stand_in(x: Any) -> Any:
    if not isinstance(x, Base): return x
    arguments.append(x.lazydata)
    inside.append(graph.stand_in(x.lazydata))
    t = Base._from_node(inside[-1])
    t._state, t._names = int(x._state > 0), x._names
    return t

  out = fn(*[stand_in(a) for a in args], **{k: stand_in(v) for k, v in kwargs.items()})
  results: list[Base] = []
  _each(out, results.append)
  written = Copy({u: u for u in inside})   # without recipes
  wanted = {i: written(t.lazydata) for i, t in enumerate(results) if t.dtype.kind == "f"}   # gradient(x) may ask for any
  if not wanted: return out
  depends, drawn = _dependent(list(wanted.values()), inside, start)
  wanted = {i: u for i, u in wanted.items() if u in depends}
  call = _Again(tuple(inside), tuple(drawn), tuple(arguments), wanted, tuple(dict.fromkeys([
    s for n in walk(*wanted.values()) if n in depends for s in sources_of(n) if s not in depends and s.dtype.kind == "f"])))
  numbers = iter(range(len(results)))

  def result(t: Base) -> Base:
    i = next(numbers)
    return attached(t, call, i, t._state > 0) if i in wanted else t

  return _each(out, result)


def _each(x: Any, fn: Callable[[Base], Any]) -> Any:
  """A function of every Tensor in a result."""
  if isinstance(x, Base): return fn(x)
  if isinstance(x, tuple) and hasattr(x, "_fields"): return type(x)(*[_each(v, fn) for v in x])
  if isinstance(x, (tuple, list)): return type(x)([_each(v, fn) for v in x])
  if isinstance(x, dict): return {k: _each(v, fn) for k, v in x.items()}
  return x


def _dependent(values: Sequence[UOp], inside: Sequence[UOp], start: int) -> tuple[set[UOp], list[UOp]]:
  """The nodes that are made of those inside, or of random numbers whose place is newer than ``start``; and the nodes of these."""
  out, drawn = set(inside), list[UOp]()
  for n in toposort(tuple(values), set(inside).__contains__):
    if fresh := n.op is Ops.BUFFER and n.arg.rng_count and n.arg.storage.serial > start: drawn.append(n)
    if fresh or any([s in out for s in n.src]): out.add(n)
  return out, drawn


# ---- values with a rule
# (gradients of the outputs, None where nothing depends on one; inputs; outputs) -> gradients of the inputs, None for none
Rule = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Sequence[Any]]


@dataclass(eq=False)
class Ruled:
  """A rule, the values of its results, and what they are made from. The results' nodes are held weakly: they hold the call."""
  rule: Rule
  values: Nodes
  sources: Nodes
  outputs: dict[int, ref[UOp]] = field(default_factory=dict)
  own = True   # the rule is ntgrad's, and may be asked at any time

  def node(self, i: int) -> UOp:
    """The node of a result, which may have been let go of since."""
    node = self.outputs[i]() if i in self.outputs else None
    return graph.with_gradient(self.values[i], self, i) if node is None else node

  def gradients(self, at: Numbered, sources: Nodes, need: Collection[UOp]) -> Pairs:
    """The gradients at the sources from those at the results, by number."""
    return by_rule(self.rule, at, sources, [self.node(i) for i in range(len(self.values))])

  def moved(self, to: To) -> Ruled:
    """The same call of other nodes."""
    return type(self)(self.rule, tuple([to(v) for v in self.values]), tuple([to(s) for s in self.sources]))


def by_rule(rule: Rule, at: Numbered, sources: Nodes, outs: Sequence[UOp]) -> Pairs:
  """What a rule gives for nodes."""
  grads = [_as_tensor(at[i]) if i in at else None for i in range(len(outs))]
  found = rule(grads, *[list(map(_as_tensor, us)) for us in (sources, outs)])
  return [(s, g.lazydata) for s, g in zip(sources, found) if g is not None]


def _as_tensor(node: UOp) -> Any:
  return _differentiable(node) if mode.grad else Base._from_node(node)


def ruled(values: Sequence[Any], sources: Sequence[Any], rule: Rule) -> list[Any]:
  """Values that no gradient goes through, with the gradients at the sources that a rule has."""
  if not mode.grad: return list(values)
  call = Ruled(rule, tuple([v.lazydata for v in values]), tuple([s.lazydata for s in sources]))
  out, needs = [Base._from_node(call.node(i)) for i in range(len(values))], any([s._state > 0 for s in sources])
  for t in out: t._state = int(needs)
  return out
