"""Time and memory of `favor embed` on one long document, with exact attention and with features.

The document is made of State of the Union addresses (text/sotu_233_addresses.txt.tar.xz in the folder that
FAVOR_DATA names), cut to each length. Writes docs/long-inputs.md. Only the standard library is needed.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LENGTHS = [512, 2048, 8192, 16384, 32768]
KINDS = [("exact", 1), ("balanced", 128), ("balanced", 256)]
WORDS = 60_000


def document(data: Path) -> str:
    words: list[str] = []
    with tarfile.open(data / "text" / "sotu_233_addresses.txt.tar.xz") as archive:
        for member in sorted(archive.getmembers(), key=lambda m: m.name, reverse=True):
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None and len(words) < WORDS:
                words += file.read().decode("utf-8", "replace").split()
    return " ".join(words)


def run(command: list[str]) -> tuple[float, float, list[float]]:
    """Seconds, peak memory in MiB, and the vector that was printed."""
    with tempfile.TemporaryFile("w+") as out:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        if status != 0:
            raise SystemExit(f"failed: {' '.join(command)}\n{process.stderr.read()}")
        out.seek(0)
        return seconds, usage.ru_maxrss / 1024, [float(v) for v in out.read().split()]


def cosine(a: list[float], b: list[float]) -> float:
    product = sum(x * y for x, y in zip(a, b, strict=True))
    return product / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def exponent(times: dict[int, float]) -> float:
    """The slope of the logarithms between the two longest."""
    (short, a), (long, b) = sorted(times.items())[-2:]
    return math.log(b / a) / math.log(long / short)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--favor", required=True, help="the favor command, built with nn")
    parser.add_argument("--model", required=True, help="folder of a BERT")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "long-inputs.md")
    options = parser.parse_args()
    data = Path(os.environ.get("FAVOR_DATA", "data"))
    best: dict[tuple[str, int, int], tuple[float, float]] = {}
    vectors: dict[tuple[str, int, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "document.txt"
        text.write_text(document(data))
        for _ in range(options.rounds):
            for length in LENGTHS:
                for kind, features in KINDS:
                    command = [
                        options.favor,
                        "embed",
                        "--model",
                        options.model,
                        "--whole",
                        str(text),
                    ]
                    command += ["--length", str(length), "--attention", kind]
                    seconds, memory, vector = run([*command, "--features", str(features)])
                    key = (kind, features, length)
                    before = best.get(key, (math.inf, math.inf))
                    best[key] = (min(seconds, before[0]), min(memory, before[1]))
                    vectors[key] = vector
                    print(
                        f"{kind} {features} {length}: {seconds:.2f} s, {memory:.0f} MiB", flush=True
                    )
    options.out.write_text(page(best, vectors, options.rounds))
    print(f"wrote {options.out}")


def page(best: dict, vectors: dict, rounds: int) -> str:
    names = ["exact", *(f"{kind}, M = {m}" for kind, m in KINDS[1:])]
    lines = [f"| tokens | {' | '.join(names)} |", "|---" * (len(KINDS) + 1) + "|"]
    likeness = ["| tokens | " + " | ".join(names[1:]) + " |", "|---" * len(KINDS) + "|"]
    for length in LENGTHS:
        cells = [
            f"{best[k, m, length][0]:.2f} s, {best[k, m, length][1]:.0f} MiB" for k, m in KINDS
        ]
        lines.append(f"| {length} | {' | '.join(cells)} |")
        exact = vectors["exact", 1, length]
        same = [f"{cosine(exact, vectors[k, m, length]):.4f}" for k, m in KINDS[1:]]
        likeness.append(f"| {length} | {' | '.join(same)} |")
    grows = [exponent({n: best[k, m, n][0] for n in LENGTHS}) for k, m in KINDS]
    grown = ", ".join(f"{g:.2f} ({name})" for name, g in zip(names, grows, strict=True))
    return "\n".join(
        [
            "# Long inputs",
            "",
            "`favor embed` on one document of State of the Union addresses, truncated to the given number of",
            "tokens, with a MiniLM of 6 layers of width 384 with 12 heads. Time and peak memory of the whole",
            "command, including startup and loading the model.",
            "",
            *lines,
            "",
            f"Between the two longest inputs, time grows as the length to the power of {grown}.",
            "",
            "MiniLM has 512 positions. Longer texts interpolate them, which the model was not trained for: the",
            "figures say what a length costs, not how good the vectors are. The cosine between the vectors of",
            "exact attention and of features:",
            "",
            *likeness,
            "",
            f"Made by `python bench/nn/long.py --favor target/release/favor --model minilm` on {os.cpu_count()} cores",
            f"({platform.machine()}); best of {rounds} round{'s' * (rounds > 1)}.",
            "",
        ]
    )


main()
