"""Which cases of a test run always, and which with ``pytest --all`` only. CONTRIBUTING.md says what is long."""
from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest

long = pytest.mark.long


def long_where(condition: Callable[..., bool]) -> pytest.MarkDecorator:
  """For a test: its cases are long whose parameters, those that the condition names, meet it (``tests/conftest.py`` asks)."""
  return pytest.mark.long_where.with_args(condition)


def long_unless(short: Callable[..., bool], cases: Iterable[Any]) -> list[Any]:
  """Cases for ``parametrize``, each a value or a tuple of them, of which those that are not ``short`` are long."""
  def one(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return case if short(*values) else pytest.param(*values, marks=long)
  return [one(c) for c in cases]


def long_half(cases: Iterable[Any], short: Callable[..., bool] = lambda *names: True) -> list[Any]:
  """Cases for ``parametrize``, names or tuples of them, of which each is like many others: half of those that may be ``short``
  are, always the same ones."""
  return long_unless(lambda *names: zlib.crc32(" ".join(map(str, names)).encode()) & 1 == 0 and short(*names), cases)


def long_after(count: int, cases: Iterable[Any]) -> list[Any]:
  """Cases for ``parametrize`` that are like each other, such as seeds: the first few are short."""
  return [case if k < count else pytest.param(case, marks=long) for k, case in enumerate(cases)]
