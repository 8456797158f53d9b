"""A small adversarial network with a gradient penalty, and gradients by ``torch.autograd.grad``."""
import numpy as np
import torch
from torch import autograd, nn

torch.manual_seed(1)
maker = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 2))
judge = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
of_maker = torch.optim.Adam(maker.parameters(), lr=2e-3, betas=(0.5, 0.9))
of_judge = torch.optim.Adam(judge.parameters(), lr=2e-3, betas=(0.5, 0.9))


def penalty(real, made):
  part = torch.rand(real.size(0), 1, device=real.device)
  mixed = (part * real + (1 - part) * made).requires_grad_(True)
  out = judge(mixed)
  slopes = autograd.grad(outputs=out, inputs=mixed, grad_outputs=torch.ones_like(out), create_graph=True, only_inputs=True)[0]
  return ((slopes.norm(2, dim=1) - 1) ** 2).mean()


rng = np.random.default_rng(0)
for _ in range(3):
  real = torch.as_tensor(rng.normal(2, 0.3, (32, 2)), dtype=torch.float)
  for p in judge.parameters(): p.requires_grad_(True)
  with torch.no_grad(): made = maker(torch.randn(32, 4))
  loss = judge(made).mean() - judge(real).mean() + 10 * penalty(real, made)
  of_judge.zero_grad()
  loss.backward()
  of_judge.step()
  for p in judge.parameters(): p.requires_grad_(False)
  of_maker.zero_grad()
  (-judge(maker(torch.randn(32, 4))).mean()).backward()
  of_maker.step()
print(tuple(loss.shape), torch.isfinite(loss).item())

w = torch.randn(5, requires_grad=True)
slope, = autograd.grad((w ** 4).sum(), w, create_graph=True)
second, = autograd.grad(slope @ torch.ones(5), w)
print(torch.allclose(second, 12 * w.detach() ** 2, rtol=1e-4))
print(torch.autograd.functional.jacobian(lambda t: t ** 2, torch.tensor([1.0, 2.0])).tolist())
print(torch.func.grad(lambda t: (t ** 3).sum())(torch.tensor([1.0, 2.0])).tolist())


class Clip(torch.autograd.Function):
  @staticmethod
  def forward(ctx, x):
    ctx.save_for_backward(x)
    return x.clamp(min=0)
  @staticmethod
  def backward(ctx, g):
    x, = ctx.saved_tensors
    return torch.where(x > 0, g, torch.zeros_like(g))


q = torch.tensor([-1.0, 2.0], requires_grad=True)
Clip.apply(q).sum().backward()
print(q.grad.tolist())
