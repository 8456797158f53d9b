"""Data: datasets, samplers, splits, batches, and what is counted of them."""
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, WeightedRandomSampler, random_split

torch.manual_seed(0)
x = torch.arange(40, dtype=torch.float32).reshape(20, 2)
y = torch.arange(20) % 3
data = TensorDataset(x, y)
print(len(data), data[3][0].tolist(), data[3][1].item())
parts = random_split(data, [0.6, 0.2, 0.2], generator=torch.Generator().manual_seed(42))
print([len(p) for p in parts], sorted(int(i) for p in parts for i in p.indices) == list(range(20)))
loader = DataLoader(parts[0], batch_size=5, shuffle=True)
seen = torch.cat([rows[:, 0] for rows, _ in loader])
print(len(loader), seen.sort().values.tolist() == sorted(x[list(parts[0].indices)][:, 0].tolist()))


class Words(Dataset):
  def __init__(self, n): self.n = n
  def __len__(self): return self.n
  def __getitem__(self, i): return {"ids": torch.full((i % 3 + 1,), i), "label": float(i), "name": str(i)}


def collate(batch):
  n = max(len(b["ids"]) for b in batch)
  ids = torch.stack([torch.nn.functional.pad(b["ids"], (0, n - len(b["ids"])), value=-1) for b in batch])
  return ids, torch.tensor([b["label"] for b in batch]), [b["name"] for b in batch]


for ids, labels, names in DataLoader(Words(7), batch_size=3, collate_fn=collate): print(ids.tolist(), labels.tolist(), names)
weights = torch.tensor([0.0] * 10 + [1.0] * 10)
print(min(WeightedRandomSampler(weights, num_samples=50, replacement=True)) >= 10)
both = ConcatDataset([Subset(data, [0, 1]), Subset(data, range(5, 7))])
print([int(b) for _, b in both], next(iter(DataLoader(both, batch_size=2)))[1].tolist())
scaled = (x - x.mean(dim=0)) / x.std(dim=0, unbiased=False)
print([round(v, 3) for v in scaled[0].tolist()], torch.histc(scaled, 4, -2, 2).tolist())
print(torch.nn.functional.one_hot(y, num_classes=3).float().sum(0).tolist(), torch.bincount(y).tolist(),
      torch.unique(y, return_counts=True)[1].tolist())
for rows, classes in DataLoader(data, batch_size=8):
  ones = classes.eq(1)
  print(torch.nonzero(ones).squeeze(1).tolist(), rows[ones].tolist()[:1], torch.masked_select(classes, ones).tolist())
