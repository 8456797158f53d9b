"""A training loop as tinygrad scripts write it; only the imports are another library's."""
import sys

import numpy as np

from ntgrad import GlobalCounters, Tensor, TinyJit, nn
from ntgrad.helpers import Timing, getenv, trange
from ntgrad.nn.state import get_parameters


class Model:
  def __init__(self):
    self.layers = [
      nn.Linear(64, 128), Tensor.relu,
      nn.Linear(128, 128), Tensor.relu,
      nn.Linear(128, 10)]

  def __call__(self, x: Tensor) -> Tensor: return x.sequential(self.layers)


def blobs(n: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
  """Ten kinds of noisy 8×8 pictures."""
  centres = np.random.default_rng(7).standard_normal((10, 64))
  y = rng.integers(0, 10, n)
  return Tensor((centres[y] + rng.standard_normal((n, 64))).astype(np.float32)), Tensor(y.astype(np.int32))


def main(steps: int = getenv("STEPS", 70)) -> float:
  rng = np.random.default_rng(0)
  (X_train, Y_train), (X_test, Y_test) = blobs(4096, rng), blobs(1000, rng)
  model = Model()
  opt = nn.optim.Adam(get_parameters(model), lr=1e-3)

  @TinyJit
  @Tensor.train()
  def train_step() -> Tensor:
    opt.zero_grad()
    samples = Tensor.randint(256, high=X_train.shape[0])
    loss = model(X_train[samples]).sparse_categorical_crossentropy(Y_train[samples]).backward()
    opt.step()
    return loss.realize()

  @TinyJit
  def get_test_acc() -> Tensor: return ((model(X_test).argmax(axis=1) == Y_test).mean() * 100).realize()

  test_acc = float("nan")
  for i in (t := trange(steps)):
    GlobalCounters.reset()
    loss = train_step()
    if i % 10 == 9: test_acc = get_test_acc().item()
    t.set_description(f"loss: {loss.item():6.2f} test_accuracy: {test_acc:5.2f}%")
  with Timing("a last step: "): train_step().item()
  print(f"accuracy {test_acc:.1f} %")
  return test_acc


if __name__ == "__main__": sys.exit(main() < 90)
