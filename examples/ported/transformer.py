"""A transformer learns to turn sequences round: ``3 1 4 | 4 1 3``, next token by next token under a causal mask."""
# import math
# import torch
# import torch.nn as nn
# import torch.nn.functional as F
# from torch.optim.lr_scheduler import LambdaLR
import math
import sys
import time

import ntgrad as torch
import ntgrad.nn as nn
import ntgrad.nn.functional as F
from ntgrad.nn.optim.lr_scheduler import LambdaLR

VOCAB, LENGTH = 12, 6     # 10 digits, a separator, a start
SEP = 10


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 5000):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)

        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(1, max_len, d_model)
        pe[0, :, 0::2] = torch.sin(position * div_term)
        pe[0, :, 1::2] = torch.cos(position * div_term)
        self.register_buffer('pe', pe)

    def forward(self, x):
        x = x + self.pe[:, :x.size(1)]
        return self.dropout(x)


class TransformerModel(nn.Module):
    def __init__(self, ntoken: int, d_model: int, nhead: int, d_hid: int, nlayers: int, dropout: float = 0.1):
        super().__init__()
        self.pos_encoder = PositionalEncoding(d_model, dropout)
        encoder_layers = nn.TransformerEncoderLayer(d_model, nhead, d_hid, dropout, batch_first=True)
        self.transformer_encoder = nn.TransformerEncoder(encoder_layers, nlayers)
        self.embedding = nn.Embedding(ntoken, d_model)
        self.d_model = d_model
        self.linear = nn.Linear(d_model, ntoken)
        self.init_weights()

    def init_weights(self) -> None:
        initrange = 0.1
        nn.init.uniform_(self.embedding.weight, -initrange, initrange)
        nn.init.zeros_(self.linear.bias)
        nn.init.uniform_(self.linear.weight, -initrange, initrange)

    def forward(self, src, src_mask=None):
        src = self.embedding(src) * math.sqrt(self.d_model)
        src = self.pos_encoder(src)
        if src_mask is None:
            sz = src.size(1)
            src_mask = torch.triu(torch.ones(sz, sz) * float('-inf'), diagonal=1)
        output = self.transformer_encoder(src, src_mask)
        return self.linear(output)


def get_batch(batch_size):
    digits = torch.randint(0, 10, (batch_size, LENGTH))
    sep = torch.full((batch_size, 1), SEP, dtype=torch.long)
    return torch.cat([digits, sep, digits.flip(1)], dim=1)


@torch.no_grad()
def accuracy(model, batch_size=200):
    """How many sequences the model turns round without a mistake, when it writes them token by token."""
    model.eval()
    batch = get_batch(batch_size)
    tokens = batch[:, :LENGTH + 1]
    for _ in range(LENGTH):
        logits = model(tokens)
        tokens = torch.cat([tokens, logits[:, -1].argmax(dim=-1, keepdim=True)], dim=1)
    return (tokens[:, LENGTH + 1:] == batch[:, LENGTH + 1:]).all(dim=1).float().mean().item()


def main(steps=400, batch_size=64):
    torch.manual_seed(0)
    model = TransformerModel(VOCAB, d_model=64, nhead=4, d_hid=128, nlayers=2, dropout=0.0)
    print(f"{sum(p.numel() for p in model.parameters() if p.requires_grad)} parameters")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01)
    warmup = 50
    scheduler = LambdaLR(optimizer, lambda step: min((step + 1) / warmup, max(0.0, (steps - step) / (steps - warmup))))
    start = time.time()
    for step in range(steps):
        model.train()
        batch = get_batch(batch_size)
        logits = model(batch[:, :-1])
        # only what follows the separator can be known
        loss = F.cross_entropy(logits[:, LENGTH:].reshape(-1, VOCAB), batch[:, LENGTH + 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 50 == 0:
            print(f"step {step:4d} | lr {scheduler.get_last_lr()[0]:.5f} | loss {loss.item():.4f} | norm {norm.item():.2f} | "
                  f"{time.time() - start:.1f} s")
    acc = accuracy(model)
    print(f"accuracy {100 * acc:.1f} %")
    return acc


if __name__ == "__main__":
    sys.exit(main() < 0.9)
