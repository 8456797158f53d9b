"""``passes``, ``size`` and ``stubs``: ntgrad's own code."""
from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from pathlib import Path
from typing import Any

import ntgrad.backends
import ntgrad.codegen
from ntgrad.codegen import pipeline
from ntgrad.functions.stubs import write

from .parser import command, tell

_LAYOUT = {getattr(tokenize, name) for name in "COMMENT NL NEWLINE INDENT DEDENT ENCODING ENDMARKER".split()}


def tokens(text: str) -> int:
  """The tokens of Python source, without layout, comments and docstrings."""
  count = sum(t.type not in _LAYOUT for t in tokenize.generate_tokens(io.StringIO(text).readline))
  places = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
  return count - sum(isinstance(n, places) and ast.get_docstring(n, clean=False) is not None for n in ast.walk(ast.parse(text)))


def counts() -> dict[str, tuple[int, int, str]]:
  """Tokens and lines of each folder of code, and its longest file with its lines; stubs do not count."""
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


def add(commands: argparse._SubParsersAction[Any]) -> None:
  """The three."""
  command(commands, "passes", passes,
          "The passes that a kernel goes through. SHOW=expand,place prints each kernel after these two.", "passes")
  command(commands, "size", size, "How much code ntgrad has.", "size")
  command(commands, "stubs", lambda _: write(), "Write what editors read, for who works on ntgrad. It is made of the table of "
          "signatures of functions and layers.", "stubs", json=False)


def passes(args: argparse.Namespace) -> None:
  """Print the passes."""
  found = [{"name": p.name, "takes": p.takes, "gives": p.gives, "about": pipeline.about(p)} for p in pipeline.PASSES]
  tell(args, found, pipeline.listing())


def size(args: argparse.Namespace) -> None:
  """Print tokens, lines and the longest file of each folder of code."""
  found = counts()
  rows = [*found.items(), ("all", (sum(n for n, _, _ in found.values()), sum(n for _, n, _ in found.values()), ""))]
  tell(args, {name: dict(zip(("tokens", "lines", "longest_file"), n)) for name, n in found.items()}, "\n".join([
    f"{'':10}{'tokens':>9}{'lines':>8}  longest file",
    *[f"{name:10}{words:9,}{lines:8,}  {longest}".rstrip() for name, (words, lines, longest) in rows]]))
