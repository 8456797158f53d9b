"""What every layer's tensors begin as: PyTorch 2.13's distributions, written down here."""
from __future__ import annotations

import inspect
import math
import re
from typing import Any, NamedTuple

import numpy as np
import pytest

from ntgrad import Device, Tensor, nn
from ntgrad.nn.state import get_state_dict


class Uniform(NamedTuple):
  """From -bound to bound."""
  bound: float
  def cdf(self, x: np.ndarray) -> np.ndarray: return np.clip((x / self.bound + 1) / 2, 0, 1)
  def deviation(self) -> float: return self.bound / math.sqrt(3)


class Normal(NamedTuple):
  """Of mean 0."""
  std: float
  def cdf(self, x: np.ndarray) -> np.ndarray: return np.array([0.5 + 0.5 * math.erf(v / self.std / math.sqrt(2)) for v in x])
  def deviation(self) -> float: return self.std


ONES, ZEROS = 1.0, 0.0


def u(fan_in: float) -> Uniform: return Uniform(1 / math.sqrt(fan_in))
def xavier(a: int, b: int) -> Uniform: return Uniform(math.sqrt(6 / (a + b)))


AFFINE = {"weight": ONES, "bias": ZEROS}
RUNNING = {"running_mean": ZEROS, "running_var": ONES, "num_batches_tracked": ZEROS}
H = 64   # the size of recurrent states: all their tensors are uniform from -1/√H to 1/√H
ENCODER = {
  "self_attn.in_proj_weight": xavier(64, 192), "self_attn.in_proj_bias": ZEROS, "self_attn.out_proj.weight": u(64),
  "self_attn.out_proj.bias": ZEROS, "linear1.weight": u(64), "linear1.bias": u(64), "linear2.weight": u(256),
  "linear2.bias": u(256), r"norm\d.weight": ONES, r"norm\d.bias": ZEROS}
DECODER = ENCODER | {k.replace("self", "multihead"): v for k, v in ENCODER.items() if "self_attn" in k}
# a whole Transformer: matrices are Xavier's, also those that a layer alone begins otherwise
WHOLE = {r".*\.in_proj_weight": xavier(64, 192), r".*\.out_proj.weight": xavier(64, 64),
         r".*\.linear[12].weight": xavier(64, 256), r".*\.linear1.bias": u(64), r".*\.linear2.bias": u(256),
         r".*(in|out)_proj.*bias": ZEROS, r".*norm\d?.weight": ONES, r".*norm\d?.bias": ZEROS}

# a layer -> what its tensors begin as, by patterns of their names
TABLE: dict[str, dict[str, Any]] = {
  "Linear(64, 400)": {"weight": u(64), "bias": u(64)},
  "Bilinear(20, 30, 400)": {"weight": u(20), "bias": u(20)},
  "Conv1d(32, 400, 5)": {"weight": u(32 * 5), "bias": u(32 * 5)},
  "Conv2d(32, 400, (3, 2))": {"weight": u(32 * 6), "bias": u(32 * 6)},
  "Conv2d(32, 400, 3, groups=4)": {"weight": u(8 * 9), "bias": u(8 * 9)},
  "Conv3d(8, 400, 3)": {"weight": u(8 * 27), "bias": u(8 * 27)},
  "ConvTranspose1d(32, 400, 5)": {"weight": u(400 * 5), "bias": u(400 * 5)},
  "ConvTranspose2d(32, 400, 3)": {"weight": u(400 * 9), "bias": u(400 * 9)},
  "ConvTranspose2d(32, 400, 3, groups=4)": {"weight": u(100 * 9), "bias": u(100 * 9)},
  "ConvTranspose3d(8, 400, 3)": {"weight": u(400 * 27), "bias": u(400 * 27)},
  "BatchNorm1d(50)": AFFINE | RUNNING, "BatchNorm2d(50)": AFFINE | RUNNING, "BatchNorm3d(50)": AFFINE | RUNNING,
  "InstanceNorm1d(50, affine=True)": AFFINE, "InstanceNorm2d(50, affine=True, track_running_stats=True)": AFFINE | RUNNING,
  "InstanceNorm3d(50, track_running_stats=True)": RUNNING,
  "GroupNorm(2, 50)": AFFINE, "LayerNorm(50)": AFFINE, "LayerNorm((5, 6))": AFFINE, "RMSNorm(50)": {"weight": ONES},
  "PReLU(7)": {"weight": 0.25}, "PReLU(7, 0.5)": {"weight": 0.5},
  "Embedding(300, 64)": {"weight": Normal(1)}, "EmbeddingBag(300, 64)": {"weight": Normal(1)},
  "RNN(40, 64, 2, bidirectional=True)": {".*": u(H)}, "GRU(40, 64, 2)": {".*": u(H)}, "LSTM(40, 64, 2)": {".*": u(H)},
  "LSTM(40, 64, 2, proj_size=32)": {".*": u(H)}, "RNNCell(40, 64)": {".*": u(H)}, "GRUCell(40, 64)": {".*": u(H)},
  "LSTMCell(40, 64)": {".*": u(H)},
  "MultiheadAttention(512, 4, add_bias_kv=True)": {
    "in_proj_weight": xavier(512, 1536), "in_proj_bias": ZEROS, "out_proj.weight": u(512), "out_proj.bias": ZEROS,
    "bias_[kv]": Normal(math.sqrt(2 / (512 + 512)))},
  "MultiheadAttention(64, 4, kdim=32, vdim=48)": {
    "q_proj_weight": xavier(64, 64), "k_proj_weight": xavier(64, 32), "v_proj_weight": xavier(64, 48), "in_proj_bias": ZEROS,
    "out_proj.weight": u(64), "out_proj.bias": ZEROS},
  "TransformerEncoderLayer(64, 4, 256)": ENCODER, "TransformerDecoderLayer(64, 4, 256)": DECODER,
  "Transformer(64, 4, 1, 1, 256)": WHOLE,
  "AdaptiveLogSoftmaxWithLoss(64, 400, [100, 200], head_bias=True)": {
    "head.*": u(64), r"tail.\d.0.weight": u(64), "tail.0.1.weight": u(16), "tail.1.1.weight": u(4)}}
# names that PyTorch does not have
OURS: dict[str, dict[str, Any]] = {"BatchNorm(50)": AFFINE | RUNNING, "InstanceNorm(50)": AFFINE, "LayerNorm2d(50)": AFFINE,
                                   "MultiHeadAttention(64, 4, bias=False)": {"in_proj_weight": xavier(64, 192),
                                                                             "out_proj.weight": u(64)}}


def fits(a: np.ndarray, want: Any) -> str:
  """What is wrong with numbers that are drawn from a distribution; "" for nothing."""
  a = np.asarray(a, np.float64).ravel()
  if isinstance(want, float): return "" if (a == want).all() else f"{a[:3]} and so on, expected {want}"
  x, n = np.sort(a), a.size
  distance = np.abs(want.cdf(x) - (np.arange(n) + 0.5) / n).max()   # Kolmogorov and Smirnov's: 2.2/√n once in ten thousand
  if distance > 2.2 / math.sqrt(n): return f"{distance} from {want}, of {n}"
  if abs(a.mean()) > 4.5 * want.deviation() / math.sqrt(n): return f"mean {a.mean()}, expected 0"
  if isinstance(want, Uniform):
    if np.abs(a).max() > want.bound * (1 + 1e-6): return f"{np.abs(a).max()} is beyond {want.bound}"
    if np.abs(a).max() < want.bound * (1 - 12 / n): return f"no more than {np.abs(a).max()} of {want.bound}"
  spread = abs(a.std() / want.deviation() - 1)
  return "" if spread < 4.5 / math.sqrt(n) else f"deviation {a.std()}, expected {want.deviation()}"


def wrong(state: dict[str, Any], table: dict[str, Any]) -> list[str]:
  """The tensors that do not begin as the table says, or that it does not have."""
  out, used = [], set()
  for name, value in state.items():
    found = next((k for k in table if re.fullmatch(k, name)), None)
    said = "is not in the table" if found is None else fits(value, table[found])
    used.add(found)
    if said: out.append(f"{name}: {said}")
  return out + [f"{k}: no such tensor" for k in table if k not in used]


@pytest.mark.parametrize("layer", [*TABLE, *OURS])
def test_a_layer_begins_as_pytorchs(layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(Device, "assigned", "NUMPY")
  Tensor.manual_seed(3)
  made = eval(f"nn.{layer}", {"nn": nn})
  assert wrong({k: t.numpy() for k, t in get_state_dict(made).items()}, (TABLE | OURS)[layer]) == []


@pytest.mark.parametrize("kind", ["Embedding", "EmbeddingBag"])
@pytest.mark.parametrize("row", [0, 3, -1])
def test_the_padding_row_is_zeros(kind: str, row: int) -> None:
  a = getattr(nn, kind)(300, 64, padding_idx=row).weight.numpy()
  assert not a[row].any() and fits(np.delete(a, row, 0), Normal(1)) == ""
  given = Tensor.ones(300, 64)
  assert getattr(nn, kind)(300, 64, padding_idx=row, _weight=given).weight is given


def test_the_table_has_every_layer_with_parameters() -> None:
  known = {name.split("(")[0] for name in (*TABLE, *OURS)}
  holders = {"Module", "Sequential", "ModuleList", "ModuleDict", "TransformerEncoder", "TransformerDecoder", "Parameter"}
  for name in nn.__all__:
    kind = getattr(nn, name)
    if not inspect.isclass(kind) or not issubclass(kind, nn.Module) or name in known | holders: continue
    given = inspect.signature(kind).parameters.values()
    needed = [2 for p in given if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    made = (kind(2, output_size=1) if name.startswith("Fractional") else kind(1, (1, 2)) if name == "Unflatten"
            else kind(2) if name.startswith("Upsampl") else kind(*needed))
    assert not get_state_dict(made), f"{name} has tensors; add what they begin as"


def test_the_comparison_sees_another_distribution() -> None:
  rng = np.random.default_rng(0)
  assert fits(rng.uniform(-1, 1, 20000), Uniform(1)) == "" and fits(rng.normal(0, 1, 20000), Normal(1)) == ""
  for a, want in ((rng.uniform(-1, 1, 20000) * 0.95, Uniform(1)), (rng.normal(0, 1 / math.sqrt(3), 20000), Uniform(1)),
                  (rng.uniform(-1, 1, 20000) + 0.03, Uniform(1)), (rng.normal(0, 1.05, 20000), Normal(1)),
                  (rng.uniform(-math.sqrt(3), math.sqrt(3), 20000), Normal(1)), (np.zeros(400), Uniform(1)), (np.ones(3), 0.0)):
    assert fits(a, want) != "", want
