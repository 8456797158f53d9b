"""Layers and functions that PyTorch has beside the usual ones: losses, padding, unpooling, Transformer, windows."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

from ntgrad import Tensor, nn
from ntgrad.errors import ArgumentError, DTypeError, IndexOutOfRangeError, NtgradError, ShapeError
from ntgrad.helpers import (
  all_same,
  ansilen,
  argsort,
  ceildiv,
  colored,
  dedup,
  fully_flatten,
  get_single_element,
  merge_dicts,
  partition,
  round_up,
  unwrap,
)
from support.marks import long, long_where

rng = np.random.default_rng(0)


def rand(*shape: int) -> np.ndarray: return rng.standard_normal(shape).astype(np.float32)


def close(got: Any, want: Any, tolerance: float = 1e-5) -> None:
  assert got.shape == np.shape(want)
  np.testing.assert_allclose(got.numpy(), want, rtol=tolerance, atol=tolerance)


A, B, C = rand(4, 5), rand(4, 5), rand(4, 5)
SIGNS, CLASSES = np.sign(rand(4, 5)), np.array([0, 2, 4, 1], np.int32)
LOSSES: list[tuple[Any, str, dict[str, Any], tuple[Any, ...]]] = [
  (nn.CosineEmbeddingLoss, "cosine_embedding_loss", {"margin": 0.2}, (A, B, SIGNS[:, 0])),
  (nn.MarginRankingLoss, "margin_ranking_loss", {"margin": 0.3}, (A, B, SIGNS)),
  (nn.GaussianNLLLoss, "gaussian_nll_loss", {"full": True, "eps": 1e-3}, (A, B, C ** 2)),
  (nn.PoissonNLLLoss, "poisson_nll_loss", {"log_input": False, "full": True}, (A ** 2, B ** 2)),
  (nn.HingeEmbeddingLoss, "hinge_embedding_loss", {"margin": 0.7}, (A, SIGNS)),
  (nn.SoftMarginLoss, "soft_margin_loss", {}, (A, SIGNS)),
  (nn.MultiMarginLoss, "multi_margin_loss", {"p": 2, "margin": 0.5}, (A, CLASSES)),
  (nn.MultiLabelSoftMarginLoss, "multilabel_soft_margin_loss", {}, (A, SIGNS > 0)),
  (nn.MultiLabelMarginLoss, "multilabel_margin_loss", {}, (A, np.argsort(B, 1).astype(np.int32) - 1)),
  (nn.TripletMarginLoss, "triplet_margin_loss", {"margin": 0.5, "swap": True, "p": 3.0}, (A, B, C)),
  (nn.TripletMarginWithDistanceLoss, "triplet_margin_with_distance_loss", {"margin": 0.5, "swap": True}, (A, B, C)),
]


@pytest.mark.parametrize("layer, method, given, inputs", LOSSES, ids=[x[1] for x in LOSSES])
def test_losses_pass_on_what_they_are_given(layer: Any, method: str, given: dict[str, Any], inputs: tuple[Any, ...]) -> None:
  tensors = [Tensor(x) for x in inputs]
  for how in ("none", "mean", "sum"):
    want = getattr(tensors[0], method)(*tensors[1:], **given, reduction=how)
    close(layer(**given, reduction=how)(*tensors), want.numpy())
  with pytest.raises(ArgumentError, match="it takes 'mean', 'sum' or 'none'"): layer(reduction="batchmean")


def test_a_distance_of_ones_own() -> None:
  a, b, c = Tensor(A), Tensor(B), Tensor(C)
  loss = nn.TripletMarginWithDistanceLoss(distance_function=lambda x, y: (x - y).abs().max(axis=-1), reduction="none")
  close(loss(a, b, c), np.maximum(0, np.abs(A - B).max(-1) - np.abs(A - C).max(-1) + 1))
  close(nn.CosineSimilarity(0)(a, b), (A * B).sum(0) / np.sqrt((A * A).sum(0) * (B * B).sum(0)))
  close(nn.PairwiseDistance(keepdim=True)(a, b), np.sqrt(((A - B + 1e-6) ** 2).sum(-1, keepdims=True)))


@long_where(lambda n: n == 3)
@pytest.mark.parametrize("name, mode", [
  ("Zero", "constant"), ("Reflection", "reflect"), ("Replication", "edge"), ("Circular", "wrap")])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_padding(name: str, mode: Any, n: int) -> None:
  x, layer = rand(2, 3, *[4] * n), getattr(nn, f"{name}Pad{n}d")
  close(layer((1, 2) * n)(Tensor(x)), np.pad(x, ((0, 0), (0, 0), *[(1, 2)] * n), mode))
  close(layer(2)(Tensor(x)), np.pad(x, ((0, 0), (0, 0), *[(2, 2)] * n), mode))
  with pytest.raises(ArgumentError, match=f"nn.{name}Pad{n}d: padding"): layer((1,) * (2 * n + 1))
  if n == 2: close(nn.ConstantPad2d((1, 0, 0, 0), 2.5)(Tensor(x)), np.pad(x, ((0, 0),) * 3 + ((1, 0),), constant_values=2.5))


@long_where(lambda n: n > 1)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_pools_give_indices_that_unpool_takes(n: int) -> None:
  x = Tensor(rand(2, 3, *[6, 4, 8][:n]))
  values, indices = getattr(nn, f"MaxPool{n}d")(2, return_indices=True)(x)
  back = getattr(nn, f"MaxUnpool{n}d")(2)(values, indices)
  assert back.shape == x.shape and back.numpy().sum() == pytest.approx(values.numpy().sum(), rel=1e-4)
  assert ((back == 0) | (back == x)).all().item()
  found, at = getattr(nn, f"AdaptiveMaxPool{n}d")(2, return_indices=True)(x)
  close(x.flatten(2).gather(2, at.flatten(2)), found.flatten(2).numpy())
  if n > 1:
    got, at = getattr(nn, f"FractionalMaxPool{n}d")(2, output_ratio=0.6, return_indices=True)(x)
    close(x.flatten(2).gather(2, at.flatten(2)), got.flatten(2).numpy())


@long
def test_layers_that_call_methods() -> None:
  x = Tensor(rand(2, 6, 5, 4))
  for layer, want in ((nn.LPPool2d(2, 2), x.lp_pool2d(2, 2)), (nn.LocalResponseNorm(3, 0.1), x.local_response_norm(3, 0.1)),
                      (nn.CrossMapLRN2d(3, 0.1), x.local_response_norm(3, 0.1)), (nn.ChannelShuffle(2), x.channel_shuffle(2)),
                      (nn.Unfold(2, stride=2), x.im2col(2, stride=2)), (nn.UpsamplingNearest2d((7, 9)), x.interpolate((7, 9))),
                      (nn.UpsamplingBilinear2d(scale_factor=2), x.interpolate(None, 2, "bilinear", True))):
    close(layer(x), want.numpy())
  columns = nn.Unfold(2)(x)
  close(nn.Fold((5, 4), 2)(columns), columns.col2im((5, 4), 2).numpy())
  close(nn.InstanceNorm(6)(x), nn.InstanceNorm2d(6)(x).numpy())
  assert len(list(nn.InstanceNorm(6).parameters())) == 2 and not list(nn.InstanceNorm(6, affine=False).parameters())
  ratio = nn.RReLU(0.1, 0.2).train()(x).numpy()[x.numpy() < 0] / x.numpy()[x.numpy() < 0]
  assert 0.0999 < ratio.min() < 0.12 and 0.18 < ratio.max() < 0.2001
  close(nn.RReLU(0.1, 0.3)(x), np.where(x.numpy() < 0, 0.2 * x.numpy(), x.numpy()))


@pytest.mark.parametrize("make", [
  lambda bias: nn.BatchNorm2d(6, bias=bias), lambda bias: nn.GroupNorm(2, 6, bias=bias),
  lambda bias: nn.LayerNorm((6, 3, 4), bias=bias),
  *[lambda bias, n=n: getattr(nn, f"InstanceNorm{n}d")(6, affine=True, bias=bias) for n in (1, 2, 3)]])
def test_norms_with_a_weight_alone(make: Callable[[bool], Any]) -> None:
  alone, both = make(False), make(True)
  x = Tensor.rand(2, 6, *(3, 4, 5)[:getattr(alone, "_rank", 2)])
  alone.weight = both.weight = Tensor.rand(*both.weight.shape)
  assert alone.bias is None
  close(alone(x), both(x).numpy())



def test_transformer() -> None:
  Tensor.manual_seed(0)
  model = nn.Transformer(8, 2, 1, 2, 16, 0.0, batch_first=True)
  names = [n for n, _ in model.named_parameters()]
  assert "encoder.layers.0.self_attn.in_proj_weight" in names and "decoder.layers.1.multihead_attn.out_proj.bias" in names
  assert "encoder.norm.weight" in names and "decoder.norm.bias" in names
  source, target = Tensor(rand(2, 5, 8)), Tensor(rand(2, 4, 8))
  mask = nn.Transformer.generate_square_subsequent_mask(4)
  assert mask.tolist()[1] == [0, 0, -np.inf, -np.inf]
  out = model(source, target, tgt_mask=mask)
  other = Tensor(np.concatenate([target.numpy()[:, :2], rand(2, 2, 8)], 1))    # what comes later is not seen
  close(model(source, other, tgt_mask=mask)[:, :2], out[:, :2].numpy(), 1e-4)
  close(model(source, other, tgt_is_causal=True), model(source, other, tgt_mask=mask).numpy(), 1e-4)
  own = nn.Transformer(8, 2, custom_encoder=lambda src, **masks: src * 2, num_decoder_layers=1, batch_first=True)
  assert own(source, target).shape == (2, 4, 8) and not any(n.startswith("encoder") for n, _ in own.named_parameters())
  with pytest.raises(ShapeError, match="nn.Transformer: input of shape"): model(Tensor(rand(2, 5, 7)), target)


@long
def test_adaptive_softmax() -> None:
  model = nn.AdaptiveLogSoftmaxWithLoss(16, 50, [10, 30], head_bias=True)
  assert [(n, p.shape) for n, p in model.named_parameters()] == [
    ("head.weight", (12, 16)), ("head.bias", (12,)), ("tail.0.0.weight", (4, 16)), ("tail.0.1.weight", (20, 4)),
    ("tail.1.0.weight", (1, 16)), ("tail.1.1.weight", (20, 1))]
  x, y = Tensor(rand(5, 16)), Tensor(np.array([0, 10, 29, 49, 30], np.int32))
  every = model.log_prob(x)
  close(every.exp().sum(-1), np.ones(5))
  out = model(x, y)
  close(out.output, every.numpy()[np.arange(5), y.numpy()])
  close(out.loss, -out.output.numpy().mean())
  close(model.predict(x), every.numpy().argmax(-1))
  close(model(x[1], y[1]).output, out.output.numpy()[1])
  for cutoffs in ((), (3, 3), (4, 2), (0, 5), (50,)):
    with pytest.raises(ArgumentError, match="cutoffs"): nn.AdaptiveLogSoftmaxWithLoss(16, 50, cutoffs)


def test_windows() -> None:
  for name, want in (("hann", np.hanning), ("hamming", np.hamming), ("bartlett", np.bartlett), ("blackman", np.blackman)):
    make = getattr(Tensor, f"{name}_window")
    close(make(9, False), want(9))
    close(make(8), want(9)[:8])
    assert make(0).shape == (0,) and make(1).tolist() == [1]
  close(Tensor.kaiser_window(9, False, 5.0, dtype="float64"), np.kaiser(9, 5.0), 1e-12)


def test_gumbel_softmax_draws_from_the_classes() -> None:
  Tensor.manual_seed(0)
  logits = Tensor([[1.0, 2.0, 3.0]], requires_grad=True)
  drawn = logits.expand(20000, 3).gumbel_softmax(0.7, hard=True)
  assert set(np.unique(drawn.numpy().round(5))) == {0, 1}
  close(drawn.mean(0), np.exp([1, 2, 3]) / np.exp([1, 2, 3]).sum(), 2e-2)
  assert np.abs((drawn * Tensor([1.0, 2.0, 4.0])).sum().gradient(logits)[0].numpy()).min() > 0


def test_names_of_dimensions() -> None:
  x = Tensor(rand(4, 6, 2)).named("n", "c", "t")
  assert x.channel_shuffle(2).names == x.renorm(2, "c", 1.0).names == x.slice_scatter(x[:, :2], "c", 0, 2).names == x.names


WRONG: list[tuple[Callable[[], Any], type[NtgradError], str]] = [
  (lambda: Tensor(A).multilabel_margin_loss([[0, 1, 5, -1, 0]] * 4), IndexOutOfRangeError, "5"),
  (lambda: Tensor(A).multilabel_margin_loss(Tensor(A)), DTypeError, "ints"),
  (lambda: Tensor(rand(1, 1, 2, 2)).grid_sample(Tensor(rand(2, 3, 3, 2))), ShapeError, "grid_sample: a grid of shape"),
  (lambda: Tensor(rand(1, 1, 2, 2)).grid_sample(Tensor(rand(1, 3, 3, 2)), "cubic"), ArgumentError, "mode 'cubic'"),
  (lambda: Tensor(rand(1, 2, 3)).affine_grid((2, 1, 3, 3)), ShapeError, "affine_grid: maps of shape"),
  (lambda: Tensor(rand(1, 1, 4, 4)).fractional_max_pool2d(2), ArgumentError, "one of them"),
  (lambda: Tensor(rand(1, 1, 4, 4)).fractional_max_pool2d(3, 3), ShapeError, "do not fit"),
  (lambda: Tensor(A).select_scatter(Tensor(A), 0, 1), ShapeError, "select_scatter: a source of shape"),
  (lambda: Tensor(rand(2, 3)).tensorinv(1), ShapeError, "tensorinv"),
  (lambda: Tensor.hann_window(1 << 30), ArgumentError, "window_length"),
  (lambda: nn.FractionalMaxPool2d(2), ArgumentError, "one of them"), (lambda: nn.RReLU(0.3, 0.1), ArgumentError, "in order"),
  (lambda: nn.Linear(2, 2).get_parameter("weights"), ArgumentError, "there are weight, bias"),
  (lambda: merge_dicts([{"a": 1}, {"a": 2}]), ArgumentError, "merge_dicts"), (lambda: unwrap(None), ArgumentError, "unwrap"),
  (lambda: get_single_element([]), ArgumentError, "0 elements")]


@pytest.mark.parametrize("wrong, kind, said", WRONG, ids=[str(k) for k in range(len(WRONG))])
def test_refusals(wrong: Callable[[], Any], kind: type[NtgradError], said: str) -> None:
  with pytest.raises(kind, match=said): wrong()


def test_small_helpers() -> None:
  assert all_same([1, 1]) and all_same([]) and argsort([3, 1, 2]) == (1, 2, 0) and ceildiv(7, 2) == 4 and round_up(7, 4) == 8
  assert dedup([1, 2, 1]) == [1, 2] and fully_flatten([1, [2, (3,)]]) == [1, 2, 3] and ansilen(colored("ab", "red")) == 2
  assert partition([1, 2, 3], lambda x: x > 1) == ([2, 3], [1]) and merge_dicts([{"a": 1}, {"b": 2}]) == {"a": 1, "b": 2}


ROWS = np.array([[True, True, True], [False, True, False], [False, False, True]])   # the first query sees nothing


def _layer() -> nn.MultiheadAttention: return nn.MultiheadAttention(4, 2, batch_first=True)
def _float_mask() -> Tensor: return Tensor(ROWS).where(-np.inf, 0.0)


BLIND: dict[str, Callable[[Tensor], tuple[Tensor, Any]]] = {   # what each gives for x (2, 3, 4), and weights (.., 3, 3)
  "bool mask": lambda x: (x.scaled_dot_product_attention(x, x, Tensor(~ROWS)), None),
  "float mask": lambda x: (x.scaled_dot_product_attention(x, x, _float_mask()), None),
  "grouped": lambda x: (x.reshape(1, 2, 3, 4).scaled_dot_product_attention(
    x[:1].unsqueeze(0), x[:1].unsqueeze(0), Tensor(~ROWS), enable_gqa=True)[0], None),
  "layer": lambda x: _layer()(x, x, x, attn_mask=Tensor(ROWS), need_weights=False),
  "layer with weights": lambda x: _layer()(x, x, x, attn_mask=Tensor(ROWS)),
  "layer with each head's weights": lambda x: _layer()(x, x, x, attn_mask=_float_mask(), average_attn_weights=False),
  "layer with two masks": lambda x: _layer()(
    x, x, x, key_padding_mask=Tensor([[False] * 3, [True, False, False]]), attn_mask=Tensor(ROWS)),
  "function": lambda x: nn.functional.multi_head_attention_forward(
    x, x, x, 4, 2, Tensor.ones(12, 4), None, None, None, False, 0.0, Tensor.eye(4), None, attn_mask=Tensor([[True] * 2] * 2)),
  "encoder": lambda x: (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)(x, Tensor(ROWS)), None),
  "decoder": lambda x: (nn.TransformerDecoderLayer(4, 2, 8, batch_first=True)(x, x, Tensor(ROWS), Tensor(ROWS)), None),
}


@long_where(lambda name: "coder" in name or "layer" in name)
@pytest.mark.parametrize("name", BLIND)
def test_a_query_that_sees_nothing_takes_nothing(name: str) -> None:
  x = Tensor(rand(2, 3, 4), requires_grad=True)
  out, weights = BLIND[name](x)
  if "coder" not in name and name != "function": assert not out[:, 0].numpy().any()
  if weights is not None: assert not weights[..., 0, :].numpy().any() and np.isfinite(weights.numpy()).all()
  out.square().sum().backward()
  assert np.isfinite(out.numpy()).all() and np.isfinite(x.grad.numpy()).all()


def test_a_softmax_of_nothing_is_nan() -> None:
  """What a user writes out is as PyTorch has it."""
  x = Tensor([[-np.inf, -np.inf], [1.0, 2.0]], requires_grad=True)
  assert np.isnan(x.softmax(1).numpy()).tolist() == [[True, True], [False, False]]


def test_attention_with_weights_and_without_is_the_same() -> None:
  layer, x = _layer(), Tensor(rand(2, 3, 4))
  for mask in (None, Tensor(ROWS), _float_mask()):
    got = [layer(x, x, x, attn_mask=mask, need_weights=w)[0].numpy() for w in (True, False)]
    np.testing.assert_allclose(*got, rtol=1e-5, atol=1e-6)
