"""``breakpoint()`` in an application: on device NUMPY Python's debugger stops there in each program. The application is read by
then; what stops is a function that has its file, line and names, with blocks as arrays."""
from __future__ import annotations

import ast
import itertools
import os
import sys
import types
from contextlib import suppress
from typing import Any

from ntgrad.backends.numpy.evaluate import breakpoints
from ntgrad.codegen.ir import NtgradError

from .block import BlockValue, axis_for, block, is_value, tracer
from .parameters import Pointer, Tile
from .python_source import Scope, Unbound

_numbers = itertools.count(1)


class _Number(int): """Of a block, in the place of it."""


class Breakpoint:
  """One of a kernel, made while the application is read; ``following`` is the line of the statement behind it."""

  def __init__(self, scope: Scope, line: int, following: int):
    scopes, self.blocks, self.number = [scope], list[BlockValue](), next(_numbers)
    while (around := scopes[-1].around) is not None: scopes.append(around)
    fn = scopes[-1].fn
    known = dict[str, Any]()
    for n, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()) if fn is not None else ():
      with suppress(ValueError): known[n] = cell.cell_contents   # it may be empty
    for s in scopes[::-1]: known.update({n: x for n, x in s.names.items() if not isinstance(x, Unbound)})
    t = tracer()
    t.looking = "look"
    try: self.values = {n: self.place(x) for n, x in known.items()}
    finally: t.looking = None
    t.breakpoints.append(self)
    breakpoints[self.number] = self
    name = scope.name if "lambda" not in scope.name else "application"
    tree: Any = ast.parse(f"def {name}({', '.join([*self.values, '__program__'])}):\n  breakpoint()\n  pass")
    for statement, at in zip(tree.body[0].body, (line, following)): ast.increment_lineno(statement, at - statement.lineno)
    names: dict[str, Any] = {}
    exec(compile(tree, scope.text.file, "exec"), names)
    self.function = types.FunctionType(names[name].__code__, fn.__globals__ if fn is not None else names)

  def place(self, x: Any) -> Any:
    """A value with the number of its block in the place of each one."""
    if isinstance(x, list | tuple): return [self.place(y) for y in x]
    try: b = as_block(x)
    except NtgradError: b = None   # a tile that does not fit the grid
    if b is None: return x
    self.blocks.append(b)
    return _Number(len(self.blocks) - 1)

  def __call__(self, program: tuple[int, ...], arrays: list[Any]) -> None:
    """Stop, for a program, with its blocks. Raises what the debugger raises when it is left."""
    def value(x: Any) -> Any:   # a block of shape () is a number
      return arrays[x][()] if isinstance(x, _Number) else [value(y) for y in x] if isinstance(x, list) else x
    names, before = {n: value(x) for n, x in self.values.items()}, sys.gettrace()
    # in one line: no step of the debugger ends in this function
    self.function(**names, __program__=program), sys.settrace(before)  # type: ignore[func-returns-value]


def as_block(x: Any) -> BlockValue | None:
  """A value as it is now as one block, levels of tiles with all of them; None where it is none."""
  if isinstance(x, Tile) and not x.innermost and x._parameter.offsets is None:
    axes = [tuple(map(axis_for, dims)) for dims in x._parameter.levels[len(x._indices):]]
    at, valid = x.pulled_by(*axes)
    return BlockValue(tracer().load(x._parameter, at, valid), [a for level in axes for a in level])
  if not is_value(x) or isinstance(x, Pointer): return None
  return block(x) if isinstance(x, BlockValue) or x._block is not None else x.load()


def stop(scope: Scope, line: int, following: int) -> None:
  """Read a ``breakpoint()``, in a line of a function."""
  if os.environ.get("PYTHONBREAKPOINT") == "0": return
  made = Breakpoint(scope, line, following)
  tracer().print(tracer().place, made.blocks, made.number)
