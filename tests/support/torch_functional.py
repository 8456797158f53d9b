"""Writes tests/support/torch_functional.txt: the signature of each function of an installed PyTorch's ``torch.nn.functional``.

    python tests/support/torch_functional.py

Functions that are written in C++ have none; theirs is the first line of their documentation, and their schema says what goes by
name alone. What is there for other modules'
sake, and what begins with an underscore, is left out.
"""
from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

# what the documentation does not have
SAID = {"conv_tbc": "(input, weight, bias, pad=0)"}
# of other modules, or to make functions with
ELSEWHERE = set("Callable DType Optional Tensor ScalingType SwizzleType assert_int_or_pair boolean_dispatch "
                "handle_torch_function has_torch_function has_torch_function_unary has_torch_function_variadic".split())


def plain(signature: inspect.Signature) -> str:
  """A signature without annotations."""
  found = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
  return str(inspect.Signature(found))


def documented(name: str, said: str) -> str:
  """The signature that documentation begins with, its defaults computed."""
  found = re.search(rf"{name}(\(.*?\))\s*(?:->|:)", said, re.S)
  if found is None: raise ValueError(f"no signature of {name}")
  scope: dict[str, Any] = {}
  exec(f"def f{found[1]}: pass", scope)
  signature = inspect.signature(scope["f"])
  schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
  # of what goes by name alone the documentation says nothing
  named = {a.name for s in schemas for a in s.arguments if a.kwarg_only and not a.is_out}
  return plain(signature.replace(parameters=[
    p.replace(kind=p.KEYWORD_ONLY) if p.name in named else p for p in signature.parameters.values()]))


def signature(module: Any, name: str) -> str:
  x = getattr(module, name)
  if name in SAID: return SAID[name]
  # max_pool2d goes by return_indices to one of two functions, of which this one has the signature of both
  if hasattr(module, f"{name}_with_indices"): x = getattr(module, f"{name}_with_indices")
  try: return plain(inspect.signature(x))
  except ValueError: return documented(name, x.__doc__)


def main() -> None:
  names = [n for n in sorted(dir(F)) if n[0] != "_" and callable(getattr(F, n)) and n not in ELSEWHERE]
  # a dtype is not written as Python reads it
  lines = [f"{n}{signature(F, n)}".replace("torch.bfloat16", "'bfloat16'") for n in names]
  (Path(__file__).parent / "torch_functional.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__": main()
