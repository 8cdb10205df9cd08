"""Every kind of attention that is compared, for one layer or for all."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from controls import NO_KEYS, Attend, Features, Keys, mean, nystrom, window_alone, with_features
from form import Form, learn
from torch import Tensor, nn

# What stands in the columns of the tables: ours, then what it is compared with.
TITLES = {
    "learned": "learned",
    "drawn": "drawn",
    "alone": "exact keys alone",
    "window": "window alone, same cost",
    "hedgehog": "Hedgehog's form",
    "global": "global keys (LoLA)",
    "nystrom": "Nyström, same cost",
    "mean": "plain mean",
}
# The rate of Hedgehog's form: control_settings.py compares it with others.
RATE = 0.1


@dataclass(frozen=True)
class Setting:
    """Features and exact keys."""

    features: int
    keys: Keys = NO_KEYS

    def __str__(self) -> str:
        parts = [f"M = {self.features}"]
        if self.keys.near:
            parts.append(f"window ±{self.keys.near}")
        if self.keys.routed:
            parts.append("{} × {} routed".format(*self.keys.routed))
        return ", ".join(parts)

    def arguments(self) -> dict:
        return {"features": self.features, **self.keys.named()}


def hedgehog(
    setting: Setting, calls: list[Tensor], steps: int, seed: int, rate: float = RATE
) -> Form:
    """Hedgehog's form, learned with the window in place, from the same tokens as our maps."""
    q, k, _, mask = calls
    form = Form(q.shape[1], q.shape[3], setting.features, hedgehog=True, seed=seed)
    learn(form, q, k, mask, near=setting.keys.near, steps=steps, rate=rate, seed=seed)
    return form.double().requires_grad_(False)


def controls(setting: Setting, maps: list, form: Form | None, near: int) -> dict[str, Attend]:
    """What stands beside our own, given the learned maps of a layer and the width of a window that costs as
    much."""
    features, keys = Features(maps), setting.keys
    found: dict[str, Attend] = {}
    if keys.near or keys.routed:
        found["alone"] = with_features(features, keys, far=False)
    found["window"] = window_alone(near)
    if form is not None:
        found["hedgehog"] = with_features(Features(form), keys)
    if keys.members:
        found["global"] = with_features(features, Keys(keys.near), global_keys=keys.members)
    # A landmark is as much work as a feature, and a feature as much as two keys.
    found["nystrom"] = nystrom(near)
    found["mean"] = mean
    return found


def for_all(layers: dict[nn.Module, dict[str, Attend]], kind: str) -> dict[nn.Module, Attend]:
    return {module: kinds[kind] for module, kinds in layers.items()}


def relative(out: Tensor, exact: Tensor) -> Tensor:
    """The relative error of each head, over all sequences."""
    square = torch.sum((out - exact) ** 2, (0, 2, 3)) / torch.sum(exact**2, (0, 2, 3))
    return square.sqrt()
