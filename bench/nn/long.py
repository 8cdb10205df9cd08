"""A long document through a MiniLM: exact attention, features drawn for it, converted models, and PyTorch.

    favor convert --model minilm --texts wiki.txt.gz --near 16 --routed 4x8 --length 512 --out routed
    favor convert --model minilm --texts wiki.txt.gz --near 64 --features 8 --exact-alone --skip learn,maps,values,weights \\
        --length 512 --out window
    python bench/nn/long.py --favor favor --model minilm --converted "learned=routed" "window ±64=window"

The document is made of State of the Union addresses (text/sotu_233_addresses.txt.tar.xz in the folder that
FAVOR_DATA names), cut to each length. Times and memory are those of a whole ``favor embed``, and of a pass of
PyTorch's model without its start (``--python`` names an interpreter with torch and transformers). Writes what was
measured to a file, so that a length or a model more can be measured later, and prints the tables of
docs/long-inputs.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import tempfile
import time
from pathlib import Path

from _speeches import speeches

HERE = Path(__file__).resolve().parent
LENGTHS = [512, 2048, 8192, 16384, 32768]
WORDS = 60_000
TORCH = "PyTorch, SDPA"


def document(data: Path) -> str:
    """The words of the latest speeches."""
    words: list[str] = []
    for _, text in sorted(speeches(data), reverse=True):
        if len(words) < WORDS:
            words += text.split()
    return " ".join(words)


def run(command: list[str]) -> tuple[float, float, str]:
    """Seconds, peak memory in MiB, and what was printed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as problems:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=problems, text=True)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        if status != 0:
            problems.seek(0)
            raise SystemExit(f"failed: {' '.join(command)}\n{problems.read()}")
        out.seek(0)
        return seconds, usage.ru_maxrss / 1024, out.read()


def cosine(a: list[float], b: list[float]) -> float:
    product = sum(x * y for x, y in zip(a, b, strict=True))
    return product / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def measure(options: argparse.Namespace, found: dict[str, dict]) -> None:
    """Adds to what was found: seconds, MiB and vector, by model and length."""
    converted = dict(pair.split("=", 1) for pair in options.converted)
    embed = [options.favor, "embed", "--whole"]
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "document.txt"
        text.write_text(document(Path(os.environ.get("FAVOR_DATA", "data"))))
        models = {"exact": [*embed, "--model", options.model, "--attention", "exact"]}
        for m in options.drawn:
            drawn = ["--attention", "balanced", "--features", str(m)]
            models[f"balanced, M = {m}"] = [*embed, "--model", options.model, *drawn]
        models |= {name: [*embed, "--model", place] for name, place in converted.items()}
        for length in options.lengths:
            for _ in range(options.rounds):
                runs = {
                    name: [*command, "--length", str(length), str(text)]
                    for name, command in models.items()
                }
                if options.python:
                    peer = [options.python, str(HERE / "long_peer.py"), options.model]
                    runs[TORCH] = [*peer, str(text), str(length)]
                for name, command in runs.items():
                    seconds, memory, said = run(command)
                    lines = said.strip().split("\n")
                    if name == TORCH:
                        seconds = float(lines[0])
                    one = found.setdefault(name, {}).setdefault(
                        str(length), {"seconds": math.inf, "memory": math.inf}
                    )
                    one["seconds"] = min(seconds, one["seconds"])
                    one["memory"] = min(memory, one["memory"])
                    one["vector"] = [float(v) for v in lines[-1].split()]
                    print(f"{name} {length}: {seconds:.2f} s, {memory:.0f} MiB", flush=True)


def tables(found: dict[str, dict]) -> str:
    names = list(found)
    lengths = sorted({int(n) for runs in found.values() for n in runs})

    def table(title: str, names: list[str], cell) -> list[str]:
        lines = [f"| {title} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
        for n in lengths:
            row = [cell(name, str(n)) if str(n) in found[name] else "–" for name in names]
            lines.append(f"| {n} | {' | '.join(row)} |")
        return lines

    def cost(name: str, n: str) -> str:
        return f"{found[name][n]['seconds']:.2f} s, {found[name][n]['memory']:.0f} MiB"

    def likeness(name: str, n: str) -> str:
        return f"{cosine(found['exact'][n]['vector'], found[name][n]['vector']):.4f}"

    others = [name for name in names if name != "exact"]
    return "\n".join([*table("tokens", names, cost), "", *table("cosine", others, likeness)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--favor", required=True, help="the favor command, built with nn")
    parser.add_argument("--model", required=True, help="folder of the exact model")
    parser.add_argument("--converted", nargs="*", default=[], metavar="NAME=DIR")
    parser.add_argument("--drawn", nargs="*", type=int, default=[], metavar="M")
    parser.add_argument("--python", help="an interpreter with torch and transformers")
    parser.add_argument("--lengths", nargs="*", type=int, default=LENGTHS)
    parser.add_argument("--rounds", type=int, default=1, help="the best of so many counts")
    parser.add_argument("--out", type=Path, default=Path("long-inputs.json"))
    options = parser.parse_args()
    found = json.loads(options.out.read_text()) if options.out.exists() else {}
    measure(options, found)
    options.out.write_text(json.dumps(found))
    print(tables(found))


main()
