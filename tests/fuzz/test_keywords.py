"""Every parameter of every public function gives the same by place, by its name, and by the other names that it has.

The calls are those of ``test_arguments.py`` and of the tables of PyTorch's names; each is made with the values that it has, and
with others. A parameter that is in no call has its default and others like it.
"""
from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Iterator
from typing import Any, Callable

import numpy as np
import pytest

import ntgrad
from ntgrad import Tensor, array_api as xp, nn
from ntgrad.compat.signatures import ARRAY, ARRAY_OF_TWO
from ntgrad.errors import NtgradError
from ntgrad.graph import other_names
from ntgrad.tensor.made import rows
from support import calls_made, calls_names, calls_numeric, functional_cases, name_cases
from support.marks import long_half

from . import test_arguments as good
from .test_arguments import GOOD, Call, Model, _small  # noqa: F401

TEXTS = {"reduction": ("mean", "sum", "none"), "dtype": ("float32", "float64"), "approximate": ("none", "tanh"),
         "indexing": ("ij", "xy"), "UPLO": ("L", "U"), "interpolation": ("linear", "nearest", "lower"),
         "mode": ("nearest", "bilinear", "constant", "reflect", "sum", "mean", "reduced", "complete"),
         "rounding_mode": ("trunc", "floor"), "side": ("left", "right")}
# for parameters that are None
NONE: dict[str, Any] = {
  "dtype": "float64", "device": "NUMPY", "requires_grad": True, "dim": 0, "axis": 0, "unbiased": False, "rounding_mode": "trunc",
  "min": 0.25, "max": 0.5, "threshold": 0.5, "ord": "nuc", "scale_factor": 2.0, "eps": 0.125, "posinf": 1.0, "neginf": -1.0,
  "N": 2, "memory_format": ntgrad.channels_last,
  "size": (2, 3), "correction": 0, "output_size": 3, "output_ratio": 0.75, "max_norm": 1.0,
  "padding_mode": "zeros",
  "map_location": "NUMPY", "align_corners": False, "recompute_scale_factor": True, "activation": "gelu", "nonlinearity": "relu",
  "betas": (0.5, 0.75), "epochs": 2, "steps_per_epoch": 3, "jagged_dim": 0, "value": 1, "checks": True, "dims": (1,),
  "save_path": "picture", "target": "c", "generator": 1, "norm": lambda: nn.LayerNorm(2),
  "memory_mask": lambda: Tensor(np.ones((3, 3), bool)).triu(1),
  **{f"{part}key_padding_mask": lambda: Tensor([[False, False, True]]) for part in ("", "src_", "tgt_", "memory_")}}
TEXTS |= {"padding_mode": ("zeros", "border", "reflect", "circular"), "anneal_strategy": ("cos", "linear"),
          "threshold_mode": ("rel", "abs"),
          "randomness": ("error", "different"), "strategy": ("reverse-mode", "forward-mode"), "activation": ("relu", "gelu"),
          "outer_jacobian_strategy": ("reverse-mode", "forward-mode"), "delimiter": (",", ";"), "encoding": ("utf-8", "latin-1"),
          "nonlinearity": ("tanh", "relu"), "scale_mode": ("cycle", "iterations"), "target": ("opencl", "c"),
          "ord": ("fro", "nuc")}
P = inspect.Parameter


def changed(name: str, value: Any) -> list[Any]:
  """Other values that an argument may have, of which some may be refused."""
  if value is None and name in NONE: return [NONE[name]() if callable(NONE[name]) else NONE[name]]
  if isinstance(value, bool): return [not value]
  if isinstance(value, int): return [value + 1, value - 1]
  if isinstance(value, float): return [value * 0.5 + 0.125]
  if isinstance(value, str): return [v for v in TEXTS.get(name, ()) if v != value]
  if isinstance(value, (tuple, list)) and value and all(isinstance(v, int) for v in value): return [type(value)(value[::-1])]
  return []


def content(x: Any, depth: int = 0) -> Any:
  """What two results are compared by; NaN is NaN."""
  if isinstance(x, Tensor): return x.shape, x.dtype, bool(x.requires_grad), x.names, repr(x.numpy().tolist())
  if isinstance(x, np.ndarray): return x.shape, x.dtype, repr(x.tolist())
  if isinstance(x, (bool, int, float, bytes, type(None))): return repr(x)
  if isinstance(x, (tuple, list)): return [content(v, depth) for v in x]
  if isinstance(x, dict) and depth < 4: return {str(k): content(v, depth + 1) for k, v in x.items()}
  if isinstance(x, nn.Module) and depth < 4:
    return type(x), content({k: v for k, v in vars(x).items() if not callable(v) or isinstance(v, nn.Module)}, depth + 1)
  if depth < 3 and hasattr(x, "__dict__") and not callable(x): return type(x), content(vars(x), depth + 1)
  return re.sub(r"0x[0-9a-f]+|tmp\w+|(?<=_)\d+", "", repr(x))   # names that are counted


def outcome(call: Callable[[], Any]) -> Any:
  """What a call gives, or how it is refused."""
  ntgrad.manual_seed(0)
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")
      out = call()
      return content(list(out) if inspect.isgenerator(out) else out)
  except NtgradError as e: return type(e)
  finally: ntgrad.Device.DEFAULT = "NUMPY"


def arguments(call: Call) -> tuple[dict[str, Any], list[P]]:
  """What a call gives each parameter, defaults too, and the parameters."""
  signature = inspect.signature(call.fn)
  also = other_names(call.fn)
  bound = signature.bind(*call.args, **{also.get(k, k): v for k, v in call.kwargs.items()})
  bound.apply_defaults()
  return dict(bound.arguments), list(signature.parameters.values())


def by_place(fn: Callable[..., Any], given: dict[str, Any], parameters: list[P], named: str = "", at: str = "") -> Any:
  """A call with all by place, but ``named`` and what comes after it, which is by keyword (by the name ``at``)."""
  args: list[Any] = []
  kwargs: dict[str, Any] = {}
  for p in parameters:
    value = given[p.name]
    if p.kind is p.VAR_KEYWORD: kwargs |= value
    elif p.name == named and p.kind is not p.POSITIONAL_ONLY: kwargs[at or p.name] = value
    elif p.kind is p.VAR_POSITIONAL: args += value
    elif p.kind is p.KEYWORD_ONLY or (kwargs and p.kind is not p.POSITIONAL_ONLY): kwargs[p.name] = value
    else: args.append(value)
  return fn(*args, **kwargs)


def own_first(fn: Any) -> bool:
  """Whether a method's tensor is the first of several: ``x.cat(y)``."""
  of = inspect.unwrap(getattr(fn, "__func__", fn))
  return inspect.ismethod(fn) and next(iter(inspect.signature(of).parameters.values())).kind is P.VAR_POSITIONAL


def differences(name: str, make: Callable[[], Call]) -> Iterator[str]:
  """What is not the same."""
  call = make()
  if "empty" in name: return   # whatever was in memory
  given, parameters = arguments(call)
  also = other_names(call.fn) or other_names(getattr(call.fn, "__init__", None))
  for p in parameters:
    if p.kind is p.VAR_KEYWORD: continue
    value = given[p.name]
    # several by place are also one by name, where there is such a name
    several = p.kind is p.VAR_POSITIONAL
    if several and (p.name not in also or own_first(call.fn)): continue
    behind = [given[q.name] for q in parameters if q.kind is P.VAR_POSITIONAL]
    if not several and p.kind is not P.KEYWORD_ONLY and any(behind): continue
    names = [n for n in (p.name, *[a for a, of in also.items() if of == p.name and a != p.name])]
    if p.kind is p.POSITIONAL_ONLY or (several and not value): continue
    # what the call gives; for what it leaves out the first of other values that is taken
    others = [] if several or p.default is p.empty or value is not p.default else changed(p.name, value)
    for other in [*others, value]:
      def again(p: P = p, other: Any = other, own: bool = other is value) -> tuple[Any, dict[str, Any], list[P]]:
        fresh = make()
        values, ps = arguments(fresh)
        if not own: values[p.name] = ntgrad.Generator(1) if p.name == "generator" else other
        return fresh.fn, values, ps
      want = outcome(lambda: by_place(*again()))  # noqa: B023
      if other is not value and isinstance(want, type): continue   # refused
      for at in names:
        got = outcome(lambda: by_place(*again(), p.name, at))  # noqa: B023
        pair = at == "axis" and hasattr(call.fn, "__paired__") and isinstance(want, list)
        if got != (want[0] if pair else want): yield f"{at}={other!r}: {str(got)[:300]}, by place {str(want)[:300]}"
      break
    if p.kind is p.KEYWORD_ONLY or (p.default is not p.empty and value is p.default): continue   # as if it were left out
    for at in names[not several:]:   # both ways at once
      def twice(p: P = p, at: str = at) -> Any:
        fresh = make()
        values, ps = arguments(fresh)
        args = [v for q in ps if q.kind not in (P.KEYWORD_ONLY, P.VAR_KEYWORD)
                for v in (values[q.name] if q.kind is P.VAR_POSITIONAL else [values[q.name]])]
        return fresh.fn(*args, **{q.name: values[q.name] for q in ps if q.kind is P.KEYWORD_ONLY}, **{at: values[p.name]})
      try: refused = isinstance(outcome(twice), type)
      except TypeError: refused = True   # Python's own refusal
      if not refused: yield f"{at} is taken twice"


def functions() -> dict[str, Callable[[], Call]]:
  """Calls of PyTorch's names, from the expressions that it is compared by, and of nn.functional."""
  out: dict[str, Callable[[], Call]] = {}
  def value(node: ast.AST, scope: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "", "eval"), scope)  # type: ignore[arg-type]
  ways: set[Any] = set()
  for case in name_cases.cases():
    text = re.sub(r"(?<=[(\[ ])(autograd|func)\.", r"torch.\1.", case)
    node: Any = ast.parse(f"torch.{text}", mode="eval").body
    while not isinstance(node, ast.Call) and hasattr(node, "value"): node = node.value
    if not isinstance(node, ast.Call) or isinstance(node.func, ast.Call): continue
    how = (ast.unparse(node.func), len(node.args), *[k.arg for k in node.keywords])   # values do not matter
    if how in ways: continue
    ways.add(how)
    def make(node: ast.Call = node) -> Call:
      scope = {"torch": ntgrad, **{n: Tensor(a) for n, a in name_cases.inputs().items()}}
      return Call(value(node.func, scope), tuple([value(a, scope) for a in node.args]),
                  {k.arg: value(k.value, scope) for k in node.keywords if k.arg})
    out[f"ntgrad.{case}"] = make
  done: dict[str, set[str]] = {}
  for i, c in enumerate(functional_cases.CASES):   # those that give a parameter which none before gives
    parameters = list(inspect.signature(getattr(nn.functional, c.name)).parameters)
    said = {*parameters[:len(c.args)], *c.kwargs}
    if said <= done.setdefault(c.name, set()): continue
    done[c.name] |= said
    def taken(c: Any = c) -> Call:
      def tensor(x: Any) -> Any:
        if isinstance(x, functional_cases.C): x = x.array
        return Tensor(x) if isinstance(x, np.ndarray) else tuple([tensor(v) for v in x]) if isinstance(x, tuple) else x
      fn = getattr(nn.functional, c.name)
      return Call(fn, tuple([tensor(a) for a in c.args]), {k: tensor(v) for k, v in c.kwargs.items()})
    out[f"F.{c.name} {i}"] = taken
  return out


def call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Call: return Call(fn, args, kwargs)


# tensors whose elements are told apart
def f(*shape: int) -> Tensor: return Tensor((_counted(shape) / (np.prod(shape, dtype=int) + 1)).astype(np.float32))
def i(*shape: int) -> Tensor: return Tensor((_counted(shape) % 2).astype(np.int32))
def b(*shape: int) -> Tensor: return Tensor(_counted(shape) % 2 == 0)
def _counted(shape: Any) -> Any: return np.arange(1, np.prod(shape, dtype=int) + 1).reshape(shape)


@pytest.fixture(autouse=True)
def _told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
  for name, fn in (("f", f), ("i", i), ("b", b)): monkeypatch.setattr(good, name, fn)


def table(n: int = 4) -> Tensor: return Tensor(np.arange(2.0 * n).reshape(n, 2))


MORE: dict[str, Callable[[], Call]] = {   # what the good calls leave out
  "nn.Embedding of weights": lambda: call(nn.Embedding, 4, 2, _weight=table()),
  "nn.EmbeddingBag of weights": lambda: call(nn.EmbeddingBag, 4, 2, _weight=table()),
  "nn.EmbeddingBag() offsets": lambda: call(nn.EmbeddingBag(4, 2, _weight=table()), Tensor([0, 1, 3]), Tensor([0, 1])),
  "state.load_state_dict prefix": lambda: call(nn.state.load_state_dict, Model(), {"m.weight": table(1)[0]}, prefix="m."),
  "dtypes.of default": lambda: call(ntgrad.dtypes.of, None, ntgrad.dtypes.float64),
  "tile.Tensor options": lambda: call(ntgrad.tile.Tensor, 1, shape_options={"constexpr": True}),
  "F.gumbel_softmax": lambda: call(nn.functional.gumbel_softmax, table(), 0.5, True),
  "ntgrad.min of two": lambda: call(ntgrad.min, table(), other=table() * 0.5 + 1),
}
NUMERIC = {f"Tensor.{n}": made for n, made in calls_numeric.calls(call, f, i, b).items()}
METHODS = {**GOOD, **NUMERIC, **calls_names.calls(call, f, i, b)}
CALLS = {**METHODS, **MORE, **functions(), **calls_made.of_methods(call, METHODS), **calls_made.standard(call)}


FURTHER = [name for name in CALLS if name not in METHODS and name not in MORE]   # most are made of the methods, by tables


@pytest.mark.parametrize("name", FURTHER)
def test_what_tables_make_can_be_called(name: str) -> None:
  call = CALLS[name]()
  got = outcome(lambda: call.fn(*call.args, **call.kwargs))
  assert not isinstance(got, type), f"{name} refuses with {got}"


@pytest.mark.parametrize("name", long_half(CALLS, lambda name: name not in FURTHER))
def test_by_place_and_by_name(name: str) -> None:
  wrong = list(differences(name, CALLS[name]))
  assert not wrong, f"{len(wrong)} of {name}:\n" + "\n".join(wrong)


# functions, what pickles are made by, and what has no effect
NO_VALUES = {"distance_function", "avg_fn", "multi_avg_fn", "scale_fn", "transform", "pickle_module", "custom_encoder",
             "custom_decoder", "caller", "options", "more", "stream", "out", "optimizer", "grad_variables", "adjust_lr_fn",
             "ns_params", "output_dir", "backward", "meta_parameters", "driver", "grad_fxn"}

BY_PLACE = [n for n, row in rows(ARRAY | ARRAY_OF_TWO).items() if row.parameters in ("x, /", "x1, x2, /")]


def test_every_parameter_of_every_public_function_has_a_value() -> None:
  """Beside its default, so that one that is lost is seen. Add a good call to ``test_arguments.py``, or a value to ``NONE``."""
  known: dict[Any, dict[str, bool]] = {}
  def of(fn: Any) -> Any: return inspect.unwrap(getattr(fn, "__func__", fn))
  for make in CALLS.values():
    made = make()
    given, parameters = arguments(made)
    found = known.setdefault(of(made.fn) if callable(made.fn) and hasattr(made.fn, "__name__") else type(made.fn), {})
    for p in parameters:
      value = given[p.name]
      said = p.default is p.empty or value is not p.default or bool(changed(p.name, value))
      found[p.name] = found.get(p.name, p.name in NO_VALUES) or said
  weak = [f"{getattr(fn, '__qualname__', fn)}: {n}" for fn, found in known.items() for n, said in found.items() if not said]
  assert not weak, f"{len(weak)} parameters are only ever given what they are anyway:\n" + "\n".join(weak)
  public = {name: fn for name, (fn, _) in calls_made.tables().items()}
  public |= {f"F.{n}": getattr(nn.functional, n) for n in nn.functional.__all__}
  public |= {f"xp.{n}": fn for n, fn in vars(xp).items() if inspect.isfunction(fn) and fn.__module__ == xp.__name__}
  plain = {f"xp.{n}" for n in (*BY_PLACE, "empty", "empty_like", "promote", "result_type")}   # by place alone
  assert not [n for n, fn in public.items() if of(fn) not in known and n not in plain and "._" not in n], "without a call"
