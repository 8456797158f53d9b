"""Metal source on a machine without Metal: as C++, over a header that has what kernels use, run by numpy's memory and a thread a
work-item."""
from __future__ import annotations

import ctypes
import itertools
import os
import shutil
from typing import Any, Sequence

import numpy as np
import pytest

from ntgrad.backends.base import Program, ProgramSpec, grid_of
from ntgrad.backends.metal import MetalRenderer
from ntgrad.backends.numpy.device import NumpyDevice
from support import plain_c

CXX = next(
  (found for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++") if name and (found := shutil.which(name))), None
)
needs_cxx = pytest.mark.skipif(not CXX, reason="no C++ compiler: neither c++, g++ nor clang++ is installed")
HEADER = r"""
#include <cmath>
#include <cstdint>
#include <cstring>
#include <pthread.h>
#define kernel extern "C"
#define device
#define threadgroup static
#define constant const
namespace metal {
typedef uint8_t uchar; typedef uint16_t ushort; typedef uint32_t uint; typedef uint64_t ulong;
struct uint3 { uint x, y, z; };
using std::sqrt; using std::exp; using std::exp2; using std::log; using std::log2; using std::sin; using std::cos; using std::tan;
using std::tanh; using std::pow; using std::fmod; using std::copysign; using std::floor;
using std::ceil; using std::trunc; using std::rint;
using std::fabs;
template <class T, class F> T as_type(F x) { static_assert(sizeof(T) == sizeof(F)); T y; memcpy(&y, &x, sizeof y); return y; }
struct half {   // kept as bits
  ushort bits;
  explicit half(float x) {
    uint b = as_type<uint>(x), a = b & 0x7fffffff, r;
    if (a > 0x7f800000) r = 0x7e00;
    else if (a < 0x38800000) r = as_type<uint>(fabs(x) + 0.5f) - as_type<uint>(0.5f);
    else r = ((a + 0xfff + (a >> 13 & 1)) >> 13) - 0x1c000;
    bits = (r > 0x7c00 && a <= 0x7f800000 ? 0x7c00 : r) | (b >> 16 & 0x8000);
  }
  operator float() const {
    uint e = bits >> 10 & 31, m = bits & 1023;
    float x = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(1024.0f + m, int(e) - 25) : std::ldexp(float(m), -24);
    return bits >> 15 ? -x : x;
  }
};
struct atomic_int { int value; }; struct atomic_uint { uint value; }; struct atomic_float { float value; };
enum memory_order { memory_order_relaxed };
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
#define ATOMIC(name, new) template <class A, class T> void atomic_fetch_##name##_explicit(A* p, T x, memory_order) { \
  pthread_mutex_lock(&one); p->value = new; pthread_mutex_unlock(&one); }
ATOMIC(add, p->value + x) ATOMIC(max, p->value > x ? p->value : x) ATOMIC(min, p->value < x ? p->value : x)
enum class mem_flags { mem_threadgroup };
static pthread_barrier_t group;
inline void threadgroup_barrier(mem_flags) { pthread_barrier_wait(&group); }
}
extern "C" void group_of(unsigned n) { pthread_barrier_init(&metal::group, 0, n); }
"""
SHAPE = ctypes.c_uint * 3


class Place(ctypes.Structure):
  """uint3"""
  _fields_ = [(d, ctypes.c_uint) for d in "xyz"]


class MetalProgram(Program):
  """A kernel, group after group."""

  def __init__(self, spec: ProgramSpec, library: ctypes.CDLL):
    self.spec, self.library, self.function = spec, library, library[spec.name]
    self.grid, self.local = grid_of(spec), (*spec.local, 1, 1, 1)[:3]

  def __call__(self, buffers: Sequence[Any], wait: bool = False, sizes: tuple[int, ...] = ()) -> float | None:
    """Run it. See :meth:`Program.__call__`."""
    from threading import Thread
    numbers = [np.array([n], dtype.np) for n, dtype in zip(sizes, self.spec.source.sizes)]   # for references to them
    args = [ctypes.c_void_p(b.ctypes.data) for b in (*buffers, *numbers)]
    items = [Place(*at[::-1]) for at in itertools.product(*map(range, self.local[::-1]))]
    waits = "threadgroup_barrier" in self.spec.source.text
    self.library.group_of(len(items))
    for at in itertools.product(*map(range, self.grid(sizes)[::-1])):
      threads = [Thread(target=self.function, args=(*args, Place(*at[::-1]), item)) for item in items] if waits else []
      for t in threads: t.start()
      for t in threads: t.join()
      if not waits:
        for item in items: self.function(*args, Place(*at[::-1]), item)
    return 0.0 if wait else None


class MetalDevice(NumpyDevice):
  """See the module."""
  name, identity = "METAL", "Metal as C++"

  def __init__(self) -> None: self.renderer = MetalRenderer()  # type: ignore[assignment]

  def compile(self, specs: Sequence[ProgramSpec]) -> list[Program]:
    """A library each."""
    command = [
      str(CXX),
      "-std=c++14",
      "-O1",
      "-Wall",
      "-Werror",
      "-Wno-unused",
      "-Wno-attributes",
      "-fPIC",
      "-shared",
      "-pthread",
      "-I.",
    ]
    return [MetalProgram(s, plain_c.build([s.source.text], command, ".cpp", {"metal_stdlib": HEADER})) for s in specs]
