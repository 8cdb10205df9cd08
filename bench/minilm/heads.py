"""What is predicted of single heads, what their errors are, and what the model makes of these."""

from __future__ import annotations

import numpy as np
import torch

import favor_sharp as fs
import favor_sharp.hf as hf
from favor_sharp import _calibration, _watch

DRAWS = 12
COUPLINGS = "orthogonal", "iid"


def compare(model, batches: list, features: int, calibration: dict) -> dict:
    """Errors of the queries that predictions look at, and of the model's outputs for the batches."""
    model.set_attn_implementation(hf.NAME)
    kinds = [
        {"features": features, "coupling": coupling, "seed": seed}
        for coupling in COUPLINGS
        for seed in range(DRAWS)
    ]
    recorder = _calibration.Recorder(*kinds)
    _watch.run(model, recorder, _calibration._batches(model, size=32, **calibration))
    seen = []
    for layer in recorder.layers.values():
        for head, drawn in enumerate(zip(*(maps.maps() for maps in layer.maps), strict=True)):
            maps = {
                coupling: [map for map in drawn if map.coupling == coupling]
                for coupling in COUPLINGS
            }
            for q, k, v in ([x[head] for x in sample] for sample in layer.samples):
                seen += errors(maps, q, k, v, drawn[0].scale)
    more = {"auto": False, "short_is_exact": False, "save": False, "quiet": True}
    hf.calibrate(model, features=features, **calibration, **more)
    return summary(np.array(seen)) | in_the_model(model, batches)


def errors(maps: dict, q, k, v, scale: float):
    """For each query: the predicted relative error, its ceiling, and the error with either coupling."""
    exact = fs.exact_attention(q, k, v, kernel="softmax", scale=scale)
    power = (exact**2).sum(1)
    found = [
        np.sqrt(
            np.mean([((fs.attention(q, k, v, map) - exact) ** 2).sum(1) for map in all], 0) / power
        )
        for all in maps.values()
    ]
    for i in range(len(q)):
        one = maps["orthogonal"][0], q[i : i + 1], k, v
        # What is predicted of a single feature is the ceiling, unless even one feature does well.
        yield fs.predicted_error(*one), fs.predicted_error(*one, features=1), *(f[i] for f in found)


def summary(rows) -> dict:
    """Medians over all queries, and of the ratio of found to predicted for those at the ceiling and below."""
    predicted, ceiling, found, iid = rows.T
    at = predicted >= ceiling * (1 - 1e-9)
    columns = {
        "predicted": predicted,
        "found": found,
        "at": found[at] / predicted[at],
        "below": found[~at] / predicted[~at],
        "below, iid": iid[~at] / predicted[~at],
    }
    return {"at ceiling": float(at.mean())} | {n: float(np.median(x)) for n, x in columns.items()}


@torch.inference_mode()
def in_the_model(model, batches: list) -> dict:
    """Relative errors of the last states of tokens and of the mean vectors of sentences."""
    sums = np.zeros((2, 2))
    for batch in batches:
        model.set_attn_implementation(hf.NAME)
        found = model(**batch).last_hidden_state
        model.set_attn_implementation("sdpa")
        exact = model(**batch).last_hidden_state
        mask = batch["attention_mask"][:, :, None]
        for i, x in enumerate((found - exact, exact)):
            mean = (x * mask).sum(1) / mask.sum(1)
            sums[:, i] += [float((x * mask).square().sum()), float(mean.square().sum())]
    tokens, sentences = np.sqrt(sums[:, 0] / sums[:, 1])
    return {"tokens": float(tokens), "sentences": float(sentences)}
