"""What the tensor graph means, with numpy: one function an operation, no scheduling. The oracle on the level of the graph."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ntgrad.codegen.ir.uop import BinaryOps, Ops, TernaryOps, UnaryOps, UOp, toposort
from ntgrad.graph.recipes import written_out

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _small(a: np.ndarray) -> np.ndarray:
  """float16, bfloat16 and fp8 are computed in float32 and rounded once."""
  return a.astype(np.float32) if a.dtype.kind not in "biu" and a.dtype.itemsize < 4 else a


def threefry(counter: np.ndarray, key: np.ndarray) -> np.ndarray:
  """threefry2x32 with 20 rounds on the two words of uint64 counters and keys, low word first."""
  m = np.uint64(0xFFFFFFFF)
  x = [counter & m, counter >> np.uint64(32)]
  k = [key & m, key >> np.uint64(32)]
  ks = [k[0], k[1], k[0] ^ k[1] ^ np.uint64(0x1BD11BDA)]
  x = [(x[0] + ks[0]) & m, (x[1] + ks[1]) & m]
  for i in range(5):
    for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
      x[0] = (x[0] + x[1]) & m
      x[1] = ((x[1] << np.uint64(r)) | (x[1] >> np.uint64(32 - r))) & m
      x[1] ^= x[0]
    x = [(x[0] + ks[(i + 1) % 3]) & m, (x[1] + ks[(i + 2) % 3] + np.uint64(i + 1)) & m]
  return x[0] | (x[1] << np.uint64(32))


UNARY = {
  UnaryOps.NEG: np.negative, UnaryOps.RECIP: lambda a: 1 / a, UnaryOps.SQRT: np.sqrt, UnaryOps.RSQRT: lambda a: 1 / np.sqrt(a),
  UnaryOps.EXP: np.exp, UnaryOps.EXP2: np.exp2, UnaryOps.LOG: np.log, UnaryOps.LOG2: np.log2, UnaryOps.SIN: np.sin,
  UnaryOps.COS: np.cos, UnaryOps.TAN: np.tan, UnaryOps.TANH: np.tanh, UnaryOps.ERF: _erf, UnaryOps.FLOOR: np.floor,
  UnaryOps.CEIL: np.ceil, UnaryOps.TRUNC: np.trunc, UnaryOps.ROUND: np.rint, UnaryOps.NOT: np.invert, UnaryOps.ABS: np.abs,
  UnaryOps.ISNAN: np.isnan}
BINARY = {
  BinaryOps.ADD: np.add, BinaryOps.SUB: np.subtract, BinaryOps.MUL: np.multiply, BinaryOps.DIV: np.divide,
  BinaryOps.IDIV: np.floor_divide, BinaryOps.MOD: np.mod, BinaryOps.MAX: np.maximum, BinaryOps.MIN: np.minimum,
  BinaryOps.POW: np.power, BinaryOps.CMPLT: np.less, BinaryOps.CMPLE: np.less_equal, BinaryOps.CMPEQ: np.equal,
  BinaryOps.CMPNE: np.not_equal, BinaryOps.AND: np.bitwise_and, BinaryOps.OR: np.bitwise_or, BinaryOps.XOR: np.bitwise_xor,
  BinaryOps.SHL: np.left_shift, BinaryOps.SHR: np.right_shift, BinaryOps.THREEFRY: threefry}
REDUCE = {BinaryOps.ADD: np.add, BinaryOps.MUL: np.multiply, BinaryOps.MAX: np.maximum, BinaryOps.MIN: np.minimum,
          BinaryOps.AND: np.bitwise_and, BinaryOps.OR: np.bitwise_or}


def _tile(a: np.ndarray, arg: Any) -> np.ndarray:
  n = a.ndim
  outer = [(d - (size - 1) * dil - 1) // stride + 1 for d, (size, stride, dil) in zip(a.shape, arg)]
  index = []
  for d, (size, stride, dil) in enumerate(arg):
    i = np.arange(outer[d])[:, None] * stride + np.arange(size)[None, :] * dil
    shape = [1] * (2 * n)
    shape[d], shape[n + d] = outer[d], size
    index.append(i.reshape(shape))
  return a[tuple(index)]


def _untile(a: np.ndarray, arg: Any) -> np.ndarray:
  shape, wins = arg
  n = len(shape)
  out = np.zeros((*shape, *a.shape[n:]), a.dtype)
  for outer in np.ndindex(*a.shape[:n]):
    for inner in np.ndindex(*a.shape[n:]):
      at = tuple(o * stride + w * dil for o, w, (_, stride, dil) in zip(outer, inner, wins))
      out[at + inner] = a[outer + inner]
  return out


def _one(u: UOp, s: list[np.ndarray]) -> np.ndarray:
  op, arg = u.op, u.arg
  if op is Ops.CONST: return np.array(arg).astype(u.dtype.np)
  if op is Ops.BUFFER: return arg.numpy()
  if op is Ops.IOTA: return np.arange(arg, dtype=np.int32)
  if op is Ops.ALU:
    assert all(x.shape == s[-1].shape for x in s), (u, [x.shape for x in s])
    dts = [x.dtype for x in s]
    if isinstance(arg, TernaryOps):
      assert dts[0] == np.bool_ and dts[1] == dts[2], dts
      return np.where(s[0], s[1], s[2])
    assert len(set(dts)) == 1, (u, dts)
    fn = UNARY[arg] if isinstance(arg, UnaryOps) else BINARY[arg]
    return np.asarray(fn(*[_small(x) for x in s])).astype(u.dtype.np)
  a = s[0]
  if op is Ops.CAST: return a.astype(u.dtype.np) if u.dtype.kind != "b" else a != 0
  if op is Ops.BITCAST: return a.view(u.dtype.np)
  if op is Ops.RESHAPE: return a.reshape(arg)
  if op is Ops.PERMUTE: return a.transpose(arg)
  if op is Ops.EXPAND: return np.broadcast_to(a, arg)
  if op is Ops.PAD: return np.pad(a, arg)
  if op is Ops.SHRINK: return a[tuple(slice(b, e) for b, e in arg)]
  if op is Ops.FLIP: return np.flip(a, arg)
  if op is Ops.TILE: return _tile(a, arg)
  if op is Ops.UNTILE: return _untile(a, arg)
  if op is Ops.REDUCE_AXIS: return np.asarray(REDUCE[arg[0]].reduce(a, axis=arg[1], keepdims=True)).astype(u.dtype.np)
  if op is Ops.SCAN_AXIS:
    turned = np.flip(a, arg[1]) if arg[2] else a
    out = np.asarray(REDUCE[arg[0]].accumulate(turned, axis=arg[1])).astype(u.dtype.np)
    return np.flip(out, arg[1]) if arg[2] else out
  if op is Ops.SORT_AXIS:
    axis, low, high, keep = arg[:4]
    keys = (a >> np.asarray(low, a.dtype)) & np.asarray((1 << (high - low)) - 1, a.dtype)
    out = np.take_along_axis(a, np.argsort(keys, axis, kind="stable"), axis)
    return out[(slice(None),) * axis + (slice(0, keep or None),)]
  if op is Ops.GATHER:
    index = [i.astype(np.int64) for i in s[1:]]
    valid = np.logical_and.reduce([(i >= 0) & (i < n) for i, n in zip(index, a.shape)])
    rows = a[tuple([np.where(valid, i, 0) for i in index])]
    return np.where(valid.reshape(valid.shape + (1,) * (a.ndim - len(index))), rows, np.zeros((), a.dtype))
  if op is Ops.SCATTER:
    out = a.copy()
    for at in np.ndindex(*s[1].shape):
      i = tuple([int(x[at]) for x in s[1:-1]])
      if all(0 <= k < n for k, n in zip(i, a.shape)): out[i] = s[-1][at] if arg == "set" else out[i] + s[-1][at]
    return out
  if op is Ops.CAT: return np.concatenate(s, arg)
  if op in (Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY, Ops.SLOPED): return a
  if op is Ops.UPDATE:
    number = np.arange(a.size).reshape(a.shape)   # which elements the view shows
    for move, move_arg in arg:
      if move is Ops.TILE: number = _tile(number, move_arg)
      else: number = _one(UOp(move, u.dtype, (u.src[0],), move_arg), [number])
    out, value = a.copy().reshape(-1), s[1]
    if len(s) == 2: out[number.reshape(-1)] = value.reshape(-1)
    else:
      for at in np.ndindex(*s[2].shape):
        if 0 <= s[2][at] < len(number): out[number[int(s[2][at])].reshape(-1)] = value[at].reshape(-1)
    return out.reshape(a.shape)
  raise NotImplementedError(str(u))


def evaluate(*roots: UOp, feed: dict[UOp, np.ndarray] | None = None) -> list[np.ndarray]:
  """The values of nodes (``feed`` replaces some); every node's shape and dtype are checked against what it says."""
  value: dict[UOp, np.ndarray] = dict(feed or {})
  roots = tuple(written_out(roots))
  with np.errstate(all="ignore"):
    for u in toposort(roots, stop=lambda n: n.op is Ops.BUFFER):
      if u in value: continue
      v = np.asarray(_one(u, [value[s] for s in u.src]))
      assert v.shape == u.shape, (u, v.shape, u.shape)
      assert v.dtype == u.dtype.np, (u, v.dtype, u.dtype)
      value[u] = v
  return [value[r] for r in roots]


def value(t: Any) -> np.ndarray:
  """The value of a Tensor, without realising it."""
  return evaluate(t.lazydata)[0]
