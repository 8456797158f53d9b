"""Factorisations of batches of matrices (b, m, n), float32 or float64: values by kernels of the tile language, which run at once,
and rules for their gradients, which are made of tensor code and can be differentiated again.

The rules: Giles, *An extended collection of matrix derivative results*, 2008; of QR: Walter, Lehmann and Lamour, 2010, and
Roberts and Roberts, *QR and LQ decomposition matrix backpropagation algorithms*, 2020; of pseudo-inverses: Golub and Pereyra,
1973. In a kernel each program has one matrix of a batch as a block that its loops go through: ``rows == j`` is row j of it, and a
sum over a block that is zero elsewhere takes row or column j out, in O(n * n) work."""
from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Callable, Collection, Sequence

import numpy as np

from ntgrad import tile
from ntgrad.codegen.ir import DType, GradientError, Ops, UOp, dtypes
from ntgrad.core import Base
from ntgrad.engine.buffer import Buffer, resolved
from ntgrad.graph import mode, nodes as graph
from ntgrad.tile import Tensor, TileKernel, language as tl

from .custom import Nodes, Numbered, Pairs, Rule, by_rule, ruled
from .elementwise import info_of


# ---- values with a rule
@dataclass(eq=False)
class Call:
  """One factorisation: its rule, and where its results are. Holds memory, not graph nodes, so that a result does not keep itself
  alive."""
  name: str
  outputs: list[Buffer]
  rule: Rule

  def gradients(self, at: Numbered, sources: Nodes, need: Collection[UOp]) -> Pairs:
    """The gradients at the inputs from those at the outputs, by number."""
    for b in self.outputs:
      if b.stale:
        raise GradientError(f"{self.name}: its gradient needs a result of shape {b.shape}, which was overwritten by "
                            f"{b.gone or 'an assignment'}; call backward before that, or write to a .clone()")
    return by_rule(self.rule, at, sources, [self.node(i, sources) for i in range(len(self.outputs))])

  def node(self, i: int, sources: Nodes) -> UOp:
    """The node of a result, which may have been let go of since."""
    b = self.outputs[i]
    node = graph.make(Ops.CUSTOM, b.dtype, sources, (self, i), b.shape, b.device)
    if resolved(node) is node: b.is_value_of(node)
    return node


def with_rule(name: str, values: Sequence[Any], sources: Sequence[Any], rule: Rule) -> list[Any]:
  """Values without gradients, with those that a rule says."""
  if not mode.grad: return list(values)
  if all([s._state <= 0 for s in sources]): return ruled(values, sources, rule)   # nothing is kept in memory for gradient(x)
  if any([0 in v.shape for v in values]): return [v + sum([s.sum() * 0 for s in sources]) for v in values]
  values = [v if v._alias.memory is not None and not v._view else v.contiguous() for v in values]
  values[0].realize(*values[1:])
  nodes = tuple([s.lazydata for s in sources])
  call = Call(name, [v._alias.memory for v in values], rule)
  for i, v in enumerate(values): v._state, v._node = 1, call.node(i, nodes)
  return list(values)


def _value(x: Any) -> Any:
  """What a kernel reads."""
  return _keeping(x, lambda: x.realize().detach().contiguous().realize())


def _keeping(x: Any, compute: Callable[[], Any]) -> Any:
  """What is computed is kept where gradients may need it; the tensor, which nobody else has, keeps the graph they go through."""
  node = x.lazydata
  out = compute()
  if x._state <= 0: x._node = node
  return out


def _new(x: Any, m: int, n: int, dtype: DType | None = None) -> Any:
  """Memory for matrices (b, m, n)."""
  d, shape = dtype or x.dtype, (x.shape[0], m, n)
  if 0 in shape: return x.zeros(shape, dtype=d, device=x.device)
  return Base._from_node(Buffer(x.device, (int(shape[0]), m, n), d).node)


def eye(x: Any, m: int, n: int | None = None) -> Any:
  """The identity in a tensor's dtype and on its device, (1, m, n)."""
  return x.eye(m, n, dtype=x.dtype, device=x.device).unsqueeze(0)


# ---- matrices too large for a program
_MOST = 2 ** 19   # bytes of blocks that a program may keep: local memory of PoCL's device, and more than a GPU's registers
# how many blocks of a matrix's size each kernel keeps
_BLOCKS = {"cholesky": 3, "lu": 2, "qr": 5, "eigh": 9, "svd": 8}


def _too_large(application: Any, x: Any) -> bool:
  return max(x.shape[1:]) ** 2 * x.dtype.itemsize * _BLOCKS[application.__name__[1:]] > _MOST


def _run(application: Any, *tensors: Any) -> None: _kernel(application, *[t.shape[1:] for t in tensors])(*tensors)


def _computed(application: Any, host: Callable[[Any], Any], x: Any, *outputs: Any) -> Sequence[Any]:
  """What a kernel writes to the outputs, or numpy gives for a matrix that is too large for it."""
  if _too_large(application, x): return _by_host(host, x)
  _run(application, x, *outputs)
  return outputs


def _by_host(fn: Callable[[Any], Any], x: Any) -> list[Any]:
  """What a function of numpy gives for a tensor's value. Raises CaptureError while a jit records."""
  with np.errstate(all="ignore"): out = fn(x.numpy())
  return [x.from_numpy(np.ascontiguousarray(y), device=x.device).realize() for y in out]


def _lu_by_host(x: Any) -> Any:
  n = x.shape[1]
  lu, order, sign = x.copy(), np.tile(np.arange(n, dtype=np.int32), (len(x), 1)), np.ones(len(x), x.dtype)
  every = np.arange(len(x))
  for j in range(n):
    p = j + np.abs(lu[:, j:, j]).argmax(1)
    for rows in lu, order: rows[every, j], rows[every, p] = rows[every, p].copy(), rows[every, j].copy()
    sign = np.where(p == j, sign, -sign)
    pivot = lu[:, j, j, None]
    lu[:, j + 1:, j] /= np.where(pivot == 0, 1, pivot)
    lu[:, j + 1:, j + 1:] -= lu[:, j + 1:, j, None] * lu[:, j, None, j + 1:]
  return lu, order[:, None], sign[:, None, None]


def _cholesky_by_host(x: Any) -> Any:
  """NaN for matrices that are not positive definite, which numpy refuses."""
  out = np.full_like(x, np.nan)
  for i, a in enumerate(x):
    try: out[i] = np.linalg.cholesky(a)
    except np.linalg.LinAlgError: pass
  return out,


def _finite(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
  """A function of numpy that refuses NaN and infinities, giving NaN for matrices with such."""
  def call(x: Any) -> Any:
    good = np.isfinite(x).all((1, 2), keepdims=True)
    return [np.where(good.reshape(-1, *[1] * (y.ndim - 1)), y, np.nan).astype(x.dtype) for y in fn(np.where(good, x, 0))]
  return call


# ---- triangles
def triangular(t: Any, b: Any, lower: bool) -> Any:
  """x with t x = b of a triangle t (b, n, n), whose other elements are not looked at, and b (b, n, k)."""
  plain, right = _value(t), _value(b)
  x = _new(right, *right.shape[1:])
  if 0 not in x.shape:
    n, k = right.shape[1:]
    _kernel(_triangular, (n, n), (n, k), (n, k), None, arrangement=_columns)(
      plain, right, x, lower, WIDTH=min(32, 1 << (int(k) - 1).bit_length()))
  def rule(grads: Any, xs: Any, outs: Any) -> Any:
    g = triangular(xs[0].mT, grads[0], not lower)
    full = -(g @ outs[0].mT)
    return full.tril() if lower else full.triu(), g
  return with_rule("solve_triangular", [x], [t, b], rule)[0]


def cholesky(a: Any) -> Any:
  """The lower triangle l with l l' = a."""
  x = _value(a)
  l = _new(x, *x.shape[1:])
  if 0 not in l.shape: l, = _computed(_cholesky, _cholesky_by_host, x, l)
  def rule(grads: Any, xs: Any, outs: Any) -> Any:
    low = outs[0]
    # l^-T inner l^-1, inner being a lower triangle with half of the diagonal
    inner = (low.mT @ grads[0].tril()).tril() * (1 - eye(low, low.shape[-1]) * 0.5)
    g = triangular(low.mT, triangular(low.mT, inner.mT, False).mT, False)
    return (g + g.mT) * 0.5,
  return with_rule("cholesky", [l], [a], rule)[0]


# ---- general square matrices
def _lu_of(a: Any) -> tuple[Any, Any, Any]:
  """L and U in one, the order of rows (b, n), and the order's sign (b,)."""
  x = _value(a)
  n = x.shape[1]
  lu, order, sign = _new(x, n, n), _new(x, 1, n, dtypes.int32), _new(x, 1, 1)
  if 0 in lu.shape: return lu, order.reshape(x.shape[0], n), x.ones(x.shape[0], dtype=x.dtype, device=x.device)
  lu, order, sign = _computed(_lu, _lu_by_host, x, lu, order, sign)
  return lu, order.reshape(x.shape[0], n), sign.reshape(x.shape[0])


def _by_lu(lu: Any, order: Any, b: Any) -> Any:
  """The x of L U x = b, its rows in the order."""
  b = b.detach().gather(1, order.unsqueeze(-1).expand(b.shape)) if 0 not in b.shape else b.detach()
  return triangular(lu, triangular(lu.tril(-1) + eye(lu, lu.shape[-1]), b, True), False)


def solve(a: Any, b: Any) -> Any:
  """x with a x = b, of (b, n, n) and (b, n, k)."""
  lu, order, _ = _lu_of(a)
  return with_rule("solve", [_by_lu(lu, order, b)], [a, b], lambda grads, xs, outs: (
    -((g := solve(xs[0].mT, grads[0])) @ outs[0].mT), g))[0]


def inverse(a: Any) -> Any:
  """The x with a x = 1."""
  lu, order, _ = _lu_of(a)
  return with_rule("inverse", [_by_lu(lu, order, eye(a, a.shape[-1]).expand(a.shape))], [a],
                   lambda grads, xs, outs: (-((x := outs[0].mT) @ grads[0] @ x),))[0]


def det(a: Any) -> Any:
  """Determinants, (b,)."""
  lu, _, sign = _lu_of(a)
  return with_rule("det", [sign * _diagonal(lu).prod(-1)], [a],
                   lambda grads, xs, outs: (grads[0].reshape(-1, 1, 1) * cofactors(xs[0]),))[0]


def slogdet(a: Any) -> tuple[Any, Any]:
  """The signs of determinants and the logarithms of what they are without it, each (b,)."""
  lu, _, sign = _lu_of(a)
  d = _diagonal(lu)
  out, log = with_rule(
    "slogdet", [sign * d.sign().prod(-1), d.abs().log().sum(-1)], [a], lambda grads, xs, outs: (
      (grads[0] * 0 if grads[1] is None else grads[1]).reshape(-1, 1, 1) * inverse(xs[0]).mT,))
  return out, log


def _diagonal(x: Any) -> Any: return x.diagonal(0, -2, -1)


def cofactors(a: Any) -> Any:
  """The gradient of determinants, det(a) times the transposed inverse, also where there is no inverse: a pivot of zero is taken
  for the least number beside the others, which changes a polynomial of the elements by no more than rounding does."""
  lu, order, sign = _lu_of(a)
  n = lu.shape[-1]
  d = _diagonal(lu)
  least = float(info_of(a.dtype).eps) * d.abs().max(axis=-1, keepdim=True)
  changed = (d == 0).where((least == 0).where(1e-20, least), d)
  lu = lu + (changed - d).unsqueeze(-1) * eye(a, n)
  x = _by_lu(lu, order, eye(a, n).expand(lu.shape))
  def rule(grads: Any, xs: Any, outs: Any) -> Any:
    g, c, y = grads[0], outs[0], inverse(xs[0]).mT
    return (g * c).sum((1, 2), keepdim=True) * y - c @ g.mT @ y,
  return with_rule("det", [x.mT * (sign * changed.prod(-1)).reshape(-1, 1, 1)], [a], rule)[0]


# ---- orthogonal factors
def qr(a: Any, complete: bool = False) -> tuple[Any, Any]:
  """q (b, m, k) and r (b, k, n), k being the less of m and n, or m."""
  x = _value(a)
  m, n = x.shape[1:]
  k = m if complete else min(m, n)
  q, r = _new(x, m, k), _new(x, m, n)
  if 0 in r.shape: q = eye(x, m, k).expand(q.shape) if 0 not in q.shape else q
  else: q, r = _computed(_qr, _finite(lambda y: np.linalg.qr(y, "complete" if complete else "reduced")), x, q, r)
  return tuple(with_rule("qr", [q, r[:, :k].triu()], [a], _qr_rule))


def _qr_rule(grads: Any, xs: Any, outs: Any) -> Any:
  q, r = outs
  k, n = r.shape[1:]
  if k > n: raise GradientError(f"qr: the gradient of a complete Q of shape {q.shape[1:]}; take mode='reduced'")
  gq = q * 0 if grads[0] is None else grads[0]
  gr = r * 0 if grads[1] is None else grads[1]
  if n > k: gq = gq + xs[0][:, :, k:] @ gr[:, :, k:].mT
  inner = r[:, :, :k] @ gr[:, :, :k].triu().mT - gq.mT @ q
  g = triangular(r[:, :, :k], (gq + q @ (inner.tril() + inner.tril(-1).mT)).mT, False).mT
  return (g if n == k else g.cat(q @ gr[:, :, k:], dim=2),)


def _orthonormal(v: Any) -> Any:
  """Nearly orthogonal matrices, more nearly so: one step of Newton's."""
  return v * 1.5 - v @ (v.mT @ v) * 0.5


def eigh(a: Any) -> tuple[Any, Any]:
  """Eigenvalues (b, n), rising, and vectors (b, n, n) of symmetric matrices, of which the lower triangle is read."""
  x = _value(a)
  n = x.shape[1]
  w, v = _new(x, 1, n), _new(x, n, n)
  if 0 not in v.shape and _too_large(_eigh, x): w, v = _by_host(_finite(np.linalg.eigh), x)
  elif 0 not in v.shape:
    _run(_eigh, x, w, v)
    v = _orthonormal(v)
    w = (v * ((x.tril() + x.tril(-1).mT) @ v)).sum(1, keepdim=True)
  return tuple(with_rule("eigh", [w.reshape(x.shape[0], n), v], [a], _eigh_rule))


def _eigh_rule(grads: Any, xs: Any, outs: Any) -> Any:
  w, v = outs
  g: Any = 0.0
  if grads[0] is not None: g = g + eye(v, v.shape[-1]) * grads[0].unsqueeze(-2)
  if grads[1] is not None: g = g + (v.mT @ grads[1]) * _over(w.unsqueeze(-2) - w.unsqueeze(-1))
  g = v @ g @ v.mT
  return (g + g.mT) * 0.5,


def _over(x: Any) -> Any:
  """1 / x, 0 where x is."""
  none = x == 0
  return none.where(0.0, 1.0 / none.where(1.0, x))


def svd(a: Any) -> tuple[Any, Any, Any]:
  """u (b, m, k), s (b, k) falling, and the transposed v (b, k, n), k being the less of m and n."""
  m, n = a.shape[1:]
  if m < n:
    v, s, ut = svd(a.mT)
    return ut.mT, s, v.mT
  x = _value(a)
  if 0 not in x.shape and _too_large(_svd, x):
    u, s, vt = _by_host(_finite(lambda y: np.linalg.svd(y, full_matrices=False)), x)
    return tuple(with_rule("svd", [u, s, vt], [a], _svd_rule))
  outer = None
  if m > n > 0: outer, x = qr(x)
  made, v = _new(x, n, n), _new(x, n, n)
  s = _new(x, 1, n).reshape(x.shape[0], n)
  if 0 not in made.shape:
    _run(_svd, _value(x), made, v)
    v = _orthonormal(v)
    made, r = qr(x @ v)     # columns that are orthogonal; of those of length 0 the rest of a basis
    d = _diagonal(r)
    made, s = made * (d < 0).where(-1.0, 1.0).unsqueeze(-2), d.abs()
  elif n == 0: made = _new(a, m, 0)
  if outer is not None: made = outer @ made
  return tuple(with_rule("svd", [made, s, v.mT], [a], _svd_rule))


def _svd_rule(grads: Any, xs: Any, outs: Any) -> Any:
  u, s, vt = outs
  gu, gs, gvt = grads
  g: Any = 0.0 if gs is None else eye(u, s.shape[-1]) * gs.unsqueeze(-2)
  across, down = s.unsqueeze(-2), s.unsqueeze(-1)
  f = _over((across - down) * (across + down))
  out: Any = 0.0
  if gu is not None:
    p = u.mT @ gu
    g = g + (p - p.mT) * f * across
    if u.shape[1] > u.shape[2]: out = out + (gu - u @ p) @ (_over(down) * vt)
  if gvt is not None:
    p = vt @ gvt.mT
    g = g + down * ((p - p.mT) * f)
    if vt.shape[2] > vt.shape[1]: out = out + (u * _over(across)) @ (gvt - p.mT @ vt)
  return out + u @ g @ vt,


def pinv(a: Any, rtol: float) -> Any:
  """The pseudo-inverse (b, n, m): singular values up to ``rtol`` of the greatest count as 0."""
  u, s, vt = _keeping(a, lambda: svd(a.detach()))
  x = vt.mT @ ((s > (s[:, :1] if s.shape[1] else s) * rtol).where(_over(s), 0.0).unsqueeze(-1) * u.mT)
  def rule(grads: Any, xs: Any, outs: Any) -> Any:
    y, p, gt = xs[0], outs[0], grads[0].mT
    k = gt @ p
    kp = k @ p.mT
    return kp - (p @ k).mT - (y @ p) @ kp + (p.mT @ p) @ (gt - k @ y),
  return with_rule("pinv", [x], [a], rule)[0]


def refuse(name: str, why: str, value: Any, a: Any) -> Any:
  """A value whose gradient is refused."""
  def rule(grads: Any, xs: Any, outs: Any) -> Any: raise GradientError(f"{name}: {why}")
  return with_rule(name, [value], [a], rule)[0]


# ---- kernels: what one program does with its matrix (mypy does not know the language's blocks)
def _whole(*parameters: Any) -> Any:
  """All of a matrix for each program."""
  return tuple([p if p.constexpr else p.tile((1, *[-1] * (p.ndim - 1))) for p in parameters])


def _columns(t: Any, b: Any, x: Any, lower: Any) -> Any:
  """All of the triangle, some columns of the right side, for each program."""
  width = tile.Symbol("WIDTH", constexpr=True)
  b, x = [y.tile((1, -1, width)) for y in (b, x)]
  return t.tile((1, -1, -1)).expand((-1, -1, b.shape[2])), b, x, lower


def _element(x: Any, at: Any, j: Any) -> Any: return tl.sum(tl.where(at == j, x, 0))
def _column(x: Any, at: Any, j: Any) -> Any: return tl.sum(tl.where(at[None, :] == j, x, 0.0), axis=1)
def _row(x: Any, at: Any, j: Any) -> Any: return tl.sum(tl.where(at[:, None] == j, x, 0.0), axis=0)
def _identity(a: Any, rows: Any, columns: Any) -> Any:
  return tl.where(rows[:, None] == columns[None, :], tl.zeros((rows.shape[0], columns.shape[0]), a.dtype) + 1.0, 0.0)


def _scaled(x: Any) -> Any:
  """A matrix whose largest element is 1, and what it was divided by."""
  most = tl.max(tl.abs(x))
  scale = tl.where((most > 0.0) & (most < float("inf")), most, 1.0)
  return x / scale, scale


def _across(x: Any, order: Any) -> Any:
  """The columns in an order."""
  return tl.gather(x, tl.broadcast_to(order[None, :], (x.shape[0], order.shape[0])), 1)


def _ascending(values: Any, at: Any, n: Any) -> Any:
  """The places ``at`` of n numbers from the least on, of equal ones the first first."""
  less = (values[None, :] < values[:, None]) | ((values[None, :] == values[:, None]) & (at[None, :] < at[:, None]))
  rank = tl.sum(tl.where(less, 1, 0), axis=1)
  order = at * 0
  for k in range(n): order = tl.where(at == _element(rank, at, k), k, order)
  return order


def _cholesky(a: Any, l: Any) -> None:
  n = a.shape[1]
  at = tl.arange(0, n)
  left, out = a[0], tl.zeros((n, n), a.dtype)
  for j in range(n):
    column = _column(left, at, j)
    pivot = _element(column, at, j)
    column = tl.where(at >= j, column / tl.sqrt(pivot), 0.0)
    left = left - column[:, None] * column[None, :]
    out = tl.where(at[None, :] == j, column[:, None], out)
  l = out[None]  # noqa: F841


def _lu(a: Any, lu: Any, order: Any, sign: Any) -> None:
  """The rows of a in an order such that it is L U, with the elements of L and U in one matrix."""
  n = a.shape[1]
  at = tl.arange(0, n)
  x, place, parity = a[0], at, tl.sum(a[0]) * 0.0 + 1.0
  for j in range(n):
    column = _column(x, at, j)
    size = tl.where(at >= j, tl.abs(column), -1.0)
    p = tl.max(tl.where(at >= j, tl.where(size == tl.max(size), n - at, 0), 0))
    p = tl.where(p > 0, n - p, j)      # the first of the largest; none is where there are NaNs
    row, other = _row(x, at, j), _row(x, at, p)
    x = tl.where(at[:, None] == j, other[None, :], tl.where(at[:, None] == p, row[None, :], x))
    mine, others = _element(place, at, j), _element(place, at, p)
    place = tl.where(at == j, others, tl.where(at == p, mine, place))
    parity = tl.where(p == j, parity, -parity)
    column = _column(x, at, j)
    pivot = _element(column, at, j)
    factor = tl.where(at > j, column / tl.where(pivot == 0.0, 1.0, pivot), 0.0)
    x = x - factor[:, None] * tl.where(at > j, other, 0.0)[None, :]
    x = tl.where((at[None, :] == j) & (at[:, None] > j), factor[:, None], x)
  lu = x[None]  # noqa: F841
  order = place[None, None]  # noqa: F841
  sign = tl.full((1, 1, 1), 1.0, sign.dtype) * parity  # noqa: F841


def _triangular(t: Any, b: Any, x: Any, lower: Any) -> None:
  """t x = b, a row of x after the other."""
  n = b.shape[1]
  at = tl.arange(0, n)
  left = b[0]
  for k in range(n):
    j = k if lower else n - 1 - k
    column = tl.load(t.source[tl.program_id(0), at, j])
    pivot = _element(column, at, j)
    row = _row(left, at, j) / pivot
    later = at > j if lower else at < j
    left = left - tl.where(later, column, 0.0)[:, None] * row[None, :]
    left = tl.where(at[:, None] == j, row[None, :], left)
  x = left[None]  # noqa: F841


def _qr(a: Any, q: Any, r: Any) -> None:
  """Householder's reflections; R has the rows of all of a."""
  m, n, k = a.shape[1], a.shape[2], q.shape[2]
  rows, columns, across = tl.arange(0, m), tl.arange(0, n), tl.arange(0, k)
  x, scale = _scaled(a[0])
  reflections = tl.zeros((m, n), a.dtype)
  for j in range(min(m, n)):
    column = tl.where(rows >= j, _column(x, columns, j), 0.0)
    first = _element(column, rows, j)
    below = tl.sum(tl.where(rows > j, column * column, 0.0))
    length = tl.sqrt(below + first * first)
    v = tl.where(rows == j, column + tl.where(first < 0.0, -length, length), column)
    norm = tl.sum(v * v)
    v = v * tl.where(below == 0.0, 0.0, tl.sqrt(2.0 / tl.where(below == 0.0, 1.0, norm)))   # I - v v'
    x = x - v[:, None] * tl.sum(v[:, None] * x, axis=0)[None, :]
    x = tl.where((columns[None, :] == j) & (rows[:, None] > j) & (below == below), 0.0, x)
    reflections = tl.where(columns[None, :] == j, v[:, None], reflections)
  r = (x * scale)[None]  # noqa: F841
  out = _identity(a, rows, across)
  for i in range(min(m, n)):
    v = _column(reflections, columns, min(m, n) - 1 - i)
    out = out - v[:, None] * tl.sum(v[:, None] * out, axis=0)[None, :]
  q = out[None]  # noqa: F841


def _partner(at: Any, step: Any, n: Any) -> Any:
  """The column that each of n is paired with in a step of a round-robin schedule; itself where it has none."""
  m = n - 1 + n % 2
  p = (step - at + m) % m
  if n % 2 == 1: return p
  last = step * (n // 2) % m   # the column that the last one is paired with
  return tl.where(at == m, last, tl.where(p == at, m, p))


def _rotation(none: Any, mine: Any, theirs: Any, both: Any, at: Any, p: Any) -> Any:
  """Cosine and sine of the angle that each pair is rotated by, 0 where ``none``: its tangent is the smaller root t of
  t * t + 2 * zeta * t = 1, with its sign for the one of a pair, with the other for the other one."""
  zeta = (theirs - mine) / (2.0 * tl.where(none, 1.0, both))
  sign = tl.where(zeta == 0.0, tl.where(at < p, 1.0, -1.0), tl.where(zeta < 0.0, -1.0, 1.0))
  t = tl.where(none, 0.0, sign / (tl.abs(zeta) + tl.sqrt(zeta * zeta + 1.0)))
  c = 1.0 / tl.sqrt(1.0 + t * t)
  return c, t * c


def _eigh(a: Any, w: Any, v: Any) -> None:
  """Jacobi's rotations: each step makes n / 2 elements beside the diagonal zero, in pairs that share no row."""
  n = a.shape[1]
  at = tl.arange(0, n)
  diagonal = at[:, None] == at[None, :]
  x, scale = _scaled(a[0])
  x = tl.where(at[:, None] >= at[None, :], x, tl.trans(x))   # the lower triangle says it all
  vectors = _identity(a, at, at)
  eps = 1.2e-7 if a.dtype.itemsize == 4 else 2.2e-16
  wrong = tl.sum(x) * 0.0                              # NaN where there is a NaN or an infinity
  beside = tl.sum(tl.where(diagonal, 0.0, x * x))
  sweep = 0
  while (beside > eps * eps * tl.sum(x * x)) & (sweep < 30):
    for step in range(n - 1 + n % 2):
      p = _partner(at, step, n)
      mine = tl.sum(tl.where(diagonal, x, 0.0), axis=1)
      theirs = tl.gather(mine, p, 0)
      both = tl.sum(tl.where(at[None, :] == p[:, None], x, 0.0), axis=1)
      none = (both == 0.0) | (p == at)
      c, s = _rotation(none, mine, theirs, both, at, p)
      across = tl.broadcast_to(p[None, :], (n, n))
      x = c[:, None] * x - s[:, None] * tl.gather(x, tl.broadcast_to(p[:, None], (n, n)), 0)
      x = c[None, :] * x - s[None, :] * tl.gather(x, across, 1)
      x = tl.where((at[None, :] == p[:, None]) & (p != at)[:, None], x * 0.0, x)
      vectors = c[None, :] * vectors - s[None, :] * tl.gather(vectors, across, 1)
    beside = tl.sum(tl.where(diagonal, 0.0, x * x))
    sweep += 1
  values = tl.sum(tl.where(diagonal, x, 0.0), axis=1)
  order = _ascending(values, at, n)
  w = (tl.gather(values, order, 0) * scale + wrong)[None, None]  # noqa: F841
  v = (_across(vectors, order) + wrong)[None]  # noqa: F841


def _svd(a: Any, u: Any, v: Any) -> None:
  """Rotations of columns until all are orthogonal (Hestenes): a v = u, the longest column first."""
  n = a.shape[2]
  at = tl.arange(0, n)
  x, scale = _scaled(a[0])
  vectors = _identity(a, at, at)
  eps = 1.2e-7 if a.dtype.itemsize == 4 else 2.2e-16
  wrong = tl.sum(x) * 0.0                              # NaN where there is a NaN or an infinity
  worst = wrong + 1.0
  sweep = 0
  while (worst > eps) & (sweep < 30):
    worst = worst * 0.0
    for step in range(n - 1 + n % 2):
      p = _partner(at, step, n)
      other = _across(x, p)
      mine = tl.sum(x * x, axis=0)
      theirs = tl.gather(mine, p, 0)
      both = tl.sum(x * other, axis=0)
      size = tl.sqrt(mine) * tl.sqrt(theirs)
      none = (p == at) | (tl.abs(both) <= eps * size)
      worst = tl.maximum(worst, tl.max(tl.where(none, 0.0, tl.abs(both) / tl.where(none, 1.0, size))))
      c, s = _rotation(none, mine, theirs, both, at, p)
      x = c[None, :] * x - s[None, :] * other
      vectors = c[None, :] * vectors - s[None, :] * _across(vectors, p)
    sweep += 1
  order = _ascending(-tl.sum(x * x, axis=0), at, n)
  u = (_across(x, order) * scale + wrong)[None]  # noqa: F841
  v = (_across(vectors, order) + wrong)[None]  # noqa: F841


# ---- kernels: a matrix's sizes are numbers in them, a batch's is any
@functools.lru_cache(256)
def _kernel(application: Any, *shapes: tuple[int, int] | None, arrangement: Any = _whole) -> TileKernel:
  """The kernel for matrices of these shapes (None: a number that is part of it)."""
  tensors = [Tensor(0, constexpr=True) if s is None else Tensor(shape=(None, *s)) for s in shapes]
  side = max([n for s in shapes if s is not None for n in s])
  warps = 4 if side <= 32 else 8 if side <= 64 else 16     # a block lies in their registers
  return tile.make(arrangement, application, tensors, kernel_name=application.__name__[1:], num_warps=warps)
