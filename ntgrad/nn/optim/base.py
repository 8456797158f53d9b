"""``Optimizer``, what all optimizers have: groups of parameters with options, a step, state to be saved; and several as one.

Parameters live in one flat buffer a group, dtype and device: a step is one kernel each. Options that are numbers live in a small
buffer, which the kernels read: changing one compiles nothing, and a captured step follows."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Callable

import numpy as np

from ntgrad.backends.process import uninterrupted
from ntgrad.codegen.ir import dtypes
from ntgrad.codegen.ir.errors import ArgumentError, DTypeError, GradientError, NtgradError, StateError, shown
from ntgrad.engine.device import DeviceName
from ntgrad.engine.observers import observers
from ntgrad.graph import checked
from ntgrad.nn.common import number
from ntgrad.nn.recipes import write
from ntgrad.reads import Reads
from ntgrad.tensor import Tensor

from .flat import Flat, own
from .groups import Numbers, ParamGroup, Shared, decayed

# options of PyTorch's and tinygrad's that change nothing here: every step is fused, may be captured, and keeps its state where
# the parameters are
_WITHOUT_EFFECT = frozenset("foreach fused capturable differentiable device".split())
_NO_OPTIONS = frozenset("self __class__ params lr options b1 b2".split())   # among an optimizer's arguments
_NUMBERS = frozenset("lr betas momentum".split())   # options that rules see as numbers in memory alone: schedules change them
_RULES = dict.fromkeys("_update _up _direction _scalars _decays _recurrent".split()).keys()   # that a step asks
_MASTER = "master_weights"   # an option of each optimizer, and the state that it has
_RATES = "initial_lr", "max_lr", "min_lr"   # that schedules write down


by_hand: list[Callable[[type], None]] = []   # called with a class that defines ``step`` and no rule (set by ``by_hand.py``)


# ---- what options take
Check = Callable[[str, str, Any], Any]


def pair(check: Check) -> Check:
  """Two of them."""
  def both(name: str, what: str, value: Any) -> tuple[Any, Any]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
      raise ArgumentError(f"{name}: {what} is {shown(value)}, expected two numbers")
    return check(name, f"{what}[0]", value[0]), check(name, f"{what}[1]", value[1])
  return both


def truth(name: str, what: str, value: Any) -> bool:
  """True or False."""
  if not isinstance(value, (bool, np.bool_)): raise ArgumentError(f"{name}: {what} is {shown(value)}, expected True or False")
  return bool(value)


AT_LEAST_0, BELOW_1 = number(), number(below=1.0)
_CHECKS: dict[str, Check] = {   # by option
  **dict.fromkeys("lr momentum weight_decay eps lr_decay initial_accumulator_value momentum_decay tcoef lambd t0".split(),
                  AT_LEAST_0),
  **dict.fromkeys("maximize nesterov classic centered amsgrad decoupled_weight_decay adam master_weights".split(), truth),
  "alpha": BELOW_1, "rho": BELOW_1, "betas": pair(BELOW_1), "etas": pair(number(beyond=True)), "step_sizes": pair(AT_LEAST_0),
  "dampening": number(-1e38)}


@checked
class Optimizer:
  """Base of the optimizers: takes ``params``, steps them against their ``.grad``.

  ``params`` are Tensors, or groups of them with options of their own: ``[{"params": body}, {"params": head, "lr": 0.01}]``.
  Parameters become views of one flat buffer a group, dtype and device, with everything that shares their memory; those that
  another library sees, or that are parts of something larger, stay where they are. Those with ``requires_grad=False`` (running
  statistics) are not trained, but realised with every step; ``None`` counts as True. One without a ``.grad`` at a step keeps its
  value and state. What is computed for parameters of less than 32 bits is computed, and state kept, in float32. With
  ``master_weights=True`` such parameters themselves are kept in float32 too, and rounded from there after each step: what a step
  adds is not lost where it is less than half of what bfloat16 can tell apart. One that was written meanwhile begins with that.

  A Tensor that a list has twice counts once. ``options`` are this optimizer's, ``more`` those of PyTorch's that change nothing
  here. Raises ArgumentError for no parameter to train, one of two groups, or an option that is not what it takes, and DTypeError
  for a parameter that is not a float."""
  _checks: Mapping[str, Check] = _CHECKS
  _states: Sequence[str] = ()             # state of parameters by PyTorch's names
  _states_with: Mapping[str, str] = {}    # more of it, each with an option
  _begin_at: Mapping[str, str] = {}       # options that state begins with, else with 0
  _reads: Sequence[str] = ()              # options that kernels read as they are, beside the learning rate
  _rest = ""                              # the option of which they read 1 - it, as ``rest``, before these
  _scalars_of: Sequence[str] = ()   # numbers that depend on how many steps were made
  _scalars_with = ""                # the option without which there are none of these, if there is such a one
  _kept: Sequence[str] = ()         # those of them that are state
  _recurrent = False                # they are (step, ..), and the next ones a·s + b; ``_numbers`` begin with all a and all b
  _alone = False                    # whether each parameter is updated by itself
  _decays = False                   # whether the weight decay is a part of the gradient that rules get
  decoupled = False                 # whether it is no part of the gradient
  _skip: Tensor | None = None       # where it is true, (1,), the step that is made changes nothing

  def __init_subclass__(cls) -> None:
    super().__init_subclass__()
    if cls.__module__.startswith(f"{__package__}."): checked(cls)
    elif "step" in vars(cls) and cls._update is Optimizer._update:
      for begin in by_hand: begin(cls)

  def __init__(self, params: Iterable[Any], lr: float, options: Mapping[str, Any] | None = None,
               more: Mapping[str, Any] | None = None):
    name = type(self).__name__
    more = dict(more or {})
    master = {_MASTER: more.pop(_MASTER)} if _MASTER in more else {}
    for option in more:
      if option not in _WITHOUT_EFFECT: raise ArgumentError(f"{name}: no option {option!r}")
    if isinstance(params, Tensor): raise ArgumentError(f"{name}: params is one Tensor, expected a list of them")
    self.defaults: dict[str, Any] = {"lr": lr, **(options or {}), **master}
    self.param_groups, self.params, self.buffers = list[ParamGroup](), list[Tensor](), list[Tensor]()
    given = list(params)
    for g in given if any(isinstance(g, Mapping) for g in given) else [{"params": given}]: self._add(g, "params")
    if not self.params:
      raise ArgumentError(f"{name}: none of the {len(self.buffers)} params has requires_grad; set it on those to train")
    self._begin(self.param_groups)
    for o in observers: o.built(f"an optimizer, {name},")

  def _start(self, given: Mapping[str, Any], order: str = "") -> None:
    """Begin with the locals of a subclass's ``__init__``: its arguments, options in this order or another. Betas come as in
    PyTorch (one tuple) or as in tinygrad (two numbers)."""
    options = {k: given[k] for k in order.split() or given if k not in _NO_OPTIONS}
    if "b1" in given:
      b1, b2, options = given["b1"], given["b2"], {"betas": None, **options}
      if options["betas"] is None:
        options["betas"] = b1 if isinstance(b1, (tuple, list)) else (b1, b2)
        if options["betas"] is b1 and b2 != 0.999:
          raise ArgumentError(
            f"{type(self).__name__}: betas {b1} and then {shown(b2)}; give what comes after betas by name (eps=..)")
    Optimizer.__init__(self, given["params"], given["lr"], options, given["options"])

  @property
  def device(self) -> DeviceName:
    """The device of the first parameter."""
    return self.params[0].device

  def add_param_group(self, param_group: Mapping[str, Any]) -> None:
    """Another group: ``{"params": [..], "lr": ..}``; options that are not given are the optimizer's. Raises as the class."""
    n = len(self.param_groups)
    self._add(param_group, "add_param_group")
    self._begin(self.param_groups[n:])

  def _add(self, given: Any, what: str) -> None:
    name = type(self).__name__
    if not isinstance(given, Mapping) or "params" not in given:
      raise ArgumentError(f"{name}: {what} has {shown(given)}, expected {{'params': [..], ..}}")
    params = given["params"]
    params = list(params) if isinstance(params, Iterable) and not isinstance(params, Tensor) else [params]
    for option in given:
      if option not in {"params", "initial_lr", *self.defaults, *_WITHOUT_EFFECT} and not isinstance(given, Shared):
        raise ArgumentError(f"{name}: a group has {option!r}; its options are {', '.join(self.defaults)}")
    for p in params:
      if not isinstance(p, Tensor):
        raise ArgumentError(f"{name}: params has a {type(p).__name__}, expected Tensors (nn.state.get_parameters(model))")
    known = {id(p) for p in (*self.params, *self.buffers)}
    params = list({id(p): p for p in params}.values())
    for p in params:
      if id(p) in known: raise ArgumentError(f"{name}: a parameter of shape {p.shape} is in two groups; give each once")
    trained = [p for p in params if p.requires_grad is not False]
    for p in trained:
      if not dtypes.is_float(p.dtype):
        raise DTypeError(f"{name}: a parameter of shape {tuple(p.shape)} is {p.dtype.name}, only floats can be trained")
      self._check_param(p)
    self.buffers += [p for p in params if p.requires_grad is False]
    if not trained: return
    for p in trained: p.requires_grad = True
    options = {**self.defaults, **{k: v for k, v in given.items() if k not in _WITHOUT_EFFECT and k != "params"}}
    self.param_groups.append(ParamGroup(self, trained, options))
    self.params += trained

  def _begin(self, groups: Sequence[ParamGroup]) -> None:
    """Make the state of new groups, and their parameters views of the flat buffers."""
    for g in groups:
      g.add_states()
      for f in g.flats:
        if g.get(_MASTER) and f.wide is not f.dtype: f.states[_MASTER] = own(f.flat.cast(f.wide))
        f.move(given=False)   # first: what is still a tensor's own would be kept beside it
    Tensor.realize(*[t for g in groups for t in g.tensors()], *self.buffers)
    for g in groups:
      if isinstance(lr := g.options["lr"], Tensor): g["lr"] = lr
      else: g.known = g.buffer._alias.node

  # ---- what an optimizer defines
  @classmethod
  def _check(cls, group: ParamGroup) -> None:
    """Raise ArgumentError for options that do not go together."""

  def _check_param(self, p: Tensor) -> None:
    """Raise ShapeError for a parameter that is none for this optimizer."""

  @classmethod
  def _initial(cls, group: ParamGroup, state: str) -> float: return group[cls._begin_at[state]] if state in cls._begin_at else 0.0
  @classmethod
  def _numbers(cls, group: ParamGroup) -> dict[str, float]:
    """What kernels read beside the learning rate. Differences such as 1 - beta are made here, in float64."""
    return {**({"rest": 1 - group[cls._rest]} if cls._rest else {}), **{k: group[k] for k in cls._reads}}

  @classmethod
  def _scalars(cls, n: Numbers, t: Tensor) -> list[Tensor]:
    """The numbers ``_scalars_of`` for step ``t`` = 1, 2, ..: each (1,). ``n`` has those of the last step."""
    return []

  def _update(self, group: ParamGroup, flat: Flat, p: Tensor, g: Tensor, n: Numbers) -> tuple[Tensor, dict[str, Tensor]]:
    """The new parameters and state from the old (``p``, ``flat["name"]``), the gradient, all flat and wide, and the numbers."""
    raise NotImplementedError(f"{type(self).__name__} has no rule for a step")

  def _note_reads(self, reads: Reads, text: str) -> None:
    """Note what a captured step has as constants: which groups there are, and options that are no numbers."""
    for i, g in enumerate(reads.whole(self.param_groups, f"{text}.param_groups")):
      for k, f in enumerate(g.flats): reads.whole(f.states, f"{text}.param_groups[{i}].flats[{k}].states")
      for k, v in g.options.items():
        if v is None or isinstance(v, (bool, str)): reads.item(g.options, k, f"{text}.param_groups[{i}][{k!r}]")

  # ---- what everyone calls
  @property
  def lr(self) -> Tensor:
    """The learning rate of the first group, (1,), float32 (float64 if a parameter is).
    Assign a number (``opt.lr = 0.01``) or a one-element Tensor: all groups have it, and nothing is compiled anew."""
    return self.param_groups[0].buffer[:1]

  @lr.setter
  def lr(self, value: float | Tensor) -> None:
    for g in self.param_groups: g["lr"] = value

  def zero_grad(self, set_to_none: bool = True) -> None:
    """Forget the gradients (``.grad = None``), so that the next ``backward()`` starts anew; or have them be zeros."""
    for p in self.params: p.grad = None if set_to_none or p.grad is None else p.zeros_like()

  def step(self, closure: Callable[[], Any] | None = None) -> Any:
    """Update the parameters from their gradients and realise everything. A ``closure`` finds the gradients first; its result is
    given back. Raises GradientError if no parameter has a gradient."""
    out = None if closure is None else closure()
    with uninterrupted(): tensors = self.schedule_step()   # all of it or nothing
    Tensor.realize(*tensors)
    return out

  def schedule_step(self) -> list[Tensor]:
    """As :meth:`step`, lazily: gives the tensors to realise for it (parameters, state, gradients, untrained tensors)."""
    found = [[f.gradients() for f in g.flats] for g in self.param_groups]
    if not any(map(any, found)):
      raise GradientError(f"{type(self).__name__}.step: none of the {len(self.params)} parameters has a gradient; "
                          "call loss.backward() first, with Tensors that have requires_grad")
    out = list[Tensor]()
    for group, all_grads in zip(self.param_groups, found):
      key, options = self._looked_at(group)
      if group.scalar_names:
        made = group.recipes.make(key, (group.buffer, group.scalars, group.steps), group.next_scalars)
        for name, value in made.items(): self._write(getattr(group, name), value)
      for flat, grads in zip(group.flats, all_grads):
        if not grads: continue
        flat.move()
        have = tuple([g is not None for g in grads])
        whole = flat.shown(grads)   # they lie in one piece already
        inputs = [flat.flat, *flat.states.values(), group.buffer, group.scalars,
                  *([g for g in grads if g is not None] if whole is None else [whole])]
        if not all(have): inputs.append(flat.mask(have))
        made = flat.recipes.make(key and (key, have, whole is None), inputs,
                                 partial(self._next, group, options, flat, have, whole is None))
        grad, new = made.pop(0), made.pop(1)
        if whole is not None: grad = whole
        elif not isinstance(grad, Tensor): grad = Tensor._from_node(grad)
        flat.show_gradients(grads, grad)
        for k, s in made.items(): self._write(flat.states[k], s)
        self._write(flat.flat, new, any([p._state == 2 for p in flat.params]))
        out.append(grad)
    return [*out, *[t for g in self.param_groups for t in g.tensors()], *self.buffers]

  def _write(self, t: Tensor, made: Any, leaf: bool = False) -> None:
    """Assign what a step has made, a Tensor or its node; where the step is skipped, what was there."""
    if self._skip is not None:
      made = self._skip.to(t.device).where(t.detach(), made if isinstance(made, Tensor) else Tensor._from_node(made)).lazydata
    write(t, made, leaf)

  def _looked_at(self, group: ParamGroup) -> tuple[Any, Any]:
    """All of the optimizer and a group that its rules look at, and the options that these get; (None, the group) for a rule of a
    user, which may look at anything."""
    kind, of = type(self), group.options
    if not kind.__module__.startswith(f"{__package__}.") or vars(self).keys() & _RULES: return None, group
    options = {k: of[k] for k in of if k in kind._checks and k not in _NUMBERS}
    return (kind, self.decoupled, *[getattr(kind, rule, None) for rule in _RULES], *options.items()), options

  def _next(self, group: ParamGroup, options: Any, flat: Flat, have: tuple[bool, ...], apart: bool, inputs: Sequence[Tensor]
            ) -> dict[Any, Tensor]:
    """The flat gradient (0), the new parameters (1) and state, from the old, numbers, scalars, gradients (the flat one, or where
    they are ``apart`` one each) and where some are."""
    p, k = inputs[0], len(flat.states) + 1
    if p is not flat.flat:
      flat = copy(flat)
      flat.flat, flat.states = p, dict(zip(flat.states, inputs[1:k]))
    grads = iter(inputs[k + 2:])
    grad = next(grads).detach() if not apart else flat.join([
      (next(grads) if h else Tensor.zeros(*p.shape, dtype=flat.dtype, device=flat.device)).cast(flat.dtype)
      for h, p in zip(have, flat.params)]).detach().contiguous()
    old, g, master = p.cast(flat.wide), grad.cast(flat.wide), flat.states.get(_MASTER)
    if master is not None: old = (master.cast(flat.dtype) == p).where(master, old)
    n = Numbers(*[(x.to(flat.device).cast(flat.wide), names) for x, names in (
      (inputs[k], group.names), (inputs[k + 1], group.scalar_names))])
    if options.get("maximize"): g = -g
    new, states = self._update(options, flat, old, decayed(options, old, g, n) if self._decays else g, n)
    if master is not None: states = {**states, _MASTER: new}
    if not all(have):
      mask = next(grads)
      new = mask.where(new, old)
      states = {k: mask.where(s, flat.states[k]) for k, s in states.items()}
    return {0: grad, 1: new.cast(flat.dtype), **states}

  # ---- state
  def state_dict(self) -> dict[str, Any]:
    """State and options, as PyTorch has them, parameters by number:
    ``{"state": {i: {name: Tensor}}, "param_groups": [{option: value, "params": [i]}]}``. Writing into the Tensors is loading."""
    state, groups, first = dict[int, dict[str, Tensor]](), [], 0
    for g in self.param_groups:
      groups.append({**{k: g[k] for k in g if k != "params"}, "params": list(range(first, first + len(g.params)))})
      first += len(g.params)
      scalars = Numbers((g.scalars, g.scalar_names))
      common = {"step": g.steps.reshape(())} if g.scalar_names else {}
      common |= {name: getattr(scalars, name).reshape(()) for name in self._kept}
      for f in g.flats:
        for k, i in enumerate(f.numbers): state[i] = {**common, **{name: f.view(s, k) for name, s in f.states.items()}}
    return {"state": {i: s for i, s in sorted(state.items()) if s}, "param_groups": groups}

  @property
  def state(self) -> dict[Tensor, dict[str, Tensor]]:
    """The state of each parameter; see :meth:`state_dict`."""
    state = self.state_dict()["state"]
    return {p: state.get(i, {}) for i, p in enumerate(self.params)}

  def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
    """Take what :meth:`state_dict` gave, of this optimizer or PyTorch's. A parameter without state there begins anew.
    Raises StateError for other groups or parameters, state that is missing or unknown, or another shape."""
    name = f"{type(self).__name__}.load_state_dict"
    if not {"state", "param_groups"} <= set(state_dict):
      raise StateError(f"{name}: {shown(state_dict)}; expected a dict with 'state' and 'param_groups'")
    own_groups, groups, states = self.param_groups, state_dict["param_groups"], state_dict["state"]
    if not isinstance(states, Mapping) or not isinstance(groups, (list, tuple)) or not all(
      isinstance(g, Mapping) and isinstance(ids := g.get("params"), (list, tuple)) and all(isinstance(i, (int, str)) for i in ids)
      for g in groups):
      raise StateError(f"{name}: groups {shown(groups)}, state {shown(states)}; "
                       "expected a list of dicts with 'params', and a dict")
    sizes, theirs = [len(g.params) for g in own_groups], [len(g["params"]) for g in groups]
    if sizes != theirs: raise StateError(f"{name}: groups of {theirs} parameters for an optimizer that has {sizes}")
    order, computed = [i for g in groups for i in g["params"]], False
    written, begun = list[tuple[Tensor, Tensor]](), set[tuple[int, str]]()   # (begun: small state)
    for i, mine in self.state_dict()["state"].items():
      given = states.get(order[i], states.get(str(order[i]), {}))
      if not isinstance(given, Mapping) or not all([isinstance(k, str) for k in given]):
        raise StateError(f"{name}: the state of parameter {i} is {shown(given)}, expected a dict of tensors by name")
      given = {k: v for k, v in given.items() if v is not None and (k in mine or k not in {"step", _MASTER, *self._scalars_of})}
      if given and self._recurrent and not set(self._kept) <= set(given):   # PyTorch does not keep them
        given, computed = {**dict.fromkeys(self._kept, 0.0), **given}, True
      if given and "step" in mine: given.setdefault("step", 1.0)   # not all of PyTorch's count steps where these do
      if given and _MASTER in mine: given.setdefault(_MASTER, mine[_MASTER].zeros_like())   # the parameters differ, and count
      if given and (wrong := set(mine) ^ set(given)):
        raise StateError(f"{name}: state {', '.join(map(repr, sorted(wrong)))} of parameter {i} is "
                         f"{'missing' if wrong <= set(mine) else 'not known'}; it is {', '.join(map(repr, mine)) or 'none'}")
      group = next(k for k in range(len(sizes)) if i < sum(sizes[:k + 1]))
      for k, target in mine.items():
        small = k == "step" or k in self._kept
        if small and (group, k) in begun: continue
        if small and given: begun.add((group, k))
        value = given.get(k, self._initial(own_groups[group], k))
        if not isinstance(value, (Tensor, np.ndarray, np.generic, int, float)):
          raise StateError(f"{name}: {k!r} of parameter {i} is {shown(value)}, expected a tensor or a number")
        t = value if isinstance(value, Tensor) else Tensor(np.asarray(value))
        if t.shape != target.shape and not (small and t.numel() == 1):
          raise StateError(f"{name}: {k!r} of parameter {i} has shape {t.shape}, expected {target.shape}")
        written.append((target, t.detach().reshape(target.shape).cast(target.dtype).to(target.device).expand(target.shape)))
    if written: Tensor.realize(*[t for _, t in written])   # may be refused: bytes of a file that are read now
    before = [dict(g.options) for g in own_groups]
    try:
      for g, options in zip(own_groups, groups):
        g.options.update({k: v for k, v in options.items() if k in self.defaults or k in _RATES})
        for k in _RATES:
          if not isinstance(v := g.options.get(k, 0.0), (int, float)): raise StateError(f"{k} is {shown(v)}, expected a number")
        g.check()
    except (NtgradError, TypeError, ValueError) as e:
      for g, old in zip(own_groups, before): g.options = old
      raise StateError(f"{name}: an option of a group: {e}") from None
    for target, t in written: target.assign(t)
    if written: Tensor.realize(*[target for target, _ in written])
    for g in own_groups:
      g.write()
      if computed: g.write_scalars()

  def __repr__(self) -> str:
    lines = [repr(g) for g in self.param_groups]
    return f"{type(self).__name__}({lines[0]})" if len(lines) == 1 else "\n  ".join([f"{type(self).__name__}(", *lines]) + "\n)"


def an_optimizer(name: str, x: Any) -> Any:
  """What is an optimizer, or a group of them. Raises ArgumentError."""
  if not isinstance(x, (Optimizer, OptimizerGroup)): raise ArgumentError(f"{name}: {shown(x)} is no optimizer")
  return x


@checked
class OptimizerGroup:
  """Steps several optimizers together: ``OptimizerGroup(Muon(matrices), AdamW(others))``. Raises ArgumentError for others."""

  def __init__(self, *optimizers: Any):
    for o in optimizers: an_optimizer("OptimizerGroup", o)
    if not optimizers: raise ArgumentError("OptimizerGroup: no optimizer")
    self.optimizers = optimizers

  def __getitem__(self, i: int) -> Any:
    if not isinstance(i, int) or not -len(self.optimizers) <= i < len(self.optimizers):
      raise ArgumentError(f"OptimizerGroup: index {shown(i)}; it has {len(self.optimizers)} optimizers")
    return self.optimizers[i]
  def __iter__(self) -> Iterator[Any]: return iter(self.optimizers)

  @property
  def params(self) -> list[Tensor]:
    """All that are trained."""
    return [p for o in self.optimizers for p in o.params]
  @property
  def param_groups(self) -> list[Any]:
    """The groups of all."""
    return [g for o in self.optimizers for g in o.param_groups]

  def zero_grad(self, set_to_none: bool = True) -> None:
    """See :class:`Optimizer`."""
    for o in self.optimizers: o.zero_grad(set_to_none)

  def step(self) -> None:
    """A step of each that has a gradient, realised together. Raises GradientError if none has."""
    with uninterrupted(): tensors = self.schedule_step()
    Tensor.realize(*tensors)

  def schedule_step(self) -> list[Tensor]:
    """As :meth:`step`, lazily; see :class:`Optimizer`."""
    able = [o for o in self.optimizers if any(p.grad is not None for p in o.params)]
    if not able: raise GradientError("OptimizerGroup.step: no parameter has a gradient; call loss.backward() first")
    return [t for o in able for t in o.schedule_step()]

  def state_dict(self) -> dict[str, Any]:
    """Those of all, by number."""
    return {str(i): o.state_dict() for i, o in enumerate(self.optimizers)}

  def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
    """Take what :meth:`state_dict` gave. Raises StateError."""
    if set(state_dict) != {str(i) for i in range(len(self.optimizers))}:
      raise StateError(f"OptimizerGroup.load_state_dict: {shown(state_dict)}; expected a dict of {len(self.optimizers)}, by "
                       "number")
    for i, o in enumerate(self.optimizers): o.load_state_dict(state_dict[str(i)])

  def __repr__(self) -> str: return "\n  ".join(["OptimizerGroup(", *[repr(o) for o in self.optimizers]]) + "\n)"
