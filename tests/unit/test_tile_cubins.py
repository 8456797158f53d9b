"""Tile kernels as Triton source: compiled for GPUs that need not be there."""
from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ntgrad.tile as tile
import ntgrad.tile.language as tl
from ntgrad.backends.cuda.renderer import TARGET
from ntgrad.codegen.ir.config import config
from ntgrad.codegen.ir.dtype import dtypes
from ntgrad.engine.device import Device, get_device
from support import triton
from support.marks import long_where
from support.triton import needs_triton

pytestmark = needs_triton
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "tile"
NAMES = sorted(p.stem for p in FOLDER.glob("*.py") if "def case(" in p.read_text())


def cubin(specialised: Any, target: str) -> Any:
  from ntgrad.backends.cuda import compiler
  from ntgrad.backends.cuda.renderer import TritonRenderer
  spec = specialised.spec(SimpleNamespace(renderer=TritonRenderer(capability=compiler.capability(target)), name=target))
  return compiler.build(compiler.Request(spec.source, spec.name, target)), spec.source.text


@long_where(lambda name, target: target == "sm_80" or name in ("conv2d", "flash_attention"))
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", NAMES)
def test_examples_compile(name: str, target: str) -> None:
  if str(FOLDER) not in sys.path: sys.path.insert(0, str(FOLDER))
  kernel, args, _ = importlib.import_module(name).case(np.random.default_rng(0))
  args, given = (args[:-1], args[-1]) if isinstance(args[-1], dict) else (args, {})
  binary, source = cubin(kernel.specialise(*args, **given), target)
  assert binary.cubin[:4] == b"\x7fELF" and binary.target == target
  if name in ("matmul", "conv2d", "flash_attention"): assert "tl.dot(" in source


def test_a_dot_of_halves_uses_tensor_cores_and_has_no_masks_where_tiles_fit() -> None:
  from ntgrad.tile import Tensor
  def application(a: Any, b: Any, c: Any) -> None:
    total = tl.zeros(c.shape)
    for k in range(a.shape[0]): total += tl.dot(a[k], b[k])
    c = total.to(tl.float16)
  def arrangement(a: Tensor, b: Tensor, c: Tensor) -> Any:
    c = c.tile((64, 64))
    a = a.tile((64, 32)).tile((1, -1)).expand((-1, c.shape[1]))
    a.dtype = a.dtype.squeeze(0)
    b = b.tile((32, 64)).tile((-1, 1)).expand((c.shape[0], -1))
    b.dtype = b.dtype.squeeze(1)
    return a, b, c
  k = tile.make(arrangement, application, (Tensor(2), Tensor(2), Tensor(2)))
  binary, source = cubin(k.specialise(*[((256, 256), dtypes.float16)] * 3), "sm_80")
  assert "mma.sync" in binary.ptx and "mask=" not in source
  _, ragged = cubin(k.specialise(((250, 256), "float16"), ((256, 256), "float16"), ((250, 256), "float16")), "sm_80")
  assert "mask=" in ragged


def test_built_for_a_gpu_that_is_not_there(tmp_path: Path) -> None:
  from ntgrad.tile import Tensor
  def premake() -> Any:
    def double(x: Any, y: Any) -> None: y = x * 2
    return (lambda x, y: (x.tile((128,)), y.tile((128,)))), double, (Tensor(1), Tensor(1))
  shape = ((1000,), "float32")
  folder = tile.build(premake, [tile.Config(arguments=[shape, shape])], tmp_path, target="sm_90")
  manifest = json.loads((folder / "manifest.json").read_text())
  assert manifest["target"] == "sm_90" and (folder / manifest["kernels"][0]["source"]).read_text().count("tl.load") == 1


@pytest.mark.parametrize(
  "asked, precision",
  [
    ({}, "ieee"),
    ({"input_precision": "ieee"}, "ieee"),
    ({"input_precision": "tf32"}, "tf32"),
    ({"allow_tf32": True}, "tf32"),
    ({"input_precision": "tf32x3"}, "ieee"),
  ],
)
def test_tf32_where_a_product_asks_for_it(asked: Any, precision: str) -> None:
  def product(x: Any, y: Any, z: Any) -> None: z = tl.dot(x, y, **asked)
  k = tile.make(lambda x, y, z: (x.tile((32, 32)), y.tile((32, 32)), z.tile((32, 32))), product, (tile.Tensor(2),) * 3)
  assert f'input_precision="{precision}"' in k.source("triton", *[((32, 32), "float32")] * 3)


@pytest.mark.parametrize("dynamic", ["never", "always"])
def test_a_tile_longer_than_registers_hold_is_a_loop_of_blocks(dynamic: str, monkeypatch: pytest.MonkeyPatch) -> None:
  from ntgrad.tile import Tensor
  def softmax(x: Any, out: Any) -> None:
    e = tl.exp(x - tl.max(x))
    out = e / tl.sum(e)
  k = tile.make(lambda x, out: (x.tile((1, -1)), out.tile((1, -1))), softmax, (Tensor(2), Tensor(2)))
  monkeypatch.setattr(Device, "assigned", triton.NAME)
  texts = []
  for n in (TARGET.row + 5, 1000, 2 * TARGET.row - 3):
    x, out = np.random.default_rng(0).standard_normal((2, n), np.float32), np.zeros((2, n), np.float32)
    with config(dynamic=dynamic): k(x, out)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-4)
    s = k.specialise(x, out) if dynamic == "never" else k.last
    assert s is not None
    texts.append(s.spec(get_device(triton.NAME)).source.text)
  assert all(int(n) <= TARGET.row for text in texts for n in re.findall(r"tl.arange\(0, (\d+)\)", text))
