"""What learned maps are worth in a pretrained MiniLM: for its heads, for the whole model, and for a task.

Writes docs/learned-results.md, and the figures behind it to docs/learned-results/. Needs the packages of
requirements.txt, the wheel of this project, and in the folder that FAVOR_DATA names
text/wikitext2_{valid,test}.txt.gz, text/sotu_233_addresses.txt.tar.xz and glue/STS-B/{train,dev}.tsv.gz. With
--quick everything is tiny, and the page goes to the screen.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from controls import Keys
from finetuned import EPOCHS, finetuned, inputs, score
from heads import heads
from kinds import Setting
from page import page
from speed import speed
from subject import Subject
from texts import addresses, sentence_pairs, wikitext, windows
from whole import distances, every_kind, similarity, states

ROOT = Path(__file__).resolve().parent.parent.parent
HEADS = [
    Setting(64, Keys(near=16)),
    Setting(64, Keys(near=16, routed=(4, 8))),
    Setting(32),
]
MODEL = Setting(64, Keys(near=16, routed=(4, 16)))
TASK = Setting(32)
FINE_TUNED = Setting(64)
PARTS = ["fine-tuned", "model", "heads", "task", "speed"]


@dataclass
class Sizes:
    """How much is learned from and measured on."""

    steps: int
    # Sequences that are learned from, and measured on: of heads, of the model, pairs of sentences.
    train: int
    heads: int
    texts: int
    pairs: int | None
    epochs: int = EPOCHS
    # Tokens of a sequence: of heads, of the model.
    head_length: int = 256
    length: int = 512
    rounds: int = 2

    @property
    def fine_tuned_steps(self) -> int:
        """Twice as many for the fine-tuned model, whose heads are the hardest."""
        return 2 * self.steps


FULL = Sizes(steps=800, train=400, heads=40, texts=64, pairs=None)
QUICK = Sizes(
    steps=3, train=4, heads=2, texts=2, pairs=64, epochs=1, head_length=64, length=64, rounds=1
)


class Bench:
    """The data, and what was measured."""

    def __init__(self, data: Path, sizes: Sizes, folder: Path) -> None:
        self.data, self.sizes, self.folder = data, sizes, folder
        self.models = ROOT / "target" / "learned" / folder.name
        self.subject = Subject()
        folder.mkdir(parents=True, exist_ok=True)

    def kept(self, key: str) -> bool:
        """Whether an earlier run has measured it."""
        return (self.folder / f"{key}.json").exists()

    def measured(self, key: str, measure: Callable[[], Any]) -> Any:
        """What an earlier run has found, or is measured now."""
        file = self.folder / f"{key}.json"
        if not self.kept(key):
            print(key, flush=True)
            start = time.perf_counter()
            file.write_text(json.dumps(measure(), indent=1))
            print(f"{key}: {time.perf_counter() - start:.0f} s", flush=True)
        return json.loads(file.read_text())

    def windows(self, part: str, length: int, most: int) -> list[dict]:
        return windows(self.subject.tokenizer, wikitext(self.data, part), length, most)

    def heads(self, seed: int) -> dict:
        sizes = self.sizes
        train = self.windows("valid", sizes.head_length, sizes.train)
        test = self.windows("test", sizes.head_length, sizes.heads)
        return heads(self.subject, train, test, HEADS, sizes.steps, seed, seed == 0)

    def model(self, seed: int) -> dict:
        """How far embeddings and tokens are from those of the exact model."""
        sizes, subject = self.sizes, self.subject
        sources = {
            "WikiText-2": wikitext(self.data, "test"),
            "State of the Union": addresses(self.data),
        }
        unseen = {
            source: windows(subject.tokenizer, all, sizes.length, sizes.texts)
            for source, all in sources.items()
        }
        subject.exact()
        exact = {source: states(subject, all) for source, all in unseen.items()}
        train = self.windows("valid", sizes.length, sizes.train)
        measure = lambda: distances(subject, unseen, exact)  # noqa: E731
        how = {"steps": sizes.steps, "seed": seed, "with_controls": seed == 0}
        return every_kind(subject, train, MODEL, measure, **how)

    def pairs(self, part: str) -> tuple:
        return tuple(x[: self.sizes.pairs] for x in sentence_pairs(self.data, part))

    def task(self, seed: int) -> dict:
        """Spearman correlation on the development set of STS-B, without fine-tuning."""
        subject, dev = self.subject, self.pairs("dev")
        left, right, _ = self.pairs("train")
        sentences = sorted({*left, *right})
        subject.exact()
        exact = similarity(subject, dev)
        how = {"steps": self.sizes.steps, "seed": seed, "with_controls": seed == 0}
        measure = lambda: similarity(subject, dev)  # noqa: E731
        return {"exact": exact, **every_kind(subject, sentences, TASK, measure, **how)}

    def fine_tuned(self, seed: int) -> dict:
        """The same of a model that was fine-tuned exactly."""
        tokenizer, dev, train = self.subject.tokenizer, self.pairs("dev"), self.pairs("train")
        model = finetuned(train, tokenizer, self.models / "fine-tuned", self.sizes.epochs)
        subject = Subject(model)
        measure = lambda: score(model, tokenizer, dev)  # noqa: E731
        exact = measure()
        steps = self.sizes.fine_tuned_steps
        how = {"steps": steps, "seed": seed, "with_controls": seed == 0}
        texts = inputs(tokenizer, train)
        return {"exact": exact, **every_kind(subject, texts, FINE_TUNED, measure, **how)}

    def speed(self) -> dict:
        sizes = self.sizes
        train = self.windows("valid", sizes.head_length, sizes.train)
        return speed(self.subject, train, HEADS[0], sizes.steps, sizes.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("FAVOR_DATA"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="steps of learning")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PARTS,
        help="measure these parts, keep their figures and write no page",
    )
    parser.add_argument(
        "--page", action="store_true", help="measure nothing, write the page of the figures kept"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "learned-results.md")
    parser.add_argument(
        "--folder",
        type=Path,
        default=ROOT / "docs" / "learned-results",
        help="keeps figures here, and reuses those found",
    )
    options = parser.parse_args()
    if options.data is None:
        raise SystemExit("set FAVOR_DATA to the folder that holds text and glue/STS-B")
    sizes = QUICK if options.quick else FULL
    if options.steps is not None:
        sizes.steps = options.steps
    folder = ROOT / "target" / "learned" if options.quick else options.folder
    folder = folder / ("quick" if options.quick else f"{sizes.steps}-steps")
    bench = Bench(options.data, sizes, folder)
    of_a_seed = {
        "fine-tuned": bench.fine_tuned,
        "model": bench.model,
        "heads": bench.heads,
        "task": bench.task,
    }
    figures: dict[str, Any] = {}
    for part in options.only or PARTS:
        measures = {part: bench.speed}
        if part != "speed":
            of_seed = of_a_seed[part]
            measures = {f"{part}-{seed}": partial(of_seed, seed) for seed in range(options.seeds)}
        if options.page:
            measures = {key: m for key, m in measures.items() if bench.kept(key)}
        found = [bench.measured(key, measure) for key, measure in measures.items()]
        figures[part] = found[0] if part == "speed" and found else found
    if options.only:
        return
    text = page(figures, HEADS, MODEL, TASK, FINE_TUNED, sizes, options.seeds)
    if options.quick:
        print(text)
    else:
        options.out.write_text(text, encoding="utf-8")
        print(f"wrote {options.out.name}")


if __name__ == "__main__":
    main()
