"""An ordinary differential equation: solved with Runge-Kutta, and its parameters found again from the solution."""
import math
import sys

from ntgrad import Tensor, TinyJit, nn


def rk4(f, y: Tensor, dt: float) -> Tensor:
  k1 = f(y)
  k2 = f(y + k1 * (dt / 2))
  k3 = f(y + k2 * (dt / 2))
  k4 = f(y + k3 * dt)
  return y + (k1 + 2 * k2 + 2 * k3 + k4) * (dt / 6)


def lotka_volterra(p: Tensor):
  """Prey and predators: x' = a x - b x y, y' = c x y - d y."""
  def f(z: Tensor) -> Tensor:
    x, y = z[..., 0], z[..., 1]
    return Tensor.stack(p[0] * x - p[1] * x * y, p[2] * x * y - p[3] * y, dim=-1)
  return f


def solve(p: Tensor, start: Tensor, steps: int, dt: float = 0.1) -> Tensor:
  f, out = lotka_volterra(p), [start]
  for _ in range(steps): out.append(rk4(f, out[-1], dt))
  return Tensor.stack(out)


def main(rounds: int = 120) -> float:
  true = Tensor([1.1, 0.4, 0.1, 0.4])
  start = Tensor([[10.0, 5.0], [4.0, 8.0], [20.0, 2.0]])
  wanted = solve(true, start, 12).realize()
  guess = Tensor([0.9, 0.5, 0.15, 0.3], requires_grad=True)
  opt = nn.optim.Adam([guess], lr=0.02)

  @TinyJit
  def step() -> Tensor:
    opt.zero_grad()
    loss = (solve(guess, start, 12) - wanted).square().mean()
    loss.backward()
    opt.step()
    return loss.realize()

  for i in range(rounds):
    loss = step().item()
    if i % 40 == 0: print(f"{i:4d} loss {loss:.5f}")
  error = (guess - true).abs().max().item()
  print(f"found {[round(v, 3) for v in guess.tolist()]}, largest error {error:.4f}")

  # a circle stays a circle
  y = Tensor([1.0, 0.0])
  for _ in range(63): y = rk4(lambda z: Tensor.stack(z[1], -z[0]), y, math.tau / 63)
  print(f"once round the circle: {y.tolist()}")
  assert (y - Tensor([1.0, 0.0])).abs().max().item() < 1e-3
  return error


if __name__ == "__main__": sys.exit(main() > 0.05)
