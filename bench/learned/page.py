"""The page of what was measured."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from kinds import TITLES, Setting


def cell(values: list[float], digits: int = 1, factor: float = 100) -> str:
    """The mean, and the standard deviation if there are several."""
    if not values:
        return "–"
    text = f"{factor * np.mean(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {factor * np.std(values, ddof=1):.{digits}f}"


def table(rows: dict[str, list[dict]], figure: Callable[[Any], float], **how: Any) -> str:
    """One row per title; one column per kind that any row has."""
    every = {kind for runs in rows.values() for run in runs for kind in run}
    kinds = [kind for kind in TITLES if kind in every]
    lines = [
        "| | " + " | ".join(TITLES[kind] for kind in kinds) + " |",
        "|---" * (len(kinds) + 1) + "|",
    ]
    for title, runs in rows.items():
        cells = [cell([figure(r[kind]) for r in runs if kind in r], **how) for kind in kinds]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def machine() -> str:
    names = [x for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x]
    return names[0].split(":")[1].strip() if names else platform.processor()


def page(
    figures: dict, heads: list[Setting], model: Setting, task: Setting, tuned: Setting, sizes, seeds
) -> str:
    speed = figures["speed"]
    sources = next(iter(figures["model"][0].values()))
    of_models = {
        f"{source}: {title}": (source, key, digits, factor)
        for source in sources
        for key, title, digits, factor in (
            ("cosine", "cosine", 4, 1),
            ("tokens", "error of tokens, %", 1, 100),
        )
    }
    models = [
        table({title: figures["model"]}, lambda x, s=source, k=key: x[s][k], digits=d, factor=f)
        for title, (source, key, d, f) in of_models.items()
    ]
    # One head, then the rows of all.
    models = "\n".join([models[0], *(m.splitlines()[2] for m in models[1:])])
    exact = {name: 100 * figures[name][0]["exact"] for name in ("task", "fine-tuned")}
    tasks = table(
        {f"{task}": figures["task"], f"fine-tuned, {tuned}": figures["fine-tuned"]}, lambda x: x
    )
    errors = table({str(s): [run[str(s)] for run in figures["heads"]] for s in heads}, np.mean)
    return f"""# What learned maps are worth

The attention of all-MiniLM-L6-v2 (6 layers of 12 heads of dimension 32), replaced in many ways. The weights of the
model stay as they are. Maps are learned with {sizes.steps} steps. *Drawn* is the closed form, `balanced`, with the same features
and the same exact keys. Figures with ± are means and standard deviations over {seeds} seeds, the others are of one.

What stands beside: the exact keys without features; an exact window that takes as many operations; Hedgehog's form
`[exp(Wx), exp(−Wx)]` (arXiv 2402.04347) with the same number of features and the same exact keys, learned as long on the
same data by autograd, routed by its own slots; the learned features with as many global keys as there are members, chosen
as LoLA does (arXiv 2505.23666), in place of these; Nyström landmarks (Xiong et al., 2021), so many that they take as many
operations, with the pseudoinverse cut off where that was best on the data that are learned from; the plain mean of the values.

## Heads

The relative error of a head's output in %, on {sizes.heads} sequences of {sizes.head_length} tokens of WikiText-2 (test), mean over all
heads. Queries, keys and values are those of the exact model; all that is learned knows {sizes.train} sequences of the validation
part, of which a quarter is held out.

{errors}

## The whole model

All heads of all layers replaced at once, {model}; {sizes.texts} texts of {sizes.length} tokens of each kind. Maps know
sequences of the validation part of WikiText-2 alone.

{models}

## A task

STS-B, Spearman correlation with people's scores on the development set, times 100. First without fine-tuning: mean of the
token vectors, cosine; exact attention has **{exact["task"]:.1f}**. Then a model that is fine-tuned with exact attention ({sizes.epochs} epochs,
both sentences as one input) and whose attention is replaced afterwards; before, it has **{exact["fine-tuned"]:.1f}**. Sentences are so short
that a window of the same cost sees nearly all of a text: at such lengths exact attention is no more work.

{tasks}

## Time

All 72 heads with {sizes.steps} steps of 4 × {sizes.head_length} tokens, {heads[0]}: {speed["ours"]:.0f} s, {speed["torch"] / speed["ours"]:.1f} × faster than
the same form and steps in PyTorch {version("torch").split("+")[0]} by autograd ({speed["threads"]} threads, {machine()}; taking turns, best of {sizes.rounds}; ours measures held-out
sequences on the way, PyTorch's does not).

Made by `python bench/learned/run.py --seeds {seeds} --steps {sizes.steps}` with transformers {version("transformers")}.
"""
