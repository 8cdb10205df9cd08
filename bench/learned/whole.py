"""The whole model with another attention in all its layers, weights untouched."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from controls import Attend
from kinds import Setting, controls, for_all, hedgehog
from scipy.stats import spearmanr
from subject import Subject
from torch import nn
from torch.nn.functional import cosine_similarity, normalize

from favor_sharp import _calibration
from favor_sharp._learn import LONGEST


def every_kind(
    subject: Subject,
    texts: Any,
    setting: Setting,
    measure,
    *,
    steps: int,
    seed: int,
    with_controls: bool,
    rate: float | None = None,
) -> dict[str, Any]:
    """What is measured with each kind of attention in all layers; maps know the texts alone."""
    found = {}
    how = {**setting.arguments(), "seed": seed, "steps": steps}
    for kind in ("drawn", "learned"):
        report = subject.calibrate(texts, learn=kind == "learned", **how)
        found[kind] = measure()
        print(f"  {setting}, {kind}: {found[kind]}", flush=True)
    if not with_controls:
        return found
    near = round(float(np.mean([head.learned.window for head in report.heads])))
    layers: dict[nn.Module, dict[str, Attend]] = {}
    maps = subject.maps()
    for module, calls in subject.calls(batches(subject, texts)):
        form = hedgehog(setting, calls, steps, seed)
        layers[module] = controls(setting, maps[module], form, near)
    for kind in next(iter(layers.values())):
        subject.take(for_all(layers, kind))
        found[kind] = measure()
        print(f"  {setting}, {kind}: {found[kind]}", flush=True)
    return found


def batches(subject: Subject, texts: Any) -> list[dict]:
    """The batches that are learned from."""
    return list(_calibration._batches(subject.model, texts, subject.tokenizer, 32, LONGEST))


@torch.inference_mode()
def states(subject: Subject, inputs: list[dict]) -> list:
    return [x for batch in inputs for x in subject.model(**batch).last_hidden_state]


def distances(subject: Subject, inputs: dict[str, list[dict]], exact: dict[str, list]) -> dict:
    """How far the vectors of texts and of tokens are from exact ones."""
    out = {}
    for source, all in inputs.items():
        pairs = list(zip(states(subject, all), exact[source], strict=True))
        cosines = [float(cosine_similarity(a.mean(0), b.mean(0), 0)) for a, b in pairs]
        error = sum(float((a - b).square().sum()) for a, b in pairs)
        power = sum(float(b.square().sum()) for _, b in pairs)
        out[source] = {"cosine": float(np.mean(cosines)), "tokens": (error / power) ** 0.5}
    return out


@torch.inference_mode()
def similarity(subject: Subject, pairs: tuple[list[str], list[str], np.ndarray]) -> float:
    """Spearman correlation of the cosine of mean token vectors with people's scores."""
    left, right, scores = pairs
    texts = sorted({*left, *right}, key=lambda t: (len(t), t))
    means = []
    for i in range(0, len(texts), 128):
        batch = subject.tokenizer(texts[i : i + 128], return_tensors="pt", padding=True)
        mask = batch["attention_mask"][:, :, None]
        found = subject.model(**batch).last_hidden_state
        means.append((found * mask).sum(1) / mask.sum(1))
    vectors = normalize(torch.cat(means)).numpy()
    place = {text: vectors[i] for i, text in enumerate(texts)}
    close = [float(place[a] @ place[b]) for a, b in zip(left, right, strict=True)]
    return float(spearmanr(close, scores).statistic)
