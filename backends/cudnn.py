"""``torch.backends.cudnn``: what scripts set and ask there. All kernels are ntgrad's own, so nothing of it changes them, and the
same program gives the same bits always."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

enabled = deterministic = allow_tf32 = True
benchmark = False           # ``config.beam`` measures kernels where that is wanted
benchmark_limit = 10        # algorithms that cuDNN would try


def is_available() -> bool:
  """False."""
  return False


def version() -> None:
  """None: there is no cuDNN."""


@contextmanager
def flags(**settings: Any) -> Iterator[None]:
  """``with flags(benchmark=True): ..``: these settings inside of it."""
  before = {name: globals()[name] for name in settings}
  globals().update(settings)
  try: yield
  finally: globals().update(before)
