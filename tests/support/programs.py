"""Random tensor programs, built for ``Tensor`` and numpy side by side. Values are small whole numbers, so results are equal, not
close."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from ntgrad import Tensor

Array = np.ndarray[Any, Any]
Choose = Callable[[Sequence[Any]], Any]
Value = tuple[Tensor, Array]
LIMIT = 600  # elements of a value


class Program:
  """Grows from a few inputs, one operation at a time. ``linear``: only operations that are linear in the inputs, which get
  gradients."""

  def __init__(self, choose: Choose, device: str, steps: int, rng: np.random.Generator, linear: bool = False):
    self.choose, self.device, self.rng, self.linear = choose, device, rng, linear
    self.said: list[str] = []
    self.leaves: list[Value] = []
    self.values: list[Value] = [self.leaf() for _ in range(choose([1, 2]))]
    for _ in range(steps):
      x = self.pick()
      new = getattr(self, choose(STEPS))(*x)
      if new is not None and new[1].size <= LIMIT and new[1].ndim <= 5: self.values.append(new)

  def say(self, text: str) -> None: self.said.append(text)

  def leaf(self) -> Value:
    shape = tuple(self.choose([1, 2, 3, 4, 5, 6, 17]) for _ in range(self.choose([1, 2, 3])))
    a = self.rng.integers(-3, 4, shape).astype(np.float32)
    self.say(f"input {shape}")
    self.leaves.append((Tensor(a, device=self.device, requires_grad=True if self.linear else None), a))
    return self.leaves[-1]

  def pick_from(self, *table: Any) -> Any:
    """One of the functions (name, for Tensors, for arrays); the first of a table are the linear ones, up to None."""
    cut = table.index(None)
    return self.choose(table[:cut] if self.linear else [t for t in table if t is not None])

  def pick(self) -> Value:
    """Mostly the newest."""
    return self.values[-1] if self.choose([0, 1, 2]) else self.choose(self.values)

  # ---- movement
  def permute(self, t: Tensor, a: Array) -> Value:
    order = list(range(a.ndim))
    i, j = self.choose(order or [0]), self.choose(order or [0])
    if order: order[i], order[j] = order[j], order[i]
    self.say(f"permute {order}")
    return t.permute(*order), a.transpose(order)

  def reshape(self, t: Tensor, a: Array) -> Value:
    n, shape = a.size, []
    while n > 1 and len(shape) < 3:
      d = self.choose([k for k in (2, 3, 4, 5, 6, n) if n % k == 0])
      shape.append(d)
      n //= d
    shape.append(n)
    if self.choose([0, 1]): shape.insert(self.choose(range(len(shape))), 1)
    self.say(f"reshape {shape}")
    return t.reshape(*shape), a.reshape(shape)

  def pad(self, t: Tensor, a: Array) -> Value:
    pairs = [(self.choose([0, 0, 1, 2]), self.choose([0, 0, 1, 3])) for _ in a.shape]
    self.say(f"pad {pairs}")
    return t.pad(tuple(pairs)), np.pad(a, pairs) if pairs else a

  def shrink(self, t: Tensor, a: Array) -> Value | None:
    if not a.size: return None
    box = [(b := self.choose(range(min(n, 3))), self.choose(range(b + 1, n + 1))) for n in a.shape]
    self.say(f"shrink {box}")
    return t.shrink(tuple(box)), a[tuple(slice(b, e) for b, e in box)]

  def flip(self, t: Tensor, a: Array) -> Value | None:
    if not a.ndim: return None
    axis = self.choose(range(a.ndim))
    self.say(f"flip {axis}")
    return t.flip(axis), np.flip(a, axis)

  def expand(self, t: Tensor, a: Array) -> Value:
    axis, n = self.choose(range(a.ndim + 1)), self.choose([2, 3, 7])
    self.say(f"expand a new axis {axis} to {n}")
    shape = a.shape[:axis] + (n,) + a.shape[axis:]
    return t.unsqueeze(axis).expand(*shape), np.broadcast_to(np.expand_dims(a, axis), shape)

  def step(self, t: Tensor, a: Array) -> Value | None:
    if not a.ndim or not a.shape[0]: return None
    s = slice(self.choose([None, 1, -1]), None, self.choose([2, -1, -2, 3]))
    self.say(f"index {s}")
    return t[s], a[s]

  def windows(self, t: Tensor, a: Array) -> Value | None:
    if not a.ndim or a.shape[-1] < 3: return None
    size, stride, dilation = self.choose([1, 2]), self.choose([1, 2]), self.choose([1, 2])
    self.say(f"windows {size} {stride} {dilation}")
    reach = (size - 1) * dilation + 1
    return t.windows((size,), stride, dilation), np.lib.stride_tricks.sliding_window_view(a, reach, -1)[..., ::stride, ::dilation]

  def rows(self, t: Tensor, a: Array) -> Value | None:
    if not a.ndim or not a.shape[0]: return None
    i = self.rng.integers(-a.shape[0], a.shape[0], self.choose([(1,), (2,), (3,), (2, 2)])).astype(np.int32)
    self.say(f"rows {i.tolist()}")
    return t[Tensor(i, device=self.device)], a[i]

  # ---- arithmetic
  def unary(self, t: Tensor, a: Array) -> Value:
    name, f, g = self.pick_from(
      ("neg", lambda x: -x, lambda x: -x),
      ("double", lambda x: x * 2, lambda x: x * 2),
      None,
      ("relu", lambda x: x.relu(), lambda x: np.maximum(x, 0)),
      ("abs", lambda x: x.abs(), np.abs),
      ("inc", lambda x: x + 1, lambda x: x + 1),
      ("clamp", lambda x: x.clamp(-3, 3), lambda x: np.clip(x, -3, 3)),
      ("ints", lambda x: (x.int() // 2).float(), lambda x: np.floor(x / 2)),
      ("mask", lambda x: (x > 0).where(x, 5), lambda x: np.where(x > 0, x, 5)),
    )
    self.say(name)
    return f(t), g(a).astype(np.float32)

  def binary(self, t: Tensor, a: Array) -> Value | None:
    u, b = self.choose(self.values)
    try: shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError: return None
    if np.prod(shape) > LIMIT or np.abs(a).max(initial=0) * np.abs(b).max(initial=0) > 1000: return None
    name, f, g = self.pick_from(("add", lambda x, y: x + y, np.add), ("sub", lambda x, y: x - y, np.subtract), None,
                                ("mul", lambda x, y: x * y, np.multiply), ("max", lambda x, y: x.maximum(y), np.maximum))
    self.say(name)
    return f(t, u), g(a, b)

  def cat(self, t: Tensor, a: Array) -> Value | None:
    if not a.ndim: return None
    axis = self.choose(range(a.ndim))
    u, b = self.choose(self.values)
    if b.ndim != a.ndim or any(m != n for d, (m, n) in enumerate(zip(a.shape, b.shape)) if d != axis): u, b = t, a
    self.say(f"cat {axis}")
    return t.cat(u, dim=axis), np.concatenate([a, b], axis)

  # ---- reductions
  def reduce(self, t: Tensor, a: Array) -> Value | None:
    if not a.ndim or not a.size or np.abs(a).max() > 1e4: return None
    axis, keep = self.choose(range(a.ndim)), self.choose([False, True])
    name, f, g = self.pick_from(
      ("sum", lambda x: x.sum(axis, keepdim=keep), lambda x: x.sum(axis, keepdims=keep)), None,
      ("max", lambda x: x.max(axis=axis, keepdim=keep), lambda x: x.max(axis=axis, keepdims=keep)),
      ("min", lambda x: x.min(axis=axis, keepdim=keep), lambda x: x.min(axis=axis, keepdims=keep)),
      ("argmax", lambda x: x.argmax(axis, keepdim=keep).float(), lambda x: x.argmax(axis, keepdims=keep).astype(np.float32)))
    self.say(f"{name} {axis} keep={keep}")
    return f(t), np.asarray(g(a))

  def total(self, t: Tensor, a: Array) -> Value | None:
    if not a.size or np.abs(a).sum() > 1e5: return None
    name, f, g = self.pick_from(("sum", lambda x: x.sum(), np.sum), None, ("max", lambda x: x.max(), np.max),
                                ("any", lambda x: x.any().float(), lambda x: np.any(x).astype(np.float32)))
    self.say(f"{name} of all")
    return f(t), np.asarray(g(a), np.float32)

  def scan(self, t: Tensor, a: Array) -> Value | None:
    """Running sums, and such of ints that wrap, read on as wider ones."""
    if not a.ndim or np.abs(a).sum() > 1e5: return None
    axis = self.choose(range(a.ndim))
    big = np.int32(1 << 30)
    def wrapped(x: Array) -> Array: return np.cumsum(x.astype(np.int32) * big, axis, np.int32).astype(np.int64) // (1 << 29)
    def of_ints(x: Tensor) -> Tensor: return (x.int() * int(big)).cumsum(axis, dtype="int32").cast("int64") // (1 << 29)
    name, f, g = self.pick_from(
      ("cumsum", lambda x: x.cumsum(axis), lambda x: np.cumsum(x, axis)), None,
      ("cumsum of ints", lambda x: of_ints(x).float(), wrapped))
    self.say(f"{name} {axis}")
    return f(t), g(a).astype(np.float32)

  def fold(self, t: Tensor, a: Array) -> Value | None:
    """What is a number, or the same, once it is scheduled."""
    if self.linear: return None
    name, f, g = self.pick_from(
      None, ("x ** 0", lambda x: x ** 0, lambda x: x ** 0),
      ("a sum of nothing", lambda x: x.flatten()[:0].sum(), lambda x: np.float32(0)),
      ("all of nothing", lambda x: (x.flatten()[:0] > 0).all().where(x, x * 2), lambda x: x),
      ("any of nothing", lambda x: (x.flatten()[:0] > 0).any().where(x * 2, x), lambda x: x))
    self.say(name)
    return f(t), np.asarray(g(a))

  def matmul(self, t: Tensor, a: Array) -> Value | None:
    if a.ndim < 1 or not a.size or np.abs(a).max() > 100: return None
    b = self.rng.integers(-2, 3, (a.shape[-1], self.choose([1, 3, 4]))).astype(np.float32)
    self.say(f"matmul {b.shape}")
    return t @ Tensor(b, device=self.device), a @ b

  def contiguous(self, t: Tensor, a: Array) -> Value:
    self.say("contiguous")
    return t.contiguous(), a


STEPS = [
  "permute",
  "reshape",
  "pad",
  "shrink",
  "flip",
  "expand",
  "step",
  "windows",
  "rows",
  "unary",
  "unary",
  "binary",
  "binary",
  "cat",
  "reduce",
  "reduce",
  "total",
  "scan",
  "fold",
  "matmul",
  "contiguous",
]
