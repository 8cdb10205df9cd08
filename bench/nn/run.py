"""Training steps of a BERT of MiniLM's shape, ours and PyTorch's.

Each measurement is a process of its own and gives its best step of four; the sides take turns for some
rounds, and the best counts. Writes docs/benchmarks-nn.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Length and batch: 2048 tokens a step.
SHAPES = [(128, 16), (512, 4), (2048, 1)]
OURS = [("exact", 1), ("balanced", 128), ("balanced", 256)]


def measure(command: list[str]) -> tuple[float, float]:
    """Seconds of the best step, and the peak resident memory of the process in MiB."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            raise SystemExit(f"failed: {' '.join(command)}\n{errors.read()}")
    return float(output), usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", required=True, help="our program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks-nn.md")
    options = parser.parse_args()
    best: dict[tuple, tuple[float, float]] = {}
    for _ in range(options.rounds):
        for length, batch in SHAPES:
            shape = [str(length), str(batch)]
            sides = {("torch",): [sys.executable, str(HERE / "peer.py"), *shape]}
            for kind, features in OURS:
                sides[kind, features] = [options.step, *shape, kind, str(features)]
            for side, command in sides.items():
                key = (length, *side)
                before = best.get(key, (float("inf"), float("inf")))
                best[key] = tuple(map(min, before, measure(command)))
                print(f"{key}: {best[key][0]:.3f} s, {best[key][1]:.0f} MiB", flush=True)
    options.out.write_text(page(best, options.rounds))
    print(f"wrote {options.out}")


def machine() -> str:
    model = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        model = next((n.split(":")[1].strip() for n in lines if n.startswith("model name")), model)
    return f"{os.cpu_count()} cores of {model}"


def page(best: dict[tuple, tuple[float, float]], rounds: int) -> str:
    names = ["PyTorch, exact (SDPA)", "ours, exact", *(f"ours, {k}, M = {m}" for k, m in OURS[1:])]
    sides = [("torch",), *OURS]
    lines = [
        f"| | {' | '.join(f'L = {length}, batch {batch}' for length, batch in SHAPES)} |",
        "|---" * (len(SHAPES) + 1) + "|",
    ]
    for name, side in zip(names, sides, strict=True):
        cells = []
        for length, _ in SHAPES:
            (own, memory), theirs = best[(length, *side)], best[length, "torch"][0]
            ratio = "" if side == ("torch",) else f" ({theirs / own:.2f} ×)"
            cells.append(f"{own:.2f} s{ratio}, {memory:.0f} MiB")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(
        [
            "# Speed of training steps",
            "",
            "One step (forward, backward, clipping, AdamW) of a BERT with MiniLM's shape: 6 layers of",
            "width 384, 12 heads of dimension 32, in 32-bit floats. The speed-up over PyTorch is in",
            "parentheses, followed by the peak resident memory of the process, libraries included.",
            "",
            *lines,
            "",
            "The matrix products around attention take the same time with every kind of attention, so",
            "the gain is limited to attention's share of a step.",
            "",
            f"Measured by `cargo xtask bench nn` with torch {version('torch')} and transformers {version('transformers')} on",
            f"{machine()}; the best of {rounds} rounds of four steps.",
            "",
        ]
    )


main()
