"""Walking nested values without recursion, because a program may nest them deeper than Python's stack."""
from __future__ import annotations

from typing import Callable, Sequence, TypeVar

_T = TypeVar("_T")
R = TypeVar("R")


def fold_tree(root: _T, parts: Callable[[_T], Sequence[_T]], made: Callable[[_T, list[R]], R]) -> R:
  """What ``made`` gives for ``root``. It gets a value, and what it gave before for each of its ``parts``, from left to right."""
  out: list[R] = []
  stack: list[tuple[_T, int]] = [(root, 0)]   # a value, and how many parts it has once they are on the stack
  while stack:
    value, n = stack.pop()
    if n: out[-n:] = [made(value, out[-n:])]
    elif inside := parts(value):
      stack.append((value, len(inside)))
      for p in reversed(inside): stack.append((p, 0))
    else: out.append(made(value, []))
  return out[0]
