"""What attention on CPU tensors costs over the Rust engine alone.

The `favor bench` command and `favor_attention` take turns on the same work, and the best time of each counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time

import torch

from favor_sharp.torch import favor_attention, fit_maps

HEADS, DIM, FEATURES = 8, 64, 128
# Seconds for which short work is repeated, as `favor bench` does.
LEAST = 0.5


def engine(favor: str, work: str, length: int, threads: int, runs: int) -> float:
    command = [favor, "bench", "--json", "--work", work, "--length", str(length)]
    command += ["--features", str(FEATURES), "--threads", str(threads)]
    command += ["--runs", str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)[0]["seconds"]


def inputs(length: int) -> list[torch.Tensor]:
    """A table of normals, walked through at odd steps: data as `favor bench` has them."""
    table = torch.randn(65_537, generator=torch.Generator().manual_seed(0))
    places = torch.arange(HEADS * length * DIM)
    steps = ((7919, 0.35), (104_729, 0.35), (1_299_709, 1.0))
    return [(s * table[places * p % len(table)]).view(1, HEADS, length, DIM) for p, s in steps]


@torch.inference_mode()
def package(length: int, causal: bool, runs: int) -> float:
    q, k, v = inputs(length)
    maps = fit_maps(q[:, :1, :4096], k[:, :1, :4096], features=FEATURES)
    favor_attention(q, k, v, maps=maps, is_causal=causal)
    times: list[float] = []
    while len(times) < runs or sum(times) < LEAST:
        start = time.perf_counter()
        favor_attention(q, k, v, maps=maps, is_causal=causal)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--favor", required=True, help="the favor command, built with --release")
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--runs", type=int, default=10, help="of each in a round")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print("| work | length | engine, ms | favor_attention, ms | over |\n|---|---|---|---|---|")
    for work, causal in (("forward", False), ("causal", True)):
        for length in options.lengths:
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(options.rounds):
                times[0].append(engine(options.favor, work, length, options.threads, options.runs))
                times[1].append(package(length, causal, options.runs))
            ours, theirs = min(times[1]), min(times[0])
            print(
                f"| {work} | {length} | {1e3 * theirs:.2f} | {1e3 * ours:.2f} | {100 * (ours / theirs - 1):+.1f} % |"
            )


if __name__ == "__main__":
    main()
