"""What renderers to languages in C's style share: ``kernel`` writes, ``language`` says what differs, ``helpers`` has what C
lacks."""
from __future__ import annotations

from importlib import import_module
from typing import Any

from .kernel import CStyleRenderer as CStyleRenderer, uops_to_cstyle as uops_to_cstyle
from .language import Language as Language

_LANGUAGES = {"OpenCLLanguage": "opencl.renderer", "CLanguage": "c", "MetalLanguage": "metal"}


def __getattr__(name: str) -> Any:
  """The languages, whose modules build on this one, when they are asked for."""
  if name not in _LANGUAGES: raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  return getattr(import_module(f"ntgrad.backends.{_LANGUAGES[name]}"), name)
