"""Error against time on the heads of a pretrained MiniLM, for every way to attend.

Writes docs/benchmarks-quality.md and its picture. Needs the packages of requirements.txt, the wheel of this
project, and text/wikitext2_{valid,test}.txt.gz in the folder that FAVOR_DATA names.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import re
import sys
import time
from importlib.metadata import version
from pathlib import Path

import torch

from favor_sharp._native import write_atomically

# An isolated interpreter does not look beside the program.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from heads import Heads
from ways import ways

ROOT = Path(__file__).resolve().parent.parent.parent
THREADS = 2
# Maps are fitted and learned on sequences of this length, and used at every length.
LEARNED_LENGTH = 256
LAYERS = (0, 3)
PEER = "exact, SDPA"


def error(ours: torch.Tensor, exact: torch.Tensor) -> float:
    """Relative error of the outputs, the mean over heads."""
    difference, norm = (x.double().square().sum((0, 2, 3)) for x in (ours - exact, exact))
    return float((difference / norm).sqrt().mean())


def front(points: dict[str, tuple[float, float]]) -> list[str]:
    """The names of those that nothing else beats in both time and error, to the digits shown."""
    best, names = math.inf, []
    for name, (_, wrong) in sorted(points.items(), key=lambda p: p[1]):
        wrong = round(wrong, 4)
        if wrong < best:
            best = wrong
            names.append(name)
    return names


def group(name: str) -> str:
    """What it is called without its number of features or keys."""
    return re.sub(r"(, | ±)\d+$", "", name)


def measure(heads: Heads, length: int, a: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Time and error of every way, the mean over layers."""
    count = max(1, a.tokens // length)
    train = heads.of("valid", LEARNED_LENGTH, a.sequences)
    test = heads.of("test", length, count)
    found: dict[str, list[tuple[float, float]]] = {}
    for layer in LAYERS:
        q, k, v = (x.contiguous() for x in test[layer])
        exact = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        one = [x[:1].contiguous() for x in (q, k, v)]
        made = dict(ways(train[layer], a.features, a.steps))
        best = dict.fromkeys(made, math.inf)
        for _ in range(a.rounds):
            for name, attend in made.items():
                start = time.perf_counter()
                attend(*one)
                best[name] = min(best[name], time.perf_counter() - start)
        for name, attend in made.items():
            wrong = error(attend(q, k, v), exact)
            found.setdefault(name, []).append((best[name], wrong))
            print(length, layer, name, f"{best[name] * 1e3:.2f} ms", f"{wrong:.4f}", flush=True)
    mean = lambda n: sum(n) / len(n)  # noqa: E731
    return {name: (mean([t for t, _ in f]), mean([e for _, e in f])) for name, f in found.items()}


def plot(path: Path, all_points: dict[int, dict[str, tuple[float, float]]]) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    matplotlib.rcParams["svg.hashsalt"] = "favor"
    figure, axes = plt.subplots(
        1, len(all_points), figsize=(4 * len(all_points) + 2, 4.4), sharey=True, squeeze=False
    )
    figure.patch.set_facecolor("white")
    for axis, (length, points) in zip(axes[0], all_points.items(), strict=True):
        unit = points[PEER][0]
        shown = {name: (t / unit, max(e, 1e-3)) for name, (t, e) in points.items()}
        groups: dict[str, list[tuple[float, float]]] = {}
        for name, point in shown.items():
            groups.setdefault(group(name), []).append(point)
        best = [shown[name] for name in front(points)]
        axis.loglog(
            *zip(*best, strict=True),
            color="0.8",
            lw=6,
            solid_capstyle="round",
            zorder=0,
            label="the front",
        )
        for name, of_group in sorted(groups.items()):
            ours = name.startswith("learned")
            number = [n for n in sorted(groups) if n.startswith("learned") == ours].index(name)
            axis.loglog(
                *zip(*sorted(of_group), strict=True),
                marker="o" if ours else "sv^D<>pX"[number % 8],
                color=("C0", "C1", "C3")[number % 3] if ours else str(0.2 + 0.05 * number),
                ms=7 if ours else 5,
                lw=1.5 if ours else 0.8,
                label=name,
            )
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 3), numticks=9))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_title(f"{length} tokens")
        axis.set_xlabel("time, relative to PyTorch's SDPA")
        axis.grid(True, alpha=0.2)
    axes[0][0].set_ylabel("relative error of the outputs (exact drawn at 0.001)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center right", frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0, 1 - 2 / (4 * len(all_points) + 2), 1))
    figure.savefig(path, metadata={"Date": None})


def machine() -> str:
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [l for l in info.read_text().splitlines() if l.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    return f"{model}, {THREADS} threads, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 4096, 16384])
    parser.add_argument("--features", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--steps", type=int, default=800, help="steps of learning")
    parser.add_argument("--sequences", type=int, default=200, help="sequences to learn from")
    parser.add_argument("--tokens", type=int, default=16384, help="tokens to measure errors on")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of timing; the best counts")
    a = parser.parse_args()
    data = os.environ.get("FAVOR_DATA")
    if not data:
        raise SystemExit("set FAVOR_DATA to the folder that has text/wikitext2_test.txt.gz")
    torch.set_num_threads(THREADS)
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    heads = Heads(Path(data))
    all_points = {length: measure(heads, length, a) for length in a.lengths}
    names = ["torch", "transformers", "performer-pytorch"]
    text = [
        "# Error against time\n",
        "Written by `cargo xtask bench quality`. The heads of layers "
        f"{' and '.join(map(str, LAYERS))} of a pretrained MiniLM (12 heads of dimension 32 each) on WikiText-2 test; "
        f"maps are fitted and learned ({a.steps} steps) on {a.sequences} sequences of {LEARNED_LENGTH} tokens of its validation "
        "part. The model has 512 positions; longer texts reuse them from the start. Speed is for one sequence, relative to "
        f"PyTorch's `scaled_dot_product_attention`: taking turns, best of {a.rounds}. The error is that of the output relative to "
        "exact attention, mean over heads.\n",
        f"Machine: {machine()}. Peers: {', '.join(f'{n} {version(n)}' for n in names)}.\n",
        "![error against time](benchmarks-quality.svg)\n",
    ]
    for length, points in all_points.items():
        best = front(points)
        text += [
            f"## L = {length}\n",
            "| | faster than SDPA by | error | on the front |",
            "|---|---|---|---|",
        ]
        for name, (seconds, wrong) in sorted(points.items(), key=lambda p: p[1]):
            mark = "**yes**" if name in best else ""
            text.append(f"| {name} | {points[PEER][0] / seconds:.2f} × | {wrong:.4f} | {mark} |")
        text.append("")
    plot(a.out / "benchmarks-quality.svg", all_points)
    write_atomically(a.out / "benchmarks-quality.md", "\n".join(text).encode())


if __name__ == "__main__":
    main()
