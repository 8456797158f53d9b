"""The folders: who may import whom, full names only, a file is one idea."""
from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

import ntgrad.codegen
from ntgrad.codegen.ir.short_names import SHORT_NAMES
from support.marks import long_half

ROOT = Path(ntgrad.codegen.__file__).resolve().parent.parent
if not (ROOT / "setup.py").exists(): pytest.skip("installed without its source tree", allow_module_level=True)
FILES = sorted(p for top in ("codegen", "backends", "ntgrad") for p in (ROOT / top).rglob("*.py") if "__pycache__" not in p.parts
               and not (top == "ntgrad" and p.relative_to(ROOT).parts[1] in ("codegen", "backends")))
FLOORS = {"codegen": ("ntgrad.codegen",), "backends": ("ntgrad.codegen", "ntgrad.backends"), "ntgrad": ("ntgrad",)}
OTHERS = {
  "codegen": {"numpy", "sympy", "ml_dtypes"},
  "backends": {"numpy", "ml_dtypes", "pyopencl", "platformdirs", "triton", "cuda"},
  "ntgrad": {"numpy", "ml_dtypes", "platformdirs", "sympy", "tqdm", "mlxtend", "matplotlib", "PIL", "mpi4py"},
}
LAZY = {"sympy", "triton", "pyopencl", "cuda", "tqdm", "mlxtend", "matplotlib", "PIL"}  # not loaded by ``import ntgrad``


def imports(path: Path) -> Iterator[tuple[int, str, bool]]:
  """Line, full module name, and whether it is written relatively."""
  top, *rest = path.relative_to(ROOT).with_suffix("").parts
  package = ["ntgrad", *([] if top == "ntgrad" else [top]), *rest[:-1]]
  for n in ast.walk(ast.parse(path.read_text())):
    if isinstance(n, ast.Import): yield from ((n.lineno, a.name, False) for a in n.names)
    elif isinstance(n, ast.ImportFrom):
      base = package[:len(package) - n.level + 1] if n.level else []
      yield n.lineno, ".".join([*base, *([n.module] if n.module else [])]), n.level > 0


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(path: Path) -> None:
  top = path.relative_to(ROOT).parts[0]
  for line, module, _ in imports(path):
    root = module.split(".")[0]
    assert root not in ("codegen", "backends"), f"{path}:{line} imports {module}; write ntgrad.{module}"
    if module == "ntgrad": continue  # the package that all are in: loaded anyway
    if root == "ntgrad":
      assert any(module == m or module.startswith(m + ".") for m in FLOORS[top]), f"{path}:{line}: {top}/ may not import {module}"
    else:
      assert root in sys.stdlib_module_names or root in OTHERS[top], f"{path}:{line}: {top}/ may not import {module}"


# who may read or write pickles, and why: nothing that comes from a file or another host is unpickled
PICKLES = {
  "backends/workers.py": {"multiprocessing"}, "backends/worker.py": {"multiprocessing"},   # the pipe to an own child
}
LOADS = ("np.load", "numpy.load")
UNSAFE = {"pickle", "_pickle", "marshal", "shelve", "dbm", "dill", "cloudpickle", "joblib", "multiprocessing", "pytools"}


def test_nothing_is_unpickled() -> None:
  """No module of the product imports what unpickles, nor asks others to, but for a pipe to a child of its own."""
  for path in FILES:
    name, tree = str(path.relative_to(ROOT)), ast.parse(path.read_text())
    found = {module.split(".")[0] for _, module, _ in imports(path)} & UNSAFE
    assert found <= PICKLES.get(name, set()), f"{name} imports {found}"
    for n in ast.walk(tree):
      if isinstance(n, ast.keyword) and n.arg == "allow_pickle":
        assert isinstance(n.value, ast.Constant) and n.value.value is False, f"{name}:{n.value.lineno}"
      if isinstance(n, ast.Attribute): assert n.attr not in ("read_pickle", "recv") or name in PICKLES, f"{name}:{n.lineno}"
      if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "load" and ast.unparse(n.func) in LOADS:
        assert any(k.arg == "allow_pickle" for k in n.keywords), f"{name}:{n.lineno}: say allow_pickle=False"


def test_files_are_one_idea() -> None:
  """A file is one idea, and is not cut at a number of lines; one that is longer than this has become two."""
  long = {str(p.relative_to(ROOT)): n for p in FILES if (n := len(p.read_text().splitlines())) > 800}
  assert not long


def test_public_names_have_docstrings() -> None:
  bare = []
  for path in FILES:
    tree = ast.parse(path.read_text())
    if ast.get_docstring(tree) is None and tree.body: bare.append(f"{path.relative_to(ROOT)}")
    for n in tree.body:
      if not isinstance(n, (ast.FunctionDef, ast.ClassDef)) or n.name.startswith("_"): continue
      one_line = n.body[0].lineno == n.lineno or n.end_lineno == n.lineno  # says what it does by itself
      if ast.get_docstring(n) is None and not one_line: bare.append(f"{path.relative_to(ROOT)}:{n.lineno} {n.name}")
  assert not bare, "\n".join(bare)


def test_bare_names_refuse() -> None:
  for name in ("codegen", "backends"):
    r = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True)
    assert r.returncode != 0 and f"import this package as ntgrad.{name}" in r.stderr


@pytest.mark.parametrize("short, name", long_half(SHORT_NAMES.items()))
def test_short_names_are_the_modules_themselves(short: str, name: str) -> None:
  """Under both names there is one module, whichever is imported first."""
  for first, then in ((short, name), (name, short)):
    code = (f"import sys, ntgrad.codegen.{first} as a, ntgrad.codegen.{then} as b\nfrom ntgrad.codegen import {short} as c\n"
            f"print(a is b is c is sys.modules['ntgrad.codegen.{short}'], a.__spec__.name)")
    r = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert r.stdout.split() == ["True", f"ntgrad.codegen.{name}"], r.stdout + r.stderr


def test_import_is_light() -> None:
  code = f"import sys, ntgrad; print([m for m in {sorted(LAZY)} if m in sys.modules])"
  r = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
  assert r.stdout.strip() == "[]", r.stdout + r.stderr


def test_triton_is_required_where_it_has_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
  """``pip install ntgrad`` brings it on Linux, and nowhere else; that it is not imported is tested above."""
  setuptools = pytest.importorskip("setuptools")
  given: dict[str, Any] = {}
  monkeypatch.setattr(setuptools, "setup", given.update)
  monkeypatch.chdir(ROOT)
  runpy.run_path(str(ROOT / "setup.py"))
  found = [r for r in given["install_requires"] if r.startswith("triton")]
  assert len(found) == 1 and found[0].split(";")[1].strip() == "platform_system == 'Linux'"
