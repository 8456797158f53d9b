"""The gradient of a kernel by rule: its stores as tensor code, which is differentiated as tensors are, and never run itself.

A kernel is read once for all sizes, as a launch has it, with blocks that are whole dimensions: which element is computed by which
program makes no difference to a gradient. So a sum along blocks, also one that is corrected on the way, is a sum along a
dimension."""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Collection, Mapping, Sequence
from weakref import ref

from ntgrad.codegen.index import Dim, assuming, greater, same_size
from ntgrad.codegen.ir import ArgumentError, GradientError, NtgradError, Recent, UOp, config
from ntgrad.codegen.ir.elementwise import const_value
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.kernel.arrangement import Arrangement
from ntgrad.graph import BoundInt, nodes as graph
from ntgrad.graph.lock import synchronized
from ntgrad.graph.recipes import Recipe, nothing_computed
from ntgrad.graph.symbol import Symbol, evaluate_size

from .kernel import TileKernel, items_of
from .launch import Argument
from .offsets import offsets
from .open_sizes import MOST_FORMS, SizedKernel, form_of, names_in
from .parameters import Parameter
from .pure_stores import no_rule, pure_stores
from .signature import BeyondError, constant
from .tensor import mapped
from .tensor_code import is_movement, simplified, stored
from .tune import first_choice, free_symbols

Pairs = list[tuple[UOp, UOp]]


@dataclass(frozen=True)
class DerivedGradient:
  """The stores of a kernel, each in the scheduler's form, for certain sizes or all; its parameters that are memory, by slot."""
  parameters: tuple[Parameter, ...]
  stores: tuple[Kernel, ...]
  fixed: tuple[frozenset[UOp], ...]   # of each store the reductions that make no difference to it
  moves: bool   # whether all that is read and written is so by movement
  recipes: Recent[Any, tuple[Recipe, tuple[str, ...]]] = field(default_factory=lambda: Recent(64), compare=False)

  def gradients(self, nodes: Mapping[str, UOp], at: Mapping[str, UOp], wanted: Sequence[str],
                sizes: Mapping[str, int]) -> dict[str, UOp]:
    """The gradients at the ``wanted`` ones of the ``nodes`` that parameters are, from those ``at`` what is written, by name."""
    values = dict[UOp, UOp]()
    for kernel, fixed in zip(self.stores, self.fixed):
      memory = {p.uop: nodes[name] for p in kernel.params if (name := self.parameters[p.slot].name) in nodes}
      above = {p.uop: at[name] for p in kernel.params if (name := self.parameters[p.slot].name) in at}
      if kernel.body[0].src[0] not in above: continue
      value, g = stored(kernel, memory, sizes, above, fixed)
      values[value] = graph.add(values[value], g) if value in values else g
    found = graph.by_rules[0](values, [nodes[n] for n in wanted])
    return {n: found[nodes[n]] for n in wanted if nodes[n] in found}

  def recipe(self, nodes: Mapping[str, UOp], at: Mapping[str, UOp], wanted: Sequence[str],
             sizes: Mapping[str, int]) -> Mapping[str, UOp]:
    """The same for nodes of any graph, made as it was for others that are like them."""
    own = {n: nodes[n] for n in nodes if n in wanted or const_value(nodes[n]) is None}   # whose gradients go no further here
    above = {n: g for n, g in at.items() if const_value(g) is None}
    inputs = [*own.values(), *above.values()]
    numbers = [u for n, u in (*nodes.items(), *at.items()) if n not in own and n not in above]
    key = *[(u.shape, u.dtype, u.device) for u in inputs], *numbers, *own, "", *at, "", *wanted
    if any(type(n) is BoundInt for n in sizes.values()): found = None   # what was asked of it is noted each time
    else: found = self.recipes[key]
    if found is None:
      inside, over = ({n: graph.stand_in(u) for n, u in us.items()} for us in (own, above))
      with nothing_computed(): made = self.gradients({**nodes, **inside}, {**at, **over}, wanted, sizes)
      found = self.recipes[key] = Recipe([*inside.values(), *over.values()], list(made.values())), tuple(made)
    make, names = found
    return dict(zip(names, make(inputs)))


class Derivations:
  """What is known of a kernel's gradients: by all that makes a difference but sizes, some for all sizes and some for one call."""

  def __init__(self, kernel: TileKernel):
    self.kernel = kernel
    self.wider: Derivations | None = None   # of the kernel that takes what this one's declarations exclude
    self.known: Recent[Any, _Known] = Recent(64)

  @synchronized
  def find(self, arguments: Mapping[str, Any], given: Mapping[str, int]) -> tuple[DerivedGradient, Mapping[str, int]]:
    """What serves arguments (an Argument each, a number that is compiled in), and what the names in their shapes are. Raises
    GradientError where there is none."""
    kernel = self.kernel
    numbers, given = kernel.again(given)
    full: list[Argument | None] = [None] * len(kernel.names)
    for i in kernel.given:
      if kernel.tensors[i].constexpr: numbers[i] = constant(kernel.names[i], arguments[kernel.names[i]])
      else: full[i] = arguments[kernel.names[i]]
    try: values = kernel.bind(full, given)
    except BeyondError:
      if kernel.wider is None: raise
      if self.wider is None: self.wider = Derivations(kernel.wider())
      return self.wider.find(arguments, given)
    if any(a is not None and a.jagged is not None for a in full):
      raise no_rule(kernel.name, "jagged arguments")
    if any(a is not None and 0 in a.shape for a in full): return DerivedGradient((), (), (), True), values
    kinds = tuple([a and (len(a.shape), a.dtype) for a in full])
    key = kinds, items_of(numbers), items_of(given), kernel.reads, kernel.checks or config.checks
    if (known := self.known[key]) is None: known = self.known[key] = _Known()
    if (form := next((f for f in known.forms if f.serves(values)), None)) is not None: return form.specialised, values

    def read(v: Mapping[str, Dim]) -> DerivedGradient:
      s = kernel.build(full, numbers, {**v, **whole_blocks(kernel, numbers, v)}, slopes=True)
      assert s is not None, "no argument is empty"
      stores = tuple(map(simplified, pure_stores(s)))
      fixed = tuple([offsets(k.body[0].src[2]) for k in stores])
      return DerivedGradient(s.parameters, stores, fixed, all(map(is_movement, stores)))

    def sized(v: Mapping[str, Dim]) -> tuple[Any, list[UOp]]:
      with assuming() as conditions: return read(v), list(conditions)

    now = {n: int(v) for n, v in values.items()}
    free = [kernel.symbols[n] for n in names_in(kernel.tensors) if n not in given]
    names = [s.name for s in free if not (s.constexpr or s.power_of_two)]
    if names and known.sized and len(known.forms) < MOST_FORMS:
      try: form = form_of(names, now, kernel.symbols, sized)
      except NtgradError: form = None
      if form is not None and form.specialised.moves:
        known.forms.append(form)
        return form.specialised, values
      known.sized = False
    if (found := known.exact[items_of(now)]) is None: found = known.exact[items_of(now)] = read(now)
    return found, values


@dataclass
class _Known:
  """What was derived for all sizes, whether that can be, and what for some."""
  forms: list[SizedKernel] = field(default_factory=list)
  sized: bool = True
  exact: Recent[Any, DerivedGradient] = field(default_factory=lambda: Recent(64))


def whole_blocks(kernel: TileKernel, numbers: Mapping[int, Any], values: Mapping[str, Dim]) -> dict[str, Dim]:
  """The sizes of blocks that are the tuner's to choose: each as long as what it tiles."""
  out = dict[str, Dim]()
  for _ in kernel.arranged:   # what one tensor tells may be needed for another
    for i, t in enumerate(kernel.arranged):
      if i in numbers: continue
      a = Arrangement.of(tuple([evaluate_size(e, values) for e in t._source.shape]))
      try:
        for o in t.operations:
          for e, n in zip(o.args[0], a.levels[o.level]) if o.name == "tile" else ():
            if not isinstance(e, Symbol) or not e.is_name or e.name in values: continue
            if not same_size(out.setdefault(e.name, n), n): out[e.name] = greater(out[e.name], n)
          a = getattr(a, o.name)(*mapped(o.args, lambda s: evaluate_size(s, {**values, **out})), level=o.level)
      except ArgumentError: continue
  left = [s for n, s in kernel.symbols.items() if n not in values and n not in out]
  return {**out, **first_choice(free_symbols(left, kernel), False)}


# ---- calls
@dataclass(eq=False)
class RuleCall:
  """What the gradients of one call need: its inputs as they were, and not its results."""
  kernel: str
  nodes: Mapping[str, UOp]                                       # of the inputs
  find: Callable[[], tuple[DerivedGradient, Mapping[str, int]]]          # what derives them, and what the names in shapes are
  written: Sequence[str]               # the outputs
  differentiable: Sequence[str]        # the inputs that gradients go on to
  outputs: dict[int, ref[UOp]] = field(default_factory=dict)

  @property
  def sources(self) -> tuple[UOp, ...]: return tuple([self.nodes[n] for n in self.differentiable])

  def moved(self, to: Callable[[UOp], UOp]) -> RuleCall:
    """The same call of other nodes."""
    return replace(self, nodes={n: to(u) for n, u in self.nodes.items()}, outputs={})

  def gradients(self, at: Mapping[int, UOp], sources: Sequence[UOp], need: Collection[UOp]) -> Pairs:
    """The gradients at the inputs that need them, from those at the outputs, by number."""
    derived, sizes = self.find()
    names = {n: u for n, u in zip(self.differentiable, sources) if u in need}
    found = derived.recipe(self.nodes, {self.written[i]: g for i, g in at.items()}, [*names], sizes)
    return once(self.kernel, [(u, found[n]) for n, u in names.items() if n in found], at)


@dataclass(eq=False)
class _Once:
  """The gradients of a call of a kernel, which have none themselves."""
  kernel: str
  sources: tuple[UOp, ...]
  outputs: dict[int, ref[UOp]] = field(default_factory=dict)

  def moved(self, to: Callable[[UOp], UOp]) -> _Once: return _Once(self.kernel, tuple(map(to, self.sources)))

  def gradients(self, at: Mapping[int, UOp], sources: Sequence[UOp], need: Collection[UOp]) -> Pairs:
    """Raises GradientError."""
    raise GradientError(f"{self.kernel}: a gradient of its gradient, which tile.function does not have; what is differentiated "
                        "twice is computed by tensor code")


def once(kernel: str, pairs: Pairs, at: Mapping[int, UOp]) -> Pairs:
  """Gradients at sources, which cannot be differentiated again."""
  call = _Once(kernel, (*[s for s, _ in pairs], *at.values()))
  return [(s, graph.with_gradient(g, call, i)) for i, (s, g) in enumerate(pairs)]
