"""``nn.functional`` as ``torch.nn.functional`` is: signatures, arguments by place, what is written in place, what is refused."""
from __future__ import annotations

import inspect
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ntgrad.nn.functional
from ntgrad import Tensor, config, dtypes, nn, no_grad
from ntgrad.errors import ArgumentError, DTypeError, IndexOutOfRangeError, NtgradError, ShapeError
from support.marks import long_half

F: Any = ntgrad.nn.functional
RNG = np.random.default_rng(3)
SIGNATURES = {line.partition("(")[0]: line for line in (Path(__file__).resolve().parents[1] / "support/torch_functional.txt"
                                                       ).read_text().splitlines()}
REFUSED = {"grouped_mm", "scaled_mm", "scaled_grouped_mm"}


@pytest.fixture(autouse=True)
def _numpy() -> Iterator[None]:
  with config(dev="NUMPY"): yield


def X(*shape: int) -> Tensor: return Tensor(RNG.standard_normal(shape), requires_grad=True, device="NUMPY")
def P(*shape: int) -> Tensor: return Tensor(RNG.uniform(0.1, 0.9, shape), device="NUMPY")
def N(n: int, *shape: int) -> Tensor: return Tensor(RNG.integers(0, n, shape), device="NUMPY")
def close(a: Any, b: Any) -> None: np.testing.assert_allclose(np.array(a.numpy()), np.array(b.numpy()), rtol=1e-9, atol=1e-9)


# ---- signatures
@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_signature(name: str) -> None:
  if name in REFUSED:
    with pytest.raises(AttributeError, match=name): getattr(F, name)
    return
  scope: dict[str, Any] = {}
  exec(f"def {SIGNATURES[name]}: pass", scope)
  want, have = [[(p.name, p.kind, p.default) for p in inspect.signature(f).parameters.values()]
                for f in (scope[name], getattr(F, name))]
  assert have == want
  assert getattr(F, name).__doc__, "what it computes"


def test_names() -> None:
  assert set(F.__all__) == set(SIGNATURES) - REFUSED == set(dir(F))
  with pytest.raises(AttributeError, match=r"no attribute 'matmul': torch.nn.functional has no such function; Tensor has"):
    F.matmul
  with pytest.raises(AttributeError, match="no attribute 'nothing'$"): F.nothing
  with pytest.raises(AttributeError, match="'scaled_mm': quantised"): F.scaled_mm


def test_it_is_loaded_when_it_is_used() -> None:
  code = "import sys, ntgrad, ntgrad.nn; ntgrad.nn.Linear(2, 2); print('ntgrad.nn.functional' in sys.modules)"
  assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_its_functions_are_made_when_they_are_used() -> None:
  code = "import sys, ntgrad.nn.functional as F; F.relu; print(*[n in vars(F) for n in ('relu', 'gelu')])"
  assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True False\n"
  code = "import sys, ntgrad.nn.functional; print('ntgrad.tile' in sys.modules)"   # ctc_loss alone has kernels
  assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
  assert F.gelu is F.gelu and {"relu", "gelu"} <= {*dir(F), *F.__all__}


# ---- by place, as methods with their arguments by name: a call, and the same as a method
x, table = X(3, 4), X(5, 4)
image, line, volume = X(2, 4, 6, 5), X(2, 4, 7), X(2, 4, 5, 4, 6)
W = {n: (X(6, 2, *(3,) * n), X(6), X(4, 3, *(2,) * n), X(6)) for n in (1, 2, 3)}
inputs = {1: line, 2: image, 3: volume}
a, b, c, ids = X(5, 4), X(5, 4), X(5, 4), N(4, 5)
sign, chance, weights = Tensor(RNG.choice([-1.0, 1.0], 5), device="NUMPY"), P(5, 4), P(4)
mean, var = P(4), P(4)
CALLS: dict[str, list[tuple[Callable[[], Any], Callable[[], Any]]]] = {
  **{n: [(lambda n=n: getattr(F, n)(x), lambda n=n: getattr(x, n)())] for n in (
    "relu relu6 selu silu mish hardswish hardsigmoid logsigmoid sigmoid tanh softsign tanhshrink").split()},
  "elu": [(lambda: F.elu(x, 0.5), lambda: x.elu(alpha=0.5))],
  "celu": [(lambda: F.celu(x, 0.5), lambda: x.celu(alpha=0.5))],
  "leaky_relu": [(lambda: F.leaky_relu(x, 0.2), lambda: (x > 0).where(x, 0.2 * x))],
  "rrelu": [(lambda: F.rrelu(x, 0.1, 0.3), lambda: (x > 0).where(x, 0.2 * x)),
            (lambda: F.rrelu(x, 0.2, 0.2, True), lambda: (x > 0).where(x, 0.2 * x))],
  "hardtanh": [(lambda: F.hardtanh(x, -0.3, 0.4), lambda: x.hardtanh(min_val=-0.3, max_val=0.4))],
  "threshold": [(lambda: F.threshold(x, 0.1, 5.0), lambda: (x > 0.1).where(x, 5.0))],
  "gelu": [(lambda: F.gelu(x), lambda: x * 0.5 * (1 + (x / math.sqrt(2)).erf())),
           (lambda: F.gelu(x, approximate="tanh"), lambda: x.gelu())],
  "prelu": [(lambda: F.prelu(x, weights), lambda: (x > 0).where(x, x * weights))],
  "hardshrink": [(lambda: F.hardshrink(x, 0.4), lambda: (x.abs() > 0.4).where(x, 0))],
  "softshrink": [(lambda: F.softshrink(x, 0.4), lambda: x.softshrink(lambd=0.4))],
  "softplus": [(lambda: F.softplus(x, 2, 100), lambda: (1 + (2 * x).exp()).log() / 2),
               (lambda: F.softplus(x, 1, -9), lambda: x * 1)],
  "softmax": [(lambda: F.softmax(x, 0), lambda: x.softmax(axis=0)), (lambda: F.softmax(line), lambda: line.softmax(0)),
              (lambda: F.softmax(x), lambda: x.softmax(1))],
  "softmin": [(lambda: F.softmin(x, 0), lambda: (-x).softmax(axis=0))],
  "log_softmax": [(lambda: F.log_softmax(x, 0, 9), lambda: x.log_softmax(axis=0))],
  "glu": [(lambda: F.glu(x, 1), lambda: x[:, :2] * x[:, 2:].sigmoid())],
  **{n: [(lambda n=n: getattr(F, n)(image, 0.5, False), lambda: image)]
     for n in ("dropout", "dropout2d", "alpha_dropout", "feature_alpha_dropout")},
  "dropout1d": [(lambda: F.dropout1d(line, 0.5, False), lambda: line)],
  "dropout3d": [(lambda: F.dropout3d(volume, 0.5, False), lambda: volume)],
  "batch_norm": [(lambda: F.batch_norm(image, mean, var, weights, None, False, 0.1, 0.01),
                  lambda: image.batch_norm(running_mean=mean, running_var=var, weight=weights, eps=0.01)),
                 (lambda: F.batch_norm(image, None, None, None, weights, True),
                  lambda: image.batch_norm(None, None, bias=weights, training=True))],
  "instance_norm": [(lambda: F.instance_norm(image, None, None, weights, None, True, 0.1, 0.01),
                     lambda: image.instance_norm(weight=weights, eps=0.01))],
  "layer_norm": [(lambda: F.layer_norm(x, (4,), weights, None, 0.01), lambda: x.layer_norm((4,), weight=weights, eps=0.01))],
  "rms_norm": [(lambda: F.rms_norm(x, (4,), weights, 0.01), lambda: x.rms_norm((4,), weight=weights, eps=0.01))],
  "group_norm": [(lambda: F.group_norm(image, 2, weights, None, 0.01), lambda: image.group_norm(2, weight=weights, eps=0.01))],
  "local_response_norm": [(lambda: F.local_response_norm(image, 3, 0.2, 0.5, 2.0),
                           lambda: image.local_response_norm(size=3, alpha=0.2, beta=0.5, k=2.0))],
  "normalize": [(lambda: F.normalize(x, 1, 0), lambda: x / x.abs().sum(0, keepdim=True))],
  "mse_loss": [(lambda: F.mse_loss(a, b, None, None, "sum"), lambda: ((a - b) ** 2).sum()),
               (lambda: F.mse_loss(a, b, weight=chance), lambda: ((a - b) ** 2 * chance).sum() / chance.sum())],
  "l1_loss": [(lambda: F.l1_loss(a, b, False), lambda: (a - b).abs().sum()),
              (lambda: F.l1_loss(a, b, weight=chance, reduction="none"), lambda: (a - b).abs() * chance)],
  "smooth_l1_loss": [(lambda: F.smooth_l1_loss(a, b, None, None, "sum", 0.3), lambda: a.smooth_l1_loss(b, "sum", beta=0.3))],
  "huber_loss": [(lambda: F.huber_loss(a, b, "sum", 0.3), lambda: a.huber_loss(b, "sum", delta=0.3)),
                 (lambda: F.huber_loss(a, b, "mean", 0.3, chance), lambda: (a.huber_loss(b, "none", delta=0.3) * chance).mean())],
  "kl_div": [(lambda: F.kl_div(a, b, None, None, "batchmean", True), lambda: (b.exp() * (b - a)).sum() / 5)],
  "binary_cross_entropy": [(lambda: F.binary_cross_entropy(chance, b.sigmoid(), weights), lambda: chance.binary_cross_entropy(
    b.sigmoid(), weight=weights))],
  "binary_cross_entropy_with_logits": [
    (lambda: F.binary_cross_entropy_with_logits(a, chance, weights, None, None, "sum", mean),
     lambda: a.binary_cross_entropy_with_logits(chance, weight=weights, reduction="sum", pos_weight=mean))],
  "gaussian_nll_loss": [(lambda: F.gaussian_nll_loss(a, b, chance, True, 0.2, "sum"),
                         lambda: a.gaussian_nll_loss(b, chance, full=True, eps=0.2, reduction="sum")),
                        (lambda: F.gaussian_nll_loss(a, b, 0.7), lambda: ((a - b) ** 2 / 0.7 + math.log(0.7)).mean() / 2)],
  "poisson_nll_loss": [(lambda: F.poisson_nll_loss(chance, chance, False, True, None, 0.1, None, "sum"),
                        lambda: chance.poisson_nll_loss(chance, log_input=False, full=True, eps=0.1, reduction="sum"))],
  "cross_entropy": [(lambda: F.cross_entropy(a, ids, weights, None, 1, None, "sum", 0.2),
                     lambda: a.cross_entropy(ids, reduction="sum", label_smoothing=0.2, ignore_index=1, weight=weights)),
                    (lambda: F.cross_entropy(a, Tensor([0, -100, 2, -100, 3])),
                     lambda: -(a.log_softmax(1)[0, 0] + a.log_softmax(1)[2, 2] + a.log_softmax(1)[4, 3]) / 3),
                    (lambda: F.cross_entropy(input=a, target=chance), lambda: -(a.log_softmax(1) * chance).sum() / 5)],
  "nll_loss": [(lambda: F.nll_loss(a, ids, weights, None, 1, None, "sum"),
                lambda: a.nll_loss(ids, weight=weights, ignore_index=1, reduction="sum"))],
  "linear_cross_entropy": [(lambda: F.linear_cross_entropy(a, table, ids, linear_bias=chance[:, 0], reduction="sum"),
                            lambda: (a @ table.T + chance[:, 0]).cross_entropy(ids, reduction="sum"))],
  "multi_margin_loss": [(lambda: F.multi_margin_loss(a, ids, 2, 0.5, weights), lambda: a.multi_margin_loss(
    ids, p=2, margin=0.5, weight=weights))],
  "multilabel_margin_loss": [(lambda: F.multilabel_margin_loss(a, N(4, 5, 4) * 0, None, None, "sum"),
                              lambda: a.multilabel_margin_loss(Tensor.zeros(5, 4, dtype="int32"), reduction="sum"))],
  "multilabel_soft_margin_loss": [(lambda: F.multilabel_soft_margin_loss(a, chance, weights),
                                   lambda: a.multilabel_soft_margin_loss(chance, weight=weights))],
  "hinge_embedding_loss": [(lambda: F.hinge_embedding_loss(a[:, 0], sign, 0.4), lambda: (sign > 0).where(
    a[:, 0], (0.4 - a[:, 0]).relu()).mean())],
  "soft_margin_loss": [(lambda: F.soft_margin_loss(a[:, 0], sign, None, None, "sum"), lambda: (1 + (-sign * a[:, 0]).exp()
                                                                                              ).log().sum())],
  "margin_ranking_loss": [(lambda: F.margin_ranking_loss(a[:, 0], b[:, 0], sign, 0.3),
                           lambda: (-sign * (a[:, 0] - b[:, 0]) + 0.3).relu().mean())],
  "cosine_embedding_loss": [(lambda: F.cosine_embedding_loss(a, b, sign, 0.3), lambda: a.cosine_embedding_loss(
    b, sign, margin=0.3))],
  "triplet_margin_loss": [(lambda: F.triplet_margin_loss(a, b, c, 0.5, 1, 1e-3, True, None, None, "sum"),
                           lambda: a.triplet_margin_loss(b, c, margin=0.5, p=1, eps=1e-3, swap=True, reduction="sum"))],
  "triplet_margin_with_distance_loss": [
    (lambda: F.triplet_margin_with_distance_loss(a, b, c, distance_function=lambda x, y: (x - y).abs().sum(-1), margin=2.0),
     lambda: (2 + (a - b).abs().sum(-1) - (a - c).abs().sum(-1)).relu().mean())],
  "cosine_similarity": [(lambda: F.cosine_similarity(a, b, 0),
                         lambda: (a * b).sum(0) / ((a * a).sum(0) * (b * b).sum(0)).sqrt())],
  "pairwise_distance": [(lambda: F.pairwise_distance(a, b, 1, 0.0, True), lambda: (a - b).abs().sum(1, keepdim=True))],
  "pdist": [(lambda: F.pdist(a[:2], 1), lambda: (a[0] - a[1]).abs().sum().reshape(1))],
  "linear": [(lambda: F.linear(x, table, P(5) * 0 + 2), lambda: x @ table.T + 2), (lambda: F.linear(x, table[0]),
              lambda: x @ table[0])],
  "bilinear": [(lambda: F.bilinear(x, x, volume[0, :3, :4, :, 0], 2 * P(3) * 0),
                lambda: Tensor.einsum("ni,kij,nj->nk", x, volume[0, :3, :4, :, 0], x))],
  **{f"conv{n}d": [(lambda n=n: getattr(F, f"conv{n}d")(inputs[n], W[n][0], W[n][1], 2, 1, 1, 2),
                    lambda n=n: getattr(inputs[n], f"conv{n}d")(W[n][0], W[n][1], stride=2, padding=1, groups=2))]
     for n in (1, 2, 3)},
  **{f"conv_transpose{n}d": [(
    lambda n=n: getattr(F, f"conv_transpose{n}d")(inputs[n], W[n][2], W[n][3], 2, 1, 1, 2, 3),
    lambda n=n: getattr(inputs[n], f"conv_transpose{n}d")(W[n][2], W[n][3], stride=2, padding=1, output_padding=1, groups=2,
                                                          dilation=3))] for n in (1, 2, 3)},
  "conv_tbc": [(lambda: F.conv_tbc(line.permute(2, 0, 1), W[1][2].permute(2, 0, 1), P(3) * 0, 1),
                lambda: line.conv1d(W[1][2].permute(1, 0, 2), padding=1).permute(2, 0, 1))],
  "unfold": [(lambda: F.unfold(image, 2, 1, 1, (2, 1)), lambda: image.im2col(kernel_size=(2, 2), padding=1, stride=(2, 1)))],
  "fold": [(lambda: F.fold(line.reshape(2, 4, 7)[:, :, :6], (3, 4), 2), lambda: line[:, :, :6].col2im((3, 4), (2, 2)))],
  **{f"max_pool{n}d": [(lambda n=n: getattr(F, f"max_pool{n}d")(inputs[n], 2, 1, 1, 2, True),
                        lambda n=n: getattr(inputs[n], f"max_pool{n}d")((2,) * n, stride=1, padding=1, dilation=2,
                                                                        ceil_mode=True))] for n in (1, 2, 3)},
  **{f"max_pool{n}d_with_indices": [(
    lambda n=n: getattr(F, f"max_pool{n}d_with_indices")(inputs[n], 2, 1, 1, 2)[1],
    lambda n=n: getattr(inputs[n], f"max_pool{n}d")((2,) * n, stride=1, padding=1, dilation=2, return_indices=True)[1])]
    for n in (1, 2, 3)},
  **{f"max_unpool{n}d": [(
    lambda n=n: getattr(F, f"max_unpool{n}d")(*getattr(F, f"max_pool{n}d")(inputs[n], 2, None, 0, 1, False, True), 2, 2, 0,
                                              inputs[n].shape[-n:]),
    lambda n=n: getattr(getattr(inputs[n], f"max_pool{n}d")((2,) * n), f"max_unpool{n}d")(
      getattr(inputs[n], f"max_pool{n}d")((2,) * n, return_indices=True)[1], 2, output_size=inputs[n].shape[-n:]))]
    for n in (1, 2, 3)},
  "avg_pool1d": [(lambda: F.avg_pool1d(line, 3, 2, 1, True, False), lambda: line.avg_pool1d(
    3, stride=2, padding=1, ceil_mode=True, count_include_pad=False))],
  "avg_pool2d": [(lambda: F.avg_pool2d(image, 2, 2, 1, False, True, 3), lambda: image.avg_pool2d(
    (2, 2), stride=2, padding=1, divisor_override=3))],
  "avg_pool3d": [(lambda: F.avg_pool3d(volume, 2, 2, 1, True, False), lambda: volume.avg_pool3d(
    (2, 2, 2), stride=2, padding=1, ceil_mode=True, count_include_pad=False))],
  **{f"lp_pool{n}d": [(lambda n=n: getattr(F, f"lp_pool{n}d")(inputs[n], 1, 2, 1),
                       lambda n=n: getattr(inputs[n], f"avg_pool{n}d")((2,) * n, stride=1) * 2 ** n),
                      (lambda n=n: getattr(F, f"lp_pool{n}d")(inputs[n], 2, 2, 1),
                       lambda n=n: (getattr(inputs[n] ** 2, f"avg_pool{n}d")((2,) * n, stride=1) * 2 ** n).sqrt()),
                      (lambda n=n: getattr(F, f"lp_pool{n}d")(inputs[n], math.inf, 2),
                       lambda n=n: getattr(inputs[n].abs(), f"max_pool{n}d")((2,) * n))] for n in (1, 2, 3)},
  **{f"adaptive_avg_pool{n}d": [(lambda n=n: getattr(F, f"adaptive_avg_pool{n}d")(inputs[n], 3),
                                 lambda n=n: getattr(inputs[n], f"adaptive_avg_pool{n}d")(output_size=3))] for n in (1, 2, 3)},
  **{f"adaptive_max_pool{n}d": [(lambda n=n: getattr(F, f"adaptive_max_pool{n}d")(inputs[n], 3, True)[1],
                                 lambda n=n: getattr(F, f"adaptive_max_pool{n}d_with_indices")(inputs[n], 3)[1]),
                                (lambda n=n: getattr(F, f"adaptive_max_pool{n}d")(inputs[n], 3),
                                 lambda n=n: getattr(inputs[n], f"adaptive_max_pool{n}d")(3))] for n in (1, 2, 3)},
  **{f"adaptive_max_pool{n}d_with_indices": [(
    lambda n=n: getattr(F, f"adaptive_max_pool{n}d_with_indices")(inputs[n], 3)[0],
    lambda n=n: getattr(inputs[n], f"adaptive_max_pool{n}d")(3))] for n in (1, 2, 3)},
  **{f"fractional_max_pool{n}d{end}": [(
    lambda n=n, end=end: (lambda r: r[0] if end else r)(getattr(F, f"fractional_max_pool{n}d{end}")(
      inputs[n], 2, 3, None, False, mean[:n].reshape(1, 1, n).expand(2, 4, n))),
    lambda n=n: getattr(inputs[n], f"fractional_max_pool{n}d")(2, output_size=3, _random_samples=mean[:n].reshape(1, 1, n).expand(
      2, 4, n)))] for n in (2, 3) for end in ("", "_with_indices")},
  "pad": [(lambda: F.pad(x, (1, 2), "constant", 3.0), lambda: x.pad(((0, 0), (1, 2)), value=3.0)),
          (lambda: F.pad(line, (2, 1), "reflect"), lambda: line.pad((2, 1), mode="reflect"))],
  "one_hot": [(lambda: F.one_hot(Tensor([0, 2, 1])), lambda: Tensor.eye(3)[Tensor([0, 2, 1])]),
              (lambda: F.one_hot(Tensor([[1], [0]])), lambda: Tensor([[1], [0]]).one_hot()),
              (lambda: F.one_hot(Tensor([1]), 4), lambda: Tensor([[0, 1, 0, 0]]))],
  "embedding": [(lambda: F.embedding(ids, table), lambda: table[ids])],
  "embedding_bag": [(lambda: F.embedding_bag(ids.reshape(1, 5), table), lambda: table[ids].mean(0, keepdim=True)),
                    (lambda: F.embedding_bag(ids, table, Tensor([0, 2, 2]), None, 2, False, "sum"),
                     lambda: Tensor.stack(table[ids[:2]].sum(0), table[0] * 0, table[ids[2:]].sum(0)))],
  "pixel_shuffle": [(lambda: F.pixel_shuffle(image, 2), lambda: image.pixel_shuffle(upscale_factor=2))],
  "pixel_unshuffle": [(lambda: F.pixel_unshuffle(image[:, :, :, :4], 2), lambda: image[:, :, :, :4].pixel_unshuffle(
    downscale_factor=2))],
  "channel_shuffle": [(lambda: F.channel_shuffle(image, 2), lambda: image[:, [0, 2, 1, 3]])],
  "native_channel_shuffle": [(lambda: F.native_channel_shuffle(image, 2), lambda: image[:, [0, 2, 1, 3]])],
  "interpolate": [(lambda: F.interpolate(image, None, 2, "bilinear", True), lambda: image.interpolate(
                    scale_factor=2, mode="bilinear", align_corners=True)),
                  (lambda: F.interpolate(image, None, 1.5, "bilinear", None, True),
                  lambda: image.interpolate((9, 7), mode="bilinear"))],
  "upsample": [(lambda: F.upsample(image, (4, 3), None, "bilinear"), lambda: image.interpolate((4, 3), mode="bilinear"))],
  "upsample_nearest": [(lambda: F.upsample_nearest(image, None, 2), lambda: image.interpolate(scale_factor=2, mode="nearest"))],
  "upsample_bilinear": [(lambda: F.upsample_bilinear(image, 7),
                         lambda: image.interpolate(7, mode="bilinear", align_corners=True))],
  "affine_grid": [(lambda: F.affine_grid(volume[0, :2, :2, :3, 0], (2, 1, 3, 2), True),
                   lambda: volume[0, :2, :2, :3, 0].affine_grid((2, 1, 3, 2), align_corners=True))],
  "grid_sample": [(lambda: F.grid_sample(image, volume[:, :2, :3, :2, 0], "bilinear", "border"),
                   lambda: image.grid_sample(volume[:, :2, :3, :2, 0], padding_mode="border"))],
  "scaled_dot_product_attention": [
    (lambda: F.scaled_dot_product_attention(a, b, c, None, 0.0, True),
    lambda: a.scaled_dot_product_attention(b, c, is_causal=True))],
}


@pytest.mark.parametrize("name", long_half(sorted(CALLS)))
def test_by_place(name: str) -> None:
  for call, want in CALLS[name]:
    got, expected = call(), want()
    close(got, expected)
    if got.dtype.kind != "f" or not got.requires_grad: continue
    direction = np.cos(np.arange(got.numel())).reshape(got.shape)
    leaves = [x, table, image, line, volume, a, b, c]
    slopes = []
    for out in (got, expected):
      for t in leaves: t.grad = None
      (out * Tensor(direction)).sum().backward()
      slopes.append([None if t.grad is None else t.grad.numpy() for t in leaves])
    for s, t in zip(*slopes):
      if s is not None and t is not None: np.testing.assert_allclose(s, t, rtol=1e-8, atol=1e-9)


def test_every_function_has_a_call() -> None:
  elsewhere = set("ctc_loss gumbel_softmax multi_head_attention_forward".split())
  in_place = {n for n in F.__all__ if n.endswith("_")}
  assert set(F.__all__) - set(CALLS) - in_place == elsewhere


# ---- in place
@pytest.mark.parametrize("name", [n for n in sorted(SIGNATURES) if "inplace" in SIGNATURES[n] or n.endswith("_")])
def test_in_place(name: str) -> None:
  shape = {"dropout1d": (2, 3, 4), "dropout3d": (2, 3, 2, 2, 2)}.get(name, (2, 3, 4, 2))
  start = RNG.standard_normal(shape)
  rest = (0.1, 2.0) if name.startswith("threshold") else (0.5, False) if "dropout" in name else ()
  t = Tensor(start)
  if name.endswith("_"):
    out = getattr(F, name)(t, *rest)
    want = getattr(F, name[:-1])(Tensor(start), *rest)
  else:
    assert getattr(F, name)(t, *rest) is not t
    np.testing.assert_array_equal(t.numpy(), start)
    want = getattr(F, name)(Tensor(start), *rest)
    out = getattr(F, name)(t, *rest, inplace=True)
  assert out is t
  np.testing.assert_array_equal(t.numpy(), want.numpy())


def test_gradients_pass_what_is_written_in_place() -> None:
  t = X(3, 4)
  y = t * 2
  F.relu(y, inplace=True)
  y.sum().backward()
  np.testing.assert_array_equal(t.grad.numpy(), 2.0 * (t.numpy() > 0))
  with pytest.raises(NtgradError, match="relu"): F.relu(t, inplace=True)   # a leaf


# ---- training
@pytest.mark.parametrize("mode", [False, True])
def test_training_means_what_it_says(mode: bool) -> None:
  t, n = Tensor.ones(64, 32, 2, 2, dtype="float64"), Tensor(RNG.standard_normal((64, 8)))
  with Tensor.train(mode):
    for name in ("dropout", "dropout2d", "alpha_dropout", "feature_alpha_dropout"):
      drop = getattr(F, name)
      assert (drop(t, 0.5, True).numpy() != 1).any() and (drop(t, 0.5, False).numpy() == 1).all(), name
    assert set(np.unique(F.dropout(t).numpy())) == {0.0, 2.0}, "in training where nothing else is said"
    assert (F.alpha_dropout(t).numpy() == 1).all() and (F.feature_alpha_dropout(t).numpy() == 1).all()
    assert (F.dropout1d(t[:, :, 0], training=True).numpy() == 0).any() and (F.dropout3d(t.unsqueeze(2)).numpy() == 0).any()
    slopes = F.rrelu(-t, training=True).numpy()
    assert len(np.unique(slopes)) > 100 and -1 / 3 <= slopes.min() <= slopes.max() <= -1 / 8
    assert len(np.unique(F.rrelu(-t).numpy())) == 1
    mean, var = Tensor.zeros(8, dtype="float64"), Tensor.ones(8, dtype="float64")
    close(F.batch_norm(n, mean, var, training=False, eps=0.0), n)
    F.batch_norm(n, mean, var, None, None, True, 0.5)
    close(mean, 0.5 * n.mean(0))
    close(var, 0.5 + 0.5 * n.var(0))
    q = Tensor.ones(1, 8, 4, dtype="float64")
    full = F.scaled_dot_product_attention(q, q, q)
    assert (F.scaled_dot_product_attention(q, q, q, None, 0.5).numpy() != full.numpy()).any() and (full.numpy() == 1).all()
    assert Tensor.training is mode


def test_gumbel_softmax() -> None:
  logits = X(400, 4)
  soft, hard = F.gumbel_softmax(logits=logits, tau=0.5), F.gumbel_softmax(logits, 0.5, True, 1e-10, 0)
  np.testing.assert_allclose(soft.numpy().sum(1), 1)
  assert set(np.unique(hard.numpy().round(9))) == {0.0, 1.0} and (hard.numpy().round(9).sum(0) == 1).all()


# ---- reductions
@pytest.mark.parametrize(("size_average", "reduce", "want"), [
  (None, None, "sum"), (True, None, "mean"), (False, None, "sum"), (None, True, "mean"), (None, False, "none"),
  (True, False, "none"),
  (False, False, "none"), (False, True, "sum"), (True, True, "mean")])
@pytest.mark.parametrize("name", [n for n in sorted(SIGNATURES) if "size_average" in SIGNATURES[n]])
def test_old_names_of_reductions(name: str, size_average: bool | None, reduce: bool | None, want: str) -> None:
  y = N(2, 4, 3).cast(dtypes.float64)
  others: tuple[Any, ...] = {
    "cross_entropy": (N(3, 4),), "nll_loss": (N(3, 4),), "multi_margin_loss": (N(3, 4),), "multilabel_margin_loss": (N(3, 4, 3),),
    "cosine_embedding_loss": (P(4, 3), y[:, 0] * 2 - 1), "margin_ranking_loss": (P(4, 3), y * 2 - 1),
    "triplet_margin_loss": (P(4, 3), P(4, 3))}.get(name, (y,))
  t = P(4, 3)
  close(getattr(F, name)(t, *others, size_average=size_average, reduce=reduce, reduction="sum"),
        getattr(F, name)(t, *others, reduction=want))


# ---- rows of tables
def test_gradients_of_rows() -> None:
  index = Tensor([1, 1, 3, 0])
  t = X(4, 2)
  F.embedding(index, t, 1).sum().backward()
  assert t.grad.tolist() == [[1, 1], [0, 0], [0, 0], [1, 1]]
  for sums in (lambda t: F.embedding(index, t, scale_grad_by_freq=True).sum(),
               lambda t: F.embedding_bag(index, t, Tensor([0, 3]), None, 2, True, "sum").sum()):
    t = X(4, 2)
    out = sums(t)
    assert abs(out.item() - t.numpy()[[1, 1, 3, 0]].sum()) < 1e-12
    out.backward()
    assert t.grad.tolist() == [[1, 1], [1, 1], [0, 0], [1, 1]]


def test_long_rows_are_shortened() -> None:
  t = Tensor([[3.0, 4.0], [0.3, 0.4], [30.0, 40.0]], requires_grad=True)
  out = F.embedding(Tensor([0, 1]), t, None, 1.0)
  np.testing.assert_allclose(out.numpy(), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-6)
  np.testing.assert_allclose(t.numpy(), [[0.6, 0.8], [0.3, 0.4], [30, 40]], rtol=1e-6)
  out.sum().backward()
  assert t.grad.tolist() == [[1, 1], [1, 1], [0, 0]]


def test_written_to_out() -> None:
  out = Tensor.zeros(3, 4, dtype="float64").clone()
  assert F.normalize(x.detach(), 2.0, 1, 1e-12, out) is out
  close(out, x.normalize(2, 1))


# ---- heads
def test_heads_are_those_of_the_layer() -> None:
  layer = nn.MultiheadAttention(6, 2, add_bias_kv=True, add_zero_attn=True)
  q, k, mask = Tensor.randn(4, 3, 6), Tensor.randn(5, 3, 6), Tensor.ones(4, 5, dtype=dtypes.bool).triu(2)
  padding = Tensor([[0, 0, 0, 1, 1]] * 3).cast(dtypes.bool)
  for weights in (True, False):
    want = layer(q, k, k, padding, weights, mask)
    got = F.multi_head_attention_forward(
      q, k, k, 6, 2, layer.in_proj_weight, layer.in_proj_bias, layer.bias_k, layer.bias_v, True, 0.0, layer.out_proj.weight,
      layer.out_proj.bias, False, padding, weights, mask)
    for g, w in zip(got, want):
      assert (g is None) is (w is None)
      if g is not None and w is not None: np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-5, atol=1e-6)


# ---- ctc
def _likelihood(p: Any, labels: list[int], blank: int) -> float:
  """The probability of labels by counting all ways."""
  total = 0.0
  for path in np.ndindex(*[p.shape[1]] * p.shape[0]):
    said = [s for i, s in enumerate(path) if s != blank and (i == 0 or path[i - 1] != s)]
    if said == labels: total += math.prod([p[i, s] for i, s in enumerate(path)])
  return total


@pytest.mark.parametrize("blank", [0, 2])
def test_ctc_counts_all_ways(blank: int) -> None:
  logits = X(5, 3, 3)
  labels = [[1], [1, 1], [1, 2 if blank == 0 else 0, 1]]
  lengths = [5, 4, 5]
  rows = [row + [blank] * (3 - len(row)) for row in labels]
  log_p = logits.log_softmax(-1)
  p = log_p.exp().numpy()
  want = np.array([-math.log(_likelihood(p[:n, i], row, blank)) for i, (n, row) in enumerate(zip(lengths, labels))])
  sizes = Tensor([1, 2, 3])
  for targets in (Tensor(rows), Tensor([s for row in labels for s in row])):
    got = F.ctc_loss(log_p, targets, Tensor(lengths), sizes, blank, "none")
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-9)
  np.testing.assert_allclose(F.ctc_loss(log_p, Tensor(rows), lengths, sizes, blank).item(), (want / [1, 2, 3]).mean(), rtol=1e-9)
  np.testing.assert_allclose(F.ctc_loss(log_p[:, 1], Tensor([1, 1]), 4, 2, blank, "sum").item(), want[1], rtol=1e-9)
  loss = F.ctc_loss(log_p, Tensor(rows), lengths, sizes, blank, "sum")
  loss.backward()
  assert logits.grad is not None
  grad, step = logits.grad.numpy(), 1e-6
  assert (grad[4, 1] == 0).all(), "behind the end"
  for at in ((0, 0, 0), (2, 1, 1), (3, 2, 2), (4, 0, 1)):
    moved = logits.numpy().copy()
    moved[at] += step
    after = F.ctc_loss(Tensor(moved).log_softmax(-1), Tensor(rows), lengths, sizes, blank, "sum").item()
    assert abs((after - loss.item()) / step - grad[at]) < 1e-4


def test_ctc_of_sequences_that_are_too_short() -> None:
  logits = X(2, 2, 3)
  args = Tensor([[1, 1], [1, 2]]), Tensor([2, 2]), Tensor([2, 2])   # 1 1 takes a blank between
  got = F.ctc_loss(logits.log_softmax(-1), *args, reduction="none").numpy()
  assert math.isinf(got[0]) and math.isfinite(got[1])
  loss = F.ctc_loss(logits.log_softmax(-1), *args, 0, "sum", True)
  assert abs(loss.item() - got[1]) < 1e-12
  loss.backward()
  assert logits.grad is not None and (logits.grad.numpy()[:, 0] == 0).all() and np.isfinite(logits.grad.numpy()).all()


# ---- what is refused
@pytest.mark.parametrize(("call", "kind", "match"), [
  (lambda: F.conv2d(line, W[1][0]), ShapeError, r"conv2d: input \(2, 4, 7\) with weight \(6, 2, 3\) and groups 1; give \(n, cin"),
  (lambda: F.conv2d(image, W[2][0]), ShapeError, "groups 1"),
  (lambda: F.conv2d(image, W[2][0], groups=0), ShapeError, "groups 0"),
  (lambda: F.conv_transpose2d(image, W[2][0]), ShapeError, "conv_transpose2d"),
  (lambda: F.conv2d(image, W[2][0], None, 1, (1, 1, 1, 1), groups=2), ShapeError, "padding"),
  (lambda: F.conv2d(image, W[2][0], None, 1, "full", groups=2), ArgumentError, "padding 'full'"),
  (lambda: F.conv2d(image, W[2][0], None, "1"), ArgumentError, "conv2d: stride is '1'"),
  (lambda: F.conv_tbc(line, image, x), ShapeError, "conv_tbc"), (lambda: F.linear(x, image), ShapeError, "linear: input"),
  (lambda: F.linear(x, x.T), ShapeError, r"\(out, in\)"), (lambda: F.bilinear(x, x, x), ShapeError, "bilinear: inputs"),
  (lambda: F.max_pool2d(image, (2, 2, 2)), ShapeError, "max_pool2d: kernel_size"),
  (lambda: F.avg_pool2d(image, 2, 2, (1, 1, 1, 1)), ShapeError, "avg_pool2d: padding"),
  (lambda: F.unfold(x, 2), ShapeError, "im2col: shape"), (lambda: F.unfold(image, (2, 2, 2)), ShapeError, "unfold: kernel_size"),
  (lambda: F.fold(line, (2, 2, 2), 1), ShapeError, "fold: output_size"),
  (lambda: F.relu([1.0]), ArgumentError, "relu: input is .* it takes a Tensor"),
  (lambda: F.dropout(x, 1.5), ArgumentError, "dropout"), (lambda: F.dropout(x, 0.5, "yes"),
  ArgumentError, "dropout: training is 'yes'"),
  (lambda: F.cross_entropy(a, ids, reduction="avg"), ArgumentError, "cross_entropy: reduction 'avg'"),
  (lambda: F.cross_entropy(a, ids, weights, "sum"), ArgumentError, "cross_entropy: size_average is 'sum'"),
  (lambda: F.mse_loss(a, x), ShapeError, "mse_loss"),
  (lambda: F.mse_loss(a, b, weight=weights), ShapeError, "mse_loss: a weight"),
  (lambda: F.gaussian_nll_loss(a, b, -1.0), ArgumentError, "var = -1.0"),
  (lambda: F.margin_ranking_loss(a, b, sign), ShapeError, "margin_ranking_loss"),
  (lambda: F.linear_cross_entropy(a, table, ids, options=3), ArgumentError, "options"),
  (lambda: F.linear_cross_entropy(a, x.T, ids), ShapeError, "linear_weight"),
  (lambda: F.linear_cross_entropy(a, table, ids, linear_bias=weights), ShapeError, "linear_bias"),
  (lambda: F.linear_cross_entropy(a, a, a @ a.T, ignore_index=1), ArgumentError, "ignore_index = 1 with probabilities"),
  (lambda: F.pad(x, (1, 1), "reflect", 1.0), ArgumentError, "pad: value 1.0 with mode 'reflect'"),
  (lambda: F.interpolate(image, 3, antialias=True), ArgumentError, "antialias with mode 'nearest'"),
  (lambda: F.interpolate(image, 3, recompute_scale_factor=True), ArgumentError, "recompute_scale_factor"),
  (lambda: F.interpolate(image, scale_factor=[2.0], recompute_scale_factor=True), ShapeError, "scale_factor"),
  (lambda: F.interpolate(image, scale_factor=math.inf, recompute_scale_factor=True), ArgumentError, "finite"),
  (lambda: F.one_hot(x), DTypeError, "one_hot"), (lambda: F.one_hot(Tensor.zeros(0, dtype="int32")),
  ArgumentError, "num_classes"),
  (lambda: F.embedding(x, table), DTypeError, "embedding: indices of float64"),
  (lambda: F.embedding(ids, weights), ShapeError, "embedding"),
  (lambda: F.embedding(ids, table, 5), ArgumentError, "embedding: padding_idx is 5, expected -5 to 4"),
  (lambda: F.embedding_bag(ids, table), ShapeError, "no offsets"), (lambda: F.embedding_bag(ids, table, ids, mode="least"),
  ArgumentError, "mode"),
  (lambda: F.embedding_bag(ids, table, Tensor([0]), per_sample_weights=P(5)), ArgumentError, "per_sample_weights"),
  (lambda: F.embedding_bag(ids, table, Tensor([0]), None, 2, True, "max"), ArgumentError, "scale_grad_by_freq"),
  (lambda: F.embedding_bag(ids, table, ids[:0], include_last_offset=True), ShapeError, "no offsets"),
  (lambda: F.ctc_loss(x, ids, 3, 5, 7), ArgumentError, "ctc_loss: blank 7; it goes from 0 to 3"),
  (lambda: F.ctc_loss(x, ids, 3, 5, 0, "all"), ArgumentError, "ctc_loss: reduction 'all'"),
  (lambda: F.ctc_loss(ids, ids, 3, 5), ShapeError, "ctc_loss: log_probs"),
  (lambda: F.ctc_loss(x, x, 3, 5), DTypeError, "targets"),
  (lambda: F.ctc_loss(line, ids, [7, 7, 7, 7], [1, 1, 1, 1]), ShapeError, "5 labels in a row"),
  (lambda: F.ctc_loss(line, ids, [7, 7], [1, 4, 2, 3]), ShapeError, r"input_lengths of shape \(2,\) for 4 samples"),
  (lambda: F.ctc_loss(line, ids, [7.5] * 4, [1] * 4), DTypeError, "input_lengths"),
  (lambda: F.ctc_loss(line, N(3, 2, 2, 2), [7] * 4, [1] * 4), ShapeError, "targets"),
])
def test_refused(call: Callable[[], Any], kind: type[Exception], match: str) -> None:
  with pytest.raises(kind, match=match): call()


@pytest.mark.parametrize(("change", "match"), [
  ({"embed_dim_to_check": 5}, "embed_dim_to_check 5"), ({"num_heads": 4}, "num_heads 4"), ({"is_causal": True}, "is_causal"),
  ({"bias_k": P(1, 1, 6)}, "bias_k and bias_v"), ({"in_proj_weight": None}, "in_proj_weight"),
  ({"in_proj_weight": P(6, 6)}, "in_proj_weight"),
  ({"use_separate_proj_weight": True}, "q_proj_weight"), ({"attn_mask": P(3, 3)}, "attn_mask"),
  ({"key_padding_mask": P(3, 4)}, "key_padding"),
  ({"attn_mask": N(2, 4, 5)}, "attn_mask of int64"), ({"static_k": P(1, 5, 3)}, "static_k"), ({"key": P(5, 6)}, "key"),
  ({"bias_k": P(1, 1, 6), "bias_v": P(1, 1, 6), "static_k": P(6, 5, 3)}, "static_k")])
def test_heads_refused(change: dict[str, Any], match: str) -> None:
  usual = {"query": P(4, 3, 6), "key": P(5, 3, 6), "value": P(5, 3, 6), "embed_dim_to_check": 6, "num_heads": 2,
           "in_proj_weight": P(18, 6), "in_proj_bias": None, "bias_k": None, "bias_v": None, "add_zero_attn": False,
           "dropout_p": 0.0,
           "out_proj_weight": P(6, 6), "out_proj_bias": None}
  with pytest.raises(NtgradError, match=f"multi_head_attention_forward: .*{match}"):
    F.multi_head_attention_forward(**{**usual, **change})


def test_labels_that_are_no_class() -> None:
  with pytest.raises(IndexOutOfRangeError), no_grad(): F.ctc_loss(P(4, 3).log(), Tensor([1, 3]), 4, 2).item()
