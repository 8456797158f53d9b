"""``python -m ntgrad passes``: the passes that a kernel goes through. ``python -m ntgrad size``: how much code there is. ``python
-m ntgrad stubs``: write what editors read of functions and layers that the table of signatures makes.
``python -m ntgrad profile script.py [argument ...]``: run a script, and show where its time went.
``python -m ntgrad eject script.py [argument ...] [--kernel 'r_*'] [-o folder]``: write its kernels as files of the tile
language."""
from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

_LAYOUT = {
  tokenize.COMMENT,
  tokenize.NL,
  tokenize.NEWLINE,
  tokenize.INDENT,
  tokenize.DEDENT,
  tokenize.ENCODING,
  tokenize.ENDMARKER,
}


def tokens(text: str) -> int:
  """The tokens of Python source, without layout, comments and docstrings."""
  count = sum(t.type not in _LAYOUT for t in tokenize.generate_tokens(io.StringIO(text).readline))
  places = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
  return count - sum(isinstance(n, places) and ast.get_docstring(n, clean=False) is not None for n in ast.walk(ast.parse(text)))


def counts() -> dict[str, tuple[int, int, str]]:
  """Tokens and lines of each folder of code, and its longest file with its lines; stubs do not count."""
  import ntgrad.backends
  import ntgrad.codegen
  folders = {"codegen": ntgrad.codegen, "backends": ntgrad.backends, "ntgrad": sys.modules["ntgrad"]}
  out = {}
  for name, package in folders.items():
    root = Path(str(package.__path__[0]))
    files = {p.relative_to(root): p for p in root.rglob("*.py")}
    texts = {at: p.read_text() for at, p in files.items() if name != "ntgrad" or at.parts[0] not in folders}
    lines = {at: text.count("\n") for at, text in texts.items()}
    longest = max(lines, key=lines.__getitem__)
    out[name] = sum(map(tokens, texts.values())), sum(lines.values()), f"{longest} ({lines[longest]} lines)"
  return out


def size() -> None:
  """Print tokens, lines and the longest file of each folder of code."""
  print(f"{'':10}{'tokens':>9}{'lines':>8}  longest file")
  found = counts()
  for name, (words, lines, longest) in found.items(): print(f"{name:10}{words:9,}{lines:8,}  {longest}")
  print(f"{'all':10}{sum(words for words, _, _ in found.values()):9,}{sum(lines for _, lines, _ in found.values()):8,}")


def passes() -> None:
  """Print the passes in their order."""
  from ntgrad.codegen.pipeline import listing
  print(listing())


def stubs() -> None:
  """Write the stubs of what the table of signatures makes."""
  from ntgrad.functions.stubs import write
  write()


COMMANDS = {"passes": passes, "size": size, "stubs": stubs}

if __name__ == "__main__":
  if sys.argv[1:2] == ["profile"] and len(sys.argv) > 2:
    from ntgrad.engine.profile import profile_script
    profile_script(sys.argv[2], sys.argv[3:])
  elif sys.argv[1:2] == ["eject"] and len(sys.argv) > 2:
    import argparse
    parser = argparse.ArgumentParser("python -m ntgrad eject")
    parser.add_argument("script")
    parser.add_argument("--kernel", default="*", help="a pattern that names of kernels fit")
    parser.add_argument("-o", default="mine", metavar="FOLDER", help="where the files go")
    given, rest = parser.parse_known_args(sys.argv[2:])
    from ntgrad.tile.eject import eject
    eject(given.script, rest, given.kernel, given.o)
  elif len(sys.argv) == 2 and sys.argv[1] in COMMANDS: COMMANDS[sys.argv[1]]()
  else: sys.exit(f"usage: python -m ntgrad {'|'.join(COMMANDS)}|profile|eject script.py [argument ...]")
