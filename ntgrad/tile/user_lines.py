"""The lines of the user's code that errors name: where a tensor was declared, where a meta-operation was done to it."""
from __future__ import annotations

import inspect
import linecache
import os
from typing import NamedTuple

from ntgrad.graph.origins import is_internal, user_frame


class Line(NamedTuple):
  """A line of the user's code, and the function that it is in."""
  file: str
  number: int
  function: str

  @property
  def short(self) -> str:
    """Its file's name and number."""
    return f"{os.path.basename(self.file)}:{self.number}"

  def __str__(self) -> str:
    text = linecache.getline(self.file, self.number).strip()
    return f"{self.file}:{self.number}, in {self.function}" + (f"\n    {text}" if text else "")


def pointed(file: str, number: int, function: str, text: str, begin: int, end: int) -> str:
  """A line as errors show it, with carets under some of its columns."""
  lead = len(text) - len(text.lstrip())
  return f"{file}:{number}, in {function}\n    {text.strip()}\n    {' ' * max(begin - lead, 0)}{'^' * max(end - begin, 1)}"


def here() -> Line:
  """The line that called into ntgrad; of an annotation that is text, that of the function which has it."""
  f = user_frame(2)
  while f.f_back is not None and f.f_code.co_filename == "<string>" and f.f_back.f_code.co_filename == inspect.__file__:
    f = f.f_back
    while f.f_back is not None and (f.f_code.co_filename == inspect.__file__ or is_internal(f.f_code.co_filename)): f = f.f_back
  return Line(f.f_code.co_filename, f.f_lineno, f.f_code.co_name)


def at_lines(*lines: Line | None) -> str:
  """What an error says below its message: each line once."""
  return "".join(f"\n  {line}" for line in dict.fromkeys(lines) if line is not None)
