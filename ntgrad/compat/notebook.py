"""What notebooks show of objects: small tables."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

ROWS = 40   # of a table at most


def table(title: str, rows: Iterable[Sequence[object]]) -> str:
  """A table as HTML: the texts of objects, escaped, and their leading blanks kept."""
  cells = [[escape(str(x)).replace("  ", "&emsp;") for x in row] for row in islice(rows, ROWS + 1)]
  if len(cells) > ROWS: cells[ROWS:] = [["…"]]
  lines = [f"<tr>{''.join([f'<td>{c}</td>' for c in row])}</tr>" for row in cells]
  return f"<div>{escape(title)}</div><table>{''.join(lines)}</table>"
