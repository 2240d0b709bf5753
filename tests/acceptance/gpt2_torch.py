#!/usr/bin/env python3
"""GPT-2's weights by their names: the gpt example against GPT-2 written out in PyTorch.

Writes random weights of GPT-2's form to a safetensors file, with the names, the prefix and the
masks of published ones, and compares the logits of both for the same tokens; then loads in PyTorch
what the example saves. The file format is read and written here with the standard library only.
Exits 77 where there is no PyTorch.

  tests/acceptance/gpt2_torch.py build/release/bin [--size=gpt2] [--seed=1]

Without --size it is a small model; --size=gpt2 is all of GPT-2 124M.
"""

import ast
import ctypes
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch")
    sys.exit(77)

SMALL = dict(vocabulary=211, layers=3, width=48, heads=4, context=40)
GPT2 = dict(vocabulary=50257, layers=12, width=768, heads=12, context=1024)


def random_weights(m):
    def normal(*shape, mean=0.0, deviation=0.02):
        return mean + deviation * torch.randn(*shape)

    w = m["width"]
    weights = {
        "wte.weight": normal(m["vocabulary"], w, deviation=0.1),
        "wpe.weight": normal(m["context"], w, deviation=0.1),
        "ln_f.weight": normal(w, mean=1.0, deviation=0.3),
        "ln_f.bias": normal(w, deviation=0.3),
    }
    linears = {"attn.c_attn": (w, 3 * w), "attn.c_proj": (w, w), "mlp.c_fc": (w, 4 * w),
               "mlp.c_proj": (4 * w, w)}
    for layer in range(m["layers"]):
        for name, (inputs, outputs) in linears.items():
            deviation = 1.5 / math.sqrt(inputs)
            weights[f"h.{layer}.{name}.weight"] = normal(inputs, outputs, deviation=deviation)
            weights[f"h.{layer}.{name}.bias"] = normal(outputs, deviation=0.1)
        for name in ("ln_1", "ln_2"):
            weights[f"h.{layer}.{name}.weight"] = normal(w, mean=1.0, deviation=0.3)
            weights[f"h.{layer}.{name}.bias"] = normal(w, deviation=0.3)
        mask = torch.tril(torch.ones(m["context"], m["context"]))
        weights[f"h.{layer}.attn.bias"] = mask.view(1, 1, m["context"], m["context"])
    return weights


def logits_of(weights, m, tokens):
    """GPT-2 from its published description, in whatever type the weights have."""
    w, depth = m["width"], m["width"] // m["heads"]
    x = weights["wte.weight"][tokens] + weights["wpe.weight"][: len(tokens)]

    def norm(x, name):
        return torch.nn.functional.layer_norm(
            x, (w,), weights[name + ".weight"], weights[name + ".bias"], 1e-5)

    def linear(x, name):
        return x @ weights[name + ".weight"] + weights[name + ".bias"]

    for layer in range(m["layers"]):
        h = f"h.{layer}."
        q, k, v = linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(w, dim=1)
        q, k, v = (t.view(-1, m["heads"], depth).transpose(0, 1) for t in (q, k, v))
        scores = q @ k.transpose(1, 2) / math.sqrt(depth)
        mask = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()
        mixed = scores.masked_fill(~mask, -math.inf).softmax(-1) @ v
        x = x + linear(mixed.transpose(0, 1).reshape(-1, w), h + "attn.c_proj")
        y = linear(norm(x, h + "ln_2"), h + "mlp.c_fc")
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y ** 3)))
        x = x + linear(y, h + "mlp.c_proj")
    return norm(x, "ln_f") @ weights["wte.weight"].t()


def write_safetensors(path, tensors):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            tensor = tensor.contiguous()
            file.write(ctypes.string_at(tensor.data_ptr(), 4 * tensor.numel()))


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8: 8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        assert entry["dtype"] == "F32", entry
        tensor = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32)
        tensors[name] = tensor.view(entry["shape"])
    return tensors


def read_npy(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10: 10 + size].decode())
    assert header["descr"] == "<f4" and not header["fortran_order"], header
    values = torch.frombuffer(bytearray(data[10 + size:]), dtype=torch.float32)
    return values.view(header["shape"])


def main():
    options = dict(a.lstrip("-").split("=") for a in sys.argv[2:])
    is_full = options.get("size") == "gpt2"
    m = GPT2 if is_full else SMALL
    torch.manual_seed(int(options.get("seed", 1)))
    weights = random_weights(m)
    tokens = torch.randint(m["vocabulary"], (m["context"] if not is_full else 64,))
    exact = logits_of({k: v.double() for k, v in weights.items()}, m, tokens)
    scale = exact.abs().max().item()
    torch_error = (logits_of(weights, m, tokens) - exact).abs().max().item()
    print(f"largest logit {scale:.3f}, error of PyTorch in f32 {torch_error:.3g}")
    size = ["--size=gpt2"] if is_full else [f"--{k}={v}" for k, v in m.items()] + ["--tied"]
    layouts = [["--devices=cpu:1"], ["--devices=cpu:2", "--parallel=model"]]
    with tempfile.TemporaryDirectory() as folder:
        path, saved, npy = (os.path.join(folder, name)
                            for name in ("model.safetensors", "saved.safetensors", "logits.npy"))
        for prefix in ("", "transformer."):
            write_safetensors(path, {prefix + k: v for k, v in weights.items()})
            for layout in layouts:
                subprocess.run(
                    [os.path.join(sys.argv[1], "gpt"), *size, *layout, f"--weights={path}",
                     f"--prompt_tokens={','.join(str(t) for t in tokens.tolist())}",
                     f"--logits={npy}", f"--save_weights={saved}", "--generate=0"],
                    check=True, stdout=subprocess.DEVNULL)
                error = (read_npy(npy)[0] - exact).abs().max().item()
                print(f"prefix '{prefix}', {' '.join(layout)}: error {error:.3g}")
                assert error <= 1e-4 * max(1, scale), error
        back = read_safetensors(saved)
        for name, tensor in back.items():
            assert torch.equal(tensor, weights[name.removeprefix("transformer.")]), name
        missing = [n for n in weights if "transformer." + n not in back
                   and not n.endswith(".attn.bias")]
        assert not missing, missing
        print(f"{len(back)} tensors that the example saved are those that it read")


main()
