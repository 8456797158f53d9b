"""What print shows of tensors, alone, in f-strings and as a summary."""
import torch

x = torch.arange(6).reshape(2, 3)
print(x)
print(x.float(), x.float() / 4, (x > 2), x.sum(), x.float().mean(), sep="\n")
print(x.double(), x.half() / 8, x.to(torch.uint8), x[0].bfloat16(), sep="\n")
print(torch.tensor([]), torch.zeros(0, 3), torch.zeros(2, 0, dtype=torch.float64), torch.tensor(True), sep="\n")
print(torch.tensor([1e-5, 1.0, 300.0]), torch.tensor([1e9, 2e9]), torch.tensor(2.0), sep="\n")
inf, nan = float("inf"), float("nan")
print(torch.tensor([0.0, -0.0]), torch.tensor([1.0, inf, nan]), torch.tensor([0.5, -inf, nan]), torch.tensor([nan]), sep="\n")
print(torch.arange(1001), torch.arange(2000.0).reshape(2, 10, 100) / 8, torch.arange(1 << 21).reshape(1 << 11, 1 << 10), sep="\n")
print(torch.arange(40) * 1000, torch.ones(2, 3, 2, 2), torch.ones(3, 4).T[:, 1:], torch.tensor([[-1.5], [99.25]]), sep="\n")
print(torch.tensor([1.0, 2.5], requires_grad=True), torch.tensor([1.0], dtype=torch.float64, requires_grad=True), sep="\n")
print(torch.tensor([0.123456789] * 5, dtype=torch.float64, requires_grad=True))
loss = torch.tensor(0.123456789)
print(f"{loss} {loss:.3f} {loss:10.2e} {torch.tensor(7):04d} {x[0]} {str(loss)}")
for given in ({"precision": 2}, {"sci_mode": True}, {"threshold": 3, "edgeitems": 1}, {"linewidth": 30}, {"edgeitems": 0},
              {"profile": "full"}, {"profile": "short"}):
  torch.set_printoptions(**{"profile": "default", **given})
  print(torch.arange(1001.0)[:7] / 3, (torch.arange(1200.0) / 8)[1100:], torch.ones(2, 2, 2), sep="\n")
  if given != {"profile": "full"}: print(torch.arange(3000.0).reshape(3, 1000) / 3)
