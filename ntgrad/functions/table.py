"""PyTorch's parameters of functions that are methods of ``Tensor`` in the same order: the names for each list of parameters."""
from __future__ import annotations

TABLE = {
  "input":
    "abs abs_ absolute acos acos_ acosh acosh_ arccos arccosh arcsin arcsinh arctan arctanh argwhere asin asin_ asinh asinh_ "
    "atan atan_ atanh atanh_ bitwise_not ceil ceil_ clone corrcoef cos cos_ cosh cosh_ deg2rad deg2rad_ det detach detach_ "
    "digamma erf erf_ erfc erfc_ erfinv exp exp2 exp2_ exp_ expm1 expm1_ fix fliplr flipud floor floor_ frac frac_ inverse "
    "is_floating_point isfinite isinf isnan isneginf isposinf lgamma log log10 log10_ log1p log1p_ log2 log2_ log_ logdet "
    "logical_not neg neg_ negative numel positive rad2deg rad2deg_ ravel reciprocal reciprocal_ rsqrt rsqrt_ sigmoid_ sign "
    "signbit sin sin_ sinc sinc_ sinh sinh_ slogdet sqrt sqrt_ square square_ t tan tan_ tanh_ trace trunc trunc_ zero_",
  "input, other":
    "arctan2 atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign eq equal "
    "floor_divide fmax fmin fmod ge greater greater_equal gt hypot inner kron ldexp le less less_equal logaddexp logaddexp2 "
    "logical_and logical_or logical_xor lt matmul maximum minimum mul multiply ne nextafter not_equal remainder true_divide vdot "
    "xlogy xlogy_",
  "input, other, *, alpha=1": "add sub subtract",
  "input, other, *, rounding_mode=None": "div divide",
  "input, other, p=2": "dist",
  "input, other, rtol=1e-05, atol=1e-08, equal_nan=False": "allclose isclose",
  "input, exponent": "float_power",
  "input, tensor": "dot",
  "input, mat2": "bmm mm",
  "input, vec": "mv",
  "input, vec2": "ger outer",
  "input, batch1, batch2, *, beta=1, alpha=1": "addbmm baddbmm",
  "input, mat, vec, *, beta=1, alpha=1": "addmv",
  "input, mat1, mat2, *, beta=1, alpha=1": "addmm",
  "input, vec1, vec2, *, beta=1, alpha=1": "addr",
  "input, tensor1, tensor2, *, value=1": "addcdiv addcmul",
  "input, end, weight": "lerp",
  "input, min=None, max=None": "clamp clamp_ clip clip_",
  "input, max": "clamp_max clamp_max_",
  "input, min": "clamp_min clamp_min_",
  "input, nan=0.0, posinf=None, neginf=None": "nan_to_num nan_to_num_",
  "input, eps=None": "logit logit_",
  "input, values": "heaviside",
  "input, value": "fill_",
  "input, *, decimals=0": "round round_",
  "input, dim=None, keepdim=False": "all amax amin any argmax argmin nanmean",
  "input, *, dim=None, keepdim=False": "aminmax",
  "input, dim=None, keepdim=False, *, dtype=None": "mean nansum prod sum",
  "input, dim, keepdim=False": "logsumexp",
  "input, dim, *, dtype=None": "cumprod cumsum",
  "input, dim": "cummax cummin logcumsumexp unsqueeze",
  "input, dim=-1, keepdim=False": "mode",
  "input, k, dim=-1, keepdim=False": "kthvalue",
  "input, k, dim=-1, largest=True, sorted=True": "topk",
  "input, dim=-1, descending=False, stable=False": "argsort sort",
  "input, q, dim=None, keepdim=False, *, interpolation='linear'": "nanquantile quantile",
  "input, p, dim, maxnorm": "renorm",
  "input, *, correction=1, fweights=None, aweights=None": "cov",
  "input, sorted=True, return_inverse=False, return_counts=False, dim=None": "unique",
  "input, return_inverse=False, return_counts=False, dim=None": "unique_consecutive",
  "input, weights=None, minlength=0": "bincount",
  "input, bins=100, min=0, max=0": "histc",
  "input, bins=100, *, range=None, weight=None, density=False": "histogram",
  "input, *, size, fill_value=-1": "nonzero_static",
  "input, *, as_tuple=False": "nonzero",
  "input, n=1, dim=-1, prepend=None, append=None": "diff",
  "y, x=None, *, dx=1, dim=-1": "cumulative_trapezoid trapezoid trapz:trapezoid",
  "input, dim0, dim1": "swapdims transpose",
  "input, axis0, axis1": "swapaxes",
  "input, dims": "flip permute",
  "input, source, destination": "moveaxis movedim",
  "input, shape": "reshape",
  "input, size": "broadcast_to",
  "input, start_dim=0, end_dim=-1": "flatten",
  "input, dim, sizes": "unflatten",
  "input, dim=None": "count_nonzero squeeze",
  "input, dim=0": "unbind",
  "input, dim, start, length": "narrow",
  "input, chunks, dim=0": "chunk unsafe_chunk:chunk",
  "tensor, split_size_or_sections, dim=0": "split unsafe_split:split",
  "tensor, split_sizes, dim=0": "split_with_sizes:split unsafe_split_with_sizes:split",
  "input, indices_or_sections": "dsplit hsplit vsplit",
  "input, indices_or_sections, dim=0": "tensor_split",
  "input, shifts, dims=None": "roll",
  "input, k=1, dims=(0, 1)": "rot90",
  "tensors, dim=0": "cat concat:cat concatenate:cat stack",
  "tensors": "dstack hstack row_stack:vstack vstack",
  "input, diagonal=0": "diag tril triu",
  "input, offset=0": "diagflat",
  "input, offset=0, dim1=-2, dim2=-1": "diag_embed",
  "input, offset=0, dim1=0, dim2=1": "diagonal",
  "input, dim, index": "gather index_select select",
  "input, dim, index, source": "index_copy",
  "input, dim, index, source, *, alpha=1": "index_add",
  "input, dim, index, value": "index_fill",
  "input, dim, index, src": "scatter_add",
  "input, dim, index, src, reduce, *, include_self=True": "scatter_reduce",
  "input, index": "take",
  "input, index, source, accumulate=False": "put",
  "input, indices, dim=None": "take_along_dim",
  "input, indices, values, accumulate=False": "index_put index_put_",
  "input, mask": "masked_select",
  "input, mask, source": "masked_scatter",
  "input, mask, value": "masked_fill",
  "input, src, dim, index": "select_scatter",
  "input, src, dim=0, start=None, end=None, step=1": "slice_scatter",
  "input, src, offset=0, dim1=0, dim2=1": "diagonal_scatter",
  "input, r=2, with_replacement=False": "combinations",
  "x, N=None, increasing=False": "vander",
  "indices, shape": "unravel_index",
  "a, b, dims=2": "tensordot",
  "x1, x2, p=2.0": "cdist",
  "input, upper=False": "cholesky cholesky_inverse",
  "input, input2, upper=False": "cholesky_solve",
  "input, n": "matrix_power",
  "input, rcond=1e-15": "pinverse",
  "start, end, steps, *, dtype=None, device=None, requires_grad=None": "linspace",
  "start, end, steps, base=10.0, *, dtype=None, device=None, requires_grad=None": "logspace",
  "input, *, dtype=None, device=None, requires_grad=None": "empty_like ones_like zeros_like",
  "input, fill_value, *, dtype=None, device=None, requires_grad=None": "full_like",
  "input, *, generator=None, dtype=None, device=None, requires_grad=None": "rand_like randn_like",
  "input, p=None, *, generator=None": "bernoulli",
  "input, num_samples, replacement=False, *, generator=None": "multinomial"}

# functions that PyTorch has both at its top and, with the same parameters, in nn.functional
FUNCTIONAL = set(
  "adaptive_avg_pool1d adaptive_max_pool1d alpha_dropout avg_pool1d bilinear binary_cross_entropy_with_logits celu "
  "celu_ channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss "
  "cosine_similarity ctc_loss dropout feature_alpha_dropout group_norm hardshrink "
  "hinge_embedding_loss kl_div layer_norm log_softmax margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d "
  "max_pool3d pairwise_distance pdist pixel_shuffle pixel_unshuffle poisson_nll_loss prelu relu relu_ rms_norm rrelu rrelu_ selu "
  "selu_ sigmoid softmax tanh threshold threshold_ triplet_margin_loss".split())

__all__ = ["FUNCTIONAL", "TABLE"]
