"""Attention with exact keys beside the features: what it costs, and how it stands beside exact attention."""

from __future__ import annotations

from functools import partial
from typing import Any

# How the command is asked for them, by name.
KEYS: dict[str, dict[str, int | str]] = {
    "±16": {"near": 16},
    "±64": {"near": 64},
    "±16, 4 × 8": {"near": 16, "routed": "4x8"},
}
ALL = "±16, 4 × 8"
WORKS = {
    "forward": "forward",
    "backward": "forward and backward",
    "causal": "causal forward",
    "causal_backward": "causal forward and backward",
}


def costs(b: Any, lengths: list[int]) -> list[list[str]]:
    """Times relative to features alone, one row per work, length and number of features."""
    rows = []
    for work, name in WORKS.items():
        for length in (l for l in lengths if l >= 4096):
            for features in (64, 128):
                ours = partial(b.ours, work, length, features)
                best = b.turns({"ours": ours, **{k: partial(ours, **v) for k, v in KEYS.items()}})
                alone = best["ours"]["seconds"]
                ratios = [f"{best[k]['seconds'] / alone:.2f} ×" for k in KEYS]
                rows.append([name, str(length), str(features), f"{alone * 1e3:.1f} ms", *ratios])
                print(rows[-1], flush=True)
    return rows


def against_exact(b: Any, lengths: list[int]) -> list[list[str]]:
    """How many times longer PyTorch's exact attention takes."""
    rows = []
    for length in (l for l in lengths if l >= 4096):
        contestants = {
            "ours": partial(b.ours, "forward", length, 64, **KEYS[ALL]),
            "torch": partial(b.peer, "torch", "exact", length, runs=1),
        }
        best = b.turns(contestants, 1 if length > 16384 else None)
        times = best["torch"]["seconds"] / best["ours"]["seconds"]
        rows.append([str(length), f"{best['ours']['seconds'] * 1e3:.1f} ms", f"{times:.1f} ×"])
        print(rows[-1], flush=True)
    return rows


def decoding(b: Any) -> list[list[str]]:
    """The time of a token and the size of the state, with features alone and with all parts."""
    rows = []
    for length in (1, 1000, 10_000, 100_000):
        ours = partial(b.ours, "decode", length, 64)
        best = b.turns({"ours": ours, "all": partial(ours, **KEYS[ALL])})
        alone, all_parts = best["ours"], best["all"]
        rows.append(
            [
                str(length),
                f"{alone['seconds'] * 1e6:.0f} µs",
                f"{all_parts['seconds'] / alone['seconds']:.2f} ×",
                *(f"{found['extra_bytes'] / 2**20:.2f} MiB" for found in (alone, all_parts)),
            ]
        )
        print(rows[-1], flush=True)
    return rows


def growth(b: Any, lengths: list[int], rounds: int) -> list[tuple[int, float]]:
    """Times of one head on one thread with all parts."""
    ours = partial(b.ours, "forward", features=64, threads=1, heads=1, **KEYS[ALL])
    return [(l, min(ours(length=l)["seconds"] for _ in range(rounds))) for l in lengths]
