"""What is printed of kernels begins anew: a test that reads it is not the first of its process."""
from __future__ import annotations

from ntgrad.engine import report


def reset_labels() -> None:
  """Give labels from the first on again."""
  report._counts.clear()
  report._known.clear()
  report._least[0] = 0


def reset_numbering() -> None:
  """Count schedules, launches and kernels of a name from 1 again, as if nothing had been shown."""
  report._count[:] = [0, 0]
  for kept in (report._waiting, report._unseen, report._making, report._helpers): kept.clear()
  reset_labels()
