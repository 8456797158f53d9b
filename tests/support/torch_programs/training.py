"""A training loop: a module of one's own, a schedule, clipping, checkpoints."""
import io

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
  def __init__(self, inputs, hidden, classes):
    super().__init__()
    self.first, self.norm = nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden)
    self.drop, self.last = nn.Dropout(0.1), nn.Linear(hidden, classes)
    self.scale = nn.Parameter(torch.ones(1))
    self.register_buffer("steps", torch.zeros((), dtype=torch.long))
  def forward(self, x): return self.last(self.drop(F.relu(self.norm(self.first(x))))) * self.scale


rng = np.random.default_rng(0)
x = torch.from_numpy(rng.standard_normal((128, 10)).astype(np.float32)).to(device)
w = torch.tensor(rng.standard_normal((10, 3)), dtype=torch.float32, device=device)
y = torch.argmax(x @ w, dim=1)
model = torch.compile(Net(10, 32, 3).to(device))
loss_of = nn.CrossEntropyLoss()
opt = torch.optim.AdamW(model.parameters(), lr=2e-2, weight_decay=1e-2)
schedule = CosineAnnealingLR(opt, T_max=12)
for _ in range(12):
  model.train()
  order = torch.randperm(x.size(0), device=device)
  for i in range(0, x.size(0), 64):
    rows = order[i:i + 64]
    opt.zero_grad(set_to_none=True)
    loss = loss_of(model(x[rows]), y[rows])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
  schedule.step()
model.eval()
with torch.no_grad():
  values, found = torch.max(model(x), 1)
  right = (found == y).float().mean().item()
print("learned", right > 0.9, round(schedule.get_last_lr()[0], 4), sum(p.numel() for p in model.parameters()))
file = io.BytesIO()
torch.save({"model": model.state_dict(), "epoch": 12}, file)
file.seek(0)
saved = torch.load(file, map_location=device)
model.load_state_dict(saved["model"])
print(saved["epoch"], isinstance(model.first.weight, nn.Parameter), tuple(model.first.weight.shape), x.device.type == device.type)
confusion = torch.zeros(3, 3, dtype=torch.int64)
for a, b in zip(y.tolist(), found.tolist()): confusion[a, b] += 1
print(int(confusion.sum()), abs(confusion.diag().sum().item() / 128 - right) < 1e-6)
best, places = model(x).detach().topk(2, dim=1)
print(tuple(places.shape), torch.allclose(best[:, 0], values, atol=1e-5))
