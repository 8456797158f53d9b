"""Arguments of public functions, checked by their annotations before anything is done with them.

``@checked`` on a class or function reads the annotations once: ``int`` takes whole numbers, ``float`` numbers, ``bool`` flags
(True, False, 0 and 1; a flag is no number, but an element of a tensor may be: ``float | bool``),
``Operand`` what a tensor is made of, ``Sequence[int]`` lists, tuples, arrays and tensors of whole numbers, and so on. What fits
comes in as the plain Python value (numpy's numbers as ints and floats, sequences as tuples, operands as tensors); for the rest an
ArgumentError names the function, the parameter, the value and what is taken. ``Any`` takes everything: the function checks by
itself, as it does for ``axis``, ``dim``, ``keepdim``, ``dtype``, ``device`` and ``requires_grad``.
"""
from __future__ import annotations

import functools
import inspect
import math
import os
import types
from collections.abc import Callable as Function, Iterable, Mapping, Sequence
from typing import Annotated, Any, Callable, Concatenate, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin, overload

import numpy as np

from ntgrad.codegen.ir import ArgumentError, DType, DTypeError, dtypes, shown

from .pairs import Several
from .variable import BoundInt

# whole numbers; longer ones are a mistake wherever they are given, and Python cannot even print all of them
_LEAST, _MOST = -2 ** 63, 2 ** 64 - 1


class Valued:
  """What counts as a tensor in the files that ``Base`` stands above."""
  __slots__ = ()
  _state: int   # -1: never requires a gradient, 0: does not, 1: made from tensors that do, 2: a leaf that does


_F = TypeVar("_F", bound=Callable[..., Any])
_A = TypeVar("_A")
_R = TypeVar("_R")
_P = ParamSpec("_P")
Operand = Annotated[Any, "operand"]   # a tensor, or what one is made of
Ints = int | Sequence[int]

_NO: Any = object()
_ARRAYS: Any = np.ndarray, Valued
# what reads these refuses by itself
_ELSEWHERE = frozenset("axis dim dim0 dim1 start_dim end_dim keepdim dtype device requires_grad".split())
_NUMBERS = int, float, np.integer, np.floating, np.bool_


class Kind(NamedTuple):
  """What one annotation takes: types that pass as they are, how a value comes in (``_NO``: it does not), the same in words.

  ``ints``: ints of up to 64 bits pass as they are too.
  """
  plain: frozenset[type]
  take: Callable[[Any, Any], Any]
  words: str
  ints: bool = False


# ---- kinds: (value, first argument of the call) -> the value as it comes in

def _whole(x: Any, me: Any) -> Any:
  if type(x) is BoundInt: return x
  return int(x) if isinstance(x, (int, np.integer)) and not isinstance(x, bool) and _LEAST <= x <= _MOST else _NO


def _flag(x: Any, me: Any) -> Any: return bool(x) if isinstance(x, (bool, np.bool_)) or type(x) is int and x in (0, 1) else _NO
def _function(x: Any, me: Any) -> Any: return x if callable(x) else _NO


def _number(x: Any, me: Any) -> Any:
  if not isinstance(x, _NUMBERS) or isinstance(x, (bool, np.bool_)): return _NO
  try: float(x)
  except OverflowError: return _NO
  return x.item() if isinstance(x, np.generic) else x


def _path(x: Any, me: Any) -> Any:
  if not isinstance(x, (str, os.PathLike)): return _NO
  try: name = os.fsencode(x)
  except (TypeError, ValueError): return _NO   # text that no file system has
  return x if name and b"\0" not in name else _NO


def _list(x: Any, me: Any) -> Any: return x if isinstance(x, Sequence) and not isinstance(x, (str, bytes)) else _NO


def _iterable(x: Any, me: Any) -> Any:
  try: iter(x)
  except TypeError: return _NO   # an array of no dimensions says only here that it is none
  return x


def foreign(x: Any) -> bool:
  """Whether something is another library's tensor or array: it has DLPack, or numpy can read it."""
  return hasattr(type(x), "__dlpack__") or hasattr(type(x), "__array__")


def _operand(x: Any, me: Any) -> Any:
  if isinstance(x, Valued): return x
  if isinstance(x, Several): raise x.refused()
  if not isinstance(x, (*_NUMBERS, np.ndarray, list, tuple)) and not foreign(x): return _NO
  return me(x) if isinstance(me, type) else type(me)(x, device=me.lazydata.device)


def flag(name: str, x: Any) -> bool:
  """``x`` as True or False. Raises ArgumentError."""
  return x if x is True or x is False else _taken(name, _KINDS[bool], x, None)


def operand(name: str, x: Any, me: Any) -> Any:
  """``x`` as a tensor on the device of ``me``. Raises ArgumentError."""
  if (out := _operand(x, me)) is not _NO: return out
  raise ArgumentError(f"{name}: {shown(x)} is no tensor; it takes {_KINDS[Operand].words}")


def _sequence(item: Kind, count: int | None) -> Callable[[Any, Any], Any]:
  plain, item_take, _, ints = item
  def take(x: Any, me: Any) -> Any:
    if type(x) is not tuple:
      if isinstance(x, _ARRAYS) and x.ndim == 1: x = x.tolist()
      if not isinstance(x, (list, tuple, range)): return _NO
    if count is not None and count != len(x): return _NO
    out = []
    for i in x:
      if not (type(i) in plain or ints and type(i) is int and _LEAST <= i <= _MOST):
        i = item_take(i, me)
        if i is _NO: return _NO
      out.append(i)
    return tuple(out)
  return take


def _instance(kind: type) -> Callable[[Any, Any], Any]: return lambda x, me: x if isinstance(x, kind) else _NO


_KINDS: dict[Any, Kind] = {
  int: Kind(frozenset(), _whole, "a whole number of up to 64 bits", True), float: Kind(frozenset({float}), _number, "a number"),
  bool: Kind(frozenset({bool}), _flag, "True or False"), str: Kind(frozenset({str}), _instance(str), "a string"),
  types.NoneType: Kind(frozenset({types.NoneType}), _instance(types.NoneType), "None"),
  Operand: Kind(frozenset(), _operand, "a tensor, an array, a list or a number"),
  os.PathLike: Kind(frozenset(), _path, "a path as a string or os.PathLike"),
  Function: Kind(frozenset({types.FunctionType}), _function, "a function"),
  Mapping: Kind(frozenset({dict}), _instance(Mapping), "a dict"), Iterable: Kind(frozenset({list, tuple}), _iterable, "a list")}


def kind_of(annotation: Any) -> Kind | None:
  """What an annotation takes; None for everything. Raises TypeError for one that has no kind."""
  if annotation is Any or annotation is DType: return None
  origin = get_origin(annotation)
  if origin in (Union, types.UnionType):
    args = get_args(annotation)
    # a path is a string too
    if any(get_origin(a) is os.PathLike for a in args): args = tuple(a for a in args if a is not str)
    kinds = [kind_of(a) for a in args]
    return None if None in kinds else _either([k for k in kinds if k is not None])
  if origin in (tuple, list, Sequence):
    args = get_args(annotation)
    many = origin is not tuple or args[-1] is ...
    if (item := kind_of(args[0])) is None: return Kind(frozenset({list, tuple}), _list, "a list")
    words = f"a list{'' if many else f' of {len(args)}'} (each {item.words})"
    return Kind(frozenset(), _sequence(item, None if many else len(args)), words)
  if isinstance(annotation, type) and issubclass(annotation, Valued):
    return Kind(frozenset({annotation}), _instance(annotation), "a Tensor (make one with Tensor(..))")
  if (found := _KINDS.get(annotation) or _KINDS.get(origin)) is not None: return found
  if not isinstance(annotation, type): raise TypeError(f"no check for parameters annotated {annotation!r}")
  return Kind(frozenset({annotation}), _instance(annotation), f"a {annotation.__name__}")


def _either(kinds: list[Kind]) -> Kind:
  last = kinds[::-1]   # sequences mostly
  def take(x: Any, me: Any) -> Any:
    for k in last if type(x) is tuple else kinds:
      if (out := k.take(x, me)) is not _NO: return out
    return _NO

  return Kind(
    frozenset().union(*[k.plain for k in kinds]), take, " or ".join(k.words for k in kinds), any(k.ints for k in kinds)
  )


# ---- the decorator

def paired(fn: _F) -> _F:
  """A method that gives ``(values, indices)`` for a dim, which PyTorch's word ``dim=`` or its place names: for numpy's word,
  ``axis=``, it gives the values alone. To be checked after this."""
  fn.__paired__ = True   # type: ignore[attr-defined]
  return fn


def checked(x: _F) -> _F:
  """The function, or the class with its public methods, ``__init__`` and ``__call__``, with arguments checked by their
  annotations."""
  if not isinstance(x, type): return _checked(x, "", {})  # type: ignore[return-value]
  label = f"{getattr(x, '_room', '')}{x.__name__}"
  for name, made in list(vars(x).items()):
    if name[0] == "_" and name not in ("__init__", "__call__"): continue
    at = label if name[0] == "_" else ""
    if hasattr(made, "__around__"): setattr(x, name, made.__around__(_checked(made.__wrapped__, at, {x.__name__: x})))
    elif inspect.isfunction(made): setattr(x, name, _checked(made, at, {x.__name__: x}))
    elif isinstance(made, (classmethod, staticmethod)): setattr(x, name, type(made)(_checked(made.__func__, at, {x.__name__: x})))
  return x


# a parameter by other names that people know it by, where the function has none of that name; some of one function only
_OTHER_NAMES = """
axis: dim
dim: axis
dims: dim axis
flip.axis: dims
permute.order: dims dim axis
keepdim: keepdims
sz: num_features
idx: input
vocab_size: num_embeddings
embed_size: embedding_dim
neg_slope: negative_slope
nn.RMSNorm.dim: normalized_shape
pow.x: exponent
split.sizes: split_size split_size_or_sections
outer.x: vec2
pad.padding: pad
unfold.dim: dimension
copy_.x: src
dot.w: tensor
view.shape: size
expand.shape: size
tile.reps: dims
roll.shifts: shift
""" + "\n".join([f"{name}.x: other" for name in "add sub mul div idiv mod gcd lcm eq ne maximum minimum matmul bitwise_and "
                 "bitwise_or bitwise_xor lshift rshift add_ sub_ mul_ div_".split()])
_ALSO = {name: tuple(others.split()) for name, _, others in (line.partition(": ") for line in _OTHER_NAMES.strip().splitlines())}
_MISSING = object()


def _checked(fn: Callable[..., Any], label: str, names: dict[str, Any]) -> Callable[..., Any]:
  """A function of the same signature that brings the arguments in and calls ``fn``; ``fn`` itself where there is nothing to
  check. Its code is written when it is called first: of the functions that a program imports it calls few."""
  label = label or (fn.__qualname__.split(".")[-2] if fn.__name__ == "__init__" else fn.__name__)
  if not _may_check(fn, label): return fn
  scope = dict[str, Any]()
  out: Any = functools.wraps(fn)(types.FunctionType(_unwritten.__code__, scope, fn.__name__))
  def write() -> Any:
    made: Any = _written(fn, label, names, scope)
    # another thread that comes between has the old code yet, which takes all arguments, or all of the new
    out.__defaults__, out.__kwdefaults__ = made.__defaults__, made.__kwdefaults__
    out.__code__ = made.__code__
    return out
  scope["_write"], out.__label__ = write, label
  return out


def _unwritten(*args: Any, **kwargs: Any) -> Any: return _write()(*args, **kwargs)  # type: ignore[name-defined] # noqa: F821


def with_code(fn: _F) -> _F:
  """A function whose code stands, as that of a checked one does after its first call."""
  if getattr(fn, "__code__", None) is _unwritten.__code__: fn.__globals__["_write"]()
  return fn


def _may_check(fn: Callable[..., Any], label: str) -> bool:
  """Whether there may be something to check. Asked of every public function at its import, so signatures are not made."""
  inner: Any = inspect.unwrap(fn, stop=lambda f: hasattr(f, "__signature__"))
  if hasattr(inner, "__signature__"): return True
  code, below = inner.__code__, getattr(fn, "__checked_below__", ())
  count, several = code.co_argcount + code.co_kwonlyargcount, code.co_flags & inspect.CO_VARARGS != 0
  given, rest = code.co_varnames[:count], ""
  if code.co_flags & inspect.CO_VARKEYWORDS: rest = code.co_varnames[count + several]
  elif several or any([n in _ALSO or f"{label}.{n}" in _ALSO for n in given]): return True
  return any([n not in ("return", rest) and n not in _ELSEWHERE and n not in below and _is_kind(a)
              for n, a in inner.__annotations__.items()])


def _is_kind(annotation: Any) -> bool:
  """Whether an annotation, or its source, may be one that not everything fits."""
  if not isinstance(annotation, str): return kind_of(annotation) is not None
  return "[" in annotation or _EVERYTHING.isdisjoint([part.strip() for part in annotation.split("|")])


_EVERYTHING = {"Any", "DType"}


def _written(fn: Callable[..., Any], label: str, names: dict[str, Any], known: dict[str, Any]) -> Any:
  """What checks arguments and calls ``fn``. What it calls ``axis`` is also taken as ``dim``, and the other way round (``_ALSO``);
  several arguments, ``*shape``, also as a list by name, ``shape=``.

  Written out as source, as dataclasses are, so that arguments which fit cost a test of their type each; ``known`` has what that
  names:

      def mean(self, axis=_default_axis, *, dim=_missing):
        if dim is not _missing: axis = _one("mean", "axis", axis is not _default_axis, "dim", dim)
        return _fn(self, axis)
  """
  known.update(_fn=fn, _type=type, _int=int, _tuple=tuple, _missing=_MISSING, _one=_one, _first=_first,
               _spread=as_tuple)
  body, given, signature = [], [], []
  parameters = inspect.signature(fn).parameters
  me = next((p.name for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)), "None")
  also = _also(label, parameters)
  below = getattr(fn, "__checked_below__", ())   # parameters that what it calls checks
  needed: list[str] = []
  extra = []
  for p in parameters.values():
    n, default, by_default, several = p.name, p.default, "", p.kind is p.VAR_POSITIONAL
    if p.default is not p.empty: known[f"_default_{n}"], by_default = p.default, f"{n} is not _default_{n} and "
    written: dict[Any, str] = {p.VAR_POSITIONAL: f"*{n}", p.VAR_KEYWORD: f"**{n}", p.KEYWORD_ONLY: f"{n}={n}"}
    given.append(written.get(p.kind, n))
    if by_default: default = _Name(f"_default_{n}")
    elif (n in also or needed) and p.kind is p.POSITIONAL_OR_KEYWORD:
      needed.append(n)
      default = _Name("_missing")
    for other in also.get(n, ()):
      extra.append(inspect.Parameter(other, inspect.Parameter.KEYWORD_ONLY, default=_Name("_missing")))
      there = f"_x{n}" if several else f"{n} is not {_Name(default)}"
      taken = f"_one({label!r}, {n!r}, {there}, {other!r}, {other})"
      body.append(f"if {other} is not _missing: {f'_x{n} = _spread({taken})' if several else f'{n} = {taken}'}")
    if several and n in also:
      body.append(f"{n} = _x{n}")
      p = p.replace(name=f"_x{n}")
    signature.append(p.replace(annotation=p.empty, default=default))
    if p.annotation is p.empty or n in _ELSEWHERE or n in below or p.kind is p.VAR_KEYWORD: continue
    kind = kind_of(eval(p.annotation, inspect.unwrap(fn).__globals__, names) if isinstance(p.annotation, str) else p.annotation)
    if kind is None: continue
    known[f"_plain_{n}"], known[f"_take_{n}"] = kind.plain, functools.partial(_taken, f"{label}: {n}", kind)
    x = "_x" if several else n
    fits = f"_type({x}) in _plain_{n}{f' or (_type({x}) is _int and {_LEAST} <= {x} <= {_MOST})' if kind.ints else ''}"
    if n in needed: by_default = f"{n} is not _missing and "
    body.append(f"{n} = _tuple([_x if {fits} else _take_{n}(_x, {me}) for _x in {n}])" if several else
                f"if {by_default}not ({fits}): {n} = _take_{n}({n}, {me})")
  if needed:   # Python says what is missing
    pairs = ", ".join(f"({n!r}, {n})" for n in needed)
    first = [g for g, p in zip(given, parameters.values()) if p.kind is p.POSITIONAL_OR_KEYWORD and g not in needed][:1]
    body.append(f"if {' or '.join(f'{n} is _missing' for n in needed)}: return _fn("
                f"{', '.join([*first, f'**{{k: v for k, v in ({pairs},) if v is not _missing}}'])})")
  result = f"_fn({', '.join(given)})"
  if hasattr(fn, "__paired__"): result = f"{result} if axis is _missing else _first({result})"
  lines = [f"def {fn.__name__}{inspect.Signature([*signature, *extra])}:", *body, f"return {result}"]
  exec(compile("\n  ".join(lines), os.path.join(os.path.dirname(__file__), f"<checked {fn.__qualname__}>"), "exec"), known)
  return known[fn.__name__]


def other_names(fn: Any) -> dict[str, str]:
  """The names that a checked function takes besides those of its parameters, each with the parameter that it is."""
  if not hasattr(fn, "__label__"): return {}
  return {other: n for n, others in _also(fn.__label__, inspect.signature(fn).parameters).items() for other in others}


def _also(label: str, parameters: Mapping[str, inspect.Parameter]) -> dict[str, tuple[str, ...]]:
  """The other names of each parameter."""
  if any(p.kind is p.VAR_KEYWORD for p in parameters.values()): return {}
  out: dict[str, tuple[str, ...]] = {}
  for n, p in parameters.items():
    if p.kind is p.POSITIONAL_ONLY: continue
    others = *_ALSO.get(n, ()), *_ALSO.get(f"{label}.{n}", ())
    found = tuple(other for other in others if other not in parameters and not any(other in more for more in out.values()))
    if p.kind is p.VAR_POSITIONAL: found = n, *found
    if found: out[n] = found
  return out


def _first(x: Any) -> Any: return x[0] if isinstance(x, Several) else x


def _one(label: str, name: str, there: Any, other: str, value: Any) -> Any:
  if there: raise ArgumentError(f"{label}: {name if name != other else 'arguments'} and {other}= say the same; give one of them")
  return value


class _Name(str):
  """A default value as the source names it."""
  def __repr__(self) -> str: return str(self)


def _taken(what: str, kind: Kind, x: Any, me: Any) -> Any:
  if (out := kind.take(x, me)) is not _NO: return out
  raise x.refused() if isinstance(x, Several) else ArgumentError(f"{what} is {shown(x)}; it takes {kind.words}")


# ---- functions that differ by the arguments that another one is given
def with_given(fn: Any, name: str, given: list[Any], first: int, result: str, doc: str) -> Any:
  """A function of the parameters that are left: ``def exp(self): return _fn(self, _0)``, those given standing behind the
  ``first``. It is written out, as a call by ``*args`` takes longer; errors show it in the line of the function that it calls."""
  bare = inspect.unwrap(fn)   # whose parameters they are
  code = bare.__code__
  if code.co_varnames[first:first + 1] == ("name",): given = [name, *given]
  n, known = code.co_argcount, {f"_{i}": x for i, x in enumerate(given)}
  k = n + code.co_kwonlyargcount
  own, left, by_name = code.co_varnames[:first], code.co_varnames[first + len(given):n], code.co_varnames[n:k]
  star = [f"*{code.co_varnames[k]}"] if code.co_flags & inspect.CO_VARARGS else []
  passes = [*known, *left, *star, *[f"{p}={p}" for p in by_name]]
  result = result.format(name=name, call=f"_fn({', '.join([*own, *passes])})", others=", ".join(passes))
  text = "\n" * (code.co_firstlineno - 1) + (
    f"def {name}({', '.join([*own, *left, *(star or ['*'] * bool(by_name)), *by_name])}): return {result}")
  scope = {**bare.__globals__, **known, "_fn": fn}
  exec(compile(text, code.co_filename, "exec"), scope)
  made = scope[name]
  made.__annotations__ = {k: v for k, v in bare.__annotations__.items() if k in (*left, *by_name, "return") or f"*{k}" in star}
  made.__doc__ = doc.strip()
  for k in "__defaults__", "__kwdefaults__": setattr(made, k, getattr(bare, k))
  made.__dict__.update(bare.__dict__)
  return made


@overload
def variant(name: str, fn: Callable[Concatenate[str, _P], _R], doc: str, /) -> Callable[_P, _R]: ...
@overload
def variant(name: str, fn: Callable[Concatenate[str, _A, _P], _R], given: _A, doc: str, /) -> Callable[_P, _R]: ...
@overload
def variant(name: str, fn: Callable[Concatenate[_A, _P], _R], given: _A, doc: str, /) -> Callable[_P, _R]: ...
def variant(name: str, *parts: Any) -> Any:
  """A function that is another one with its first arguments given, and a docstring: ``conv1d = variant("conv1d", _convolution,
  1, "..")``. One whose first parameter is ``name`` is given the new one's name in front."""
  return with_given(parts[0], name, [*parts[1:-1]], 0, "{call}", parts[-1])


def as_tuple(x: Any, n: int = 1) -> tuple[Any, ...]:
  """A list as a tuple; anything else n times."""
  return tuple(x) if isinstance(x, (tuple, list)) else (x,) * n


def no_flag(name: str, what: str, value: Any) -> Any:
  """The value, or list. Raises ArgumentError for True and False where numbers are meant, also in a list."""
  if any([isinstance(v, (bool, np.bool_)) for v in as_tuple(value)]):
    raise ArgumentError(f"{name}: {what} {shown(value)}; it takes numbers, not True or False")
  return value


def whole_number(name: str, what: str, value: Any, least: int = 1, most: int = 2 ** 63 - 1) -> int:
  """An int (Python's or numpy's) from ``least`` to ``most``. Raises ArgumentError for anything else."""
  whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
  if whole and least <= value <= most: return int(value)
  end = f" and at most {most}" if most < 2 ** 31 or whole and value > most else ""
  raise ArgumentError(f"{name}: {what} {shown(value)}; it must be an int of at least {least}{end}")


def of_kind(kinds: str, name: str, what: str, t: Any, takes: str, error: type[DTypeError] = DTypeError) -> None:
  """Raises DTypeError, or one that is more, for a tensor, ``what`` it is, whose dtype is of none of the kinds."""
  if t.dtype.kind not in kinds: raise error(f"{name}: {what} of {t.dtype.name}; {takes}")


def one_width(name: str, *tensors: Any) -> None:
  """Raises DTypeError for float64 beside smaller floats, of what a function with parameters takes (None: not given): data would
  widen a model, or a model data. Tensors of shape () widen nothing."""
  wide = narrow = None
  for t in tensors:
    if t is None or (d := t.lazydata.dtype).kind != "f": continue
    if d is dtypes.float64: wide = t
    elif narrow is None: narrow = t
  if wide is not None and narrow is not None and wide.ndim and narrow.ndim: raise mixed(name, wide, narrow)


def mixed(name: str, wide: Any, narrow: Any) -> DTypeError:
  """That float64 and smaller floats meet."""
  low = narrow.dtype.name
  return DTypeError(f"{name}: float64 of shape {tuple(wide.shape)} with {low} of shape {tuple(narrow.shape)}; float64 does not "
                    f"mix with a model's smaller floats: cast the data (x.cast({low!r})) or the model (model.double())")


def real_number(name: str, what: str, value: Any) -> Any:
  """A finite number (Python's or numpy's) as Python's. Raises ArgumentError for anything else."""
  if isinstance(value, np.number): value = value.item()
  if isinstance(value, int) and not isinstance(value, bool) or isinstance(value, float) and math.isfinite(value): return value
  raise ArgumentError(f"{name}: {what} {value!r}; it must be a finite number")
