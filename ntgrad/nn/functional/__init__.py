"""``torch.nn.functional``: its functions with its parameters, in its order, with its defaults.

What a function computes is a method of ``Tensor``, whose parameters are tinygrad's: ``conv2d(x, w, None, 2, 1)`` is
``x.conv2d(w, stride=2, padding=1)``. Most are rows of the table of signatures, of which each is made when it is used first; the
rest is written out by kind.
``training`` means what it says, whatever ``Tensor.training`` is; ``inplace`` writes the input; ``size_average`` and ``reduce``
stand for ``reduction`` where they are given; what PyTorch warns of is silent here.
"""
# ruff: noqa: F403 - what a file has to give is its __all__
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ntgrad.compat.public import show
from ntgrad.compat.signatures import FUNCTIONAL
from ntgrad.tensor.made import function, rows

from . import attention, ctc, losses, moves, products
from .attention import *
from .ctc import *
from .losses import *
from .moves import *
from .products import *

if TYPE_CHECKING:
  from .made import *

_MADE = rows(FUNCTIONAL)
__all__ = sorted([*_MADE, *[n for part in (attention, ctc, losses, moves, products) for n in part.__all__]])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
  from ntgrad.tensor import Tensor
  if name in _MADE: return function(name, _MADE[name], __name__)
  if name[0] == "_" or not callable(getattr(Tensor, name, None)): raise AttributeError(name)
  raise AttributeError(f"module 'ntgrad.nn.functional' has no attribute {name!r}: torch.nn.functional has no such function; "
                       f"Tensor has, x.{name}(..)")


show(__name__)
