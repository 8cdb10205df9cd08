"""Maps that are learned from queries and keys, with a bar while that goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeAlias

from numpy.typing import ArrayLike

from . import _native
from ._native import LEARN_STEPS, LearnedHead

Progress: TypeAlias = Callable[[int, int, float], object] | bool | None
"""What is told of progress: a function of the steps done, all steps and the objective last measured; or
True for a bar on a terminal."""

# What adapters of other libraries learn from at most: tokens of a sequence, and tokens in all with padding.
LONGEST, MOST = 512, 256 * 512

WIDTH = 30


def learn_maps(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike | None = None,
    *,
    features: int = 64,
    near: int = 0,
    global_keys: int = 0,
    routed: tuple[int, int] | None = None,
    causal: bool = False,
    key_mask: ArrayLike | None = None,
    source: str = "",
    family: str = "balanced",
    kernel: str | float = "attention",
    scale: float = 1.0,
    coupling: str = "orthogonal",
    steps: int = LEARN_STEPS,
    batch: int | None = None,
    rate: float | None = None,
    outputs: float | None = None,
    pull: float = 0.0,
    holdout: float = 0.25,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress = None,
) -> list[LearnedHead]:
    """Learns one map per head from queries and keys, and reports how accurate it is.

    A map starts from the closed form and minimises the divergence between the exact attention weights and its
    own; with values, the second half of the steps also minimises the error of the outputs. The result is an
    ordinary ``FeatureMap``, more accurate on similar data and no longer unbiased on other data. On held-out
    sequences it is never worse than the start or than the exact keys alone, as measured at evenly spaced
    queries, at most 256 per sequence.

    Parameters
    ----------
    q, k, v : arrays ``[sequences, heads, length, dim]`` or ``[heads, length, dim]``
        Calibration data. A single sequence is cut into pieces. With values, errors are those of outputs,
        otherwise of weights.
    features, family, kernel, scale, coupling : as in ``fit_maps``
        The start.
    near, global_keys, routed : as in ``attention``
        The exact keys. Pass the same ones to ``attention``.
    causal : bool
        Whether a query sees only its own and earlier keys.
    key_mask : ``[sequences, keys]`` of bool
        False at padding. With as many queries as keys it is theirs too.
    source : str
        What the sequences are, in words. The maps keep it, and ``FeatureMap.learned`` gives it back.
    steps, batch, rate
        Steps of the optimiser, sequences per step (by default about 1024 tokens' worth, at least four), and
        the peak learning rate (by default the library's).
    outputs : float
        The weight of the output error relative to the divergence of the weights, in the second half of the
        steps (by default the library's).
    pull : float
        How strongly the map is pulled towards the start.
    holdout : float
        The fraction of the sequences to hold out for measuring.
    seed : int
        Seed for the start, the held-out sequences and the order of the others.
    threads : int
        Number of threads; results do not depend on it.
    progress : callable or True
        Called with the steps done, the total steps, and the held-out objective of the head that was measured
        last: with values ``(1 − outputs) · divergence + outputs · error²``, without them the
        divergence. An exception from it ends the call. True shows a bar on stderr, if that is a terminal.

    Returns
    -------
    list of ``LearnedHead``, one per head, each with its ``map`` and a ``report``.
    """
    return _native.learn_maps(
        q,
        k,
        v,
        features=features,
        near=near,
        global_keys=global_keys,
        routed=routed,
        causal=causal,
        key_mask=key_mask,
        source=source,
        family=family,
        kernel=kernel,
        scale=scale,
        coupling=coupling,
        steps=steps,
        batch=batch,
        rate=rate,
        outputs=outputs,
        pull=pull,
        holdout=holdout,
        seed=seed,
        threads=threads,
        progress=told(progress),
    )


def most_sequences(length: int, longest: int) -> int:
    """How many sequences of this length an adapter learns from at most, given how many tokens of each."""
    return max(MOST // min(max(length, 1), longest), 1)


def told(progress: Progress) -> Callable[[int, int, float], object] | None:
    """What is called: the function itself, a bar, or nothing."""
    if progress is True:
        return _bar if sys.stderr.isatty() else None
    if progress is None or progress is False:
        return None
    if not callable(progress):
        raise TypeError("progress: a function of (done, total, objective), or True, is needed")
    return progress


def unless_quiet(progress: Progress, quiet: bool) -> Progress:
    """What is asked for; if nothing is, a bar on a terminal, unless the call is to be quiet."""
    return not quiet if progress is None else progress


def _bar(done: int, total: int, objective: float) -> None:
    full = WIDTH * done // max(total, 1)
    end = "\n" if done == total else ""
    text = f"\r[{'#' * full:{WIDTH}}] {done}/{total} steps, objective {objective:.4f}"
    print(text, end=end, file=sys.stderr, flush=True)
