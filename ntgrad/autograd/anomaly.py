"""``torch.autograd.detect_anomaly``: the first NaN that a computation makes is an error."""
from __future__ import annotations

from typing import Any, Self

from ntgrad.codegen.ir import Ops, config
from ntgrad.engine.buffer import walk_nodes
from ntgrad.engine.realize import compute, is_view
from ntgrad.graph import checked, live_aliases
from ntgrad.graph.alias import results, waiting


def _level(check_nan: bool, check_inf: bool) -> int: return 2 if check_nan and check_inf else int(check_nan)


@checked
class detect_anomaly:
  """In the block, a computation that gives NaN raises NotFiniteError, which names the operation that made the first one, its
  line, whether it was in the forward or the backward pass, and the ranges of its inputs. What is made in the block is computed at
  its end at the latest. Replays of ``ntgrad.jit`` and tile kernels are looked at, too.

  Values count that something asks for: a NaN that is masked before (``where``, ``isnan``), or comes with the data and is only
  moved, is none. With ``check_inf`` an infinity counts that an operation makes of finite values (overflow, log(0), a division by
  0); those of masks, which are constants, do not. With ``check_nan=False`` nothing is looked for."""

  def __init__(self, check_nan: bool = True, check_inf: bool = False) -> None:
    self._block, self._start = config(check_nan=_level(check_nan, check_inf)), 0

  def __enter__(self) -> Self:
    self._start = results[0]
    self._block.__enter__()
    return self

  def __exit__(self, kind: Any, *_: object) -> None:
    try:
      if kind is not None: return
      # what was made in the block and is not computed, but what others of it are made of; and what waits
      made = [a for a in live_aliases if a.made >= self._start]
      made = [a for a in made if a.node.op is not Ops.CONST and a.node.device and not is_view(a.node)]
      beneath = {s for u in walk_nodes([a.node for a in made]) for s in u.src}
      compute([*waiting(), *[a for a in made if a.node not in beneath and not a.pending]])
    finally: self._block.__exit__(None, None, None)


@checked
class set_detect_anomaly:
  """``detect_anomaly`` from here on, or with False no longer; as a block (``with set_detect_anomaly(True):``) until its end."""

  def __init__(self, mode: bool, check_nan: bool = True, check_inf: bool = False) -> None:
    self._before, config.check_nan = config.check_nan, _level(check_nan, check_inf) if mode else 0
  def __enter__(self) -> Self: return self
  def __exit__(self, *_: object) -> None: config.check_nan = self._before
