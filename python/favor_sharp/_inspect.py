"""How accurate random features are on given arrays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from . import _native
from ._native import FeatureMap


class Inspection:
    """What an inspection found: ``print`` it, or read ``heads``."""

    def __init__(self, text: str, heads: list[dict[str, Any]]) -> None:
        self.text = text
        self.heads = heads

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Inspection of {len(self.heads)} head(s); print it to read it>"


def inspect(
    queries: ArrayLike,
    keys: ArrayLike,
    values: ArrayLike | None = None,
    *,
    kernel: str | float | None = None,
    scale: float = 1.0,
    features: Sequence[int] = (64, 256),
    families: Sequence[str] | None = None,
    seed: int = 0,
) -> Inspection:
    """Compares all families on the data: predicted variances, measured errors, and advice.

    Arrays are ``[rows, dim]`` or ``[heads, rows, dim]``. The kernel is that of attention when values
    are given, otherwise the softmax kernel on the vectors as they are.
    """
    text, report = _native.inspect(
        queries,
        keys,
        values,
        kernel=kernel,
        scale=scale,
        features=list(features),
        families=None if families is None else list(families),
        seed=seed,
    )
    found = json.loads(report)
    return Inspection(text, found if isinstance(found, list) else [found])


def inspect_maps(
    maps: FeatureMap | Sequence[FeatureMap],
    queries: ArrayLike,
    keys: ArrayLike,
    values: ArrayLike | None = None,
    *,
    near: int | None = None,
    global_keys: int | None = None,
    routed: tuple[int, int] | None = None,
    causal: bool | None = None,
) -> Inspection:
    """Measures maps, especially learned ones, on unseen sequences.

    Arrays are ``[heads, length, dim]`` or ``[sequences, heads, length, dim]``; maps are one for all heads
    or one per head. Exact keys default to those that a map was learned with. For comparison, the report also
    has the errors of the exact keys alone, of an exact window of the same cost, and of the plain mean of the
    values.
    """
    text, report = _native.inspect_maps(
        maps,
        queries,
        keys,
        values,
        near=near,
        global_keys=global_keys,
        routed=routed,
        causal=causal,
    )
    return Inspection(text, json.loads(report)["heads"])
