"""Programs for several ranks, which tests run in threads and, as this script, in MPI's processes:
``mpiexec -n 2 python ranks.py NAME``, or those of RANKS_BACKEND. With RANKS_THREADS=n it has n threads. What ranks found is
printed as JSON, or written to a folder."""
from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import numpy as np

import ntgrad
from ntgrad import Tensor, distributed as dist, nn
from ntgrad.nn.parallel import DistributedDataParallel, SyncBatchNorm, ZeroRedundancyOptimizer, checkpoint, save_checkpoint
from ntgrad.nn.state import safe_save

STEPS, BATCH = 20, 8


class GPT(nn.Module):
  """A small transformer: (n, t) -> (n, t, words)."""

  def __init__(self, words: int = 11, width: int = 16, length: int = 6):
    super().__init__()
    self.embedding, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
    self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, words)
    self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
    self.up, self.down, self.heads = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), 2

  def forward(self, x: Tensor) -> Tensor:
    n, t = x.shape
    h = self.embedding(x) + self.place(Tensor.arange(t))
    q, k, v = [y.reshape(n, t, self.heads, -1).transpose(1, 2) for y in self.qkv(h).chunk(3, -1)]
    h = h + self.proj(q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).reshape(n, t, -1))
    return self.out(self.norm(h + self.down(self.up(h).gelu())))


def _model(kind: str) -> Any:
  if kind == "mlp": return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))
  if kind == "cnn": return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
  return GPT()


def _batch(kind: str, i: int) -> tuple[np.ndarray, np.ndarray]:
  rng = np.random.default_rng(i)
  if kind == "gpt": return rng.integers(0, 11, (BATCH, 6)), rng.integers(0, 11, (BATCH, 6))
  shape = (BATCH, 12) if kind == "mlp" else (BATCH, 1, 8, 8)
  return rng.standard_normal(shape).astype(np.float32), rng.integers(0, 5, BATCH)


def train(kind: str, how: str = "ddp", steps: int = STEPS) -> list[float]:
  """The losses of a model, the mean over all ranks, each of which has a part of the batch. ``how``: "ddp", "zero", "both" (the
  state in parts, with DistributedDataParallel), "jit"."""
  rank, n = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
  model, rng = _model(kind), np.random.default_rng(0)
  for p in model.parameters(): p.assign(Tensor((rng.standard_normal(p.shape) * 0.2 + rank).astype(np.float32)))   # rank 0's count
  model.train()
  whole: Any = model
  if n > 1:
    SyncBatchNorm.convert_sync_batchnorm(model)
    if how != "zero": whole = DistributedDataParallel(model, bucket_cap_mb=0.002)
  optimizer: Any = (ZeroRedundancyOptimizer(model.parameters(), nn.optim.AdamW, lr=0.01) if n > 1 and how in ("zero", "both") else
                    nn.optim.AdamW(list(model.parameters()), lr=0.01))

  def step(x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    out = whole(x)
    loss = out.reshape(-1, out.shape[-1]).cross_entropy(y.reshape(-1))
    loss.backward()
    optimizer.step()
    return dist.functional.all_reduce(loss.detach(), "avg") if n > 1 else loss.detach()
  called = ntgrad.jit(step) if how == "jit" else step
  losses = []
  for i in range(steps):
    x, y = [Tensor(a[rank * BATCH // n:(rank + 1) * BATCH // n]).realize() for a in _batch(kind, i)]
    losses.append(called(x, y).item())
  return losses


def operations() -> dict[str, Any]:
  """A result of each operation."""
  rank, n = dist.get_rank(), dist.get_world_size()
  out: dict[str, Any] = {}
  rng = np.random.default_rng(rank)
  small, large = [Tensor(rng.standard_normal(n).astype(np.float32)) for n in (7, 10007)]
  half, ints = Tensor([1.0 + rank, 2.0 ** -9]).half(), Tensor([rank, 5])
  for name, x in ("small", small), ("large", large), ("half", half), ("ints", ints):
    for op in "sum", "min", "max", "product":
      y = x + 0
      dist.all_reduce(y, op)
      out[f"{name} {op}"] = y.numpy().tobytes().hex()[-64:]
  x = Tensor(np.arange(2 * n, dtype=np.float32) + 10 * rank)
  gathered = [Tensor.zeros(2 * n).contiguous() for _ in range(n)]
  dist.all_gather(gathered, x)
  part, spread, mixed = Tensor.zeros(2).contiguous(), Tensor.zeros(n * 2 * n).contiguous(), Tensor.zeros(2 * n).contiguous()
  dist.reduce_scatter_tensor(part, x)
  dist.all_gather_into_tensor(spread, x)
  dist.all_to_all_single(mixed, x)
  over = Tensor(np.arange(60000 * n, dtype=np.float32) + rank).realize()
  dist.all_to_all_single(over, over)
  one, lists = Tensor.zeros(2).contiguous(), [Tensor.zeros(1).contiguous() for _ in range(n)]
  dist.reduce_scatter(one, [x[2 * i:2 * i + 2] for i in range(n)], "avg")
  dist.all_to_all(lists, [Tensor([float(10 * rank + r)]) for r in range(n)])
  sent = Tensor([float(rank)])
  dist.broadcast(sent, n - 1)
  got = Tensor.zeros(2, dtype="int32").contiguous()
  if rank == 0: dist.send(Tensor([5, 6]), 1)
  if rank == 1: dist.recv(got, 0)
  dist.barrier()
  group = dist.new_group([1, 0])
  inside = Tensor([float(rank)])
  if rank < 2: dist.all_gather_into_tensor(pair := Tensor.zeros(2).contiguous(), inside, group)
  out |= {"gathered": [t.tolist() for t in gathered], "part": part.tolist(), "spread": spread.tolist(), "mixed": mixed.tolist(),
          "over": [over[60000 * r:60000 * (r + 1)].sum().item() for r in range(n)], "one": one.tolist(),
          "lists": [t.item() for t in lists], "sent": sent.tolist(), "got": got.tolist(),
          "pair": pair.tolist() if rank < 2 else None, "rank in it": group.rank()}
  return out


def fault(what: str) -> None:
  """What goes wrong in one rank while the other wants its part."""
  rank, x = dist.get_rank(), Tensor([1.0, 2.0])
  dist.all_reduce(x)
  x.numpy()
  if rank == 1:
    if what == "raise": raise ValueError("the data is bad")
    if what == "exit": sys.exit(3)
    if what == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if what == "stop": os.kill(os.getpid(), signal.SIGSTOP)
    if what == "sleep": time.sleep(100)
    if what == "memory": Tensor.zeros(1 << 50).contiguous().realize()
    if what == "shape": x = Tensor([1.0, 2.0, 3.0])
    if what == "order": dist.broadcast(Tensor([1.0]), 0)
    if what == "receive": dist.recv(x, 0)
  dist.all_reduce(x)
  x.numpy()


def killed_while_saving(folder: str) -> None:
  """Two checkpoints, of which one rank is killed in the middle of the second."""
  save_checkpoint({"x": Tensor([1, 2]), "y": Tensor([3])}, folder)

  def die(tensors: Any, path: Any) -> None:
    if dist.get_rank() == 1:
      path.write_bytes(b"half")
      os.kill(os.getpid(), signal.SIGKILL)
    safe_save(tensors, path)
  checkpoint.safe_save = die   # type: ignore[attr-defined]
  save_checkpoint({"x": Tensor([5, 6]), "y": Tensor([7])}, folder)


if __name__ == "__main__":
  folder_here = os.path.dirname(os.path.realpath(__file__))
  sys.path[:] = [p for p in sys.path if os.path.realpath(p) != folder_here]   # its triton.py is not Triton
  name, *args = sys.argv[1:]
  program: Any = {"train": train, "operations": operations, "fault": fault, "saving": killed_while_saving}[name]
  if threads := os.environ.get("RANKS_THREADS"): print(json.dumps(dist.run(program, int(threads), args)))
  else:
    dist.init(os.environ.get("RANKS_BACKEND", "mpi"), timeout=3 if args[:1] == ["stop"] else 60)
    text = json.dumps(program(*args))
    if folder := os.environ.get("RANKS_OUT"):
      with open(f"{folder}/{dist.get_rank()}.json", "w") as f: f.write(text)
    else: print(text)
