"""A variational autoencoder of small pictures of bars."""
import sys

import numpy as np

from ntgrad import Tensor, TinyJit, nn


class VAE:
  def __init__(self, pixels: int = 64, hidden: int = 64, latent: int = 4):
    self.encoder = nn.Linear(pixels, hidden)
    self.mean, self.log_var = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
    self.decoder = [nn.Linear(latent, hidden), Tensor.relu, nn.Linear(hidden, pixels)]

  def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
    h = self.encoder(x).relu()
    return self.mean(h), self.log_var(h)

  def __call__(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean, log_var = self.encode(x)
    z = mean + Tensor.randn(*mean.shape) * (log_var * 0.5).exp()
    return z.sequential(self.decoder), mean, log_var


def elbo(logits: Tensor, x: Tensor, mean: Tensor, log_var: Tensor) -> Tensor:
  reconstruction = logits.binary_crossentropy_logits(x, reduction="none").sum(-1)
  kl = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(-1)
  return (reconstruction + kl).mean()


def bars(n: int, rng: np.random.Generator) -> np.ndarray:
  """8×8 pictures with one bar, across or down."""
  out = np.zeros((n, 8, 8), np.float32)
  for p, down, at in zip(out, rng.random(n) < 0.5, rng.integers(0, 8, n)):
    if down: p[:, at] = 1
    else: p[at] = 1
  return out.reshape(n, 64)


def main(steps: int = 400) -> float:
  Tensor.manual_seed(0)
  model = VAE()
  opt = nn.optim.Adam(nn.state.get_parameters(model), lr=5e-3)
  data = Tensor(bars(1024, np.random.default_rng(0)))

  @TinyJit
  def step(x: Tensor) -> Tensor:
    with Tensor.train():
      opt.zero_grad()
      loss = elbo(*((out := model(x))[0], x, *out[1:]))
      loss.backward()
      opt.step()
    return loss.realize()

  for i in range(steps):
    at = (i * 128) % 1024
    loss = step(data[at:at + 128])
    if i % 100 == 0: print(f"{i:4d} loss {loss.item():.2f}")
  last = elbo(*((out := model(data))[0], data, *out[1:])).item()
  shown = model.mean(model.encoder(data[:2]).relu()).sequential(model.decoder).sigmoid().numpy().reshape(2, 8, 8)
  for row in (shown > 0.5).astype(int)[0]: print("".join(" #"[v] for v in row))
  print(f"loss {last:.2f}")
  return last


if __name__ == "__main__": sys.exit(main() > 20)
