"""The heads of the model, each by itself, on text that was not learned from."""

from __future__ import annotations

import numpy as np
from controls import exact
from kinds import Setting, controls, hedgehog, relative
from subject import Subject

import favor_sharp as fs


def heads(
    subject: Subject,
    train: list[dict],
    test: list[dict],
    settings: list[Setting],
    steps: int,
    seed: int,
    with_hedgehog: bool,
) -> dict[str, dict[str, list[float]]]:
    """The errors of all heads by setting and kind."""
    errors: dict[str, dict[str, list[float]]] = {str(s): {} for s in settings}
    forms: dict = {}
    pairs = zip(subject.calls(train), subject.calls(test), strict=True)
    for number, ((_, learned_from), (_, unseen)) in enumerate(pairs):
        q, k, v, _ = unseen
        target = exact(q, k, v, None)
        arrays, held = [x.numpy() for x in learned_from[:3]], [x.numpy() for x in (q, k, v)]
        for setting in settings:
            common = {**setting.arguments(), "seed": seed}
            made = fs.learn_maps(*arrays, **common, steps=steps)
            maps = {
                "learned": [head.map for head in made],
                "drawn": fs.fit_maps(*arrays[:2], features=setting.features, seed=seed),
            }
            found = {}
            for kind, own in maps.items():
                out = fs.attention(*held, own, **setting.keys.named())
                found[kind] = relative_to(out, target)
            # Hedgehog's form is learned with the window alone, and routed afterwards.
            form, key = None, (setting.features, setting.keys.near, number)
            if with_hedgehog:
                if key not in forms:
                    forms[key] = hedgehog(setting, learned_from, steps, seed)
                form = forms[key]
            near = round(float(np.mean([head.report.window for head in made])))
            for kind, attend in controls(setting, maps["learned"], form, near).items():
                found[kind] = relative(attend(q, k, v, None), target).tolist()
            for kind, each in found.items():
                errors[str(setting)].setdefault(kind, []).extend(each)
            line = ", ".join(f"{kind} {np.mean(each):.4f}" for kind, each in found.items())
            print(f"  layer {number}, {setting}: {line}", flush=True)
    return errors


def relative_to(out: np.ndarray, target) -> list[float]:
    import torch

    return relative(torch.from_numpy(out), target).tolist()
