"""Runs the speed comparison and writes docs/benchmarks.md with its figures.

Ours and the peers take turns, each in a process of its own, for several rounds; the best time of
each counts, and only ratios of times from the same session are reported. With ``--record`` a run that was
interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import exact_keys

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
THREADS = 2
SAME = (
    "Ours and the peers compute the same thing, the positive features of FAVOR+. The column *balanced* is "
    "our time with the balanced family, whose keys have a dense quadratic term, relative to that."
)


class Record:
    """What was measured, one line per call: the command and what it printed, or nothing if it failed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.known = [json.loads(line) for line in lines]

    def call(self, command: list[str]) -> Any:
        name = " ".join(Path(c).name if os.sep in c else c for c in command)
        if self.known:
            before, found = self.known.pop(0)
            if before != name:
                raise SystemExit(
                    f"{self.path} is of another run: it has `{before}` where this one has `{name}`"
                )
            return found
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(name, "failed:", done.stderr.strip()[-200:], file=sys.stderr)
        found = json.loads(done.stdout) if done.returncode == 0 else None
        with self.path.open("a") as file:
            file.write(json.dumps([name, found]) + "\n")
        return found


class Bench:
    def __init__(self, favor: str, rounds: int, record: Record) -> None:
        self.favor, self.rounds, self.record = favor, rounds, record

    def ours(
        self, work: str, length: int, features: int = 128, threads: int = THREADS, **more: int | str
    ) -> dict[str, Any]:
        command = [self.favor, "bench", "--json", "--work", work, "--length", str(length)]
        command += ["--features", str(features), "--threads", str(threads)]
        for name, value in more.items():
            command += [f"--{name}", str(value)]
        found = self.record.call(command)
        return found[0] if found else {}

    def peer(
        self, peer: str, work: str, length: int = 1024, features: int = 128, **more: int
    ) -> Any:
        command = [sys.executable, str(HERE / "peers.py"), peer, work, "--length", str(length)]
        command += ["--features", str(features), "--threads", str(THREADS)]
        for name, value in more.items():
            command += [f"--{name}", str(value)]
        return self.record.call(command) or {}

    def rounds_of(self, length: int) -> int:
        """More for short sequences, where a peer's processes differ from one another by a factor."""
        return 4 * self.rounds if length <= 1024 else self.rounds

    def turns(
        self, contestants: dict[str, Any], rounds: int | None = None
    ) -> dict[str, dict[str, Any]]:
        """The best of several rounds, in which the contestants take turns."""
        best: dict[str, dict[str, Any]] = {}
        for _ in range(rounds or self.rounds):
            for name, run in contestants.items():
                found = run()
                if found and found["seconds"] < best.get(name, {"seconds": math.inf})["seconds"]:
                    best[name] = found
        return best


def ratio(best: dict[str, dict[str, Any]], peer: str) -> float:
    return best[peer]["seconds"] / best["ours"]["seconds"] if peer in best else math.nan


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def seconds(x: float) -> str:
    return f"{x * 1e3:.2f} ms" if x < 1 else f"{x:.2f} s"


def exponent(points: list[tuple[int, float]]) -> float:
    xs, ys = [math.log(l) for l, _ in points], [math.log(t) for _, t in points]
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum(
        (x - mx) ** 2 for x in xs
    )


def crossover(b: Bench, exact: str, ours: str, features: int) -> str:
    """The length, in numbers of features, from which features are faster than exact attention."""
    before = (0.0, 0.0)
    for times in (1, 1.5, 2, 2.5, 3, 4, 5, 6):
        length = int(times * features)
        best = b.turns(
            {
                "ours": partial(b.ours, ours, length, features),
                "exact": partial(b.ours, exact, length),
            }
        )
        gain = math.log(ratio(best, "exact"))
        if gain > 0:
            share = -before[1] / (gain - before[1]) if before[0] else 1.0
            return f"{before[0] + share * (times - before[0]):.1f} M"
        before = (times, gain)
    return "above 6 M"


def pays(b: Bench, exact: str) -> str:
    """The length, in numbers of features, below which ``auto`` takes exact attention."""
    length = 1024
    return f"{length / b.ours(exact, length)['break_even']:.1f} M"


def machine() -> str:
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    )


def plot(path: Path, title: str, series: dict[str, list[tuple[int, float]]]) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "favor"
    figure, axes = plt.subplots(figsize=(6, 4))
    for name, points in series.items():
        axes.loglog(*zip(*points, strict=True), marker="o", label=name)
    axes.set_xlabel("tokens")
    axes.set_ylabel("time (s), best of the rounds")
    axes.set_title(title)
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--favor", required=True, help="the favor command")
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="short lengths only")
    parser.add_argument(
        "--record", type=Path, help="go on with what this file has of an interrupted run"
    )
    a = parser.parse_args()
    raw = a.out / "benchmarks.jsonl"
    record = a.record or raw
    if not a.record:
        raw.unlink(missing_ok=True)
    b = Bench(a.favor, a.rounds, Record(record))
    lengths = [1024, 4096] if a.quick else [1024, 4096, 16384, 65536]
    parts: list[str] = []
    curves: dict[str, list[tuple[int, float]]] = {"ours": [], "torch features": []}

    makers = {p: partial(b.peer, p, "sgemm") for p in ("torch", "numpy")}
    gemm = b.turns({"faer": partial(b.ours, "sgemm", 2048), **makers})
    sgemm = max(g["gflops"] for g in gemm.values())
    rates = ", ".join(f"{name} {g['gflops']:.0f}" for name, g in gemm.items())

    rows = []
    errors = []
    for features in (128, 256):
        for length in lengths:
            peers = {
                p: partial(b.peer, p, "forward", length, features)
                for p in ("torch", "jax", "numpy", "performer")
            }
            ours = partial(b.ours, "forward", length, features)
            own = {"ours": partial(ours, family="pos"), "balanced": ours}
            best = b.turns({**own, **peers}, b.rounds_of(length))
            same = [ratio(best, p) for p in ("torch", "jax", "numpy") if p in best]
            rows.append(
                [str(features), str(length), seconds(best["ours"]["seconds"])]
                + [f"{ratio(best, p):.1f} ×" for p in peers]
                + [f"**{min(same):.1f} ×**", f"{100 * best['ours']['gflops'] / sgemm:.0f} %"]
                + [f"{ratio(best, 'balanced'):.2f} ×"]
            )
            if length == 4096:
                plus, balanced = (100 * best[f]["relative_error"] for f in own)
                errors.append(f"{plus:.1f} % and {balanced:.1f} % for M = {features}")
            if features == 128:
                curves["ours"].append((length, best["ours"]["seconds"]))
                curves["torch features"].append((length, best["torch"]["seconds"]))
            print(rows[-1], flush=True)
    parts.append(
        "## Feature attention, forward\n\nHow many times faster ours is than each peer. The column "
        "*of sgemm* counts only the 8·L·M·d useful operations per head, relative to the best sgemm rate of "
        f"three libraries in the same session (GFLOP/s on 2048 × 2048: {rates}). {SAME}\n\n"
        + table(
            [
                "M",
                "L",
                "ours",
                "PyTorch",
                "JAX",
                "NumPy",
                "performer-pytorch",
                "fastest of the first three",
                "of sgemm",
                "balanced",
            ],
            rows,
        )
        + "\n\nError of the outputs relative to exact attention at L = 4096, FAVOR+ and balanced: "
        + f"{', '.join(errors)}. The data are isotropic Gaussian, where families differ least."
    )

    rows = []
    for length in lengths:
        best = b.turns(
            {
                "ours": partial(b.ours, "backward", length, family="pos"),
                "balanced": partial(b.ours, "backward", length),
                "torch": partial(b.peer, "torch", "backward", length),
                "jax": partial(b.peer, "jax", "backward", length),
            },
            b.rounds_of(length),
        )
        rows.append(
            [str(length), seconds(best["ours"]["seconds"])]
            + [f"{ratio(best, p):.1f} ×" for p in ("torch", "jax")]
            + [f"{ratio(best, 'balanced'):.2f} ×"]
        )
        print(rows[-1], flush=True)
    parts.append(
        f"## Forward and backward\n\nM = 128. {SAME}\n\n"
        + table(["L", "ours", "PyTorch autograd", "JAX", "balanced"], rows)
    )

    rows = []
    for length in lengths:
        contestants = {
            "ours": partial(b.ours, "forward", length),
            "torch": partial(b.peer, "torch", "exact", length, runs=1),
        }
        if length <= 16384:
            contestants["exact"] = partial(b.ours, "exact", length, runs=1)
        # Exact attention to 65 536 tokens takes a minute: one round of it.
        best = b.turns(contestants, 1 if length > 16384 else None)
        own = best["torch"]["seconds"] / best["exact"]["seconds"] if "exact" in best else math.nan
        rows.append(
            [
                str(length),
                f"{ratio(best, 'torch'):.1f} ×",
                "" if math.isnan(own) else f"{own:.2f} ×",
            ]
        )
        curves.setdefault("torch exact", []).append((length, best["torch"]["seconds"]))
        print(rows[-1], flush=True)
    parts.append(
        "## Compared with exact attention\n\nTime of PyTorch's `scaled_dot_product_attention` relative to "
        "our features (balanced, M = 128) and to our own exact attention.\n\n"
        + table(["L", "SDPA / our features", "SDPA / our exact"], rows)
    )

    rows = []
    for length in lengths:
        best = b.turns(
            {
                "ours": partial(b.ours, "forward", length),
                "causal": partial(b.ours, "causal", length),
                "backward": partial(b.ours, "causal_backward", length),
            }
        )
        rows.append(
            [str(length), f"{ratio(best, 'causal'):.2f} ×", f"{ratio(best, 'backward'):.2f} ×"]
        )
        print(rows[-1], flush=True)
    parts.append(
        "## Causal\n\nTime relative to our bidirectional forward pass, M = 128.\n\n"
        + table(["L", "causal forward", "causal forward and backward"], rows)
    )

    rows = [
        [str(m), crossover(b, "exact", "forward", m), crossover(b, "exact_causal", "causal", m)]
        for m in (64, 128, 256)
    ]
    print(rows, flush=True)
    below, causal = pays(b, "exact"), pays(b, "exact_causal")
    parts.append(
        "## Break-even length\n\nThe length from which our features are faster than our own exact "
        f"attention. `auto` uses exact attention below {below}, or {causal} if causal.\n\n"
        + table(["M", "bidirectional", "causal"], rows)
    )

    length = lengths[-1]
    ours, theirs = b.ours("forward", length), b.peer("torch", "forward", length, runs=1)
    # Ours writes to memory that is there, PyTorch's outputs are new.
    own, their = ours["extra_bytes"], theirs["extra_bytes"] - 8 * length * 64 * 4
    times = (
        f"{their / own:.0f} times as much"
        if own > 2**18
        else "ours is too small for the system to measure, so there is no ratio"
    )
    parts.append(
        f"## Memory\n\nIn addition to inputs and outputs, at L = {length}, M = 128, by the resident memory "
        f"of fresh processes: ours {own / 2**20:.1f} MiB, PyTorch's features {their / 2**20:.0f} MiB, {times}."
    )
    print(parts[-1], flush=True)

    rows = []
    for length in (1, 1000, 10_000, 100_000):
        found = min((b.ours("decode", length) for _ in range(a.rounds)), key=lambda f: f["seconds"])
        rows.append([str(length), f"{found['seconds'] * 1e6:.0f} µs"])
    parts.append(
        "## Decoding\n\nOne token with 8 heads, after the given number of tokens, M = 128.\n\n"
        + table(["tokens before", "time"], rows)
    )
    print(rows, flush=True)

    length = 100_000 if a.quick else 1_000_000
    shape = {"dim": 16, "heads": 1}
    best = b.turns(
        {
            "ours": partial(b.ours, "product", length, 256, **shape),
            "sklearn": partial(b.peer, "sklearn", "product", length, 256, **shape),
        }
    )
    wanted = (best["ours"]["relative_error"] / best["sklearn"]["relative_error"]) ** 2
    more = max(64, 64 * round(4 * wanted))
    equal = b.turns(
        {
            "ours": partial(b.ours, "product", length, more, **shape),
            "sklearn": partial(b.peer, "sklearn", "product", length, 256, **shape),
        }
    )
    at_equal_error = (
        f" With M = {more}, ours has an error of {100 * equal['ours']['relative_error']:.2f} % and is "
        f"{ratio(equal, 'sklearn'):.1f} × faster than scikit-learn with M = 256."
        if more != 256
        else ""
    )
    parts.append(
        f"## Kernel products\n\n`K(X,Y)·C`, Gaussian, {length} × {length} points, d = 16, M = 256, n = 4: "
        f"ours takes {seconds(best['ours']['seconds'])} with an error of "
        f"{100 * best['ours']['relative_error']:.2f} %, {ratio(best, 'sklearn'):.1f} × faster than "
        "scikit-learn's RBFSampler and two products, with an error of "
        f"{100 * best['sklearn']['relative_error']:.2f} %. Errors are relative to the exact product on 200 "
        "queries (for scikit-learn, with the first 20 000 keys)." + at_equal_error
    )
    print(parts[-1], flush=True)

    grow = [1024, 4096, 16384] if a.quick else [1024, 4096, 16384, 65536, 262_144, 1_048_576]
    points = [
        (l, min(b.ours("forward", l, threads=1, heads=1)["seconds"] for _ in range(a.rounds)))
        for l in grow
    ]
    parts.append(
        f"## Growth\n\nFrom {grow[0]} to {grow[-1]} tokens (one head, one thread, M = 128), time grows as "
        f"L to the power of {exponent(points):.3f}.\n\n![time against length](benchmarks.svg)"
    )
    print(parts[-1], flush=True)

    points = exact_keys.growth(b, grow, a.rounds)
    parts.append(
        "## Exact keys\n\nTime relative to features alone (balanced), with a window of exact keys on "
        "either side, and with the members of four slots of eight keys in addition.\n\n"
        + table(
            ["work", "L", "M", "features alone", *exact_keys.KEYS], exact_keys.costs(b, lengths)
        )
        + f"\n\nPyTorch's `scaled_dot_product_attention` compared with all parts together ({exact_keys.ALL}, M = 64):\n\n"
        + table(["L", "ours", "SDPA / ours"], exact_keys.against_exact(b, lengths))
        + "\n\nDecoding one token with 8 heads after the given number of tokens, M = 64, and the size of the state:\n\n"
        + table(
            ["tokens before", "features alone", "all parts", "state, features", "state, all parts"],
            exact_keys.decoding(b),
        )
        + f"\n\nWith all parts, from {grow[0]} to {grow[-1]} tokens (one head, one thread, M = 64), time "
        f"grows as L to the power of {exponent(points):.3f}."
    )
    plot(a.out / "benchmarks.svg", "8 heads, d = 64, M = 128, two threads", curves)

    names = ["torch", "jax", "numpy", "scikit-learn", "performer-pytorch"]
    versions = ", ".join(f"{n} {version(n)}" for n in names)
    head = (
        f"# Benchmarks\n\nWritten by `cargo xtask bench{' --quick' if a.quick else ''} --rounds {a.rounds}`. Ours and the peers take turns in "
        f"the same session, and the best round counts (four times as many rounds at 1024 tokens): {THREADS} threads, 32-bit floats, "
        f"d = 64, 8 heads unless stated otherwise. Our forward pass writes to preallocated memory, while the peers "
        "allocate their outputs each time; the command uses mimalloc, the peers their default allocators."
        f"\n\nMachine: {machine()}.\nPeers: {versions}.\n"
    )
    tail = "All measurements, with their commands, are in [benchmarks.jsonl](benchmarks.jsonl).\n"
    text = "\n\n".join([head, *parts, tail])
    if a.record:
        raw.write_text(record.read_text())
    temporary = a.out / "benchmarks.md.part"
    temporary.write_text(text)
    temporary.replace(a.out / "benchmarks.md")


if __name__ == "__main__":
    main()
