"""Networks that people train, in any width: residual networks as in He et al., Deep Residual Learning (2015)."""
from __future__ import annotations

from typing import Any, Sequence

from ntgrad import Tensor, nn


class Block:
  """Two 3×3 convolutions, or (``expansion`` 4) 1×1, 3×3, 1×1, beside a shortcut."""

  def __init__(self, inner: int, outer: int, stride: int, expansion: int):
    kernels = (3, 3) if expansion == 1 else (1, 3, 1)
    sizes = [inner, *[outer] * (len(kernels) - 1), outer * expansion]
    strided = 0 if expansion == 1 else 1
    self.convs = [nn.Conv2d(a, b, k, stride=stride if i == strided else 1, padding=k // 2, bias=False)
                  for i, (a, b, k) in enumerate(zip(sizes, sizes[1:], kernels))]
    self.norms = [nn.BatchNorm2d(n) for n in sizes[1:]]
    self.short: list[Any] = []
    if stride != 1 or inner != sizes[-1]:
      self.short = [nn.Conv2d(inner, sizes[-1], 1, stride=stride, bias=False), nn.BatchNorm2d(sizes[-1])]

  def __call__(self, x: Tensor) -> Tensor:
    out = x
    for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
      out = norm(conv(out))
      if i < len(self.convs) - 1: out = out.relu()
    return (out + x.sequential(self.short)).relu()


class ResNet:
  """(n, 3, h, w) → (n, classes)."""

  def __init__(self, layers: Sequence[int], expansion: int, width: int = 64, classes: int = 1000):
    self.stem, self.norm = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(width)
    self.blocks: list[Block] = []
    inner = width
    for stage, count in enumerate(layers):
      for i in range(count):
        self.blocks.append(Block(inner, width << stage, 2 if stage and not i else 1, expansion))
        inner = (width << stage) * expansion
    self.head = nn.Linear(inner, classes)

  def __call__(self, x: Tensor) -> Tensor:
    x = self.norm(self.stem(x)).relu().max_pool2d(3, stride=2, padding=1)
    return self.head(x.sequential(self.blocks).mean((2, 3)))


def resnet18(**sizes: int) -> ResNet: return ResNet((2, 2, 2, 2), 1, **sizes)
def resnet50(**sizes: int) -> ResNet: return ResNet((3, 4, 6, 3), 4, **sizes)
