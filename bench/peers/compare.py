"""Public implementations of random-feature attention beside ours, on the same q, k, v.

Writes docs/peers.md. Run by `cargo xtask peers`.
"""

import argparse
import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import report
import torch
from candidates import Candidate, performer_without_epsilon, public_candidates

ROOT = Path(__file__).resolve().parents[2]
DIM, LENGTH, FEATURES, DRAWS = 64, 256, 256, 20
SPREADS = [0.25, 0.5, 1.0, 2.0, 4.0]
LARGE_SPREADS = [10.0, 100.0, 1e4, 1e8]


class Ours:
    """Our attention, through the example `attend`."""

    def __init__(self, program: str, family: str, title: str):
        self.program, self.family, self.name = program, family, title

    def attend(self, q, k, v, draws=DRAWS, causal=False, keys=None, fit=None) -> list[np.ndarray]:
        request = {"q": q, "k": k, "v": v}
        request = {name: value.tolist() for name, value in request.items()}
        request |= {"family": self.family, "features": FEATURES, "causal": causal}
        if keys is not None:
            request["keys"] = keys.tolist()
        if fit is not None:
            request["fit"] = {"q": fit[0].tolist(), "k": fit[1].tolist()}
        request["seeds"] = list(range(draws))
        done = subprocess.run(
            [self.program], input=json.dumps([request]).encode(), capture_output=True, check=True
        )
        (answer,) = json.loads(done.stdout)
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}")
        return [np.array(out, dtype=np.float64) for out in answer["outs"]]


def tokens(seed: int, spread: float, uneven: bool, length: int = LENGTH):
    """q, k, v whose logits q·k/√d have this standard deviation over the keys of a query.

    Even: every coordinate alike, mean zero. Uneven: coordinates of falling spread and means that
    are not zero, as in trained heads. The values are the standardised keys plus one.
    """
    random = np.random.default_rng(seed)
    sizes = 0.9 ** np.arange(DIM) if uneven else np.ones(DIM)
    q, k = (sizes * random.standard_normal((length, DIM)) for _ in range(2))
    scale = math.sqrt(spread / ((q @ k.T) / math.sqrt(DIM)).std(axis=1).mean())
    q, k = scale * q, scale * k
    if uneven:
        q, k = q + scale * 0.3, k - scale * 0.2
    v = 1 + (k - k.mean(axis=0)) / k.std(axis=0)
    return tuple(a.astype(np.float32) for a in (q, k, v))


def exact(q, k, v, causal: bool = False) -> np.ndarray:
    logits = q.astype(np.float64) @ k.astype(np.float64).T / math.sqrt(q.shape[1])
    if causal:
        logits[np.triu_indices(len(q), 1)] = -np.inf
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v.astype(np.float64)


def plain_mean(v, causal: bool = False) -> np.ndarray:
    """The output of attention that ignores the queries."""
    return exact(np.zeros_like(v), np.zeros_like(v), v, causal)


def distance(a: np.ndarray, b: np.ndarray, unit: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(unit))


def mean_distance(outs: list[np.ndarray], b: np.ndarray, unit: np.ndarray) -> float:
    return float(np.mean([distance(out, b, unit) for out in outs]))


def accuracy(everyone: list, q, k, v) -> dict:
    """Distances of every output from exact attention and from the plain mean of the values.

    The unit is the distance of these two from each other: an error of 1 is that of the plain mean.
    """
    wanted = exact(q, k, v)
    plain = plain_mean(v)
    rows = {}
    for candidate in everyone:
        outs = candidate.attend(q, k, v)
        rows[candidate.name] = {
            "error": mean_distance(outs, wanted, wanted - plain),
            "from mean": mean_distance(outs, plain, wanted - plain),
            "non-finite": float(np.mean([np.mean(~np.isfinite(out)) for out in outs])),
        }
    return rows


def padding(everyone: list, spread: float) -> dict:
    """How far the outputs of 192 valid tokens move when 64 masked tokens are appended."""
    valid, rows = 192, {}
    q, k, v = tokens(1, spread, uneven=True)
    mask = np.arange(LENGTH) < valid
    for content, factor in {"zeros": 0.0, "tokens": 1.0, "tokens 3 times as long": 3.0}.items():
        padded = [a.copy() for a in (q, k, v)]
        for a in padded:
            a[valid:] *= factor
        for candidate in everyone:
            # Our map is fitted on what is valid: the padding must not reach the fit either.
            options = fitted(candidate, q[:valid], k[:valid])
            before = candidate.attend(q[:valid], k[:valid], v[:valid], **options)
            after = [out[:valid] for out in candidate.attend(*padded, keys=mask, **options)]
            rows.setdefault(candidate.name, {})[content] = change(before, after, before[0])
    return rows


def future(everyone: list, spreads: list[float]) -> dict:
    """How far the outputs of the first half move when the second half changes."""
    half, rows = LENGTH // 2, {}
    for spread in spreads:
        q, k, v = tokens(1, spread, uneven=True)
        unit = (exact(q, k, v, causal=True) - plain_mean(v, causal=True))[:half]
        others = [a.copy() for a in (q, k, v)]
        for a, b in zip(others, tokens(2, spread, uneven=True), strict=True):
            a[half:] = b[half:]
        longer = [a.copy() for a in (q, k, v)]
        longer[1][-1] *= 3
        for content, later in {"other tokens": others, "one key 3 times as long": longer}.items():
            for candidate in everyone:
                options = fitted(candidate, *tokens(3, spread, uneven=True)[:2])
                before = candidate.attend(q, k, v, causal=True, **options)
                after = candidate.attend(*later, causal=True, **options)
                before, after = ([out[:half] for out in outs] for outs in (before, after))
                column = f"{content}, spread {spread:g}"
                rows.setdefault(candidate.name, {})[column] = change(before, after, unit)
    return rows


def fitted(candidate, q, k) -> dict:
    """Only our maps are fitted, here on given vectors."""
    return {"fit": (q, k)} if isinstance(candidate, Ours) else {}


def change(before: list[np.ndarray], after: list[np.ndarray], unit: np.ndarray) -> float:
    return float(np.mean([distance(a, b, unit) for a, b in zip(before, after, strict=True)]))


def real_heads() -> list[tuple[str, list]]:
    """Heads of a trained model, if the data folder has them."""
    folder = Path(os.environ.get("FAVOR_DATA", "data")) / "qkv"
    found = []
    for path in sorted(folder.glob("*.npz")):
        arrays = np.load(path)
        heads = [
            tuple(arrays[name][h, :LENGTH].astype(np.float32) for name in "qkv")
            for h in range(arrays["q"].shape[0])
        ]
        found.append((path.stem, heads))
    return found


def heads_table(everyone: list, heads: list) -> dict:
    """The median over the heads of each distance."""
    tables = [accuracy(everyone, *head) for head in heads]

    def median(name: str, column: str) -> float:
        return float(np.median([table[name][column] for table in tables]))

    return {name: {c: median(name, c) for c in row} for name, row in tables[0].items()}


def machine() -> str:
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{name}, {os.cpu_count()} cores, {platform.system()}"


def versions(public: list[Candidate]) -> str:
    packages = ["torch", *(c.package for c in public)]
    found = [f"{p} {importlib.metadata.version(p)}" for p in dict.fromkeys(packages)]
    return ", ".join([*found, f"Python {platform.python_version()}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attend", required=True, help="our example program")
    arguments = parser.parse_args()
    torch.set_num_threads(2)

    public = public_candidates(FEATURES, DRAWS)
    ours = [
        Ours(arguments.attend, "pos", "ours, Pos (FAVOR+)"),
        Ours(arguments.attend, "balanced", "ours, balanced"),
    ]
    everyone = [*public, *ours]
    without = performer_without_epsilon(FEATURES, DRAWS)

    def table(spreads: list[float], uneven: bool, who: list) -> dict:
        return {s: accuracy(who, *tokens(1, s, uneven)) for s in spreads}

    steps: dict[str, Callable[[], dict]] = {
        "padding": lambda: padding(everyone, 1.0),
        "future": lambda: future(everyone, [0.5, 1.0]),
        "uneven": lambda: table(SPREADS, True, [*everyone, without]),
        "even": lambda: table(SPREADS, False, [*everyone, without]),
        "large": lambda: table(LARGE_SPREADS, True, [*everyone, without]),
        "heads": lambda: {name: heads_table(everyone, heads) for name, heads in real_heads()},
    }
    results = {}
    for name, work in steps.items():
        print(name, file=sys.stderr)
        results[name] = work()

    setting = {"d": DIM, "L": LENGTH, "M": FEATURES, "draws": DRAWS}
    summary = report.summary(results, setting)
    text = report.document(results, setting, summary, machine(), versions(public))
    (ROOT / "docs/peers.md").write_text(text)


if __name__ == "__main__":
    main()
