"""How many steps the fine-tuned model needs, on pairs of STS-B's training part that maps are not learned from.

python bench/learned/fine_tuned_steps.py [--steps 800 1600 3200] [--seeds 2]

The model itself was fine-tuned on all pairs, so its score is higher than on the development set, which run.py uses.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from finetuned import finetuned, inputs, score
from run import FINE_TUNED, FULL, ROOT, Bench
from subject import Subject
from whole import every_kind

HELD_OUT = 900


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("FAVOR_DATA"))
    parser.add_argument("--steps", type=int, nargs="+", default=[800, 1600, 3200])
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    if options.data is None:
        raise SystemExit("set FAVOR_DATA to the folder that holds glue/STS-B")
    bench = Bench(options.data, FULL, ROOT / "target" / "learned" / f"{FULL.steps}-steps")
    tokenizer, pairs = bench.subject.tokenizer, bench.pairs("train")
    model = finetuned(pairs, tokenizer, bench.models / "fine-tuned", FULL.epochs)
    subject = Subject(model)
    texts = inputs(tokenizer, tuple(part[:-HELD_OUT] for part in pairs))
    held_out = tuple(part[-HELD_OUT:] for part in pairs)
    measure = lambda: score(model, tokenizer, held_out)  # noqa: E731
    print(f"exact: {100 * measure():.1f}", flush=True)
    for steps in options.steps:
        for seed in range(options.seeds):
            how = {"steps": steps, "seed": seed, "with_controls": False}
            found = every_kind(subject, texts, FINE_TUNED, measure, **how)
            print(f"{steps} steps, seed {seed}: {100 * found['learned']:.1f}", flush=True)


if __name__ == "__main__":
    main()
