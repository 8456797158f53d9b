"""Graph rewrite: what is computed element by element between reshape(T -> S) and reshape(S -> T) is computed in shape T.

GroupNorm takes (n, c, h, w) as (n, groups, c / groups, h, w) for its statistics, and gives (n, c, h, w) back:

    y = reshape(reshape(x, S) - expand(m, S), T)   ->   y = x - reshape(expand(m, S), T)

So what is stored has the dimensions of the convolutions beside it, which they like in an order of their own (``layout``); in
shape S the channels would be two dimensions."""
from __future__ import annotations

from ntgrad.codegen.ir import Ops, UOp, toposort
from ntgrad.graph import nodes as graph

from .nodes import Nodes

_ELEMENTWISE = Ops.ALU, Ops.CAST


def find_round_trips(sinks: Nodes) -> dict[UOp, tuple[int, ...]]:
  """The nodes between two such reshapes, and the shape in which they are to be computed. Dimensions of one element do not count;
  what has two others in shape S is a matrix, and stays one."""
  order = toposort(sinks)
  found: dict[UOp, tuple[int, ...]] = {}
  within: dict[UOp, tuple[int, ...]] = {}   # what a reshape of more dimensions has come into
  for u in order:
    if u.op not in _ELEMENTWISE: continue
    for s in u.src:
      shape = s.src[0].shape if s.op is Ops.RESHAPE else within.get(s)
      if shape is not None and _long(shape) != _long(u.shape) and len(_long(u.shape)) > 2: within.setdefault(u, shape)
  stack = [u.src[0] for u in order if u.op is Ops.RESHAPE and within.get(u.src[0]) == u.shape]
  while stack:
    u = stack.pop()
    if u in found: continue
    found[u] = within[u]
    stack += [s for s in u.src if within.get(s) == within[u]]
  return found


def _long(shape: tuple[int, ...]) -> list[int]: return [n for n in shape if n != 1]


def computed_in(u: UOp, shape: tuple[int, ...]) -> UOp:
  """A node whose sources come in another shape, computed in ``shape``."""
  def there(s: UOp) -> UOp:
    while s.op is Ops.RESHAPE: s = s.src[0]
    return s if s.shape == shape else graph.reshape(s, shape)
  return graph.reshape(UOp(u.op, u.dtype, tuple(map(there, u.src)), u.arg), u.shape)
