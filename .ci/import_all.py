"""``import_all.py ROOT WHEEL``: the wheel has every module of the tree exactly once, and each imports where it is installed."""
from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path


def modules(root: Path) -> dict[str, str]:
  """Module name -> path in the wheel, of every Python file of the three folders."""
  out = {}
  for top, package in (("ntgrad", "ntgrad"), ("codegen", "ntgrad/codegen"), ("backends", "ntgrad/backends")):
    for p in sorted((root / top).rglob("*.py")):
      rest = p.relative_to(root / top)
      if top == "ntgrad" and rest.parts[0] in ("codegen", "backends"): continue  # the symbolic links
      path = f"{package}/{rest.as_posix()}"
      out[path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")] = path
  return out


def main(root: Path, wheel: Path) -> str | None:
  """What is wrong, or None."""
  want = modules(root)
  have = [n for n in zipfile.ZipFile(wheel).namelist() if n.endswith(".py")]
  missing, extra = sorted(set(want.values()) - set(have)), sorted(set(have) - set(want.values()))
  if missing or extra or len(have) != len(set(have)): return f"the wheel lacks {missing}, and has {extra} that the tree does not"
  for name in want:
    if name.endswith("__main__"): continue
    if name.split(".")[1:3] == ["backends", "cuda"]: continue  # needs the extra
    module = importlib.import_module(name)
    if str(root) in (module.__file__ or ""): return f"{name} came from the checkout, not from the wheel: {module.__file__}"
  print(f"{len(want)} modules, each once in the wheel and importable")
  return None


if __name__ == "__main__": sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2])))
