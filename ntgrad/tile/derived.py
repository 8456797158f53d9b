"""The gradient of a kernel by rule: its stores as tensor code, which is differentiated as tensors are, and never run itself.

A kernel is read once for all sizes, as a launch has it, with blocks that are whole dimensions: which element is computed by which
program makes no difference to a gradient. So a sum along blocks, also one that is corrected on the way, is a sum along a
dimension."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ntgrad.codegen import index as ix
from ntgrad.codegen.index import Dim, assuming
from ntgrad.codegen.ir import ArgumentError, NtgradError, Recent, UOp, config
from ntgrad.codegen.kernel import Kernel
from ntgrad.codegen.kernel.arrangement import Arrangement
from ntgrad.graph import nodes as graph
from ntgrad.graph.lock import synchronized
from ntgrad.graph.symbol import Symbol, evaluate_size

from .kernel import TileKernel, items_of
from .launch import Argument
from .open_sizes import MOST_FORMS, SizedKernel, form_of, names_in
from .parameters import Parameter
from .pure_stores import pure_stores
from .signature import constant
from .tensor import mapped
from .tensor_code import as_digits, stored
from .tune import first_choice, free_symbols


@dataclass(frozen=True)
class Derived:
  """The stores of a kernel, each in the scheduler's form, for certain sizes or all; its parameters that are memory, by slot."""
  parameters: tuple[Parameter, ...]
  stores: tuple[Kernel, ...]

  def gradients(self, nodes: Mapping[str, UOp], at: Mapping[str, UOp], wanted: Sequence[UOp],
                sizes: Mapping[str, int]) -> Mapping[UOp, UOp]:
    """The gradients at the ``wanted`` ones of the ``nodes`` that parameters are, from those at what is written, by name."""
    values = dict[UOp, UOp]()
    for kernel in self.stores:
      memory = {p.uop: nodes[name] for p in kernel.params if (name := self.parameters[p.slot].name) in nodes}
      above = {p.uop: at[name] for p in kernel.params if (name := self.parameters[p.slot].name) in at}
      if kernel.body[0].src[0] not in above: continue
      value, g = stored(kernel, memory, sizes, above)
      values[value] = graph.add(values[value], g) if value in values else g
    return graph.by_rules[0](values, wanted)


class Derivations:
  """What is known of a kernel's gradients: by all that makes a difference but sizes, some for all sizes and some for one call."""

  def __init__(self, kernel: TileKernel):
    self.kernel = kernel
    self.known: Recent[Any, tuple[list[SizedKernel], Recent[Any, Derived]]] = Recent(64)

  @synchronized
  def find(self, arguments: Mapping[str, Argument | Any], given: Mapping[str, int]) -> tuple[Derived, Mapping[str, int]]:
    """What serves arguments, numbers where they are compiled in, and what names are there. Raises GradientError."""
    kernel = self.kernel
    numbers, given = kernel.again(given)
    full: list[Argument | None] = [None] * len(kernel.names)
    for i in kernel.given:
      if kernel.tensors[i].constexpr: numbers[i] = constant(kernel.names[i], arguments[kernel.names[i]])
      else: full[i] = arguments[kernel.names[i]]
    values = kernel.bind(full, given)
    kinds = tuple([a and (len(a.shape), a.dtype, a.jagged) for a in full])
    key = kinds, items_of(numbers), items_of(given), kernel.reads, kernel.checks or config.checks
    if (known := self.known[key]) is None: known = self.known[key] = [], Recent(64)
    forms, exact = known
    if (form := next((f for f in forms if f.serves(values)), None)) is not None: return form.specialised, values

    def read(v: Mapping[str, Dim]) -> Derived:
      s = kernel.build(full, numbers, {**v, **whole_blocks(kernel, numbers, v)})
      assert s is not None, "nothing to run"
      return Derived(s.parameters, tuple(map(as_digits, pure_stores(s))))

    def sized(v: Mapping[str, Dim]) -> tuple[Any, list[UOp]]:
      with assuming() as conditions: return read(v), list(conditions)

    symbols = kernel.symbols
    names = [n for n in names_in(kernel.tensors) if n not in given and not (symbols[n].constexpr or symbols[n].power_of_two)]
    now = {n: int(v) for n, v in values.items()}
    if names and len(forms) < MOST_FORMS:
      try:
        forms.append(form_of(names, now, symbols, sized))
        return forms[-1].specialised, values
      except NtgradError: pass   # what there is no kernel for all sizes of has numbers
    if (found := exact[items_of(now)]) is None: found = exact[items_of(now)] = read(now)
    return found, values


def whole_blocks(kernel: TileKernel, numbers: Mapping[int, Any], values: Mapping[str, Dim]) -> dict[str, Dim]:
  """The sizes of blocks that are the tuner's to choose: each as long as the dimension that is tiled by it."""
  out = dict[str, Dim]()
  for _ in kernel.arranged:   # what one tensor's tells may be needed for another's
    for i, t in enumerate(kernel.arranged):
      if i in numbers: continue
      a = Arrangement.of(tuple([evaluate_size(e, values) for e in t._source.shape]))
      try:
        for o in t.operations:
          for e, n in zip(o.args[0], a.levels[o.level]) if o.name == "tile" else ():
            if isinstance(e, Symbol) and e.is_name and e.name not in values:
              out[e.name] = ix.greater(out[e.name], n) if e.name in out else n
          a = getattr(a, o.name)(*mapped(o.args, lambda s: evaluate_size(s, {**values, **out})), level=o.level)
      except ArgumentError: continue
  left = [s for n, s in kernel.symbols.items() if n not in values and n not in out]
  return {**out, **first_choice(free_symbols(left, kernel), False)}
