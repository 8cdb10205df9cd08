"""A trained model with attention by features: maps learned from it, and weights trained towards it."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ._calibration import FILE, Calibration, _batches, _save, calibrate
from ._learn import Progress, unless_quiet
from ._native import LEARN_STEPS, write_atomically

# The weight of the last state's squared error, relative to the mean over the layers. The command weighs the output
# instead, which is a vector per text or the answer of a task.
LAST_STATE = 10.0
# One in so many batches is held out.
HELD_OUT = 10
# Looks at held-out texts, and how many in a row without a new least loss end the training.
LOOKS, PATIENCE = 10, 3


@dataclass
class Conversion:
    """What came of a conversion; ``print`` it. Errors are of the states after each layer, relative to the
    exact model's, on held-out texts: with the exact model's weights, and at the end."""

    calibration: Calibration
    before: float
    after: float
    steps: int
    folder: Path | None

    def __str__(self) -> str:
        where = f"saved to {self.folder}" if self.folder else "not saved: give out="
        return (
            f"{self.calibration.features} features per head: error of the states {100 * self.before:.1f} % "
            f"with the exact model's weights, {100 * self.after:.1f} % after {self.steps} steps\n{where}"
        )


def convert(
    model: nn.Module,
    texts: Sequence[str] | Iterable[dict[str, Tensor]],
    *,
    out: str | os.PathLike[str] | None = None,
    tokenizer: Any = None,
    features: int = 64,
    near: int = 0,
    global_keys: int = 0,
    routed: tuple[int, int] | None = None,
    learn_steps: int = LEARN_STEPS,
    steps: int = 1200,
    rate: float = 2e-4,
    batch_size: int = 16,
    seed: int = 0,
    quiet: bool = False,
    progress: Progress = None,
) -> Conversion:
    """Converts a model to learned features, in place. Needs texts but no labels.

    The original model, with exact attention, is the teacher. Every head learns a map from its own queries
    and keys; then all weights are trained to match the teacher's hidden states, until held-out texts no
    longer improve. The command ``favor convert`` also trains the maps along with the weights, can resume,
    and converts models for a task.

    texts: strings, or batches of model inputs as returned by a tokenizer; at least two batches.
    out: a folder for the model and its maps, which ``favor_sharp.hf.load`` and ``favor embed`` open.
    features, near, global_keys, routed, learn_steps: as in ``calibrate(learn=True, steps=...)``.
    steps, rate: steps and learning rate of the weights; 0 steps leave them unchanged.
    progress: reports the steps of learning, as in ``calibrate``.
    """
    if steps < 0 or rate <= 0:
        raise ValueError(
            f"steps {steps}, rate {rate}: steps must not be negative, the rate positive"
        )
    was_training = model.training
    model.eval()
    batches = list(_batches(model, texts, tokenizer, batch_size))
    if len(batches) < 2:
        raise ValueError("texts: at least two batches are needed, so that one can be held out")
    teacher = copy.deepcopy(model)
    held = batches[HELD_OUT // 2 :: HELD_OUT] or batches[-1:]
    kept = {id(batch) for batch in held}
    train = [batch for batch in batches if id(batch) not in kept]
    calibration = calibrate(
        model,
        train,
        features=features,
        seed=seed,
        near=near,
        global_keys=global_keys,
        routed=routed,
        learn=True,
        steps=learn_steps,
        auto=False,
        short_is_exact=False,
        save=False,
        quiet=True,
        progress=unless_quiet(progress, quiet),
    )
    before = _error(model, teacher, held)
    made = _distil(model, teacher, (train, held), (steps, rate, seed)) if steps else 0
    after = _error(model, teacher, held)
    model.train(was_training)
    folder = None if out is None else Path(out)
    report = Conversion(calibration, before, after, made, folder)
    if folder is not None:
        _write(model, folder, tokenizer, report)
    if not quiet:
        print(report)
    return report


def _distances(model: nn.Module, teacher: nn.Module, batch: dict[str, Tensor]) -> list[Tensor]:
    """Squared errors of the states after each layer, relative to their squares; the last is the output's."""
    own = model(**batch, output_hidden_states=True).hidden_states[1:]
    with torch.no_grad():
        exact = teacher(**batch, output_hidden_states=True).hidden_states[1:]
    visible = batch.get("attention_mask")
    rows = slice(None) if visible is None else visible.bool()
    pairs = [(a[rows], b[rows]) for a, b in zip(own, exact, strict=True)]
    return [(a - b).square().sum() / b.square().sum() for a, b in pairs]


def _loss(model: nn.Module, teacher: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    distances = torch.stack(_distances(model, teacher, batch))
    return distances.mean() + LAST_STATE * distances[-1]


@torch.no_grad()
def _error(model: nn.Module, teacher: nn.Module, batches: list[dict[str, Tensor]]) -> float:
    means = [torch.stack(_distances(model, teacher, batch)).mean().item() for batch in batches]
    return float(sum(means) / len(means)) ** 0.5


@torch.no_grad()
def _held_out(model: nn.Module, teacher: nn.Module, batches: list[dict[str, Tensor]]) -> float:
    return sum(_loss(model, teacher, batch).item() for batch in batches) / len(batches)


def _distil(
    model: nn.Module,
    teacher: nn.Module,
    texts: tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]],
    how: tuple[int, float, int],
) -> int:
    """Trains all weights, keeps the best, and says how many steps that took."""
    (train, held), (steps, rate, seed) = texts, how
    rising = max(1, steps // 10)
    adam = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        adam, lambda n: min((n + 1) / rising, (steps - n) / max(1, steps - rising))
    )
    order = torch.Generator().manual_seed(seed)
    best, state, found, worse = _held_out(model, teacher, held), _state(model), 0, 0
    queue: list[int] = []
    for step in range(1, steps + 1):
        queue = queue or torch.randperm(len(train), generator=order).tolist()
        adam.zero_grad()
        _loss(model, teacher, train[queue.pop()]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        schedule.step()
        if step % -(-steps // LOOKS) and step < steps:
            continue
        loss = _held_out(model, teacher, held)
        if loss < best:
            best, state, found, worse = loss, _state(model), step, 0
        else:
            worse += 1
            if worse == PATIENCE:
                break
    model.load_state_dict(state, strict=False)
    return found


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {name: x.detach().clone() for name, x in model.state_dict().items()}


def _write(model: nn.Module, folder: Path, tokenizer: Any, report: Conversion) -> None:
    origin = getattr(model, "name_or_path", "") or "model"
    if tokenizer is None and Path(origin).is_dir():
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(origin)
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    _save(model, folder / FILE)
    model.save_pretrained(folder)
    write_atomically(folder / "README.md", _card(Path(origin).name, report).encode())


def _card(name: str, report: Conversion) -> str:
    keys = report.calibration.exact_keys
    return f"""---
library_name: transformers
tags:
- favor-sharp
- linear-attention
---

# {name} with attention in linear time

Converted from the exact model `{name}` to {report.calibration.features} learned features per head (window
{keys.near}, global keys {keys.global_keys}, routed keys {keys.routed}). The weights expect this attention:
opened without `{FILE}` the model is another one.

```python
import favor_sharp.hf
from transformers import AutoModel

model = AutoModel.from_pretrained(folder)
favor_sharp.hf.load(model)
```

Error of the states on held-out texts, relative to the exact model: {100 * report.before:.1f} % with its weights,
{100 * report.after:.1f} % after {report.steps} steps on all weights.
"""
