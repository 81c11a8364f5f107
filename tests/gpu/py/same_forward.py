"""Computes the loss of `train`'s first step from the files that it writes, in plain Python, as PyTorch defines it.

usage: same_forward.py --train=PATH --work=FOLDER [--library-path=PATHS]

Tiny models, [n][c][h][w], written from PyTorch's documentation: the same as the modules of same_losses.py, which needs
PyTorch and a GPU. Shows without both that weights and batches have PyTorch's layout. Exit status 1 if a loss differs.
"""
import argparse
import math
import os
import struct
import sys

import same_losses

LIMIT = 1e-4  # the tiny ResNet-50 normalizes over 18 values, which enlarges rounding
EPSILON = 1e-5


def nested(values, shape):
    if len(shape) == 1:
        return list(values)
    size = len(values) // shape[0]
    return [nested(values[i * size:(i + 1) * size], shape[1:]) for i in range(shape[0])]


def array_of(entry):
    kind, shape, data = entry
    return nested(struct.unpack(f"<{len(data) // 4}{'f' if kind == 'F32' else 'i'}", data), shape)


def relu(plane):
    return [relu(row) for row in plane] if isinstance(plane, list) else max(plane, 0.0)


def add(a, b):
    return [add(x, y) for x, y in zip(a, b)] if isinstance(a, list) else a + b


def linear(rows, weight, bias):
    return [[sum(w * x for w, x in zip(line, row)) + b for line, b in zip(weight, bias)] for row in rows]


def conv(x, weight, stride=1, bias=None):
    """nn.Conv2d with a padding of half its size."""
    size = len(weight[0][0])
    pad, height, width = size // 2, len(x[0][0]), len(x[0][0][0])

    def at(image, kernel, top, left):
        total = 0.0
        for plane, filters in zip(image, kernel):
            for r in range(max(0, -top), min(size, height - top)):
                row, line = plane[top + r], filters[r]
                for s in range(max(0, -left), min(size, width - left)):
                    total += row[left + s] * line[s]
        return total

    return [[[[at(image, kernel, i * stride - pad, j * stride - pad) + (bias[k] if bias else 0.0)
               for j in range((width + 2 * pad - size) // stride + 1)]
              for i in range((height + 2 * pad - size) // stride + 1)]
             for k, kernel in enumerate(weight)] for image in x]


def batch_norm(x, gamma, beta):
    """nn.BatchNorm2d in training."""
    out = [[None] * len(x[0]) for _ in x]
    for c, (g, b) in enumerate(zip(gamma, beta)):
        values = [v for image in x for row in image[c] for v in row]
        mean = sum(values) / len(values)
        scale = g / math.sqrt(sum((v - mean) ** 2 for v in values) / len(values) + EPSILON)
        for n, image in enumerate(x):
            out[n][c] = [[(v - mean) * scale + b for v in row] for row in image[c]]
    return out


def max_pool(x, size, stride, pad):
    def at(plane, top, left):
        return max(plane[i][j] for i in range(max(0, top), min(len(plane), top + size))
                   for j in range(max(0, left), min(len(plane[0]), left + size)))

    def places(length):
        return [i * stride - pad for i in range((length + 2 * pad - size) // stride + 1)]

    return [[[[at(plane, i, j) for j in places(len(plane[0]))] for i in places(len(plane))] for plane in image]
            for image in x]


def flatten(x):
    return [[v for plane in image for row in plane for v in row] for image in x]


def cross_entropy(rows, labels):
    total = 0.0
    for row, label in zip(rows, labels):
        top = max(row)
        total += top + math.log(sum(math.exp(v - top) for v in row)) - row[label]
    return total / len(rows)


# ---- the models: w is {name: array} ----

def conv_norm(w, prefix, number, x, stride=1):
    return batch_norm(conv(x, w[f"{prefix}conv{number}.weight"], stride), w[f"{prefix}bn{number}.weight"],
                      w[f"{prefix}bn{number}.bias"])


def mlp(w, x):
    x = flatten(x)
    layers = same_losses.count(w, "layers")
    for i in range(layers):
        x = linear(x, w[f"layers.{i}.weight"], w[f"layers.{i}.bias"])
        x = relu(x) if i + 1 < layers else x
    return x


def cnn(w, x):
    for i in (1, 2):
        x = max_pool(relu(conv(x, w[f"conv{i}.weight"], bias=w[f"conv{i}.bias"])), 2, 2, 0)
    return linear(relu(linear(flatten(x), w["fc1.weight"], w["fc1.bias"])), w["fc2.weight"], w["fc2.bias"])


def resnet(w, x, deep):
    large = len(w["conv1.weight"][0][0]) == 7
    x = relu(conv_norm(w, "", 1, x, 2 if large else 1))
    x = max_pool(x, 3, 2, 1) if large else x
    for stage in range(1, 5):
        for block in range(same_losses.count(w, f"layer{stage}")):
            prefix, stride = f"layer{stage}.{block}.", 2 if stage > 1 and block == 0 else 1
            y = relu(conv_norm(w, prefix, 1, x, 1 if deep else stride))
            y = conv_norm(w, prefix, 2, y, stride if deep else 1)
            y = conv_norm(w, prefix, 3, relu(y)) if deep else y
            if prefix + "downsample.0.weight" in w:
                x = batch_norm(conv(x, w[prefix + "downsample.0.weight"], stride), w[prefix + "downsample.1.weight"],
                               w[prefix + "downsample.1.bias"])
            x = relu(add(x, y))
    rows = [[sum(map(sum, plane)) / (len(plane) * len(plane[0])) for plane in image] for image in x]
    return linear(rows, w["fc.weight"], w["fc.bias"])


def two_convs(w, prefix, x):
    return relu(conv_norm(w, prefix, 2, relu(conv_norm(w, prefix, 1, x))))


def unet(w, x):
    beside = []
    for level in range(same_losses.count(w, "down")):
        beside.append(two_convs(w, f"down.{level}.", x))
        x = max_pool(beside[-1], 2, 2, 0)
    x = two_convs(w, "middle.", x)
    for up in range(len(beside)):
        x = [[[[v for v in row for _ in (0, 1)] for row in plane for _ in (0, 1)] for plane in image] for image in x]
        x = relu(conv_norm(w, f"up.{up}.", "", x))
        x = [left + right for left, right in zip(beside.pop(), x)]
        x = two_convs(w, f"up.{up}.", x)
    return conv(x, w["out.weight"], bias=w["out.bias"])


def layer_norm(w, name, rows):
    out = []
    for row in rows:
        mean = sum(row) / len(row)
        scale = 1 / math.sqrt(sum((v - mean) ** 2 for v in row) / len(row) + EPSILON)
        out.append([(v - mean) * scale * g + b for v, g, b in zip(row, w[name + ".weight"], w[name + ".bias"])])
    return out


def gelu(x):
    """approximate="tanh" """
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def attention(rows, heads):
    """Causal, over the rows of one sample: each has queries, keys and values, each of all heads."""
    width = len(rows[0]) // 3
    size = width // heads
    out = [[] for _ in rows]
    for head in range(heads):
        starts = [part * width + head * size for part in range(3)]
        q, k, v = ([row[start:start + size] for row in rows] for start in starts)
        for i, query in enumerate(q):
            weights = [math.exp(sum(a * b for a, b in zip(query, key)) / math.sqrt(size)) for key in k[:i + 1]]
            out[i] += [sum(weight * value[d] for weight, value in zip(weights, v)) / sum(weights) for d in range(size)]
    return out


def dense(w, name, rows):
    return linear(rows, w[name + ".weight"], w[name + ".bias"])


def gpt(w, tokens, heads):
    logits = []
    for sample in tokens:
        x = [add(w["transformer.wte.weight"][t], w["transformer.wpe.weight"][i]) for i, t in enumerate(sample)]
        for block in range(same_losses.count(w, "transformer.h")):
            prefix = f"transformer.h.{block}."
            y = dense(w, prefix + "attn.c_attn", layer_norm(w, prefix + "ln_1", x))
            x = add(x, dense(w, prefix + "attn.c_proj", attention(y, heads)))
            y = dense(w, prefix + "mlp.c_fc", layer_norm(w, prefix + "ln_2", x))
            x = add(x, dense(w, prefix + "mlp.c_proj", [[gelu(v) for v in row] for row in y]))
        table = w["transformer.wte.weight"]
        logits += linear(layer_norm(w, "transformer.ln_f", x), table, [0.0] * len(table))
    return logits


def channels_first(x):
    return [[[[pixel[c] for pixel in row] for row in image] for c in range(len(image[0][0]))] for image in x]


def loss_by_definition(model, weights, step):
    w = {name: array_of(entry) for name, entry in weights.items()}
    if model == "gpt":
        labels = [label for sample in array_of(step["labels"]) for label in sample]
        return cross_entropy(gpt(w, array_of(step["tokens"]), same_losses.MODELS[model][2][1]), labels)
    x = channels_first(array_of(step["x"]))
    if model == "unet":
        pairs = list(zip(flatten(unet(w, x)), flatten(channels_first(array_of(step["target"])))))
        return sum((a - b) ** 2 for rows in pairs for a, b in zip(*rows)) / sum(len(rows[0]) for rows in pairs)
    forward = {"mlp": mlp, "cnn": cnn, "resnet18": lambda w, x: resnet(w, x, False),
               "resnet50": lambda w, x: resnet(w, x, True)}[model]
    return cross_entropy(forward(w, x), array_of(step["labels"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--train", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--library-path")
    arguments = parser.parse_args()
    arguments.small, arguments.steps = True, 1
    good = True
    for model in same_losses.MODELS:
        weights, steps = same_losses.run_train(arguments, model, "fp32", os.path.join(arguments.work, model))
        same_losses.check_files(model, weights, steps)
        ours, theirs = same_losses.loss_of(steps[0]), loss_by_definition(model, weights, steps[0])
        difference = abs(ours - theirs) / abs(theirs)
        good = good and difference <= LIMIT
        print(f"model={model} train={ours:.8g} by_definition={theirs:.8g} difference={difference:.1e}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
