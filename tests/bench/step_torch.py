"""The models of step_bench.cc in PyTorch, on one thread a process: prints training steps per second.

    step_torch.py mlp BATCH SECONDS | gpt BATCH SECONDS TEXT

With RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, this process is a rank of
DistributedDataParallel over Gloo; BATCH is each rank's, and rank 0 prints.
"""

import math
import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.proj = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x, mask):
        batch, time_, width = x.shape
        depth = width // self.heads
        y = self.norm1(x)
        q, k, v = (
            layer(y).view(batch, time_, self.heads, depth).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(depth))
        weights = scores.masked_fill(mask, -math.inf).softmax(-1)
        x = x + self.proj((weights @ v).transpose(1, 2).reshape(batch, time_, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary, width=256, heads=8, layers=4, context=128):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.mask = torch.ones(context, context).triu(1).bool()  # no buffer: Gloo knows no bool

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


def main():
    torch.set_num_threads(1)
    model_name, batch, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    if model_name == "mlp":
        model = nn.Sequential(
            nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
        inputs, targets = torch.rand(4096, 784), torch.randint(10, (4096,))
        make_optimizer = torch.optim.Adam
    else:
        text = open(sys.argv[4], "rb").read()
        letters = sorted(set(text))
        data = torch.tensor([letters.index(c) for c in text[: 129 * 512]])
        inputs = data[:-1][: 512 * 128].view(512, 128)
        targets = data[1:][: 512 * 128].view(512, 128)
        model = Gpt(len(letters))
        make_optimizer = torch.optim.AdamW
    is_distributed = "RANK" in os.environ
    if is_distributed:
        torch.distributed.init_process_group("gloo")
        torch.manual_seed(torch.distributed.get_rank())
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = make_optimizer(model.parameters(), lr=1e-3)

    def step():
        index = torch.randint(len(inputs), (batch,))
        logits = model(inputs[index])
        loss = F.cross_entropy(logits.flatten(0, -2), targets[index].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    def run(steps):
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        return time.perf_counter() - begin

    run(3)
    steps = max(3, int(seconds / (run(3) / 3)))
    if is_distributed:
        common = torch.tensor([steps])
        torch.distributed.broadcast(common, 0)
        steps = int(common)
    rate = steps / run(steps)
    if not is_distributed or torch.distributed.get_rank() == 0:
        print(f"{rate:.3f}")


main()
