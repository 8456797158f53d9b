"""Slow, large and wrong scripts, as people write them: the last ten lines of ``python -m ntgrad profile``, or ``check``, name
cause and line."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from ntgrad import config
from ntgrad.utils.command.main import main
from support.marks import long_where

# what is wrong with each script: the line, and what the advice says of it
SCRIPTS = {
  "uncaptured loop": (10, r"of a later step .* is Python that builds.* ends at script\.py:LINE, .*ntgrad\.jit", """
import numpy as np
from ntgrad import Tensor, nn
model = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(16, 16), nn.Tanh())])
optimizer = nn.optim.SGD(model.parameters(), lr=0.01)
x, y = Tensor.rand(8, 16).realize(), Tensor.rand(8, 16).realize()
for step in range(60):
  optimizer.zero_grad()
  loss = ((model(x) - y) ** 2).mean()
  loss.backward(); optimizer.step(); loss.item()
"""),
  "growing sizes": (6, r"\d+ new kernels were made for other sizes .*script\.py:LINE.*dimension 0 of input 0.*Variable", """
import ntgrad
from ntgrad import Tensor
with ntgrad.Context(DYNAMIC="never"):
  for n in range(20, 40):
    x = (Tensor([1.0] * n).softmax(-1) * 3).sum(0).tolist()
"""),
  "cast in a hot loop": (5, r"script\.py:LINE contiguous moves .* only to copy, cast or transpose: do it once", """
from ntgrad import Tensor
table = Tensor.rand(1500, 1000).realize()
def look(row):
  half = table.half().contiguous()
  return (row @ half).realize()
rows = [Tensor.rand(1, 1500).half().realize() for _ in range(8)]
for i in range(40): look(rows[i % 8])
"""),
  "bad layout": (6, r"% of (its|their) bounds?.* most for script\.py:LINE .*across the order of memory.*contiguous", """
from ntgrad import Tensor
x = Tensor.rand(4096, 4096).realize()
y = Tensor.rand(4096).realize()
for i in range(8):
  (x[:, ::32].sum(1) * y).realize()
"""),
  "leak through a list": (7, r"memory grows by .* a step: \d+ pieces \(.*\) from script\.py:LINE .* kept by .* a list", """
from ntgrad import Tensor, nn
model = nn.Linear(512, 512)
x = Tensor.rand(256, 512).realize()
history = []
for step in range(40):
  out = model(x * step).tanh().realize()
  history.append(out)
  out.sum().item()
"""),
  "huge temporary": (5, r"288 MB of the \d+ MB at the peak is one piece, from script\.py:LINE sub: split the work", """
from ntgrad import Tensor
a, b = Tensor.rand(3000, 8).realize(), Tensor.rand(3000, 8).realize()
for i in range(3):
  differences = (a.reshape(3000, 1, 8) - b.reshape(1, 3000, 8)).contiguous()
  (differences ** 2).sum(-1).argmin(-1).realize()
"""),
  "storm of compiles": (6, r"plans with \d+ new kernels were made of a new structure in .*script\.py:LINE.*another each time", """
from ntgrad import Tensor
x = Tensor.rand(64, 64).realize()
for n in range(1, 25):
  y = x
  for i in range(n): y = (y + i % 3).sin() if i % 2 else y.cos() * 2
  y.realize()
"""),
  "host-bound loader": (5, r"of a later step .* is Python outside of ntgrad, most of it at script\.py:LINE,", """
import random, ntgrad
from ntgrad import Tensor, nn
model = nn.Linear(64, 8)
def load(): return [[random.gauss(0, 1) for _ in range(64)] for _ in range(64)]
@ntgrad.jit
def step(x): return model(x).relu().sum().realize()
for i in range(60): step(Tensor(load())).item()
"""),
  # those that came later
  "many small kernels": (6, r"kernels? runs? at \d+% of (its|their) bounds?, .* for script\.py:LINE .*larger batches", """
import ntgrad
from ntgrad import Tensor
xs = [Tensor.rand(8, 8).realize() for _ in range(20)]
@ntgrad.jit
def step(xs): return [((x @ x).softmax(-1) @ x).sum().realize() for x in xs]
for i in range(200): step(xs)
"""),
  "attention scores in memory": (5, r"MB at the peak is one piece, from script\.py:LINE matmul: split the work", """
from ntgrad import Tensor
q, k, v = [Tensor.rand(3000, 16).realize() for _ in range(3)]
for i in range(4):
  scores = (q @ k.T).contiguous()
  (scores.softmax(-1) @ v).realize()
"""),
  "elements read one by one": (9, r"between the host and devices \d\d times in a later .* at script\.py:LINE.*tolist", """
import ntgrad
from ntgrad import Tensor
x = Tensor.rand(64, 32).realize()
@ntgrad.jit
def predict(x): return x.argmax(1)
for epoch in range(12):
  found = predict(x)
  right = [found[i].item() == 3 for i in range(64)]
"""),
  "a number that changes": (5, r"step \(script\.py:LINE\).* ran its own code in \d+ .*argument 1 is 0\..*as a Tensor", """
import ntgrad
from ntgrad import Tensor
x = Tensor.rand(64, 32).realize()
@ntgrad.jit
def step(x, rate): return (x.tanh() * rate).sum().exp().sqrt()
for i in range(30): step(x, 0.1 * 0.99 ** i).item()
"""),
  "captured in the loop": (5, r"<lambda> \(script\.py:LINE\).* ran its own code in \d+ later calls.*call ntgrad\.jit once", """
import ntgrad
from ntgrad import Tensor
x = Tensor.rand(64, 32).realize()
def evaluate(x): return ntgrad.jit(lambda x: (x.tanh() * 2).sum().exp().sqrt())(x)
for i in range(30): evaluate(x).item()
"""),
  "an optimizer in the loop": (6, r"script\.py:LINE made an optimizer, Adam, \d+ times in later steps.*before the loop", """
from ntgrad import Tensor, nn
model = nn.Linear(8, 8)
x = Tensor.rand(4, 8).realize()
for i in range(16):
  optimizer = nn.optim.Adam(model.parameters(), lr=0.01)
  loss = model(x).square().mean()
  loss.backward(); optimizer.step(); loss.item()
"""),
  "columns beside rows": (6, r"most for script\.py:LINE .*each element meets each other.*\(N, 1\) stands beside", """
import ntgrad
from ntgrad import Tensor
out, wanted = Tensor.rand(4000, 1).realize(), Tensor.rand(4000).realize()
@ntgrad.jit
def loss(out, wanted): return ((out - wanted) ** 2).mean()
for i in range(40): loss(out, wanted).item()
"""),
  "float64 from numpy": (7, r"most for script\.py:LINE matmul.*in float64.*astype\(np\.float32\)", """
import numpy as np
import ntgrad
from ntgrad import Tensor
x, w = [Tensor(np.random.default_rng(0).standard_normal((400, 400))) for _ in range(2)]
@ntgrad.jit
def net(x): return x @ w
for i in range(40): net(x).numpy()
"""),
  "joined in the loop": (4, r"script\.py:LINE cat moves .* only to join tensors: keep them in a list", """
from ntgrad import Tensor
history, more = Tensor.zeros(1, 512).contiguous().realize(), Tensor.rand(64, 512).realize()
for i in range(60): history = history.cat(more, dim=0).realize()
"""),
  "through the host and back": (5, r"is copies between arrays of the host and .*at script\.py:[56]: .*stay there", """
from ntgrad import Tensor
x = Tensor.rand(3000, 1000).realize()
for i in range(30):
  h = x.numpy()
  x = Tensor(h).realize()
  x[0, :8].sum().item()
"""),
  "a thread that waits": (8, r"at script\.py:LINE, where it computes nothing.*were launched by other threads", """
import threading
from ntgrad import Tensor
x = Tensor.rand(64, 64).realize()
def work():
  for i in range(100): (x @ x).sum().item()
t = threading.Thread(target=work); t.start()
t.join()
"""),
  "preparing data in Python": (4, r"is Python outside of ntgrad, most of it at script\.py:LINE, which the device waits for", """
from ntgrad import Tensor
def tokens(text):
  return [hash(word) % 100 for word in text.split() for _ in range(20)]
text = "to be or not to be that is the question " * 400
for i in range(40): (Tensor(tokens(text)[:64]) * 2).sum().item()
"""),
}


WRONG = {
  "NaN in a backward pass": (8, r"makes inf, in the backward pass, at script\.py:LINE gradient of sqrt(.|\n)*from 0 to 0", """
import numpy as np
from ntgrad import Tensor, nn
model = nn.Linear(4, 4)
optimizer = nn.optim.SGD(model.parameters(), lr=0.1)
x = Tensor(np.array([[0.0, 1.0, 2.0, 3.0]] * 2, np.float32))
for step in range(3):
  y = model(x); loss = ((y - y).sqrt() * y).sum()
  optimizer.zero_grad(); loss.backward(); optimizer.step()
"""),
  "race in a kernel": (8, r"row_sums: program \(0, 0\) writes y\[0\] at script\.py:LINE, program \(0, 1\) reads .*a race", """
import ntgrad.tile.language as tl
from ntgrad import Tensor, tile
def arrangement(x, y):
  x = x.tile((1, 4))
  return x, y.tile((1,)).unsqueeze(1).expand((-1, x.shape[1]))
def row_sums(x, y):
  if tl.max(x) < 2: y = y + tl.sum(x)
kernel = tile.make(arrangement, row_sums, (tile.Tensor(2), tile.Tensor(1)))
kernel(Tensor.rand(3, 8).realize(), Tensor.zeros(3).contiguous().realize())
"""),
}


@pytest.mark.parametrize("name", WRONG)
def test_check_names_what_is_wrong(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
  line, said, text = WRONG[name]
  script = tmp_path / "script.py"
  script.write_text(text)
  with config(verify=0): code = main(["check", "--nan", str(script)])   # users have no VERIFY, which refuses some races before
  out = capfd.readouterr()
  last = "\n".join((out.out if name.startswith("race") else out.err).splitlines()[-10:])
  assert code == 1 and re.search(said.replace("LINE", str(line)), last), last


@long_where(lambda name: name not in ("uncaptured loop", "growing sizes", "leak through a list", "host-bound loader"))
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_last_ten_lines_name_cause_and_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  line, said, text = SCRIPTS[name]
  script = tmp_path / "script.py"
  script.write_text(text)
  assert not main(["profile", str(script)])
  last = "\n".join(capsys.readouterr().out.splitlines()[-10:])
  assert re.search(said.replace("LINE", str(line)), last), last
