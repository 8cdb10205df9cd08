"""What helps learning and what does not: one setting changed at a time.

python bench/learned/recipe.py [--layers 1,5] [--heads 4] [--seeds 2] [--only "as it is" "rate 0.05"]

Prints a table in Markdown: relative errors of outputs on sequences of WikiText-2's validation part that are
neither learned from nor used to stop. Means over heads and layers, with the spread over seeds.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from controls import Features, Keys, exact, log_estimates, logits, window, with_features
from form import Form, learn
from kinds import Setting, relative
from subject import Subject
from texts import wikitext, windows
from torch import Tensor

import favor_sharp as fs

WINDOW, ALONE = Setting(64, Keys(near=16)), Setting(32)
ROUTED = (4, 8)
TRAIN, TEST, LENGTH = 360, 40, 256

# What is changed, against the defaults of the library.
CHANGES: dict[str, dict] = {
    "as it is": {},
    "200 steps": {"steps": 200},
    "400 steps": {"steps": 400},
    "1600 steps": {"steps": 1600},
    "rate 0.02": {"rate": 0.02},
    "rate 0.05": {"rate": 0.05},
    "rate 0.1": {"rate": 0.1},
    "rate 0.15": {"rate": 0.15},
    "batches of 8": {"batch": 8},
    "120 sequences": {"sequences": 120},
    "40 sequences": {"sequences": 40},
    "12 sequences": {"sequences": 12},
    "12 sequences, pull 0.1": {"sequences": 12, "pull": 0.1},
    "12 sequences, pull 1": {"sequences": 12, "pull": 1.0},
    "4 sequences": {"sequences": 4},
    "4 sequences, pull 0.1": {"sequences": 4, "pull": 0.1},
    "4 sequences, pull 1": {"sequences": 4, "pull": 1.0},
    "start: pos": {"family": "pos"},
    "start: sde": {"family": "sde"},
    "divergence alone": {"outputs": 0.0},
    "outputs 0.6": {"outputs": 0.6},
    "outputs 0.9": {"outputs": 0.9},
}


class Layer:
    """Queries, keys and values of a layer: those that are learned from, and those that are measured on."""

    def __init__(self, calls: list[Tensor], heads: int) -> None:
        q, k, v = (x[:, :heads] for x in calls[:3])
        held = torch.arange(len(q)) % ((TRAIN + TEST) // TEST) == 0
        self.train = [x[~held].contiguous() for x in (q, k, v)]
        self.test = [x[held].contiguous() for x in (q, k, v)]
        self.target = exact(*self.test, None)

    def learned(self, setting: Setting, seed: int, sequences: int = TRAIN, **more) -> list:
        arrays = (x[:sequences].numpy() for x in self.train)
        heads = fs.learn_maps(*arrays, seed=seed, **(setting.arguments() | more))
        return [head.map for head in heads]

    def drawn(self, setting: Setting, seed: int) -> list:
        q, k = (x.numpy() for x in self.train[:2])
        return fs.fit_maps(q, k, features=setting.features, seed=seed)

    def error(self, maps: list, **keys) -> float:
        out = fs.attention(*(x.numpy() for x in self.test), maps, **keys)
        return self.off(torch.from_numpy(out))

    def off(self, out: Tensor) -> float:
        return float(relative(out, self.target).mean())

    def slots_from(self, setting: Setting, seed: int, lost: bool) -> float:
        """Linear logarithms learned in PyTorch from a draw on, or with half of the slots from where that loses."""
        form = started(self.drawn(setting, seed), setting, self.train, lost, seed)
        near = setting.keys.near
        learn(form, *self.train[:2], None, near=near, steps=800, rate=0.05, seed=seed)
        features = Features(form.double().requires_grad_(False))
        return self.off(with_features(features, setting.keys)(*self.test, None))


def lost_pairs(maps: list, near: int, q: Tensor, k: Tensor, count: int) -> list:
    """For each head, queries and keys of the pairs outside the window at which maps lose most weight."""
    features = Features(maps)
    p, s = features.logs(q, "query"), features.logs(k, "key")
    true = logits(q, k, None).double().softmax(-1)
    own = log_estimates(p, s).softmax(-1)
    lost = (true - own).masked_fill(window(near, q.shape[2]), 0)
    found = []
    for h in range(q.shape[1]):
        best = lost[:, h].flatten().topk(count).indices
        b, rest = best // (q.shape[2] ** 2), best % (q.shape[2] ** 2)
        i, j = rest // q.shape[2], rest % q.shape[2]
        found.append((q[b, h, i], k[b, h, j]))
    return found


def started(maps: list, setting: Setting, train: list[Tensor], lost: bool, seed: int) -> Form:
    """Linear logarithms in PyTorch, from the maps' projections on; half of the slots from where they lose."""
    q, k = train[0][:24], train[1][:24]
    form = Form(len(maps), q.shape[3], setting.features, hedgehog=False, seed=seed)
    with torch.no_grad():
        for side in ("query", "key"):
            weights = [torch.from_numpy(np.asarray(m.side(side)["weights"])) for m in maps]
            form.weights[side].copy_(torch.stack(weights))
        if lost:
            half = setting.features // 2
            for h, pairs in enumerate(lost_pairs(maps, setting.keys.near, q, k, half)):
                form.weights["query"][h, :half] = form.scale * pairs[1]
                form.weights["key"][h, :half] = form.scale * pairs[0]
    return form


def measurements(
    layer: Layer, seed: int, only: list[str] | None
) -> Iterator[tuple[str, Setting, float]]:
    """What was changed, with which features and keys, and the error."""
    keys = WINDOW.keys.named()
    for name in only or CHANGES:
        change = CHANGES[name]
        for setting in (WINDOW, ALONE):
            maps = layer.learned(setting, seed, **change)
            yield name, setting, layer.error(maps, **setting.keys.named())
            if not change and setting is WINDOW:
                first = maps
    if only:
        return
    yield "routed afterwards", WINDOW, layer.error(first, **keys | {"routed": ROUTED})
    by_norm = with_features(Features(first), Keys(WINDOW.keys.near, ROUTED), by_norm=True)
    yield "… members by weight × norm", WINDOW, layer.off(by_norm(*layer.test, None))
    jointly = layer.learned(WINDOW, seed, routed=ROUTED)
    yield "routed while learning", WINDOW, layer.error(jointly, **keys | {"routed": ROUTED})
    for count in (16, 32):
        error = layer.error(first, **keys | {"global_keys": count})
        yield f"{count} global keys afterwards", WINDOW, error
    yield "PyTorch, drawn slots", WINDOW, layer.slots_from(WINDOW, seed, lost=False)
    yield "PyTorch, half from lost pairs", WINDOW, layer.slots_from(WINDOW, seed, lost=True)


def cell(of_seeds: dict[int, list[float]]) -> str:
    means = [100 * np.mean(found) for found in of_seeds.values()]
    if not means:
        return "–"
    spread = f" ± {np.std(means, ddof=1):.2f}" if len(means) > 1 else ""
    return f"{np.mean(means):.2f}{spread}"


def print_table(errors: dict[str, dict[Setting, dict[int, list[float]]]]) -> None:
    print(f"\n| error in % | {WINDOW} | {ALONE} |\n|---|---|---|")
    for name, row in errors.items():
        print(f"| {name} | {cell(row[WINDOW])} | {cell(row[ALONE])} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("FAVOR_DATA"))
    parser.add_argument("--layers", default="1,5")
    parser.add_argument("--heads", type=int, default=4, help="so many of each layer")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=list(CHANGES), help="these changes alone")
    options = parser.parse_args()
    if options.data is None:
        raise SystemExit("set FAVOR_DATA to the folder that holds text")
    wanted = [int(layer) for layer in options.layers.split(",")]
    subject = Subject()
    texts = windows(subject.tokenizer, wikitext(options.data, "valid"), LENGTH, TRAIN + TEST)
    layers = [
        Layer(calls, options.heads)
        for number, (_, calls) in enumerate(subject.calls(texts))
        if number in wanted
    ]
    errors: dict[str, dict[Setting, dict[int, list[float]]]] = {}
    for seed in range(options.seeds):
        for layer in layers:
            for name, setting, error in measurements(layer, seed, options.only):
                row = errors.setdefault(name, {WINDOW: {}, ALONE: {}})
                row[setting].setdefault(seed, []).append(error)
                print(f"  {name}, {setting}: {error:.4f}", flush=True)
        print_table(errors)


if __name__ == "__main__":
    main()
