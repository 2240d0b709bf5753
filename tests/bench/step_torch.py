"""The models of step_bench.cc in PyTorch, on one thread a process: prints training steps per second.

    step_torch.py MODEL BATCH SECONDS [TEXT] [--side N] [--precision f32|tf32|bf16] [--details]
        [--layers N --width N --heads N --context N] [--sdpa] [--compile] [--device cpu|cuda]

MODEL is mlp, gpt (which needs TEXT), lenet, resnet18, resnet34 or resnet50. bf16 is autocast, with
images channels last, as tf32 is. --sdpa: attention is PyTorch's fused one. --compile: torch.compile
makes the model, the loss and the optimizer's step; its time is not counted. --device=cuda trains on
card 0: f32 rounds nothing to TF32, tf32 the operands of products and convolutions. --details prints,
on the same line, steps per second of CPU time, the peak memory in MiB, the number of parameters and
the last loss.

With RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, this process is a rank of
DistributedDataParallel over Gloo; BATCH is each rank's, and rank 0 prints.
"""

import argparse
import math
import os
import resource
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads, has_fused_attention):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.proj = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.has_fused_attention = heads, has_fused_attention

    def forward(self, x, mask):
        batch, time_, width = x.shape
        depth = width // self.heads
        y = self.norm1(x)
        q, k, v = (
            layer(y).view(batch, time_, self.heads, depth).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        if self.has_fused_attention:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(depth))
            mixed = scores.masked_fill(mask, -math.inf).softmax(-1) @ v
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, time_, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary, options):
        super().__init__()
        width, context = options.width, options.context
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(
            Block(width, options.heads, options.sdpa) for _ in range(options.layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.mask = torch.ones(context, context).triu(1).bool()  # no buffer: Gloo knows no bool

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


def conv_norm(inputs, outputs, kernel, stride=1):
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """A basic block or a bottleneck: relu(body(x) + shortcut(x))."""

    def __init__(self, inputs, width, stride, is_bottleneck):
        super().__init__()
        outputs = 4 * width if is_bottleneck else width
        if is_bottleneck:
            self.parts = nn.ModuleList(
                [
                    conv_norm(inputs, width, 1),
                    conv_norm(width, width, 3, stride),
                    conv_norm(width, outputs, 1),
                ]
            )
        else:
            self.parts = nn.ModuleList(
                [conv_norm(inputs, width, 3, stride), conv_norm(width, outputs, 3)]
            )
        changes = stride != 1 or inputs != outputs
        self.shortcut = conv_norm(inputs, outputs, 1, stride) if changes else nn.Identity()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = x
        for part in self.parts[:-1]:
            y = self.relu(part(y))
        y = self.parts[-1](y)
        y += self.shortcut(x)
        return self.relu(y)


def resnet(depth, side):
    is_bottleneck = depth >= 50
    blocks = (2, 2, 2, 2) if depth == 18 else (3, 4, 6, 3)
    if side > 64:
        layers = [conv_norm(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    else:
        layers = [conv_norm(3, 64, 3), nn.ReLU(inplace=True)]
    inputs = 64
    for layer, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if layer > 0 and block == 0 else 1
            layers.append(Residual(inputs, 64 << layer, stride, is_bottleneck))
            inputs = (64 << layer) * (4 if is_bottleneck else 1)
    classes = 1000 if side > 64 else 10
    model = nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)
    )
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model, classes


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )


def make(options):
    """The model, samples to draw batches from, and the optimizer."""
    sgd = lambda parameters, lr: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)
    if options.model == "mlp":
        model = nn.Sequential(
            nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
        return model, torch.rand(4096, 784), torch.randint(10, (4096,)), torch.optim.Adam
    if options.model == "gpt":
        with open(options.text, "rb") as file:
            text = file.read()
        letters = sorted(set(text))
        context = options.context
        data = torch.tensor([letters.index(c) for c in text[: context * 512 + 1]])
        inputs, targets = (part.view(512, context) for part in (data[:-1], data[1:]))
        model = Gpt(len(letters), options)
        return model, inputs, targets, torch.optim.AdamW
    if options.model == "lenet":
        return lenet(), torch.rand(4096, 1, 28, 28), torch.randint(10, (4096,)), sgd
    model, classes = resnet(int(options.model.removeprefix("resnet")), options.side)
    samples = 4 * options.batch
    inputs = torch.rand(samples, 3, options.side, options.side)
    decayed = lambda parameters, lr: torch.optim.SGD(
        parameters, lr=1e-2, momentum=0.9, weight_decay=5e-4
    )
    return model, inputs, torch.randint(classes, (samples,)), decayed


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("batch", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("text", nargs="?", default="")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--sdpa", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--precision", default="f32", choices=("f32", "tf32", "bf16"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--details", action="store_true")
    return parser.parse_args()


def main():
    torch.set_num_threads(1)
    options = parse()
    model, inputs, targets, make_optimizer = make(options)
    is_narrow = options.precision == "bf16"
    torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    if options.precision != "f32" and inputs.dim() == 4:
        model = model.to(memory_format=torch.channels_last)
        inputs = inputs.to(memory_format=torch.channels_last)
    if options.device == "cuda":
        model, inputs, targets = (each.cuda() for each in (model, inputs, targets))
        if options.model == "gpt":
            model.mask = model.mask.cuda()
    is_distributed = "RANK" in os.environ
    if is_distributed:
        torch.distributed.init_process_group("gloo")
        torch.manual_seed(torch.distributed.get_rank())
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = make_optimizer(model.parameters(), lr=1e-3)

    def loss_of(inputs, targets):
        with torch.autocast(options.device, torch.bfloat16, enabled=is_narrow):
            logits = model(inputs)
            return F.cross_entropy(logits.flatten(0, -2), targets.flatten())

    update = optimizer.step
    if options.compile:
        loss_of, update = torch.compile(loss_of), torch.compile(update)

    def step():
        index = torch.randint(len(inputs), (options.batch,))
        loss = loss_of(inputs[index], targets[index])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        update()
        return loss.item()

    def run(steps):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        for _ in range(steps):
            loss = step()
        return time.perf_counter() - begin, time.process_time() - cpu_begin, loss

    run(3)
    steps = max(3, int(options.seconds / (run(3)[0] / 3)))
    if is_distributed:
        common = torch.tensor([steps])
        torch.distributed.broadcast(common, 0)
        steps = int(common)
    seconds, cpu_seconds, loss = run(steps)
    if not math.isfinite(loss):
        raise SystemExit(f"the loss is {loss} after training")
    if is_distributed and torch.distributed.get_rank() != 0:
        return
    line = f"{steps / seconds:.3f}"
    if options.details:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        parameters = sum(p.numel() for p in model.parameters())
        line += f" {steps / cpu_seconds:.3f} {peak:.1f} {parameters} {loss:.4f}"
    print(line)


main()
