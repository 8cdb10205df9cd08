"""What helps learning and what does not: one setting changed at a time, on sequences that are held out.

python bench/learned/recipe.py [--layers 1,5] [--seeds 2]

Prints a table in Markdown: relative errors of outputs, means over heads, layers and seeds, M = 64, window ±16,
on sequences of the validation part of WikiText-2 that are neither learned from nor used to stop.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import torch
from controls import Features, Keys, exact, with_features
from form import Form, learn
from kinds import relative
from subject import Subject
from texts import wikitext, windows
from torch import Tensor

import favor_sharp as fs

FEATURES, NEAR, ROUTED = 64, 16, (4, 8)
TRAIN, TEST, LENGTH = 360, 40, 256

# What is changed, against the defaults of the library.
CHANGES: dict[str, dict] = {
    "as it is": {},
    "200 steps": {"steps": 200},
    "400 steps": {"steps": 400},
    "1600 steps": {"steps": 1600},
    "rate 0.02": {"rate": 0.02},
    "rate 0.15": {"rate": 0.15},
    "batches of 8": {"batch": 8},
    "40 sequences": {"sequences": 40},
    "120 sequences": {"sequences": 120},
    "start: pos": {"family": "pos"},
    "start: sde": {"family": "sde"},
    "divergence alone": {"outputs": 0.0},
    "outputs 0.6": {"outputs": 0.6},
    "outputs 0.9": {"outputs": 0.9},
}


def learned(arrays: list[np.ndarray], seed: int, sequences: int = TRAIN, **more) -> list:
    cut = [x[:sequences] for x in arrays]
    heads = fs.learn_maps(*cut, features=FEATURES, seed=seed, **{"near": NEAR, **more})
    return [head.map for head in heads]


def error(maps: list, test: list[Tensor], target: Tensor, **keys) -> float:
    out = fs.attention(*(x.numpy() for x in test), maps, **{"near": NEAR, **keys})
    return float(relative(torch.from_numpy(out), target).mean())


def lost_pairs(maps: list, q: Tensor, k: Tensor, count: int) -> list[tuple[Tensor, Tensor]]:
    """For each head, queries and keys of pairs outside the window that the maps lose most weight at."""
    from controls import log_estimates, logits, window

    features = Features(maps)
    p, s = features.logs(q, "query"), features.logs(k, "key")
    true = logits(q, k, None).double().softmax(-1)
    own = log_estimates(p, s).softmax(-1)
    lost = (true - own).masked_fill(window(NEAR, q.shape[2]), 0)
    found = []
    for h in range(q.shape[1]):
        best = lost[:, h].flatten().topk(count).indices
        b, rest = best // (q.shape[2] ** 2), best % (q.shape[2] ** 2)
        i, j = rest // q.shape[2], rest % q.shape[2]
        found.append((q[b, h, i], k[b, h, j]))
    return found


def started(maps: list, q: Tensor, k: Tensor, lost: bool, seed: int) -> Form:
    """Our form in PyTorch, from the maps' projections on; half of the slots from where they lose."""
    form = Form(len(maps), q.shape[3], FEATURES, hedgehog=False, seed=seed)
    with torch.no_grad():
        for side in ("query", "key"):
            weights = [torch.from_numpy(np.asarray(m.side(side)["weights"])) for m in maps]
            form.weights[side].copy_(torch.stack(weights))
        if lost:
            half = FEATURES // 2
            for h, (queries, keys) in enumerate(lost_pairs(maps, q, k, half)):
                form.weights["query"][h, :half] = form.scale * keys
                form.weights["key"][h, :half] = form.scale * queries
    return form


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("FAVOR_DATA"))
    parser.add_argument("--layers", default="1,5")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    if options.data is None:
        raise SystemExit("set FAVOR_DATA to the folder that holds text")
    wanted = [int(layer) for layer in options.layers.split(",")]
    subject = Subject()
    texts = windows(subject.tokenizer, wikitext(options.data, "valid"), LENGTH, TRAIN + TEST)
    errors: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        errors.setdefault(name, []).append(value)
        print(f"  {name}: {value:.4f}", flush=True)

    for number, (_, calls) in enumerate(subject.calls(texts)):
        if number not in wanted:
            continue
        q, k, v, _ = calls
        # Every tenth sequence is measured on.
        held = torch.arange(len(q)) % ((TRAIN + TEST) // TEST) == 0
        arrays = [x[~held].numpy() for x in (q, k, v)]
        test = [x[held] for x in (q, k, v)]
        target = exact(*test, None)
        for seed in range(options.seeds):
            for name, change in CHANGES.items():
                maps = learned(arrays, seed, **change)
                note(name, error(maps, test, target))
                if not change:
                    note("routed afterwards", error(maps, test, target, routed=ROUTED))
                    by_norm = with_features(Features(maps), Keys(NEAR, ROUTED), by_norm=True)
                    note(
                        "… members by weight × norm",
                        float(relative(by_norm(*test, None), target).mean()),
                    )
            jointly = learned(arrays, seed, routed=ROUTED)
            note("routed while learning", error(jointly, test, target, routed=ROUTED))
            drawn = fs.fit_maps(*arrays[:2], features=FEATURES, seed=seed)
            for lost in (False, True):
                some = [torch.from_numpy(x[:24]) for x in arrays]
                form = started(drawn, some[0], some[1], lost, seed)
                near = {"near": NEAR, "steps": 800, "rate": 0.05, "seed": seed}
                learn(form, torch.from_numpy(arrays[0]), torch.from_numpy(arrays[1]), None, **near)
                attend = with_features(Features(form.double().requires_grad_(False)), Keys(NEAR))
                name = "half of the slots from lost pairs" if lost else "drawn slots"
                note(f"PyTorch, {name}", float(relative(attend(*test, None), target).mean()))
    print("\n| | error in % |\n|---|---|")
    for name, values in errors.items():
        print(f"| {name} | {100 * np.mean(values):.1f} |")


if __name__ == "__main__":
    main()
