"""Expressions that PyTorch and ntgrad both read, as a program that says ``import ntgrad as torch`` has them.

``x`` (3, 4), ``y`` (3, 4), ``p`` (3, 4) of numbers above 0, ``s`` (4, 4) symmetric and positive, ``v`` (4,), ``z`` (2, 3, 4), are
floats that require gradients; ``i`` (3, 4) ints from 0 to 3, ``k`` (5,) ints from 0 to 3, ``b`` (3, 4) bools.
"""
from __future__ import annotations

import re
from typing import Any

import numpy as np

_CASES = """
max(x) | max(x, 1) | max(x, dim=0, keepdim=True) | max(x, y) | max(x, other=y) | max(input=x, dim=-1) | max(x, 1)[1]
max(x, 1).values
max(x, axis=1) | max(i, 1)
min(x) | min(x, 1) | min(x, dim=0, keepdim=True) | min(x, y) | min(x, 0).indices | min(i)
median(x) | median(x, 1) | median(x, dim=0, keepdim=True) | nanmedian(x, 1) | mode(i, 1).values | kthvalue(x, 2, 1)
kthvalue(x, k=1, dim=0)
sort(x, 1) | sort(x, 0, True) | sort(x, dim=1, descending=True).values | argsort(x, 1) | argsort(x, dim=0, descending=True)
msort(x)
topk(x, 2) | topk(x, 2, 0, False) | topk(x, k=2, dim=1, largest=True, sorted=True).indices
cummax(x, 1) | cummin(x, dim=0) | cumsum(x, 1) | cumprod(x, dim=0) | logcumsumexp(x, 1) | aminmax(x, dim=1) | aminmax(x)
std(x) | std(x, 1) | std(x, 1, False) | std(x, False) | std(x, 1, True, True) | std(x, dim=1, unbiased=False, keepdim=True)
std(x, 1, correction=0) | var(x) | var(x, False) | var(x, 1, False, True) | var(x, dim=(0, 1)) | var(x, correction=2, dim=0)
std_mean(x, 1) | std_mean(x, 1, False) | var_mean(x) | var_mean(x, dim=0, unbiased=False)
sum(x) | sum(x, 1) | sum(x, (0, 1), True) | sum(input=x, dim=0) | sum(x, axis=1, keepdims=True) | mean(x, 1, True)
mean(x, dim=0)
prod(x, 1) | amax(x, 1) | amin(x, (0, 1)) | all(b) | all(b, 1) | any(b, dim=0, keepdim=True) | argmax(x) | argmax(x, 1)
argmin(x, dim=0, keepdim=True)
logsumexp(x, 1) | logsumexp(x, dim=(0, 1), keepdim=True) | nansum(x, 1) | nanmean(x, dim=1) | count_nonzero(i)
count_nonzero(i, 1)
norm(x) | norm(x, 1) | norm(x, 2, 1) | norm(x, dim=1) | norm(x, p=3, dim=0, keepdim=True) | norm(x, 'fro') | norm(x, p='nuc')
norm(x, float('inf'))
quantile(p, 0.3) | quantile(p, torch.tensor([0.1, 0.5], dtype=torch.float64), 1)
quantile(p, 0.5, dim=0, keepdim=True, interpolation='nearest')
add(x, y) | add(x, y, alpha=2) | add(x, other=1) | sub(x, y, alpha=3) | mul(x, 2) | mul(input=x, other=y) | div(x, p)
div(x, p, rounding_mode='floor')
true_divide(x, p) | pow(p, 2) | pow(2, x) | pow(p, x) | rsub(x, 1) | fmod(x, 0.3) | remainder(x, 0.3) | float_power(p, 2)
neg(x) | abs(x) | sign(x)
addcmul(x, y, p, value=2) | addcdiv(x, y, p) | lerp(x, y, 0.3) | clamp(x, 0) | clamp(x, min=-0.5, max=0.5) | clamp(x, max=0.1)
clip(x, 0, 1)
maximum(x, y) | minimum(x, y) | fmax(x, y) | where(b, x, y) | where(b, x, 0.0) | where(b, 0.0, x) | where(b)
where(condition=b, input=x, other=y)
masked_fill(x, b, 0.0) | masked_select(x, b) | nan_to_num(x) | round(x) | round(x, decimals=1) | floor(x) | trunc(x) | frac(x)
heaviside(x.detach(), v.detach())
exp(x) | log(p) | log1p(p) | expm1(x) | sqrt(p) | rsqrt(p) | sin(x) | cos(x) | tan(x) | tanh(x) | sigmoid(x) | erf(x)
lgamma(p) | digamma(p)
atan2(x, y) | hypot(x, y) | logaddexp(x, y) | xlogy(x, p) | logit(p) | sinc(x) | softmax(x, 1)
softmax(x, dim=0, dtype=torch.float64)
log_softmax(x, -1) | relu(x) | selu(x) | celu(x) | threshold(x, 0.1, 20) | hardshrink(x) | prelu(x, v[:1])
dropout(x, 0.5, False)
matmul(x, s) | mm(x, s) | mv(x, v) | dot(v, v) | bmm(z, z.transpose(1, 2)) | addmm(x, x, s) | addmm(x, x, s, beta=0.5, alpha=2)
addmv(v, s, v)
addbmm(x[:, :3], z, z.transpose(1, 2)) | baddbmm(z, z, s.expand(2, 4, 4)) | outer(v, v) | ger(v, v) | inner(v, v) | kron(x, s)
einsum('ij,kj->ik', x, y)
einsum('ij,jk,kl', x, s, s) | tensordot(x, s, dims=1) | tensordot(x, y, dims=([0], [0])) | chain_matmul(x, s, s) | trace(s)
cdist(x, y) | cross(x[:, :3], y[:, :3])
cross(x, y, 0) | cross(x, y) | dist(x, y) | det(s) | logdet(s) | inverse(s) | cholesky(s) | matrix_power(s, 3) | svd(x)[1]
svd(x).S | qr(s)[1].abs()
cat([x, y]) | cat((x, y), 1) | cat(tensors=[x, y], dim=1) | concat([x, y], dim=0) | concatenate([x, y], 1) | stack([x, y])
stack((x, y), 1) | stack([x, y], dim=-1)
hstack([x, y]) | vstack((x, y)) | dstack([x, y]) | column_stack([v, v]) | row_stack([x, y]) | split(x, 2, 1)
split(x, [1, 3], dim=1) | chunk(x, 2, 1)
split(x, split_size_or_sections=2) | tensor_split(x, 3, 1) | hsplit(x, 2) | vsplit(x, [1]) | unbind(x, 1)
squeeze(x[:, None], 1) | squeeze(x[None]) | squeeze(x[None], (0,))
unsqueeze(x, 1) | transpose(x, 0, 1) | t(x) | permute(z, (2, 0, 1)) | permute(z, dims=(2, 0, 1)) | swapaxes(x, 0, 1)
movedim(z, 0, 2) | flatten(z, 1) | flatten(z, start_dim=0, end_dim=1)
unflatten(x, 1, (2, 2)) | reshape(x, (4, 3)) | reshape(x, (-1,)) | ravel(x) | flip(x, (0,)) | flip(x, dims=[0, 1]) | fliplr(x)
rot90(x) | roll(x, 1) | roll(x, (1, 2), (0, 1)) | roll(x, shifts=1, dims=1)
narrow(x, 1, 1, 2) | select(x, 1, 2) | index_select(x, 1, k) | gather(x, 1, i) | take(x, i) | take_along_dim(x, i, 1)
scatter(x, 1, torch.argsort(y, 1), y) | scatter(x, 1, i, 2.0) | scatter(x, dim=1, index=i, value=2.0)
scatter_add(x, 1, i, y) | index_add(x, 1, k, x[:, k]) | index_fill(x, 1, k[:2], 2.0) | scatter_reduce(x, 1, i, y, 'sum')
slice_scatter(x, y[:1], 0, 0, 1) | select_scatter(x, v, 0, 1)
diag(v) | diag(s) | diagonal(s) | diagonal(s, offset=1) | diag_embed(x) | diagflat(v) | tril(s) | triu(s, 1)
tril(s, diagonal=-1) | broadcast_to(v, (3, 4))
broadcast_tensors(x, v) | broadcast_tensors(x, v[:, None][:3, :1]) | atleast_2d(v) | atleast_1d(v, x) | atleast_3d(x)
block_diag(x, s) | cartesian_prod(k, k)
combinations(v, 2) | repeat_interleave(x, 2) | repeat_interleave(x, 2, dim=1) | repeat_interleave(k)
repeat_interleave(x, k[:3], dim=0) | meshgrid(v, p[0], indexing='ij') | meshgrid(v, p[0], indexing='xy')
meshgrid([v, p[0]], indexing='ij')
unique(k) | unique(k, return_counts=True) | unique(k, sorted=True, return_inverse=True) | unique_consecutive(k) | bincount(k)
bincount(k, minlength=7) | bincount(k, v.new_ones(5)) | histc(x, 4, -1, 1) | histc(x, bins=4, min=-1, max=1)
isin(k, 2) | isin(k, torch.tensor([1, 2])) | isin(2, k) | searchsorted(torch.sort(v)[0], x)
searchsorted(torch.sort(v)[0], x, right=True) | searchsorted(v, x, sorter=torch.argsort(v))
bucketize(x, torch.tensor([-0.5, 0.5], dtype=torch.float64))
nonzero(b) | nonzero(b, as_tuple=True) | argwhere(b) | isclose(x, x) | allclose(x, x) | equal(x, x) | isnan(x) | isfinite(x)
gcd(i, i + 2) | lcm(i, i + 3) | isinf(x) | eq(x, y) | ne(x, 1) | gt(x, y) | le(x, other=0)
logical_and(b, x > 0) | logical_not(b) | bitwise_and(i, 1) | bitwise_or(i, i) | bitwise_not(i) | bitwise_left_shift(i, 1)
diff(x) | diff(x, dim=0) | trapezoid(x) | trapz(x, dx=2) | cumulative_trapezoid(x, dim=0)
gradient(v) | gradient(x) | gradient(x, dim=1) | gradient(x, spacing=2.0) | gradient(x, spacing=(0.5, 2.0))
gradient(v, spacing=(torch.cumsum(p[0], 0),))
gradient(x, spacing=[torch.arange(3) * 2.0, torch.cumsum(p[0], 0)], edge_order=2)
cov(x) | corrcoef(x) | renorm(x, 2, 0, 1) | vander(v.detach()) | zeros_like(x) | ones_like(x, dtype=torch.float32)
empty_like(x, memory_format=torch.preserve_format).shape | clone(x, memory_format=torch.contiguous_format)
zeros_like(x, memory_format=torch.preserve_format) | full_like(x, 2.5, memory_format=torch.preserve_format)
clone(z[None]).to(memory_format=torch.channels_last) | clone(z[None]).contiguous(memory_format=torch.channels_last)
empty(1, 2, memory_format=torch.contiguous_format).shape | channels_last_3d == torch.channels_last_3d
full_like(x, 2.5) | numel(x) | clone(x) | is_tensor(x) | is_tensor(1) | is_floating_point(x)
arange(5) | arange(1, 5) | arange(1, 5, 2) | arange(end=4) | arange(0, 1, 0.25) | arange(start=1, end=3, step=1)
linspace(0, 1, 5) | linspace(start=0, end=1, steps=3) | logspace(0, 2, 3) | eye(3) | eye(2, 3) | range(0, 3)
zeros(2, 3) | zeros((2, 3)) | zeros([2]) | zeros(size=(2,)) | ones(3) | full((2, 2), 1.5) | full((2,), 7)
full(size=(2,), fill_value=0.5) | tensor(2.0) | tensor([1.5, 2.0], dtype=torch.float64) | scalar_tensor(2)
as_tensor([1.0, 2.0]) | as_tensor(x) | asarray([1, 2]) | tensor([True, False]) | tril_indices(3, 3) | triu_indices(3, 4, 1)
FloatTensor([1.0, 2.0]) | LongTensor([1, 2]) | empty(2, 3).shape | FloatTensor(2, 3).shape
conv1d(z, z[:, :, :2], None, 1, 1) | conv1d(z, z[:, :, :2], stride=2, padding=1)
conv2d(z[None], z[None, :, :2, :2], None, 1, 1) | conv2d(z[None], z[None, :, :2, :2], v[:1], 2, 1, 2, 1)
conv_transpose1d(z, z.transpose(0, 1)[:, :, :2], None, 2, 1) | max_pool1d(z, 2, 1, 1) | max_pool2d(z, 2, 1, 1)
avg_pool1d(z, 2, 1, 1) | adaptive_avg_pool1d(z, 2) | layer_norm(x, (4,)) | layer_norm(x, [4], v, v, 1e-3)
group_norm(z, 1) | batch_norm(x, v, v, None, None, True, 0.1, 1e-5, False)
instance_norm(z, None, None, None, None, True, 0.1, 1e-5, False) | cosine_similarity(x, y) | cosine_similarity(x, y, 0)
pairwise_distance(x, y) | pdist(x) | pixel_shuffle(torch.cat([z, z, z, z], 0)[None, :, :, :][:, :4], 2)
finfo(torch.float32).eps | finfo(torch.float16).max | finfo(torch.bfloat16).tiny | finfo(torch.float64).min
iinfo(torch.int32).max | iinfo(torch.uint8).min | iinfo(torch.int64).bits | finfo(torch.float32).bits
finfo(torch.float32).smallest_normal
promote_types(torch.int32, torch.float32) == torch.float32 | promote_types(torch.uint8, torch.int8) == torch.int16
can_cast(torch.float32, torch.int32) | can_cast(torch.int64, torch.int32) | can_cast(torch.bool, torch.uint8)
can_cast(torch.int32, torch.float16) | can_cast(torch.float64, torch.float32)
can_cast(torch.int8, torch.bool) | can_cast(torch.int32, torch.uint8) | result_type(x, 1) == torch.float64
result_type(i, 1.5) == torch.float32 | broadcast_shapes((3, 1), (4,)) == (3, 4) | broadcast_shapes(2, (3, 1)) == (3, 2)
is_nonzero(torch.tensor([3])) | is_complex(x) | is_signed(i)
is_same_size(x, y) | typename(3) | device('cpu').type | device('cuda:1').index | device('cuda', 1).type | device('cpu').index
pi | e | inf | newaxis is None | Size([2, 3]) == (2, 3) | real(x) | isreal(x) | unravel_index(k, (2, 3))
get_default_dtype() == torch.float32 | is_grad_enabled() | index_put(x, (k[:3] % 3, k[:3]), v[:3], accumulate=True)
masked_scatter(x, b, y) | index_copy(x, 1, torch.tensor([0, 2]), y[:, :2]) | rms_norm(x, (4,)) | rms_norm(x, [4], v, 1e-3)
linalg.norm(x) | linalg.norm(x, 2) | linalg.norm(x, 'fro') | linalg.norm(x, 1, dim=1) | linalg.norm(v, 3)
linalg.norm(x, ord=2, dim=(0, 1)) | linalg.norm(x, dim=1, keepdim=True) | linalg.norm(x, float('inf')) | linalg.norm(z, dim=-1)
linalg.vector_norm(x) | linalg.vector_norm(x, 1, 1) | linalg.vector_norm(x, ord=float('inf'), dim=0, keepdim=True)
linalg.matrix_norm(x) | linalg.matrix_norm(z, 'nuc') | linalg.matrix_norm(x, ord=1) | linalg.inv(s) | linalg.det(s)
linalg.slogdet(s) | linalg.slogdet(s).logabsdet
linalg.solve(s, v) | linalg.solve(s, x.T) | linalg.solve(s, x, left=False) | linalg.cholesky(s) | linalg.cholesky(s, upper=True)
linalg.eigh(s)[0] | linalg.eigh(s).eigenvalues | linalg.eigvalsh(s) | linalg.svdvals(x) | linalg.svd(x, full_matrices=False).S
linalg.svd(x, False)[1] | linalg.qr(s).R.abs() | linalg.qr(x, mode='complete')[1].abs().detach()
linalg.pinv(x) | linalg.pinv(x, rtol=1e-3) | linalg.pinv(x.detach(), atol=1e-3) | linalg.matrix_rank(x)
linalg.matrix_rank(x, atol=100.0) | linalg.matrix_rank(x, rtol=0.5) | linalg.matrix_power(s, -2) | linalg.multi_dot([x, s, s])
linalg.lstsq(s, x.T).solution | linalg.cond(s) | linalg.cond(s.detach(), 1) | linalg.cond(s.detach(), 'fro')
linalg.cross(x[:, :3], y[:, :3]) | linalg.cross(x, y, dim=0) | linalg.diagonal(z) | linalg.vecdot(x, y)
linalg.vecdot(x, y, dim=0) | linalg.vander(v) | linalg.vander(v, N=3) | linalg.matmul(x, s)
linalg.solve_triangular(torch.tril(s), x.T, upper=False) | linalg.tensorinv(s.reshape(2, 2, 2, 2))
linalg.tensorsolve(s.reshape(2, 2, 4), x[:2, :2])
special.expit(x) | special.gammaln(p) | special.psi(p) | special.logsumexp(x, 1) | special.xlogy(x, p) | special.entr(p)
special.entr(x.detach()) | special.ndtr(x) | special.ndtri(p) | special.log_ndtr(x) | special.log_ndtr(x * 10 - 10)
special.xlog1py(x, p) | special.multigammaln(p + 2, 3) | special.erf(x) | special.softmax(x, 1) | special.round(x)
special.sinc(x) | special.log1p(p)
autograd.grad((x * y).sum(), x) | autograd.grad((x * y).sum(), [x, y]) | autograd.grad(x * y, x, grad_outputs=p.detach())
autograd.grad([(x * y).sum(), (x ** 2).sum()], [x, y]) | autograd.grad((x ** 3).sum(), x, create_graph=True)
autograd.grad(x.sum(), [x, y], allow_unused=True) | autograd.grad(x.sum(), [x, y], materialize_grads=True)
autograd.grad(autograd.grad((x ** 3).sum(), x, create_graph=True)[0].pow(2).sum(), x)
autograd.functional.jacobian(lambda a: a ** 2, v) | autograd.functional.jacobian(lambda a, c: (a * c, c.sum()), (v, v))
autograd.functional.hessian(lambda a: (a ** 3).sum(), v) | autograd.functional.hessian(lambda a, c: (a * c ** 2).sum(), (v, v))
autograd.functional.vjp(lambda a: a ** 2, v, v) | autograd.functional.jvp(lambda a: a.exp() * a, v, v)
autograd.functional.vhp(lambda a: (a ** 3).sum(), v, v) | autograd.functional.hvp(lambda a: (a ** 3).sum(), v, v)
func.grad(lambda a: (a ** 3).sum())(v) | func.grad(lambda a, c: (a * c ** 2).sum(), argnums=(0, 1))(v, v)
func.grad_and_value(lambda a: (a ** 3).sum())(v.detach()) | func.grad(func.grad(lambda a: a ** 3))(v[0].detach())
func.jacrev(lambda a: a ** 2)(v.detach()) | func.hessian(lambda a: (a ** 3).sum())(v.detach())
func.vjp(lambda a: a ** 2, v)[1](v)
func.grad(lambda a: (func.grad(lambda c: (c ** 3).sum())(a) ** 2).sum())(v.detach())
vmap(lambda a: a.sum())(x) | vmap(lambda a, c: a @ c, in_dims=(0, None))(x, v) | vmap(lambda a: (a, a * 2), out_dims=(1, 0))(x)
vmap(lambda a: a * 2, in_dims=1, out_dims=1)(x) | compile(lambda a: a * 2)(x)
"""


def cases() -> list[str]:
  """The expressions, without the ``torch.`` that each begins with."""
  return [c.strip() for line in _CASES.strip().split("\n") for c in line.split(" | ")]


def inputs() -> dict[str, np.ndarray[Any, Any]]:
  """The arrays that expressions are of."""
  rng = np.random.default_rng(5)
  a = rng.standard_normal((4, 4))
  return {"x": rng.standard_normal((3, 4)), "y": rng.standard_normal((3, 4)), "p": rng.uniform(0.2, 0.8, (3, 4)),
          "s": a @ a.T + np.eye(4) * 3, "v": rng.standard_normal(4), "z": rng.standard_normal((2, 3, 4)),
          "i": rng.integers(0, 4, (3, 4)) % np.array([4, 3, 2, 4]), "k": np.array([2, 0, 3, 1, 1]),
          "b": rng.standard_normal((3, 4)) > 0}


FLOATS = "xypsvz"


def computed(torch: Any, case: str) -> tuple[list[Any], list[Any]]:
  """What an expression gives in one of both, as arrays and numbers in a row, and the gradients of the sum of its floats, each
  times its place, with respect to the inputs."""
  given = {n: torch.tensor(a, requires_grad=True) if n in FLOATS else torch.tensor(a) for n, a in inputs().items()}
  inner = re.sub(r"(?<=[(\[ ])(autograd|func)\.", r"torch.\1.", case)   # functions in arguments of functions
  result = eval(f"torch.{inner}", {"torch": torch, **given})
  flat = list(_flat(result))
  total: Any = None
  for t in flat:
    if not isinstance(t, torch.Tensor) or not t.requires_grad or not torch.is_floating_point(t): continue
    weight = torch.tensor(np.arange(1, t.numel() + 1) / t.numel()).reshape(tuple(t.shape))
    term = (t * weight).sum()
    total = term if total is None else total + term
  wanted = [given[n] for n in FLOATS]
  slopes = () if total is None else torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)
  return [_plain(torch, t) for t in flat], [_plain(torch, t) for t in slopes]


def _flat(x: Any) -> Any:
  if isinstance(x, (tuple, list)):
    for each in x: yield from _flat(each)
  else: yield x


def _plain(torch: Any, x: Any) -> Any: return np.array(x.detach().numpy()) if isinstance(x, torch.Tensor) else x
