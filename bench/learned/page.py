"""The page of what was measured."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from controls import CUT
from kinds import RATE, TITLES, Setting


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


def of_heads(figures: dict, settings: list[Setting], sizes) -> str:
    errors = table({str(s): [run[str(s)] for run in figures["heads"]] for s in settings}, np.mean)
    return f"""## Heads

Relative error of a head's output in %, mean over all 72 heads, on {sizes.heads} sequences of {sizes.head_length} tokens from the test part of WikiText-2.
Queries, keys and values are those of the exact model. Everything learned saw {sizes.train} sequences of the validation part; our
maps hold out a quarter of them to stop early, Hedgehog's form learns from all.

{errors}
"""


def of_model(figures: dict, setting: Setting, sizes) -> str:
    sources = next(iter(figures["model"][0].values()))
    rows = {
        f"{source}: {title}": (source, key, digits, factor)
        for source in sources
        for key, title, digits, factor in (
            ("cosine", "cosine", 4, 1),
            ("tokens", "error of tokens, %", 1, 100),
        )
    }
    tables = [
        table({title: figures["model"]}, lambda x, s=source, k=key: x[s][k], digits=d, factor=f)
        for title, (source, key, d, f) in rows.items()
    ]
    # One head, then the rows of all.
    models = "\n".join([tables[0], *(t.splitlines()[2] for t in tables[1:])])
    return f"""## The whole model

All heads of all layers at once, {setting}, on {sizes.texts} texts of {sizes.length} tokens from each source: the cosine between the
mean token vector and that of the exact model, and the relative error of the token vectors. Maps were learned on the
validation part of WikiText-2, so the State of the Union addresses are entirely new to them.

{models}
"""


def of_tasks(figures: dict, task: Setting, tuned: Setting, sizes) -> str:
    exact = {name: 100 * figures[name][0]["exact"] for name in ("task", "fine-tuned")}
    tasks = table(
        {f"{task}": figures["task"], f"fine-tuned, {tuned}": figures["fine-tuned"]}, lambda x: x
    )
    return f"""## A task

STS-B: Spearman correlation with human scores on the development set, × 100. The first row is without fine-tuning: mean of the
token vectors, then cosine. Exact attention reaches **{exact["task"]:.1f}**. The second row is a model fine-tuned with exact attention
({sizes.epochs} epochs, both sentences in one input), which reaches **{exact["fine-tuned"]:.1f}** before its attention is replaced; its maps and
Hedgehog's are learned in {sizes.fine_tuned_steps} steps, a number that was doubled after looking at this same development set, so the row
is not a test on unseen data. On 900 training pairs held out from learning, more steps did not help (`bench/learned/fine_tuned_steps.py`, by
seeds: 87.7 with 800 steps, 86.7 and 87.3 with 1600, 87.0 with 3200; exact attention has 96.4 there, since it was fine-tuned on those pairs). The sentences are so short that a window of the same cost covers nearly all of them: at such
lengths, exact attention costs no more.

{tasks}
"""


def of_speed(figures: dict, setting: Setting, sizes) -> str:
    speed = figures["speed"]
    return f"""## Time

Learning the maps of all 72 heads, {setting}, {sizes.steps} steps of 4 × {sizes.head_length} tokens: **{speed["ours"]:.0f} s**, {speed["torch"] / speed["ours"]:.1f} × faster than
as many steps by autograd in PyTorch {version("torch").split("+")[0]} (PyTorch's time is extrapolated from a twentieth of the steps; {speed["threads"]} threads,
{machine()}; taking turns, best of {sizes.rounds}). The comparison favours PyTorch, whose form has no quadratic row terms and no error
of outputs in its loss, and which measures nothing on held-out sequences.
"""


def page(
    figures: dict, heads: list[Setting], model: Setting, task: Setting, tuned: Setting, sizes, seeds
) -> str:
    """One section for each part that was measured."""
    sections = {
        ("heads",): lambda: of_heads(figures, heads, sizes),
        ("model",): lambda: of_model(figures, model, sizes),
        ("task", "fine-tuned"): lambda: of_tasks(figures, task, tuned, sizes),
        ("speed",): lambda: of_speed(figures, heads[0], sizes),
    }
    found = [write() for parts, write in sections.items() if all(figures.get(p) for p in parts)]
    absent = [part for parts in sections for part in parts if not figures.get(part)]
    note = f"\nNot measured yet: {', '.join(absent)}." if absent else ""
    spread = (
        f"Figures with ± are means and standard deviations over {seeds} seeds; those without were measured with\nseed 0."
        if seeds > 1
        else "One seed."
    )
    body = "\n".join(found)
    return f"""# Learned maps: results

The attention of all-MiniLM-L6-v2 (6 layers of 12 heads of dimension 32) is replaced; its weights stay the same. Maps are
learned in {sizes.steps} steps. {spread}{note}

The controls, each on the same data:

- **drawn**: the closed form, `balanced`, with the same number of features and the same exact keys;
- **exact keys alone**: the same exact keys without features;
- **window alone, same cost**: an exact window with the same number of operations;
- **Hedgehog's form**: `[exp(Wx), exp(−Wx)]` (arXiv 2402.04347), learned by autograd with the same number of steps
  and tokens from the same sequences, and the same numbers of features and exact keys. It minimises the divergence
  alone, as published, with the window in place; routed keys are added afterwards, by its own slots;
- **global keys (LoLA)**: the learned features with the same number of global keys instead of members, chosen as in LoLA
  (arXiv 2505.23666);
- **Nyström, same cost**: landmarks (Xiong et al., 2021) with the same number of operations;
- **plain mean** of the values.

Two settings of the controls were compared with others by `python bench/learned/control_settings.py`, on held-out sequences
of layer 3 from the validation part: Hedgehog's learning rate, {RATE} (with M = 64 and a window of ±16, 0.02 to 0.4 have errors of
19.1, 17.8, 17.2, 17.0 and 23.0 %, with M = 32 36.4, 35.8, 36.0, 36.0 and 40.8 %: within 1 % of the best), and the singular
values that the pseudoinverse of Nyström's landmarks drops, those below {CUT} of the largest, the best of 0.0001 to 0.3.

{body}
Measured by `python bench/learned/run.py --seeds {seeds} --steps {sizes.steps}` with transformers {version("transformers")}.
"""
