"""Sentences about what an application cannot do: what its values are, and what Python says of an expression or a call."""
from __future__ import annotations

import ast
import inspect
import traceback
import types
from pathlib import Path
from typing import Any, Callable, Sequence

from ntgrad.codegen.ir import ApplicationError, DType, NtgradError, did_you_mean, shown
from ntgrad.graph.symbol import Symbol

from .block import BlockValue, is_value
from .parameters import Level, Pointer, Reference, SourceTensor, Tile
from .python_source import Closure, of_language

_HERE = str(Path(__file__).resolve().parents[1])
_OTHERS = dict(names.split(":") for names in (
  "absolute:abs fabs:abs power:pow amax:max amin:min concatenate:cat divide:fdiv around:round transpose:trans clip:clamp "
  "arange:arange flipud:flip").split())
_OPERATORS = {ast.BinOp, ast.Compare, ast.UnaryOp, ast.AugAssign}
_NONE: dict[str, str] = {"NamedExpr": "`:=`", "Set": "sets", "SetComp": "comprehensions of sets",
                         "DictComp": "comprehensions of dicts", "Yield": "yield", "YieldFrom": "yield", "Await": "await",
                         "Starred": "`*` here"}


def kind(x: Any) -> str:
  """What a value is, in a few words."""
  match x:
    case Tile() if x.innermost: return f"a tile of shape {x.shape} of {x._parameter.dtype}"
    case Tile(): return f"a level of shape {x.shape} of tiles"
    case Pointer(): return f"a place in the memory of {x._parameter.name}"
    case Reference(): return f"places in {x._parameter.name}"
    case BlockValue() if x.ndim: return f"a block of shape {x.shape} of {x.dtype}"
    case BlockValue(): return f"a number of {x.dtype} that the kernel computes"
    case SourceTensor(): return f"the whole tensor {x._parameter.name}"
    case Symbol(): return f"the size {x}"
    case Level(): return "the dtype of a level, a level itself"
    case DType(): return f"the dtype {x}"
    case types.ModuleType(): return f"the module {x.__name__}"
    case type(): return f"the class {x.__name__}"
    case None | int() | float() | str() | bytes(): return shown(x)
  return "a function" if isinstance(x, Closure) or callable(x) else f"a {type(x).__name__}"


def _text(node: ast.AST) -> str:
  """An expression as it was written, cut short."""
  said = ast.unparse(node).splitlines()[0].rstrip(":")
  return said if len(said) <= 60 else said[:57] + "..."


def parts(node: ast.AST) -> list[ast.expr]:
  """The expressions that an expression is made of, in the order in which they are read."""
  match node:
    case ast.Call(): return [node.func, *(k.value for k in node.keywords), *node.args]
    case ast.For(): return [node.iter]
    case ast.Assign() | ast.AnnAssign(): return [node.value] if node.value is not None else []
    case ast.stmt() if not isinstance(node, ast.AugAssign): return []
  return [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]


def said_of(nodes: Sequence[ast.expr], values: Sequence[Any]) -> str:
  """What the operands of an expression are: those that do not say so themselves."""
  quiet = types.ModuleType, types.FunctionType, type
  told = [(n, v) for n, v in zip(nodes, values) if not isinstance(n, (ast.Constant, ast.JoinedStr)) and not isinstance(v, quiet)]
  return "".join(f"; {n} is {k}" for n, k in {_text(n): kind(v) for n, v in told}.items() if n != k)


def instead(name: str) -> str:
  """The function of the language for what another library calls so; "" where there is none."""
  from . import language
  name = _OTHERS.get(name, name)
  return f"; tl.{name} is the language's own" if callable(getattr(language, name, None)) else ""


def python_said(e: Exception, node: ast.AST, values: Sequence[Any]) -> ApplicationError:
  """What Python raised while an expression or statement was read, as an error about it; ``values`` of its parts."""
  nodes = parts(node)
  if isinstance(node, ast.Call) and len(values) == len(nodes): return call_refused(e, node, values[0], nodes[1:], values[1:])
  what = _raised(e)
  if type(node) in _OPERATORS and isinstance(e, TypeError) and any(map(is_value, values)): what = "it takes blocks and numbers"
  return ApplicationError(f"{_text(node)}: {what}{said_of(nodes, values)}")


def call_refused(e: Exception, node: ast.Call, fn: Any, nodes: Sequence[ast.expr], values: Sequence[Any]) -> ApplicationError:
  """A call that Python or the function itself refuses."""
  name, about = _text(node.func), said_of(nodes, values)
  if not callable(fn) and not isinstance(fn, Closure): return ApplicationError(f"{name} is {kind(fn)}, no function")
  if isinstance(e, TypeError) and (why := misfit(fn, node, values)): return ApplicationError(f"{name}: {why}")
  if _foreign(fn) and any(map(is_value, values)):
    return ApplicationError(f"{name} takes nothing that a kernel computes{about}{instead(getattr(fn, '__name__', ''))}")
  return ApplicationError(f"{name}: {_raised(e)}{about}")


def as_foreign(e: NtgradError, node: ast.expr, values: Sequence[Any]) -> NtgradError:
  """What one of ntgrad's functions of tensors says of a block; any other error as it is."""
  if not isinstance(node, ast.Call) or not values or hasattr(e, "places"): return e
  if not of_language(values[0]) or not _foreign(values[0]) or not any(map(is_value, values[1:])): return e
  return call_refused(e, node, values[0], parts(node)[1:], values[1:])


def misfit(fn: Any, node: ast.Call, values: Sequence[Any]) -> str:
  """Why a function does not take so many arguments, or such keywords; "" where it does."""
  if any(isinstance(n, ast.Starred) for n in node.args) or any(k.arg is None for k in node.keywords): return ""
  try: signature = inspect.signature(fn)
  except (TypeError, ValueError): return ""
  names = [k.arg for k in node.keywords if k.arg is not None]
  try: signature.bind(*values[len(names):], **dict(zip(names, values)))
  except TypeError as e:
    unknown = [n for n in names if n not in signature.parameters]
    takes = ", ".join(str(p.replace(annotation=p.empty)) for p in signature.parameters.values())
    return f"{e}; it takes ({takes}){did_you_mean(unknown[0], signature.parameters) if unknown else ''}"
  return ""


def _foreign(fn: Callable[..., Any]) -> bool:
  """Whether a function belongs to no language of blocks: it is numpy's, PyTorch's, ntgrad's for tensors, Python's own."""
  return not str(getattr(fn, "__module__", "") or "").startswith("ntgrad.tile")


def _raised(e: Exception) -> str:
  """An exception in words. An assertion that does not hold in ntgrad's code is a failure of its own."""
  frames = traceback.extract_tb(e.__traceback__)
  own = isinstance(e, AssertionError) and bool(frames) and str(Path(frames[-1].filename).resolve()).startswith(_HERE)
  return f"{'ntgrad itself fails here, ' if own else ''}{type(e).__name__}: {e}"


def no_attribute(node: ast.Attribute, x: Any) -> ApplicationError:
  """A value without what is asked of it."""
  names = [n for n in dir(x) if not n.startswith("_")]
  hint = instead(node.attr) if is_value(x) or isinstance(x, types.ModuleType) and not x.__name__.startswith("ntgrad.tile") else ""
  what = _text(node.value)
  about = "" if what == kind(x) or isinstance(x, types.ModuleType) else f"; it is {kind(x)}"
  return ApplicationError(f"{what} has no {node.attr!r}{about}{did_you_mean(node.attr, names) or hint}")


def no_expression(node: ast.expr) -> ApplicationError:
  """Python that the language does not read."""
  what = _NONE.get(type(node).__name__, f"{type(node).__name__} expressions")
  return ApplicationError(f"an application has no {what}: {_text(node)}")


def is_library(module: str) -> bool:
  """Whether a module is one of a library whose functions are called and not read."""
  return module.partition(".")[0] in ("numpy", "torch", "scipy", "jax", "cupy", "triton")
