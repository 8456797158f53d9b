"""``torch.amp``: mixed precision. ``autocast`` has products computed in a low dtype, ``GradScaler`` keeps gradients of float16
from vanishing."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextvars import Token
from functools import reduce, wraps
from typing import Any, Self

from ntgrad.codegen.ir import ArgumentError, DType, StateError, dtypes, shown
from ntgrad.compat.public import show
from ntgrad.engine.device import Device
from ntgrad.engine.report import note_line
from ntgrad.graph import checked
from ntgrad.graph.modes import Autocast, autocast as _now
from ntgrad.graph.origins import user_frame
from ntgrad.tensor import Tensor

from .common import number
from .optim.base import OptimizerGroup, an_optimizer
from .optim.by_hand import ByHand

_CONVERTS = "cpu", "numpy"   # types of devices without products of 16 bits
_DEFAULT = {"cuda": dtypes.float16, "cpu": dtypes.bfloat16, "numpy": dtypes.bfloat16, "cl": dtypes.float16}


def _type(name: str, device_type: str) -> str:
  if device_type not in _DEFAULT:
    raise ArgumentError(f"{name}: device type {shown(device_type)}; it takes {', '.join(map(repr, _DEFAULT))}, without a number")
  return device_type


def is_autocast_available(device_type: str) -> bool:
  """Whether there is autocasting for devices of a type: "cuda", "cpu", "numpy", "cl"."""
  return device_type in _DEFAULT


@checked
def is_autocast_enabled(device_type: str = "cuda") -> bool:
  """Whether products on devices of a type are computed in a low dtype, in this thread. Raises ArgumentError."""
  return _type("is_autocast_enabled", device_type) in dict(_now.get())


@checked
def get_autocast_dtype(device_type: str) -> DType:
  """The dtype that products on devices of a type are computed in, or would be. Raises ArgumentError."""
  return dict(_now.get()).get(_type("get_autocast_dtype", device_type), _DEFAULT[device_type])


@checked
class autocast:
  """``with autocast("cuda", dtypes.bfloat16): ..``, or ``@autocast("cpu")`` above a function: on devices of that type products
  and convolutions are computed in ``dtype`` (None: float16 on GPUs, bfloat16 on CPUs), exp, pow, norms, sums and losses in
  float32, all else in the widest dtype of its inputs (``tensor/autocasting.py`` has the lists). Arguments of float64 and of
  integers stay as they are, so do operations in place. Gradients of parameters have the parameters' dtype; call ``backward()``
  behind the block.

  Blocks may be nested, ``enabled=False`` computes in the dtypes of the inputs. ``cache_enabled`` changes nothing: a parameter is
  cast once a step. A dtype that is no low one is ignored, with a warning, as PyTorch does. Raises ArgumentError for another type
  of device."""

  def __init__(self, device_type: str, dtype: DType | str | None = None, enabled: bool = True,
               cache_enabled: bool | None = None) -> None:
    self.device = _type("autocast", device_type)
    self.fast_dtype = _DEFAULT[device_type] if dtype is None else dtypes.of(dtype)
    self.enabled, self._before = enabled, list[Token[Autocast]]()
    if enabled and self.fast_dtype not in (dtypes.float16, dtypes.bfloat16):
      at = user_frame()
      warnings.warn_explicit(f"autocast: products are not computed in {self.fast_dtype.name}, but in float16 or bfloat16: it is "
                             "off here", UserWarning, at.f_code.co_filename, at.f_lineno)
      self.enabled = False

  def __enter__(self) -> Self:
    if self.enabled and self.device in _CONVERTS:
      note_line(f"autocast: {self.device} multiplies {self.fast_dtype.name} as float32, to which each factor is converted first: "
                "it takes less memory, and rather more time than float32")
    others = {k: v for k, v in _now.get() if k != self.device}
    self._before.append(_now.set(tuple((others | ({self.device: self.fast_dtype} if self.enabled else {})).items())))
    return self

  def __exit__(self, *_: object) -> None: _now.reset(self._before.pop())

  def __call__(self, fn: Callable[..., Any]) -> Any:
    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
      with type(self)(self.device, self.fast_dtype, self.enabled): return fn(*args, **kwargs)
    return call


@checked
class GradScaler:
  """Scales a loss before ``backward()``, so that gradients of float16 do not vanish, and the gradients back before a step::

      scaler.scale(loss).backward()
      scaler.step(optimizer)
      scaler.update()

  A step whose gradients have inf or NaN leaves parameters and state as they are; ``update`` multiplies the scale by
  ``backoff_factor`` then, and by ``growth_factor`` after ``growth_interval`` steps without one. Nothing of that asks the host, so
  a captured step (``ntgrad.jit``) may have all of it. With ``enabled=False`` nothing is scaled, and ``step`` is the optimizer's.
  ``device`` is where nothing else says it. Raises ArgumentError for factors that neither shrink nor grow."""

  def __init__(self, device: str | None = None, init_scale: float = 65536.0, growth_factor: float = 2.0,
               backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True) -> None:
    if not growth_factor > 1 or not 0 < backoff_factor < 1 or growth_interval < 1 or not init_scale > 0:
      raise ArgumentError(f"GradScaler: init_scale {init_scale}, growth_factor {growth_factor}, backoff_factor {backoff_factor}, "
                          f"growth_interval {growth_interval}; the first is above 0, the second above 1, the third between 0 "
                          "and 1, the last at least 1")
    self._enabled, self._factors, self._interval = enabled, (growth_factor, backoff_factor), growth_interval
    where = Device._located(device) if device is not None and enabled else None
    self._scale = Tensor([init_scale], dtype=dtypes.float32, device=where, requires_grad=False)
    self._growth = Tensor([0], dtype=dtypes.int32, device=where, requires_grad=False)
    self._unscaled = dict[int, list[Tensor]]()   # by optimizer, since the last update: whether its gradients have inf or NaN
    self._stepped = set[int]()

  def scale(self, outputs: Any) -> Any:
    """A Tensor times the scale, or each of several. Raises ArgumentError for others."""
    if not self._enabled: return outputs
    if isinstance(outputs, Tensor): return outputs * self._scale.to(outputs.device).reshape(())
    if not isinstance(outputs, Iterable): raise ArgumentError(f"GradScaler.scale: {shown(outputs)}; it takes Tensors")
    return type(outputs)(self.scale(x) for x in outputs) if isinstance(outputs, (list, tuple)) else map(self.scale, outputs)

  def unscale_(self, optimizer: Any) -> None:
    """Divide an optimizer's gradients by the scale, to look at them or clip them before ``step``. Raises StateError where that is
    done, ArgumentError for another object."""
    if not self._enabled: return
    each = _each(an_optimizer("GradScaler", optimizer))
    flats = [f for o in each if not isinstance(o, ByHand) for g in o.param_groups for f in g.flats]
    if id(optimizer) in self._stepped: raise StateError("GradScaler.unscale_: the optimizer has stepped; call it before step()")
    if id(optimizer) in self._unscaled: raise StateError("GradScaler.unscale_: done since the last update(); call it once a step")
    bad = []
    for p in [p for o in each if isinstance(o, ByHand) for p in o.params if p.grad is not None]:
      wide = dtypes.float32 if p.grad.dtype.itemsize < 4 else p.grad.dtype   # 1 / scale has few bits in float16
      p.grad = (p.grad.cast(wide) * self._scale.to(p.device).reciprocal().reshape(())).cast(p.grad.dtype).detach()
      bad.append(p.grad.isfinite().all().logical_not().reshape(1))
    for f in flats:
      if not (grads := f.gradients()): continue
      inverse = self._scale.to(f.device).reciprocal().reshape(())
      for p, g in zip(f.params, grads):
        if g is not None: p.grad = (g.cast(f.wide) * inverse).cast(g.dtype).detach()
      parts = [Tensor.zeros(*p.shape, dtype=f.dtype, device=f.device) if p.grad is None else p.grad for p in f.params]
      bad.append(f.join(parts).isfinite().all().logical_not().reshape(1))
    self._unscaled[id(optimizer)] = bad

  def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """The optimizer's step, with the gradients divided by the scale if that is not done; one that would write inf or NaN leaves
    everything as it is. Raises StateError for a second step without ``update``, ArgumentError for another object."""
    if not self._enabled: return optimizer.step(*args, **kwargs)
    if "closure" in kwargs or any(map(callable, args)): raise ArgumentError("GradScaler.step: it takes no closure")
    if id(optimizer) in self._stepped: raise StateError("GradScaler.step: the optimizer has stepped since the last update()")
    if id(optimizer) not in self._unscaled: self.unscale_(optimizer)
    self._stepped.add(id(optimizer))
    if not (bad := self._unscaled[id(optimizer)]): return optimizer.step(*args, **kwargs)   # which says what is missing
    each, skip = _each(optimizer), _any(bad)
    for o in each: o._skip = skip
    try: return optimizer.step(*args, **kwargs)
    finally:
      for o in each: o._skip = None

  def update(self, new_scale: Any = None) -> None:
    """End a step: change the scale by what was found, or set it. Raises ArgumentError for a scale that is not one number above 0,
    StateError where no optimizer was stepped."""
    if not self._enabled: return
    bad = [b for parts in self._unscaled.values() for b in parts]
    self._unscaled, self._stepped = {}, set()
    if new_scale is not None:
      value = new_scale if isinstance(new_scale, Tensor) else Tensor(number(0)("GradScaler.update", "new_scale", new_scale))
      if value.numel() != 1: raise ArgumentError(f"GradScaler.update: new_scale {shown(new_scale)}; it is one number")
      self._scale.assign(value.detach().reshape(1).cast(dtypes.float32).to(self._scale.device)).realize()
      return
    if not bad: raise StateError("GradScaler.update: no gradients were looked at since the last one; call step() before")
    found, count = _any([b.to(self._scale.device) for b in bad]), self._growth + 1
    grow, (up, down) = count >= self._interval, self._factors
    larger = self._scale * up
    grown = (grow & larger.isfinite()).where(larger, self._scale)
    scale, growth = found.where(self._scale * down, grown), (found | grow).where(0, count)
    Tensor.realize(self._scale.assign(scale), self._growth.assign(growth.cast(dtypes.int32)))

  def get_scale(self) -> float:
    """The scale, 1 where nothing is scaled."""
    return float(self._scale.item()) if self._enabled else 1.0
  def get_growth_factor(self) -> float: return self._factors[0]
  def get_backoff_factor(self) -> float: return self._factors[1]
  def get_growth_interval(self) -> int: return self._interval
  def is_enabled(self) -> bool: return self._enabled

  def state_dict(self) -> dict[str, Any]:
    """The scale, the factors, the interval and the steps since the scale changed, as PyTorch has them; {} where nothing is
    scaled."""
    if not self._enabled: return {}
    return {"scale": self.get_scale(), "growth_factor": self._factors[0], "backoff_factor": self._factors[1],
            "growth_interval": self._interval, "_growth_tracker": int(self._growth.item())}

  def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
    """Take what :meth:`state_dict` gave, of this scaler or PyTorch's. Raises StateError."""
    if not self._enabled: return
    if missing := {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"} - {*state_dict}:
      raise StateError(f"GradScaler.load_state_dict: {', '.join(map(repr, sorted(missing)))} is missing")
    self._factors = float(state_dict["growth_factor"]), float(state_dict["backoff_factor"])
    self._interval = int(state_dict["growth_interval"])
    for t, value in (self._scale, state_dict["scale"]), (self._growth, state_dict["_growth_tracker"]):
      t.assign(Tensor([value], dtype=t.dtype, device=t.device))
    Tensor.realize(self._scale, self._growth)


def _each(optimizer: Any) -> list[Any]:
  """The optimizers of a group, and of groups in it; one as it is."""
  return [o for x in optimizer for o in _each(x)] if isinstance(optimizer, OptimizerGroup) else [optimizer]


def _any(bad: list[Tensor]) -> Tensor:
  """Whether any of some truths, each (1,), holds."""
  return reduce(lambda found, b: found | b.to(found.device), bad)


__all__ = ["GradScaler", "autocast", "get_autocast_dtype", "is_autocast_available", "is_autocast_enabled"]
show(__name__)
