"""L-BFGS with a backtracking line search, on Rosenbrock's valley and on logistic regression."""
import sys

import numpy as np

from ntgrad import Tensor


def lbfgs(f, x: Tensor, history: int = 8, rounds: int = 100, tolerance: float = 1e-5) -> tuple[Tensor, int]:
  """A least value of f from x on: the place, and how many rounds it took."""
  pairs: list[tuple[Tensor, Tensor, float]] = []

  def value_and_gradient(at: Tensor) -> tuple[float, Tensor]:
    leaf = at.detach().requires_grad_()
    value = f(leaf)
    grad = value.gradient(leaf)[0]
    Tensor.realize(value, grad)
    return value.item(), grad

  value, grad = value_and_gradient(x)
  for k in range(rounds):
    if grad.abs().max().item() < tolerance: return x, k
    q, alphas = grad, []
    for s, y, rho in reversed(pairs):
      alphas.append(rho * s.dot(q).item())
      q = q - y * alphas[-1]
    if pairs:
      s, y, _ = pairs[-1]
      q = q * (s.dot(y).item() / y.dot(y).item())
    for (s, y, rho), a in zip(pairs, reversed(alphas)): q = q + s * (a - rho * y.dot(q).item())
    direction, slope, step = -q, -grad.dot(q).item(), 1.0 if pairs else min(1.0, 1 / grad.abs().sum().item())
    while True:
      there = (x + direction * step).realize()
      new_value, new_grad = value_and_gradient(there)
      if new_value <= value + 1e-4 * step * slope or step < 1e-8: break
      step *= 0.5
    s, y = (there - x).realize(), (new_grad - grad).realize()
    if (sy := s.dot(y).item()) > 1e-10: pairs = [*pairs, (s, y, 1 / sy)][-history:]
    x, value, grad = there, new_value, new_grad
  return x, rounds


def main() -> float:
  def rosenbrock(x: Tensor) -> Tensor: return (100 * (x[1:] - x[:-1].square()).square() + (1 - x[:-1]).square()).sum()
  x, rounds = lbfgs(rosenbrock, Tensor(np.array([-1.2, 1.0, -0.5, 0.8])))   # float64
  error = (x - 1).abs().max().item()
  print(f"Rosenbrock: {[round(v, 5) for v in x.tolist()]} after {rounds} rounds")

  rng = np.random.default_rng(0)
  data, true = Tensor(rng.standard_normal((500, 5))), Tensor(rng.standard_normal(5) * 2)
  labels = (Tensor(rng.random(500)) < (data @ true).sigmoid()).cast("float64")
  def loss(w: Tensor) -> Tensor: return (data @ w).binary_crossentropy_logits(labels) + 1e-3 * w.square().sum()
  w, rounds = lbfgs(loss, Tensor.zeros(5, dtype="float64"))
  print(f"logistic regression: loss {loss(w).item():.4f} after {rounds} rounds")
  return error


if __name__ == "__main__": sys.exit(main() > 1e-3)
