"""Calls of ``torch.nn.functional``, written as they are there, to be made of two libraries and compared.

Arrays of floats get gradients, but for those in ``C``. No call is left to chance: dropout is with p of 0 and 1, and in use.
Left out are a few gradients of PyTorch: of cosine_similarity where a length is less than eps (they pass there), of
native_channel_shuffle (none), of embedding_bag with scale_grad_by_freq (divided by the count of another row).
"""
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

RNG = np.random.default_rng(7)


class C(NamedTuple):
  """An array without gradient."""
  array: Any


class Case(NamedTuple):
  """A call; ``slopes``: whether gradients are compared."""
  name: str
  args: tuple[Any, ...]
  kwargs: dict[str, Any]
  slopes: bool = True


CASES: list[Case] = []


def X(*shape: int) -> Any: return RNG.standard_normal(shape)
def P(*shape: int) -> Any: return RNG.uniform(0.1, 0.9, shape)
def N(n: int, *shape: int) -> Any: return RNG.integers(0, n, shape)
def S(*shape: int) -> Any: return C(RNG.choice([-1.0, 1.0], shape))
def B(*shape: int) -> Any: return RNG.random(shape) < 0.4


def of(name: str, *args: Any, slopes_: bool = True, **kwargs: Any) -> None: CASES.append(Case(name, args, kwargs, slopes_))


# ---- activations
for name in ("relu", "relu6", "selu", "silu", "mish", "hardswish", "hardsigmoid"):
  of(name, X(3, 4) * 4)
  of(name, X(3, 4) * 4, True)
  of(name, input=X(5) * 4, inplace=False)
for name in ("elu", "celu", "leaky_relu"):
  of(name, X(3, 4) * 2)
  of(name, X(3, 4) * 2, 0.7)
  of(name, X(3, 4) * 2, 1.5, True)
  of(name + "_", X(3, 4) * 2)
  of(name + "_", X(3, 4) * 2, 0.3)
of("relu_", X(3, 4)); of("selu_", X(3, 4))
of("hardtanh", X(4, 5) * 2); of("hardtanh", X(4, 5) * 2, -0.5, 1.5); of("hardtanh", X(4, 5) * 2, -0.5, 0.25, True)
of("hardtanh_", X(4, 5) * 2); of("hardtanh_", X(4, 5) * 2, -2.0, 0.5)
of("threshold", X(4, 5), 0.2, -3.0); of("threshold", X(4, 5), 0.2, -3.0, True); of("threshold_", X(4, 5), -0.1, 7.0)
of("rrelu", X(4, 5)); of("rrelu", X(4, 5), 0.1, 0.5, False, True); of("rrelu", X(4, 5), 0.25, 0.25, True)
of("rrelu_", X(4, 5)); of("rrelu_", X(4, 5), 0.2, 0.4, False)
of("gelu", X(4, 5) * 2); of("gelu", X(4, 5) * 2, approximate="tanh"); of("gelu", X(4, 5) * 2, approximate="none")
of("prelu", X(2, 3, 4), P(3)); of("prelu", X(2, 3, 4), P(1)); of("prelu", X(5), P(1))
for name in ("logsigmoid", "sigmoid", "tanh", "softsign", "tanhshrink"): of(name, X(4, 5) * 3)
of("hardshrink", X(4, 5)); of("hardshrink", X(4, 5), 0.9); of("softshrink", X(4, 5)); of("softshrink", X(4, 5), 0.2)
of("softplus", X(4, 5) * 30); of("softplus", X(4, 5) * 3, 2); of("softplus", X(4, 5) * 3, 2.5, 1.5)
for name in ("softmax", "softmin", "log_softmax"):
  of(name, X(3, 4), 0); of(name, X(3, 4), dim=1); of(name, X(2, 3, 4), -1, 5); of(name, X(4)); of(name, X(3, 4))
  of(name, X(2, 3, 4)); of(name, X(2, 3, 2, 2))
of("glu", X(3, 4)); of("glu", X(4, 3), 0); of("glu", input=X(2, 6, 3), dim=1)
for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):
  shape = (2, 3, 4, 4, 2)[:{"dropout1d": 3, "dropout2d": 4}.get(name, 5)]
  of(name, X(*shape), 0.5, False); of(name, X(*shape), 0.0, True); of(name, X(*shape), 0.3, False, True)
  of(name, input=X(*shape), p=0.0, training=True, inplace=True)
of("dropout", X(3, 4), 1.0, True); of("dropout", X(3, 4), 1.0)

# ---- norms
for training in (False, True):
  of("batch_norm", X(4, 3, 5), C(X(3)), C(P(3)), X(3), X(3), training)
  of("batch_norm", X(4, 3), C(X(3)), C(P(3)), None, None, training, 0.3, 1e-3)
  of("batch_norm", X(4, 3, 2, 2), running_mean=C(X(3)), running_var=C(P(3)), weight=X(3), training=training, momentum=0.0)
of("batch_norm", X(4, 3, 5), None, None, X(3), X(3), True)
of("instance_norm", X(2, 3, 5)); of("instance_norm", X(2, 3, 4, 4), C(X(3)), C(P(3)), X(3), X(3))
of("instance_norm", X(2, 3, 5), C(X(3)), C(P(3)), X(3), X(3), False); of("instance_norm", X(2, 3, 5), eps=0.1, weight=X(3))
of("instance_norm", X(2, 3, 4), C(X(3)), C(P(3)), X(3), X(3), True, 0.4, 1e-2)
of("layer_norm", X(2, 3, 4), (4,)); of("layer_norm", X(2, 3, 4), (3, 4), X(3, 4), X(3, 4), 1e-2)
of("layer_norm", X(2, 4), [4], None, X(4)); of("layer_norm", X(2, 4), normalized_shape=(4,), weight=X(4))
of("rms_norm", X(2, 3, 4), (4,)); of("rms_norm", X(2, 3, 4), (3, 4), X(3, 4), 1e-2); of("rms_norm", X(3, 4), (4,), X(4))
of("group_norm", X(2, 6, 4), 3); of("group_norm", X(2, 6, 3, 3), 2, X(6), X(6)); of("group_norm", X(2, 6), 2, X(6), X(6), 1e-2)
of("local_response_norm", X(2, 5, 4), 3); of("local_response_norm", X(2, 5, 3, 3), 2, 0.5, 0.6, 2.0)
of("local_response_norm", X(2, 4, 3, 2, 2), size=5, alpha=0.3)
of("normalize", X(3, 4)); of("normalize", X(3, 4), 1.0, 0); of("normalize", X(3, 4, 2), 3.0, -1, 1e-3)
of("normalize", X(3, 4), p=math.inf, dim=1)

# ---- losses
RED: list[dict[str, Any]] = [{}, {"reduction": "sum"}, {"reduction": "none"}, {"size_average": False}, {"reduce": False},
                             {"size_average": True, "reduce": True, "reduction": "sum"}]
for kw in RED:
  of("mse_loss", X(3, 4), X(3, 4), **kw); of("l1_loss", X(3, 4), X(3, 4), **kw)
  of("mse_loss", X(3, 4), C(X(3, 4)), weight=P(3, 4), **kw); of("l1_loss", X(3, 4), C(X(3, 4)), weight=P(3, 4), **kw)
  of("smooth_l1_loss", X(3, 4), X(3, 4), **kw); of("smooth_l1_loss", X(3, 4), X(3, 4), beta=0.4, **kw)
  of("kl_div", X(3, 4), C(P(3, 4)), **kw); of("kl_div", X(3, 4), X(3, 4), log_target=True, **kw)
  of("binary_cross_entropy", P(3, 4), C(P(3, 4)), **kw); of("binary_cross_entropy", P(3, 4), C(P(3, 4)), C(P(4)), **kw)
  of("binary_cross_entropy_with_logits", X(3, 4), C(P(3, 4)), **kw)
  of("binary_cross_entropy_with_logits", X(3, 4), C(P(3, 4)), C(P(4)), pos_weight=C(P(4)), **kw)
  of("poisson_nll_loss", X(3, 4), C(P(3, 4) * 4), **kw); of("poisson_nll_loss", P(3, 4), C(P(3, 4) * 4), False, True, **kw)
  of("cross_entropy", X(5, 4), N(4, 5), **kw); of("cross_entropy", X(5, 4), N(4, 5), C(P(4)), **kw)
  of("cross_entropy", X(2, 4, 3), C(P(2, 4, 3)), **kw); of("cross_entropy", X(2, 4, 3), N(4, 2, 3), label_smoothing=0.2, **kw)
  of("cross_entropy", X(5, 4), N(4, 5), C(P(4)), ignore_index=2, label_smoothing=0.1, **kw)
  of("nll_loss", X(5, 4), N(4, 5), **kw); of("nll_loss", X(2, 4, 3), N(4, 2, 3), C(P(4)), ignore_index=1, **kw)
  of("multi_margin_loss", X(3, 4), N(4, 3), **kw); of("multi_margin_loss", X(3, 4), N(4, 3), 2, 0.5, C(P(4)), **kw)
  of("multilabel_margin_loss", X(3, 4), np.array([[1, 3, -1, 0], [2, -1, 0, 0], [0, 1, 2, 3]]), **kw)
  of("multilabel_soft_margin_loss", X(3, 4), C(1.0 * B(3, 4)), **kw)
  of("multilabel_soft_margin_loss", X(3, 4), C(1.0 * B(3, 4)), C(P(4)), **kw)
  of("hinge_embedding_loss", X(3, 4), S(3, 4), **kw); of("hinge_embedding_loss", X(3, 4), S(3, 4), 0.3, **kw)
  of("soft_margin_loss", X(3, 4), S(3, 4), **kw)
  of("margin_ranking_loss", X(6), X(6), S(6), **kw); of("margin_ranking_loss", X(6), X(6), S(6), 0.5, **kw)
  of("cosine_embedding_loss", X(5, 4), X(5, 4), S(5), **kw); of("cosine_embedding_loss", X(5, 4), X(5, 4), S(5), 0.2, **kw)
  of("triplet_margin_loss", X(3, 4), X(3, 4), X(3, 4), **kw)
  of("triplet_margin_loss", X(3, 4), X(3, 4), X(3, 4), 2.0, 1, 1e-4, True, **kw)
of("mse_loss", X(3, 4), X(3, 4), None, None, "sum"); of("l1_loss", X(3, 4), X(3, 4), False, True)
of("mse_loss", input=X(3, 4), target=X(3, 4)); of("cross_entropy", input=X(5, 4), target=N(4, 5))
of("cross_entropy", X(5, 4), np.array([0, -100, 2, -100, 3])); of("nll_loss", X(5, 4), np.array([0, -100, 2, -100, 3]))
of("cross_entropy", X(4), np.array(2)); of("nll_loss", X(4), np.array(2)); of("cross_entropy", X(4), C(P(4)))
of("cross_entropy", X(5, 4), N(4, 5), C(P(4)), None, 1, None, "none", 0.3)
of("cross_entropy", X(3, 4), C(P(3, 4)), C(P(4)), label_smoothing=0.3)
of("nll_loss", X(5, 4), N(4, 5), C(P(4)), None, 1, None, "sum")
of("kl_div", X(3, 4), C(P(3, 4)), reduction="batchmean"); of("kl_div", X(3, 4), C(P(3, 4)), None, None, "none", False)
of("kl_div", X(3, 4), C(np.array([[0, 0.5, 0.5, 0]] * 3)))
for how in ("mean", "sum", "none"):
  of("huber_loss", X(3, 4) * 2, X(3, 4), how); of("huber_loss", X(3, 4) * 2, X(3, 4), how, 0.5)
  of("huber_loss", X(3, 4) * 2, X(3, 4), how, 0.5, P(3, 4))
  of("gaussian_nll_loss", X(3, 4), X(3, 4), P(3, 4), False, 1e-6, how)
  of("gaussian_nll_loss", X(3, 4), X(3, 4), P(3), True, 0.3, how)
  of("gaussian_nll_loss", X(3, 4), X(3, 4), 0.7, reduction=how)
  of("linear_cross_entropy", X(5, 3), X(4, 3), N(4, 5), reduction=how)
  of("linear_cross_entropy", X(5, 3), X(4, 2, 3), N(4, 5, 2), linear_bias=X(4, 2), weight=C(P(4)), ignore_index=1, reduction=how)
  of("triplet_margin_with_distance_loss", X(3, 4), X(3, 4), X(3, 4), margin=0.7, swap=True, reduction=how)
of("linear_cross_entropy", X(3), X(4, 3), np.array(1), linear_bias=X(4), label_smoothing=0.1)
of("linear_cross_entropy", X(5, 3), X(4, 3), C(P(5, 4)))
of("triplet_margin_with_distance_loss", X(3, 4), X(3, 4), X(3, 4), distance_function=lambda a, b: (a - b).abs().sum(-1))
of("poisson_nll_loss", P(3, 4), C(P(3, 4) * 4), False, False, None, 0.1, None, "sum")
of("smooth_l1_loss", X(3, 4), X(3, 4), None, None, "mean", 0.0)
of("cosine_similarity", X(3, 4), X(3, 4)); of("cosine_similarity", X(3, 4, 2), X(3, 1, 2), -1)
of("cosine_similarity", X(4), X(4), 0, 10.0, slopes_=False)
of("pairwise_distance", X(3, 4), X(3, 4)); of("pairwise_distance", X(3, 4), X(3, 4), 1.0, 1e-3, True)
of("pairwise_distance", x1=X(4), x2=X(4), p=math.inf); of("pdist", X(5, 3)); of("pdist", X(5, 3), 1.0)
of("pdist", input=X(4, 3), p=3.0)

# ---- products
of("linear", X(3, 4), X(2, 4)); of("linear", X(2, 3, 4), X(2, 4), X(2)); of("linear", X(4), X(2, 4), X(2))
of("linear", X(3, 4), X(4))
of("linear", input=X(3, 4), weight=X(4))
of("bilinear", X(5, 3), X(5, 4), X(2, 3, 4)); of("bilinear", X(2, 5, 3), X(2, 5, 4), X(2, 3, 4), X(2))
for n in (1, 2, 3):
  s, k = (7, 6, 5)[:n], (3, 2, 3)[:n]
  of(f"conv{n}d", X(2, 4, *s), X(6, 4, *k)); of(f"conv{n}d", X(4, *s), X(6, 4, *k), X(6), 2, 1)
  of(f"conv{n}d", X(2, 4, *s), X(6, 2, *k), X(6), 1, (1,) * n, 2, 2)
  of(f"conv{n}d", X(2, 4, *s), X(4, 1, *k), None, (2,) * n, 0, 1, 4)
  of(f"conv{n}d", X(2, 4, *s), X(6, 4, *k), padding="same", dilation=2)
  of(f"conv{n}d", X(2, 4, *s), X(6, 4, *k), X(6), 1, "valid")
  of(f"conv_transpose{n}d", X(2, 4, *s), X(4, 3, *k)); of(f"conv_transpose{n}d", X(4, *s), X(4, 3, *k), X(3), 2, 1, 1)
  of(f"conv_transpose{n}d", X(2, 4, *s), X(4, 3, *k), X(6), 2, (1,) * n, 0, 2, 2)
  of(f"conv_transpose{n}d", input=X(2, 4, *s), weight=X(4, 3, *k), stride=3, output_padding=2, dilation=2)
of("conv2d", X(2, 3, 5, 6), X(4, 3, 2, 3), None, (2, 1), (0, 2), (1, 2))
of("conv_tbc", X(7, 2, 3), X(3, 3, 4), X(4)); of("conv_tbc", X(7, 2, 3), X(3, 3, 4), X(4), 2)
of("unfold", X(2, 3, 6, 5), 3); of("unfold", X(2, 3, 6, 5), (3, 2), 2, 1, (2, 1))
of("unfold", X(3, 6, 5), kernel_size=2, stride=2)

of("fold", X(2, 12, 20), (6, 5), 2); of("fold", X(12, 9), 6, (2, 2), 1, 0, 2); of("fold", X(2, 12, 10), (4, 6), 2, 1, 0, (2, 1))
of("fold", X(2, 12, 16), (4, 4), 2, 2, 1, 1)

# ---- pools
for n in (1, 2, 3):
  s = (2, 3, 7, 6, 5)[:n + 2]
  for name in (f"max_pool{n}d", f"max_pool{n}d_with_indices"):
    of(name, X(*s), 2); of(name, X(*s), 3, 2, 1); of(name, X(*s), 2, 1, 0, 2); of(name, X(*s), 3, 2, 1, 1, True)
    of(name, X(*s[1:]), (2,) * n, (1,) * n, (1,) * n, 2, True, True); of(name, input=X(*s), kernel_size=2, padding=1)
  of(f"max_pool{n}d", X(*s), 3, None, 1, 1, False, True)
  of(f"avg_pool{n}d", X(*s), 2); of(f"avg_pool{n}d", X(*s), 3, 2, 1); of(f"avg_pool{n}d", X(*s), 3, 2, 1, True, False)
  of(f"avg_pool{n}d", X(*s[1:]), (2,) * n, (1,) * n, (1,) * n, False, False); of(f"avg_pool{n}d", X(*s), 3, 2, 1, True)
  if n > 1: of(f"avg_pool{n}d", X(*s), 3, 2, 1, False, True, 5)
  for p in (1, 2, 4.0, 3, math.inf, -math.inf): of(f"lp_pool{n}d", X(*s), p, 2); of(f"lp_pool{n}d", X(*s), p, 3, 2)
  of(f"lp_pool{n}d", P(*s), 3, 2, 1); of(f"lp_pool{n}d", P(*s), 2.5, 2); of(f"lp_pool{n}d", X(*s), 2, 3, 2, True)
  for name in (f"adaptive_max_pool{n}d", f"adaptive_max_pool{n}d_with_indices", f"adaptive_avg_pool{n}d"):
    of(name, X(*s), 3); of(name, X(*s[1:]), (2, 3, 4)[:n])
    if n > 1: of(name, X(*s), (None, 4, 2)[:n])
  of(f"adaptive_max_pool{n}d", X(*s), 3, True)
  k = (2, 2, 4, 4, 4)[:n + 2]
  places = np.stack([RNG.permutation(4 ** n)[:2 ** n].reshape((2,) * n) for _ in range(4)]).reshape(2, 2, *(2,) * n)
  of(f"max_unpool{n}d", X(2, 2, *(2,) * n), places, 2); of(f"max_unpool{n}d", X(2, 2, *(2,) * n), places, 2, 2, 0, (4,) * n)
  of(f"max_unpool{n}d", X(2, 2, *(2,) * n), places, 2, 2, 0, (2, 2, *(5,) * n))
for n in (2, 3):
  s, u = (2, 3, 7, 6, 8)[:n + 2], C(RNG.random((2, 3, n)))
  for name in (f"fractional_max_pool{n}d", f"fractional_max_pool{n}d_with_indices"):
    of(name, X(*s), 2, 3, None, False, u); of(name, X(*s), (2,) * n, output_ratio=(0.5,) * n, _random_samples=u)
  of(f"fractional_max_pool{n}d", X(*s), 2, (3,) * n, None, True, u)

# ---- moves
of("pad", X(2, 3, 4), (1, 2)); of("pad", X(2, 3, 4), [1, 0, 0, 2], "constant", 3.5); of("pad", X(2, 3, 4), (-1, 1))
of("pad", X(2, 3, 4), (2, 1), "reflect"); of("pad", X(2, 3, 4), (2, 1), "replicate")
of("pad", X(2, 3, 4), (2, 1), mode="circular")
of("pad", X(1, 2, 4, 4), (1, 1, 2, 0), "reflect"); of("pad", input=X(2, 3), pad=(1, 1, 1, 1), value=-1.0)
of("one_hot", N(4, 3, 2), 5); of("one_hot", np.array([0, 3, 1])); of("one_hot", np.array([0, 3, 1]), -1)
of("embedding", N(5, 3, 2), X(5, 4)); of("embedding", N(5, 9), X(5, 4), 2); of("embedding", N(5, 9), X(5, 4), -1)
of("embedding", N(5, 9), X(5, 4), None, None, 2.0, True); of("embedding", input=N(5, 9), weight=X(5, 4), padding_idx=0)
of("embedding", N(5, 3), X(5, 4) * 3, max_norm=1.0, slopes_=False)
of("embedding", N(5, 3), X(5, 4), None, 2.0, 1.0, slopes_=False)
for mode in ("sum", "mean", "max"):
  of("embedding_bag", N(5, 4, 3), X(5, 2), mode=mode); of("embedding_bag", N(5, 7), X(5, 2), np.array([0, 2, 2, 5]), mode=mode)
  of("embedding_bag", N(5, 7), X(5, 2), np.array([0, 3, 7]), mode=mode, include_last_offset=True)
  of("embedding_bag", N(5, 4, 3), X(5, 2), mode=mode, padding_idx=1)
  of("embedding_bag", np.array([1, 1, 2, 0, 1]), X(5, 2), np.array([0, 2, 4]), mode=mode, padding_idx=1)
of("embedding_bag", N(5, 4, 3), X(5, 2)); of("embedding_bag", N(5, 4, 3), X(5, 2), mode="sum", per_sample_weights=X(4, 3))
of("embedding_bag", N(5, 7), X(5, 2), np.array([0, 2, 5]), None, 2, False, "sum", False, X(7))
of("embedding_bag", N(5, 4, 3), X(5, 2) * 3, None, 1.0, slopes_=False)
of("pixel_shuffle", X(2, 8, 3, 2), 2); of("pixel_unshuffle", X(2, 2, 6, 4), 2)
of("channel_shuffle", X(2, 6, 3, 2), 3); of("native_channel_shuffle", X(2, 6, 3, 2), 2, slopes_=False)
for mode, s in (("nearest", (4, 5)), ("nearest-exact", (4, 5)), ("bilinear", (4, 5)), ("bicubic", (4, 5)), ("area", (4, 5)),
                ("nearest", (5,)), ("linear", (5,)), ("trilinear", (3, 4, 3)), ("nearest", (3, 4, 3))):
  of("interpolate", X(2, 3, *s), None, 2, mode); of("interpolate", X(2, 3, *s), [n + 3 for n in s], None, mode)
  of("interpolate", X(2, 3, *s), scale_factor=1.7, mode=mode); of("interpolate", X(2, 3, *s), None, 0.6, mode, None, True)
  if "linear" in mode or mode == "bicubic":
    of("interpolate", X(2, 3, *s), None, 2.0, mode, True); of("interpolate", X(2, 3, *s), 7, None, mode, True)
  of("interpolate", X(2, 3, *s), scale_factor=[1.5] * len(s), mode=mode, recompute_scale_factor=True)
of("interpolate", X(2, 3, 4, 4), 8); of("upsample", X(2, 3, 4, 4), None, 2)
of("upsample", X(2, 3, 4, 4), 6, None, "bilinear", True)
of("upsample_nearest", X(2, 3, 4, 4), None, 2); of("upsample_nearest", X(2, 3, 4, 4), (6, 5))
of("upsample_bilinear", X(2, 3, 4, 4), 7); of("upsample_bilinear", X(2, 3, 4, 4), None, 2)
of("affine_grid", X(2, 2, 3), (2, 1, 4, 3)); of("affine_grid", theta=X(2, 2, 3), size=[2, 1, 4, 3], align_corners=True)
of("affine_grid", X(1, 3, 4), (1, 1, 2, 3, 2), False)
for mode in ("bilinear", "nearest", "bicubic"):
  for padding in ("zeros", "border", "reflection"):
    of("grid_sample", X(2, 3, 5, 4), X(2, 4, 3, 2) * 0.8, mode, padding)
    of("grid_sample", X(2, 3, 5, 4), X(2, 4, 3, 2), mode, padding, True)
of("grid_sample", X(1, 2, 3, 4, 3), X(1, 2, 2, 3, 3) * 0.7); of("grid_sample", X(2, 3, 5, 4), grid=X(2, 4, 3, 2) * 0.8)

# ---- attention
Q, K = (2, 4, 5, 6), (2, 4, 7, 6)
of("scaled_dot_product_attention", X(*Q), X(*K), X(*K)); of("scaled_dot_product_attention", X(*Q), X(*K), X(*K), B(5, 7) | True)
of("scaled_dot_product_attention", X(*Q), X(*K), X(*K), X(5, 7), 0.0, False, scale=0.3)
of("scaled_dot_product_attention", X(*Q), X(*K), X(*K), is_causal=True)
of("scaled_dot_product_attention", X(*Q), X(2, 2, 7, 6), X(2, 2, 7, 6), None, 0.0, False, enable_gqa=True)
E, H = 6, 2
def heads(*shape: int, **kwargs: Any) -> None:
  """A call of multi_head_attention_forward; what ``kwargs`` has of the weights stands for the usual ones."""
  usual = {"in_proj_weight": X(3 * E, E), "in_proj_bias": X(3 * E), "bias_k": None, "bias_v": None, "add_zero_attn": False,
           "dropout_p": 0.0, "out_proj_weight": X(E, E), "out_proj_bias": X(E)}
  first = [kwargs.pop(n, v) for n, v in usual.items()]
  of("multi_head_attention_forward", X(4, *shape, E), X(5, *shape, E), X(5, *shape, E), E, H, *first, **kwargs)
heads(3); heads(); heads(3, need_weights=False); heads(3, average_attn_weights=False)
heads(3, in_proj_bias=None, out_proj_bias=None)
heads(3, bias_k=X(1, 1, E), bias_v=X(1, 1, E), add_zero_attn=True, attn_mask=X(4, 5), key_padding_mask=C(1.0 * B(3, 5)))
heads(3, attn_mask=np.triu(np.ones((4, 5), bool), 1)); heads(3, attn_mask=X(3 * H, 4, 5), need_weights=False)
heads(3, attn_mask=np.triu(np.ones((4, 5), bool), 1), is_causal=True)
heads(3, key_padding_mask=np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [0, 1, 0, 1, 0]], bool))
heads(3, dropout_p=0.5, training=False)
heads(3, in_proj_weight=None, use_separate_proj_weight=True, q_proj_weight=X(E, E), k_proj_weight=X(E, E), v_proj_weight=X(E, E))
heads(3, static_k=X(3 * H, 6, 3), static_v=X(3 * H, 6, 3))
heads(add_zero_attn=True, key_padding_mask=np.array([0, 0, 1, 0, 0], bool))


# ---- ctc: of logits, since PyTorch's gradient is that of what log_softmax gives
def ctc(steps: int, n: int, classes: int, targets: Any, *rest: Any, **kwargs: Any) -> None:
  of("ctc_loss", X(steps, *((n,) if n else ()), classes), targets, *rest, **kwargs)
for how in ("mean", "sum", "none"):
  ctc(8, 3, 5, 1 + N(4, 3, 3), np.array([8, 6, 7]), np.array([3, 2, 1]), 0, how)
  ctc(8, 3, 5, np.array([1, 1, 2, 3, 3, 3]), (8, 8, 6), (3, 0, 3), 0, how)
  ctc(8, 0, 5, np.array([2, 2, 4]), np.array(8), np.array(3), 0, how)
  ctc(6, 2, 4, N(3, 2, 2), np.array([6, 5]), np.array([2, 2]), blank=3, reduction=how)
  ctc(3, 2, 4, np.array([[1, 1, 1], [1, 2, 3]]), np.array([3, 3]), np.array([3, 3]), 0, how, True)
ctc(12, 2, 6, 1 + N(5, 2, 5), np.array([12, 12]), np.array([5, 4])); ctc(4, 1, 3, 1 + N(2, 1, 2), [4], [2])
