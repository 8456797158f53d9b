"""The table of signatures: functions that are methods of ``Tensor`` under PyTorch's parameters, and layers that are functions.

A method is the one definition of what it computes, of its parameters and of their text. A row here says where else it appears: a
list of parameters, as PyTorch has them, and the names that have it. ``tensor/made.py`` makes the functions, ``nn/made.py`` the
layers, and ``python -m ntgrad stubs`` writes what editors and mypy read of both.

``...`` stands for the method's own parameters. ``inplace`` writes the result to the input, ``out`` to another tensor;
``size_average`` and ``reduce`` stand for ``reduction``. ``Spatial`` takes one number or one a spatial dimension (two, unless the
name says how many), ``Implicit`` is PyTorch's dim where none is given. What the method has no parameter for has no effect.
"""
from __future__ import annotations

# ---- the top level
TOP = {
  "input":
    "abs abs_ absolute acos acos_ acosh acosh_ arccos arccosh arcsin arcsinh arctan arctanh argwhere asin asin_ asinh asinh_ "
    "atan atan_ atanh atanh_ bitwise_not ceil ceil_ corrcoef cos cos_ cosh cosh_ deg2rad deg2rad_ det detach detach_ "
    "digamma erf erf_ erfc erfc_ erfinv exp exp2 exp2_ exp_ expm1 expm1_ fix fliplr flipud floor floor_ frac frac_ inverse "
    "is_floating_point isfinite isinf isnan isneginf isposinf lgamma log log10 log10_ log1p log1p_ log2 log2_ log_ logdet "
    "logical_not neg neg_ negative numel positive rad2deg rad2deg_ ravel reciprocal reciprocal_ rsqrt rsqrt_ sigmoid_ sign "
    "signbit sin sin_ sinc sinc_ sinh sinh_ slogdet sqrt sqrt_ square square_ t tan tan_ tanh_ trace trunc trunc_ zero_",
  "input, other":
    "arctan2 atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign eq equal floor_divide "
    "fmax fmin fmod gcd ge greater greater_equal gt hypot inner kron lcm ldexp le less less_equal logaddexp logaddexp2 "
    "logical_and logical_or logical_xor lt matmul maximum minimum mul multiply ne nextafter not_equal remainder true_divide "
    "vdot xlogy xlogy_",
  "input, *, memory_format=None": "clone",
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
  "input, value": "fill:full_like fill_",
  "input, *, decimals=0": "round round_",
  "input, dim=None, keepdim=False": "all amax amin any argmax argmin median nanmean nanmedian",
  "input, *, dim=None, keepdim=False": "aminmax",
  "input, dim=None, keepdim=False, *, dtype=None": "mean nansum prod sum",
  "input, dim, keepdim=False": "logsumexp",
  "input, dim, *, dtype=None": "cumprod cumsum",
  "input, dim": "cummax cummin logcumsumexp unsqueeze",
  "input, dim=-1, keepdim=False": "mode",
  "input, k, dim=-1, keepdim=False": "kthvalue",
  "input, k, dim=-1, largest=True, sorted=True": "topk",
  "input, dim=-1, descending=False, stable=False": "argsort sort",
  "sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None": "searchsorted",
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
  "input, *, dtype=None, device=None, requires_grad=None, memory_format=None": "empty_like ones_like zeros_like",
  "input, fill_value, *, dtype=None, device=None, requires_grad=None, memory_format=None": "full_like",
  "input, *, generator=None, dtype=None, device=None, requires_grad=None, memory_format=None": "rand_like randn_like",
  "input, p=None, *, generator=None": "bernoulli",
  "input, generator=None": "poisson",
  "input, num_samples, replacement=False, *, generator=None": "multinomial",
  # the weights before the statistics, which nn.functional has the other way round
  "input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled=True": "batch_norm",
  "input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled=True": "instance_norm"}

# what the top level has too of nn.functional
AT_TOP = frozenset(
  "adaptive_avg_pool1d adaptive_max_pool1d alpha_dropout avg_pool1d bilinear binary_cross_entropy_with_logits celu "
  "celu_ channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss "
  "cosine_similarity ctc_loss dropout feature_alpha_dropout group_norm hardshrink "
  "hinge_embedding_loss kl_div layer_norm log_softmax margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d "
  "max_pool3d pairwise_distance pdist pixel_shuffle pixel_unshuffle poisson_nll_loss prelu relu relu_ rms_norm rrelu rrelu_ selu "
  "selu_ sigmoid softmax tanh threshold threshold_ triplet_margin_loss".split())

# ---- nn.functional
_LOSS = "size_average=None, reduce=None, reduction='mean'"
_POOL = "input, kernel_size: Spatial, stride=None, padding: Spatial=0"
FUNCTIONAL = {
  "input, inplace: bool=False": "relu relu6 selu silu mish hardswish hardsigmoid",
  "input, ..., inplace=False": "elu celu threshold",
  "input, negative_slope: float=0.01, inplace=False": "leaky_relu",
  "input, min_val: float=-1.0, max_val: float=1.0, inplace=False": "hardtanh",
  "input, lower=1 / 8, upper=1 / 3, training: bool=False, inplace=False": "rrelu",
  "input, p=0.5, training: bool=True, inplace=False": "dropout dropout1d dropout2d dropout3d",
  "input, p=0.5, training: bool=False, inplace=False": "alpha_dropout feature_alpha_dropout",
  "input": "relu_ selu_ logsigmoid sigmoid tanh softsign tanhshrink",
  "input, negative_slope: float=0.01": "leaky_relu_",
  "input, min_val: float=-1.0, max_val: float=1.0": "hardtanh_",
  "input, lower=1 / 8, upper=1 / 3, training: bool=False": "rrelu_",
  "input, *, approximate='none'": "gelu",
  "input, beta=1.0, threshold: float=20.0": "softplus",
  "input, dim: Implicit=None, _stacklevel: int=3, dtype=None": "softmax softmin log_softmax",
  "logits, tau=1, hard=False, eps: float=1e-10, dim=-1": "gumbel_softmax",
  "input, ...":
    "elu_ celu_ threshold_ prelu hardshrink softshrink glu pixel_shuffle pixel_unshuffle channel_shuffle "
    "native_channel_shuffle:channel_shuffle lp_poolNd adaptive_avg_poolNd adaptive_max_poolNd max_unpoolNd fractional_max_pool2d "
    "fractional_max_pool3d huber_loss batch_norm instance_norm layer_norm group_norm local_response_norm pdist",
  "x1, ...": "cosine_similarity pairwise_distance",
  "input, normalized_shape, weight=None, eps=None": "rms_norm",
  "input, p=2.0, dim=1, eps=1e-12, out: Tensor | None=None": "normalize",

  f"input, target, {_LOSS}": "multilabel_margin_loss soft_margin_loss",
  f"input, target, {_LOSS}, weight=None": "mse_loss l1_loss",
  f"input, target, {_LOSS}, beta=1.0": "smooth_l1_loss",
  f"input, target, {_LOSS}, log_target=False": "kl_div",
  f"input, target, weight=None, {_LOSS}": "binary_cross_entropy multilabel_soft_margin_loss",
  f"input, target, weight=None, {_LOSS}, pos_weight=None": "binary_cross_entropy_with_logits",
  f"input, target, margin=1.0, {_LOSS}": "hinge_embedding_loss",
  f"input, target, p=1, margin=1.0, weight=None, {_LOSS}": "multi_margin_loss",
  "input, target, weight=None, size_average=None, ignore_index: int=-100, reduce=None, reduction='mean'": "nll_loss",
  "input, target, weight=None, size_average=None, ignore_index: int=-100, reduce=None, reduction='mean', label_smoothing=0.0":
    "cross_entropy",
  "input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction='mean'": "poisson_nll_loss",
  f"input1, input2, target, margin=0.0, {_LOSS}": "cosine_embedding_loss",
  f"anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, {_LOSS}": "triplet_margin_loss",
  "anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction='mean'":
    "triplet_margin_with_distance_loss",

  f"{_POOL}, dilation=1, ceil_mode=False, return_indices=False": "max_poolNd",
  f"{_POOL}, ceil_mode=False, count_include_pad=True": "avg_pool1d",
  f"{_POOL}, ceil_mode=False, count_include_pad=True, divisor_override=None": "avg_pool2d avg_pool3d",
  "input, kernel_size: Spatial, dilation=1, padding: Spatial=0, stride=1": "unfold:im2col",
  "input, output_size: Spatial, kernel_size: Spatial, dilation=1, padding: Spatial=0, stride=1": "fold:col2im",
  # with indices, whatever return_indices says
  f"{_POOL}, dilation=1, ceil_mode=False, return_indices=False ": "max_poolNd_with_indices:max_poolNd(return_indices=True)",
  "input, output_size, return_indices=False": "adaptive_max_poolNd_with_indices:adaptive_max_poolNd(return_indices=True)",
  "input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None":
    "fractional_max_pool2d_with_indices:fractional_max_pool2d(return_indices=True) "
    "fractional_max_pool3d_with_indices:fractional_max_pool3d(return_indices=True)",
  "theta, size, align_corners=None": "affine_grid",
  "input, grid, mode='bilinear', padding_mode='zeros', align_corners=None": "grid_sample",
  "input, size=None, scale_factor=None, mode='nearest', align_corners=None": "upsample:interpolate",
  "input, size=None, scale_factor=None": "upsample_nearest:interpolate(mode='nearest') "
    "upsample_bilinear:interpolate(mode='bilinear',align_corners=True)"}

# ---- linalg, special
LINALG = {
  "A": "det inv slogdet",
  "A, *, driver: str | None=None": "svdvals",
  "A, full_matrices=True, *, driver: str | None=None": "svd",
  "A, B, rcond=None, *, driver: str | None=None": "lstsq",
  "A, *, upper=False": "cholesky",
  "A, n": "matrix_power",
  "A, mode='reduced'": "qr",
  "A, UPLO='L'": "eigh eigvalsh",
  "A, B, *, left=True": "solve",
  "A, B, *, upper, left=True, unitriangular=False": "solve_triangular",
  "A, B, dims=None": "tensorsolve",
  "A, ind=2": "tensorinv",
  "A, *, offset=0, dim1=-2, dim2=-1": "diagonal",
  "input, other": "matmul",
  "input, other, *, dim=-1": "cross",
  "tensors": "multi_dot"}
SPECIAL = {
  "input": "digamma erf erfc erfinv exp2 expit:sigmoid expm1 gammaln:lgamma log1p psi:digamma sinc",
  "input, *, decimals=0": "round",
  "input, other": "xlogy",
  "input, eps=None": "logit",
  "input, dim, keepdim=False": "logsumexp",
  "input, dim, dtype=None": "log_softmax softmax"}

# ---- the array API standard; what is of two arrays brings them to one dtype first
ARRAY = {
  "x, /":
    "abs acos acosh asin asinh atan atanh bitwise_invert:bitwise_not ceil cos cosh exp expm1 floor isfinite isinf isnan log "
    "log1p log2 log10 logical_not negative:neg positive:clone reciprocal round sign signbit sin sinh sqrt square tan tanh trunc",
  "x, /, *, axis=None, keepdims=False": "all any max mean min argmax argmin",
  "x, /, *, axis=None, correction=0.0, keepdims=False": "std var",
  "shape, *, dtype=None, device=None": "zeros ones empty:zeros",
  "shape, fill_value, *, dtype=None, device=None": "full",
  "start, /, stop=None, step=1, *, dtype=None, device=None": "arange",
  "x, /, *, device=None, copy=None": "from_dlpack",
  "x, /, *, dtype=None, device=None": "zeros_like ones_like empty_like:zeros_like",
  "x, /, fill_value, *, dtype=None, device=None": "full_like",
  "x, /, *, k=0": "tril triu",
  "x, /, *, axis=-1, n=1, prepend=None, append=None": "diff",
  "x, /, *, axis=0": "expand_dims:unsqueeze unstack:unbind",
  "x, source, destination, /": "moveaxis:movedim",
  "x, /, axes": "permute_dims:permute",
  "x, /, shape": "broadcast_to",
  "x, repetitions, /": "tile",
  "x, /, shift, *, axis=None": "roll",
  "x, indices, /, *, axis=-1": "take_along_axis:take_along_dim",
  "x, /, *, axis=-1, descending=False, stable=True": "argsort",
  "x1, x2, /, *, side='left', sorter=None": "searchsorted"}
ARRAY_OF_TWO = {
  "x1, x2, /":
    "add atan2 bitwise_and bitwise_left_shift:lshift bitwise_or bitwise_right_shift:rshift bitwise_xor copysign divide:div "
    "equal:eq floor_divide greater:gt greater_equal:ge hypot less:lt less_equal:le logaddexp logical_and logical_or "
    "logical_xor matmul maximum minimum multiply:mul nextafter not_equal:ne pow remainder:mod subtract:sub",
  "x1, x2, /, *, axes=2": "tensordot"}

# ---- where a default is not the method's: the parameter -> why
DIFFERS = {
  **dict.fromkeys("bias momentum running_mean running_var use_input_stats weight".split(), "PyTorch's top level wants all"),
  "align_corners": "PyTorch's None is False",
  "approximate": "PyTorch's function is exact; the method's is tinygrad's formula",
  "dim": "PyTorch wants a dim, or finds one by the number of dimensions; the method's is tinygrad's, or numpy's",
  "dim0": "PyTorch wants both", "dim1": "PyTorch wants both; of linalg they are of matrices",
  "dim2": "of linalg dims are of matrices",
  "eps": "None is the dtype's eps, as PyTorch has it; the method's is tinygrad's",
  "ignore_index": "PyTorch ignores -100; the method ignores nothing unless it is told",
  "kernel_size": "PyTorch wants one; the method's is tinygrad's",
  "normalized_shape": "PyTorch wants one; the method has axis instead",
  "num_samples": "PyTorch wants a number; the method's is tinygrad's",
  "rcond": "PyTorch's number; the method's None goes by the dtype",
  "threshold": "PyTorch's number; the method has no overflow to keep from",
  "training": "a function is told; the method's None is Tensor.training"}

# ---- layers: what each is made with (- : not shown when it is printed), and its function with what a call gives beside the input
LAYERS = """
ReLU(inplace): relu
ReLU6(inplace): relu6
LeakyReLU(negative_slope, inplace): leaky_relu
ELU(alpha, inplace): elu
SELU(inplace): selu
CELU(alpha, inplace): celu
RReLU(lower, upper, inplace): rrelu
GELU(approximate): gelu
SiLU(inplace): silu
Mish(inplace): mish
Softplus(beta, threshold): softplus
Softsign(): softsign
Tanh(): tanh
Sigmoid(): sigmoid
LogSigmoid(): logsigmoid
Hardtanh(min_val, max_val, inplace): hardtanh
Hardswish(inplace): hardswish
Hardsigmoid(inplace): hardsigmoid
Tanhshrink(): tanhshrink
Hardshrink(lambd): hardshrink
Softshrink(lambd): softshrink
Threshold(threshold, value, inplace): threshold
Softmax(dim): softmax
Softmin(dim): softmin
LogSoftmax(dim): log_softmax
GLU(dim): glu
Dropout(p, inplace): dropout
DropoutNd(p, inplace): dropoutNd
AlphaDropout(p, inplace): alpha_dropout
FeatureAlphaDropout(p, inplace): feature_alpha_dropout
ChannelShuffle(groups): channel_shuffle
PixelShuffle(upscale_factor): pixel_shuffle
PixelUnshuffle(downscale_factor): pixel_unshuffle
CosineSimilarity(dim, eps): cosine_similarity(x2)
PairwiseDistance(p, eps, keepdim): pairwise_distance(x2)
CrossEntropyLoss(weight, ignore_index, reduction, label_smoothing): cross_entropy(target)
NLLLoss(weight, ignore_index, reduction): nll_loss(target)
MSELoss(reduction): mse_loss(target)
L1Loss(reduction): l1_loss(target)
SmoothL1Loss(reduction, beta): smooth_l1_loss(target)
HuberLoss(reduction, delta): huber_loss(target)
BCELoss(weight, reduction): binary_cross_entropy(target)
BCEWithLogitsLoss(weight, reduction, pos_weight): binary_cross_entropy_with_logits(target)
KLDivLoss(reduction, log_target): kl_div(target)
PoissonNLLLoss(log_input, full, eps, reduction): poisson_nll_loss(target)
GaussianNLLLoss(full, eps, reduction): gaussian_nll_loss(target, var)
HingeEmbeddingLoss(margin, reduction): hinge_embedding_loss(target)
SoftMarginLoss(reduction): soft_margin_loss(target)
MultiMarginLoss(p, margin, weight, reduction): multi_margin_loss(target)
MultiLabelMarginLoss(reduction): multilabel_margin_loss(target)
MultiLabelSoftMarginLoss(weight, reduction): multilabel_soft_margin_loss(target)
MarginRankingLoss(margin, reduction): margin_ranking_loss(input2, target)
CosineEmbeddingLoss(margin, reduction): cosine_embedding_loss(input2, target)
TripletMarginLoss(margin, p, eps, swap, reduction): triplet_margin_loss(positive, negative)
TripletMarginWithDistanceLoss(*, -distance_function, margin, swap, -reduction): \
triplet_margin_with_distance_loss(positive, negative)
MaxPoolNd(kernel_size, stride, padding, dilation, -return_indices, ceil_mode): max_poolNd
AvgPool1d(kernel_size, stride, padding, ceil_mode, count_include_pad): avg_pool1d
AvgPool2d(kernel_size, stride, padding, ceil_mode, count_include_pad, -divisor_override): avg_pool2d
AvgPool3d(kernel_size, stride, padding, ceil_mode, count_include_pad, -divisor_override): avg_pool3d
LPPoolNd(norm_type, kernel_size, stride, ceil_mode): lp_poolNd
FractionalMaxPool2d(kernel_size, output_size, output_ratio, -return_indices, -_random_samples): fractional_max_pool2d
FractionalMaxPool3d(kernel_size, output_size, output_ratio, -return_indices, -_random_samples): fractional_max_pool3d
AdaptiveAvgPoolNd(output_size): adaptive_avg_poolNd
AdaptiveMaxPoolNd(output_size, -return_indices): adaptive_max_poolNd
MaxUnpoolNd(kernel_size, stride, padding): max_unpoolNd(indices, output_size)
Unfold(kernel_size, dilation, padding, stride): unfold
Fold(output_size, kernel_size, dilation, padding, stride): fold
"""


def each_layer() -> list[str]:
  """The rows of ``LAYERS``, those with Nd three times: for 1, 2 and 3 spatial dimensions."""
  return [row.replace("Nd", f"{n}d") for row in LAYERS.strip().split("\n") for n in ((1, 2, 3) if "Nd(" in row else (0,))]
