"""What Python and notebooks ask of a tensor: its text, iteration, ``in``, ``round``, ``divmod``."""
from __future__ import annotations

import html
from typing import Any, ClassVar, Iterator, Self

import numpy as np

from ntgrad.codegen.ir.errors import ArgumentError, NtgradError, ScalarError, ShapeError
from ntgrad.graph.checks import checked
from ntgrad.graph.host import host_view, is_host_view
from ntgrad.graph.names import text

from .indexing import Indexing
from .reduction import Reduction

WHOLE = 1 << 20            # elements up to which values are copied to be printed
ROWS, COLUMNS = 20, 20     # of a table in a notebook


@checked
class Protocols(Indexing, Reduction):
  """What Python and notebooks ask of a tensor."""
  __slots__ = ()
  _array_api: ClassVar[Any]   # what gives ``ntgrad.array_api``, which is made of tensors

  # ---- the array API standard
  def __array_namespace__(self, *, api_version: str | None = None) -> Any:
    """The namespace of the array API standard: ``ntgrad.array_api``. Raises ArgumentError for a version later than its own."""
    namespace = self._array_api()
    if api_version is not None and api_version > namespace.__array_api_version__:
      raise ArgumentError(f"__array_namespace__: version {api_version}; it has {namespace.__array_api_version__}")
    return namespace

  def to_device(self, device: str, /, *, stream: Any = None) -> Self:
    """The same value as a tensor of its own on a device. Raises DeviceError."""
    return self.to(device=device)

  # ---- devices and dtypes, as PyTorch has them
  def cpu(self) -> Self:
    """The same value as a tensor of its own on the CPU."""
    return self.to("CPU")
  def cuda(self, device: int | None = None) -> Self:
    """The same value as a tensor of its own on a GPU (its number). Raises DeviceError where there is none."""
    return self.to("CUDA" if not device else f"CUDA:{device}")
  def type(self, dtype: Any = None) -> Any:
    """The same value in another dtype, or without one the dtype's name. Raises DTypeError."""
    return self.dtype.name if dtype is None else self.to(dtype=dtype)
  @property
  def is_cuda(self) -> bool:
    """Whether it is on a GPU."""
    return self.device.startswith("CUDA")

  # ---- text
  def _known(self) -> np.ndarray[Any, Any] | None:
    """The values, where they are there already; None where they would have to be computed, or are very many on a device."""
    if self._alias.pending: return None
    from ntgrad.engine.capture import being_recorded
    from ntgrad.engine.realize import rebased
    if being_recorded: return None
    u = rebased(self.lazydata)
    if not is_host_view(u): return None
    if self.numel() <= WHOLE: return host_view(u)
    memory: Any = self.detach()
    try: return np.from_dlpack(memory, copy=False)
    except (BufferError, RuntimeError, NtgradError): return None

  def _brief(self) -> str:
    """The tensor without its values, for messages."""
    return f"<Tensor {text(self)} {self.dtype.name} on {self.device}{', requires_grad=True' if self._state > 0 else ''}>"

  def __repr__(self) -> str:
    """Shape, dtype, device, and the values where they have been computed. Nothing is computed for it."""
    head, values = self._brief()[:-1], self._known()
    if values is None: return f"{head}, {self.lazydata.op.name}, not computed>" if self._alias.memory is None else f"{head}>"
    if values.dtype.kind == "V" or values.dtype.itemsize < 4 and self.dtype.kind == "f": values = values.astype(np.float32)
    printed = np.array2string(values, separator=", ", threshold=1000, max_line_width=120)
    return f"{head}:{chr(10) if chr(10) in printed else ' '}{printed}>"

  def __format__(self, spec: str) -> str:
    """``f"{loss:.3f}"``: the number of a tensor of one element. Raises ShapeError for several."""
    if not spec: return repr(self) if self.ndim else str(self.item())
    if self.numel() != 1:
      raise ShapeError(f"format: {spec!r} for a tensor of shape {text(self)}; it takes one element (.tolist() gives all)")
    return format(self.item(), spec)

  def _repr_html_(self) -> str:
    """For notebooks: a table of the values of one or two dimensions where they have been computed, else the text."""
    values = self._known() if self.ndim in (1, 2) and self.numel() <= WHOLE else None
    if values is None: return f"<pre>{html.escape(repr(self))}</pre>"
    rows = np.atleast_2d(values)
    def line(cells: list[str]) -> str: return "<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>"
    more = rows.shape[1] > COLUMNS
    out = [line([*[_cell(v) for v in row[:COLUMNS].tolist()], *(["…"] if more else [])]) for row in rows[:ROWS]]
    if rows.shape[0] > ROWS: out.append(line(["…"] * min(rows.shape[1], COLUMNS + 1)))
    return f"<div>{html.escape(self._brief()[1:-1])}</div><table>{''.join(out)}</table>"

  # ---- as a container and as a number
  def __iter__(self) -> Iterator[Self]:
    if not self.ndim:
      raise ScalarError("iteration: a tensor of shape () has no dimension to go along; .item() gives its number")
    return iter([self[i] for i in range(self.shape[0])])

  def __contains__(self, value: Any) -> bool: return bool((self == value).any().item())

  def __divmod__(self, x: Any) -> tuple[Self, Self]: return self // x, self % x
  def __rdivmod__(self, x: Any) -> tuple[Self, Self]: return x // self, x % self


def _cell(value: Any) -> str: return f"{value:.4g}" if isinstance(value, float) else str(value)
