"""An LSTM learns to continue waves, and then draws them by itself."""
# import numpy as np
# import torch
# import torch.nn as nn
import sys
import time

import numpy as np

import ntgrad as torch
import ntgrad.nn as nn

LENGTH, WAVES = 60, 64


class Sequence(nn.Module):
    def __init__(self, hidden_size=48, num_layers=2):
        super().__init__()
        self.lstm = nn.LSTM(input_size=1, hidden_size=hidden_size, num_layers=num_layers, batch_first=True)
        self.fc = nn.Linear(hidden_size, 1)

    def forward(self, x, hidden=None):
        out, hidden = self.lstm(x, hidden)
        return self.fc(out), hidden


def waves(n, length, rng):
    start, period = rng.uniform(0, 2 * np.pi, (n, 1)), rng.uniform(16, 24, (n, 1))
    return np.sin(start + 2 * np.pi * np.arange(length) / period).astype(np.float32)[..., None]


def generate(model, seed, steps):
    """What the model says follows ``seed`` (batch, time, 1), one value at a time."""
    model.eval()
    outputs = []
    with torch.no_grad():
        pred, hidden = model(seed)
        last = pred[:, -1:, :]
        for _ in range(steps):
            outputs.append(last)
            last, hidden = model(last, hidden)
    return torch.cat(outputs, dim=1)


def main(epochs=60):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    data = torch.from_numpy(waves(WAVES, LENGTH + 1, rng))
    inputs, targets = data[:, :-1], data[:, 1:]
    model = Sequence()
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    model.train()
    start = time.time()
    for epoch in range(epochs):
        optimizer.zero_grad()
        out, _ = model(inputs)
        loss = criterion(out, targets)
        loss.backward()
        optimizer.step()
        if epoch % 10 == 0:
            print(f"epoch {epoch:3d}  loss {loss.item():.5f}  {time.time() - start:.1f} s")

    test = torch.from_numpy(waves(8, LENGTH + 20, rng))
    drawn = generate(model, test[:, :LENGTH], 20)
    error = (drawn - test[:, LENGTH:]).abs().mean().item()
    print(f"final loss {loss.item():.5f}, mean error of 20 values that follow {error:.3f}")
    return loss.item(), error


if __name__ == "__main__":
    final, error = main()
    sys.exit(final > 0.005 or error > 0.3)
