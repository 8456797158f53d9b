"""What is known of nodes beside what they are: tables by node, which let go of it with the node, and nothing in the nodes."""
from __future__ import annotations

import gc
import weakref
from functools import cached_property
from typing import Any

import numpy as np

import ntgrad
from ntgrad import Tensor, nn
from ntgrad.codegen.ir import uop
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.codegen.ir.uop import NodeTable, Ops, UOp, live_nodes
from ntgrad.engine.buffer import resolved
from ntgrad.graph.alias import values


class Value: pass


def node(n: int) -> UOp: return UOp(Ops.IOTA, dtypes.int32, (), n)


def test_an_entry_goes_with_its_node() -> None:
  table: NodeTable[Any] = NodeTable()
  u, value = node(1234567), Value()
  gone = weakref.ref(value)
  table.put(u, value)
  del value
  assert u in table and table.get(u) is gone() and table.nodes() == [u]
  del u
  assert gone() is None and not table.known


def test_a_node_in_the_place_of_another_is_not_taken_for_it() -> None:
  table: NodeTable[str] = NodeTable()
  u, v = node(1234567), node(1234568)
  table.put(u, "u")
  table.known[id(v)] = table.known.pop(id(u))   # as where an interrupt kept an entry, and v has been made in u's memory
  assert v not in table and table.get(v) is None and table.pop(v) is None
  table.put(v, "v")
  assert table.get(v) == "v"
  del u
  assert table.get(v) == "v"


def test_what_an_interrupt_kept_goes_at_the_next_look() -> None:
  table: NodeTable[Any] = NodeTable()
  u, value = node(1234567), Value()
  gone = weakref.ref(value)
  table.put(u, value)
  table.known[id(u)].table = {}   # as if its callback had not run
  del u, value
  assert table.known and gone() is not None
  live_nodes()
  assert not table.known and gone() is None


def test_values_go_with_their_nodes_and_with_writes() -> None:
  x = Tensor(np.arange(6, dtype=np.float32)).realize()
  y = x + 1234.5
  u = y.lazydata
  y.realize()
  assert resolved(u) is y.lazydata and u in values
  before = len(values.known)
  y.assign(y * 2).realize()      # the memory has another value now
  assert u not in values and resolved(u) is u and len(values.known) < before
  np.testing.assert_array_equal((x + 1234.5).numpy(), np.arange(6) + 1234.5)
  np.testing.assert_array_equal(y.numpy(), (np.arange(6) + 1234.5) * 2)


def test_no_state_lies_in_nodes() -> None:
  """A node's ``__dict__`` has what follows from the node alone."""
  pure = {name for name, x in vars(UOp).items() if isinstance(x, cached_property)} | {"is_unique", "_storage", "_upper", "_lower"}
  pure |= uop.memoized_names
  model = nn.Linear(8, 4)
  optimizer = nn.optim.Adam([model.weight, model.bias])

  @ntgrad.jit
  def step(x: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = (model(x).relu() ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss.realize()
  nodes: dict[UOp, None] = {}
  with Tensor.train():
    for n in range(3):
      x = Tensor(np.random.default_rng(n).standard_normal((16, 8)).astype(np.float32))
      x[2:4] = 1
      step(x)
      t = model(x)[Tensor([0, 3])].softmax()
      t.realize()
      nodes |= dict.fromkeys([*live_nodes(), *t.lazydata.toposort()])
  assert len(nodes) > 100
  assert {k for u in nodes for k in vars(u)} <= pure
  del nodes
  gc.collect()
