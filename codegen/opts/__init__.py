"""Opts: steps on a kernel, each a small class with everything about it: what it changes, what it refuses, how it prints, what the
search tries.

A new one is a class in one of these files, named in its ``__all__``; nothing else lists them."""
from .axes import *  # noqa: F403 (each file says what it hands on)
from .base import *  # noqa: F403
from .memory import *  # noqa: F403
from .programs import *  # noqa: F403
