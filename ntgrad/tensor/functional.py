"""Matrix products of ``Tensor``: an expanded product and one sum, of which the scheduler finds the tiles."""
from __future__ import annotations

from typing import Any, Callable, Self, Sequence

from ntgrad.codegen.ir.dtype import DType, dtypes, promote
from ntgrad.codegen.ir.errors import ShapeError
from ntgrad.codegen.ir.uop import UOp
from ntgrad.graph import nodes as graph
from ntgrad.graph.checks import Operand, checked, mixed, one_width
from ntgrad.graph.names import Names, Places, fit, merged, text

from .elementwise import Elementwise, broadcast_shape, common_device, common_dtype
from .movement import Movement


def _product(name: str, a: UOp, b: UOp, dtype: DType | None = None) -> tuple[UOp, UOp, DType]:
  """Both factors in the dtype that their product is summed in, and the dtype of the result: ``dtype``, or their common one."""
  if a.device != b.device: common_device(name, a, b)
  out = a.dtype if a.dtype is b.dtype else promote(a.dtype, b.dtype)
  acc = graph.acc_dtype(out if dtype is None else promote(out, dtype))
  return graph.cast(a, acc), graph.cast(b, acc), dtype or (acc if out.kind == "e" else out)


def unwidened(name: str, tensors: Sequence[Any]) -> None:
  """Raises DTypeError where float64 meets a smaller float that requires a gradient, in a product: data would widen a model."""
  floats = [t for t in tensors if t.dtype.kind == "f" and t.ndim]
  wide = next((t for t in floats if t.dtype is dtypes.float64), None)
  narrow = next((t for t in floats if t.dtype is not dtypes.float64 and t._state > 0), None)
  if wide is not None and narrow is not None: raise mixed(name, wide, narrow)


def names_of_product(name: str, tensors: Sequence[Any], places: Sequence[Places], ndim: int) -> Names | None:
  """The names of a sum of products: of each factor, where its dimensions go in the result (behind it: what is summed)."""
  if all([t._names is None for t in tensors]): return None
  return merged(name, tensors, places, ndim, "factor")


def _product_places(nx: int, ny: int) -> tuple[list[Places], int]:
  """Where the dimensions of a matrix product's factors go, and how many the result has; the summed one is the last place."""
  n = max(nx, ny, 2) - 2 + (nx > 1) + (ny > 1)
  batch = n - (nx > 1) - (ny > 1)
  x = (*range(batch - (nx - 2), batch), batch, n) if nx > 1 else (n,)
  y = (*range(batch - (ny - 2), batch), n, n - 1) if ny > 1 else (n,)
  return [x, y], n


def _times(t: Any, factor: float) -> Any: return t if factor == 1 else t * factor


@checked
class Functional(Elementwise, Movement):
  """Products of matrices and vectors."""
  __slots__ = ()

  # ---- products
  def dot(self, w: Any, dtype: Any = None) -> Self:
    """The matrix product: 1-d with 1-d is the inner product; dims before the last two broadcast. Raises ShapeError.

    (.., m, k) @ (.., k, n) -> (.., m, n), in the dtype that both have together, or ``dtype``. float16, bfloat16 and fp8 are added
    up in float32, small ints and bools in int32; int sums that the dtype does not hold wrap. Raises DTypeError for float64 with a
    smaller float that requires a gradient.
    """
    if not isinstance(w, Functional): w = self._from_host(w)
    x, y = self.lazydata, w.lazydata
    sx, sy = x.shape, y.shape
    nx, ny = len(sx), len(sy)
    if not nx or not ny: raise ShapeError(f"matmul: shapes {sx} and {sy}; both need at least one dimension (use * for numbers)")
    k = sx[-1]
    if sy[-2 if ny > 1 else 0] != k:
      fit("matmul", (self, w), *_product_places(nx, ny), "factor")
      raise ShapeError(f"matmul: shapes {text(self)} and {text(w)}; the last dimension of the first ({k}) must equal "
                       f"the {'second to last' if ny > 1 else 'only'} dimension of the second ({sy[-2 if ny > 1 else 0]})")
    if x.dtype is not y.dtype: unwidened("matmul", (self, w))
    a, b, out = _product("matmul", x, y, None if dtype is None else dtypes.of(dtype))
    called = None if self._names is w._names is None else names_of_product("matmul", (self, w), *_product_places(nx, ny))
    if nx == 1 and ny == 1:
      total = graph.drop(graph.total(graph.mul(a, b), (0,)), (0,))
      return self._wrap_many(graph.cast(total, out), (w,), called)
    n = sy[-1] if ny > 1 else 1
    m = sx[-2] if nx > 1 else 1
    try: batch = broadcast_shape("matmul", sx[:-2], sy[:-2]) if nx > 2 or ny > 2 else ()
    except ShapeError:
      fit("matmul", (self, w), *_product_places(nx, ny), "factor")
      raise
    full = (*batch, m, n, k)
    if nx > 1: a = graph.reshape(a, sx[:-1] + (1, k))
    if ny > 1: b = graph.permute(b, (*range(ny - 2), ny - 1, ny - 2))
    if ny > 2: b = graph.reshape(b, sy[:-2] + (1, n, k))
    total = graph.total(graph.mul(graph.broadcast(a, full), graph.broadcast(b, full)), (len(full) - 1,))
    total = graph.reshape(total, (*batch, *((m,) if nx > 1 else ()), *((n,) if ny > 1 else ())))
    return self._wrap_many(graph.cast(total, out), (w,), called)

  def matmul(self, x: Any, reverse: bool = False, dtype: Any = None) -> Self:
    """``self @ x``; see ``dot``."""
    if reverse: return self._from_host(x).dot(self, dtype)
    return self.dot(x, dtype)
  def __matmul__(self, x: Any) -> Self: return self.dot(x)
  def __rmatmul__(self, x: Any) -> Self: return self.matmul(x, True)
  def __imatmul__(self, x: Any) -> Self: return self._in_place("@=", lambda: self @ x)

  def linear(self, weight: Operand, bias: Operand | None = None) -> Self:
    """``self @ weight + bias`` with a weight (in, out), or ``self * weight`` for a 1-d one. Raises ShapeError,
    DTypeError for float64 with smaller floats."""
    one_width("linear", self, weight, bias)
    x = self * weight if weight.ndim == 1 else self.dot(weight)
    return x if bias is None else x + bias

  def sequential(self, layers: Sequence[Callable[..., Any]]) -> Any:
    """The layers applied one after the other."""
    x: Any = self
    for layer in layers: x = layer(x)
    return x

  def outer(self, x: Operand) -> Self:
    """(m,), (n,) -> (m, n). Raises ShapeError."""
    if self.ndim != 1 or x.ndim != 1: raise ShapeError(f"outer: shapes {self.shape} and {x.shape}; it takes two 1-d tensors")
    return self.unsqueeze(1) * x.unsqueeze(0)
  def ger(self, vec2: Operand) -> Self:
    """``outer``."""
    return self.outer(vec2)

  # ---- a product and a sum
  def addmm(self, mat1: Operand, mat2: Operand, *, beta: float = 1, alpha: float = 1) -> Self:
    """``beta * self + alpha * (mat1 @ mat2)`` of matrices (n, k) and (k, m); with a beta of 0 this tensor does not count.

    Raises ShapeError for tensors of other shapes.
    """
    return self._plus_product("addmm", mat1, mat2, 2, beta, alpha)
  def addmv(self, mat: Operand, vec: Operand, *, beta: float = 1, alpha: float = 1) -> Self:
    """``beta * self + alpha * (mat @ vec)`` of a matrix (n, k) and a vector (k,); see ``addmm``."""
    if vec.ndim != 1: raise ShapeError(f"addmv: a vector of shape {vec.shape}; it must have 1 dimension")
    return self._plus_product("addmv", mat, vec, 2, beta, alpha)
  def baddbmm(self, batch1: Operand, batch2: Operand, *, beta: float = 1, alpha: float = 1) -> Self:
    """``beta * self + alpha * (batch1 @ batch2)`` of matrices (b, n, k) and (b, k, m); see ``addmm``."""
    return self._plus_product("baddbmm", batch1, batch2, 3, beta, alpha)
  def addbmm(self, batch1: Operand, batch2: Operand, *, beta: float = 1, alpha: float = 1) -> Self:
    """``beta * self + alpha * (batch1 @ batch2).sum(0)`` of matrices (b, n, k) and (b, k, m); see ``addmm``."""
    if batch1.ndim != 3 or batch2.ndim != 3 or batch1.shape[0] != batch2.shape[0]:
      raise ShapeError(f"addbmm: shapes {batch1.shape} and {batch2.shape}; it takes (b, n, k) and (b, k, m)")
    rows = batch1.named().transpose(0, 1).flatten(1)   # the sum over b is one over (b, k)
    return self._plus_product("addbmm", rows, batch2.named().flatten(0, 1), 2, beta, alpha)
  def addr(self, vec1: Operand, vec2: Operand, *, beta: float = 1, alpha: float = 1) -> Self:
    """``beta * self + alpha * vec1.outer(vec2)`` of vectors (n,) and (m,); with a beta of 0 this tensor does not count. Raises
    ShapeError."""
    return self._plus("addr", vec1.outer(vec2), beta, alpha)
  def _plus_product(self, name: str, a: Any, b: Any, ndim: int, beta: float, alpha: float) -> Self:
    if a.ndim != ndim or b.ndim != (1 if name == "addmv" else ndim):
      raise ShapeError(f"{name}: a product of shapes {a.shape} and {b.shape}; each must have {ndim} dimensions")
    return self._plus(name, a @ b, beta, alpha)
  def _plus(self, name: str, product: Any, beta: float, alpha: float) -> Self:
    if broadcast_shape(name, self.shape, product.shape) != product.shape:
      raise ShapeError(f"{name}: a tensor of shape {self.shape} beside a product of shape {product.shape}; it must broadcast to "
                       "that")
    out: Self = _times(product, alpha)
    return out.cast(common_dtype(self.lazydata, out.lazydata)) if beta == 0 else _times(self, beta) + out
