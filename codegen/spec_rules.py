"""Rules that the verifier has for nodes of more than one form."""
from __future__ import annotations

from typing import Callable, Iterable

from .dtype import DType, dtypes, held
from .functions import FUNCTIONS, refusal
from .uop import BinaryOps, Ops, TernaryOps, UnaryOps, UOp

BUFFERS = (Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL)
ATOMICS = ("add", "max", "min")


def alu_rule(u: UOp) -> str | None:
  """The number of sources, their dtypes, and what the function takes."""
  fn = u.arg
  arity = 1 if isinstance(fn, UnaryOps) else 2 if isinstance(fn, BinaryOps) else 3 if isinstance(fn, TernaryOps) else 0
  if arity == 0: return f"ALU needs a function (UnaryOps, BinaryOps or TernaryOps), got {fn!r}"
  if len(u.src) != arity: return f"{fn} takes {arity} sources, got {len(u.src)}"
  out, values = u.dtype.scalar(), u.src
  for s in u.src:
    if s.dtype.count not in (1, u.dtype.count):
      return f"{fn} gives {u.dtype.count} elements, a source has {s.dtype.count} (1 or {u.dtype.count} expected)"
  if fn is TernaryOps.WHERE:
    if u.src[0].dtype.scalar() is not dtypes.bool: return f"the condition of WHERE is bool, got {u.src[0].dtype}"
    values = u.src[1:]
  kinds = {s.dtype.scalar() for s in values}
  if len(kinds) != 1: return f"the sources of {fn} have one dtype, got {names(s.dtype for s in values)}"
  kind = kinds.pop()
  gives = FUNCTIONS[fn].gives
  if out is not (gives or kind):
    return f"{fn} gives {gives.name}, not {out}" if gives else f"{fn} of {kind} gives {kind}, not {out}"
  return refusal(fn, kind)


def cast_rule(u: UOp) -> str | None:
  """One source of the same count, or a scalar that is broadcast."""
  if len(u.src) != 1: return f"{u.op.name} takes one source, got {len(u.src)}"
  if u.src[0].dtype.count not in (1, u.dtype.count): return f"{u.op.name} keeps the count: {u.src[0].dtype} to {u.dtype}"
  if u.op is Ops.BITCAST and u.src[0].dtype.itemsize != u.dtype.itemsize:
    return f"BITCAST keeps the item size: {u.src[0].dtype} has {u.src[0].dtype.itemsize} bytes, {u.dtype} {u.dtype.itemsize}"
  return None


def const_rule(u: UOp) -> str | None:
  """A value of the dtype's kind."""
  if u.src: return "CONST has no sources"
  want = {"f": float, "b": bool}.get(u.dtype.kind, int)
  if type(u.arg) is not want: return f"a {u.dtype} constant is a Python {want.__name__}, got {u.arg!r}"
  if want is int and u.dtype is not dtypes.index and not dtypes.min(u.dtype.scalar()) <= u.arg <= dtypes.max(u.dtype.scalar()):
    return f"{u.arg} is outside {u.dtype}"
  if want is float and u.arg == u.arg and held(u.arg, u.dtype) != u.arg: return f"{u.arg} is not rounded to {u.dtype}"
  return None


def access_rule(u: UOp, int_index: Callable[[UOp], str | None], more: type | None = None) -> str | None:
  """LOAD, STORE and ATOMIC: buffer, index, value dtype, gate; the arg of a STORE may also be a ``more``."""
  store = u.op is not Ops.LOAD
  least, most = (3, 4) if store else (2, 4)
  if not least <= len(u.src) <= most: return f"{u.op.name} has {least} to {most} sources, got {len(u.src)}"
  buf, index = u.src[:2]
  if buf.op not in BUFFERS: return f"{u.op.name} needs a DEFINE_GLOBAL or DEFINE_LOCAL first, got {buf.op}"
  wrong = int_index(index)
  if wrong: return wrong
  dtype = u.src[2].dtype if store else u.dtype
  if dtype.scalar() is not buf.dtype: return f"{u.op.name} of {dtype} in a buffer of {buf.dtype}"
  gate = (u.src[3] if len(u.src) > 3 else None) if store else (u.src[2] if len(u.src) > 2 else None)
  if gate is not None and (gate.dtype.scalar() is not dtypes.bool or gate.dtype.count not in (1, dtype.count)):
    return f"a gate is bool, one or one a lane ({dtype.count}), got {gate.dtype}"
  if not store and len(u.src) > 3:
    other = u.src[3].dtype
    if other.scalar() is not dtype.scalar() or other.count not in (1, dtype.count):
      return f"`other` of a LOAD of {dtype} is {other}"
  if store and buf.op is Ops.DEFINE_GLOBAL and not buf.arg[2]:
    return f"{u.op.name} into {buf.arg[1]!r}, which is declared as not written"
  if u.op is Ops.ATOMIC:
    if u.arg not in ATOMICS: return f"the arg of ATOMIC is one of {', '.join(map(repr, ATOMICS))}, got {u.arg!r}"
    if buf.op is not Ops.DEFINE_GLOBAL: return f"ATOMIC on {buf.arg[0]!r}, which only one program sees: a STORE does it"
    return f"ATOMIC takes numbers, got {dtype}" if dtype.kind == "b" else None
  if store and u.arg not in (None, "nt", "tma") and not (more and isinstance(u.arg, more)):
    return f"the arg of STORE is None, 'nt' or 'tma', got {u.arg!r}"
  if not store and u.arg not in (None, "tma"): return f"the arg of LOAD is None or 'tma', got {u.arg!r}"
  if u.arg == "tma" and buf.op is not Ops.DEFINE_GLOBAL:
    return f"{u.op.name} of {buf.arg[0]!r} by descriptor: only params have one"
  return None


def global_rule(u: UOp) -> str | None:
  """``(slot, name, written)`` and a scalar dtype."""
  a = u.arg
  if not (
    isinstance(a, tuple) and len(a) in (3, 4) and type(a[0]) is int and a[0] >= 0 and isinstance(a[1], str) and type(a[2]) is bool
  ):
    return f"the arg of DEFINE_GLOBAL is (slot, name, written), got {a!r}"
  return f"a buffer has a scalar dtype, got {u.dtype}" if u.dtype.count != 1 else None


def variable_rule(u: UOp) -> str | None:
  """``(name, shape, "private")`` and a scalar dtype; or an array of the linear form."""
  a = u.arg
  if not (isinstance(a, tuple) and len(a) == 3 and isinstance(a[0], str) and isinstance(a[1], tuple)): return local_rule(u)
  if not all(type(n) is int and n >= 1 for n in a[1]) or a[2] != "private":
    return f"a variable has a shape of sizes >= 1 and is 'private', got {a!r}"
  return f"a variable has a scalar dtype, got {u.dtype}" if u.dtype.count != 1 else None


def local_rule(u: UOp) -> str | None:
  """``(name, size, "local" | "private")`` and a scalar dtype."""
  a = u.arg
  if not (
    isinstance(a, tuple)
    and len(a) == 3
    and isinstance(a[0], str)
    and type(a[1]) is int
    and a[1] >= 1
    and a[2] in ("local", "private")
  ):
    return f"the arg of DEFINE_LOCAL is (name, size >= 1, 'local' or 'private'), got {a!r}"
  return f"a buffer has a scalar dtype, got {u.dtype}" if u.dtype.count != 1 else None


def names(ds: Iterable[DType]) -> str:
  """Each dtype once, as a sentence has them."""
  return " and ".join(dict.fromkeys(map(str, ds)))
