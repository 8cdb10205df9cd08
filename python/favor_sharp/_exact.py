"""Attention without approximation, under names of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike, NDArray

from ._native import attention, attention_backward


def exact_attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    kernel: str | float = "attention",
    scale: float = 1.0,
    causal: bool = False,
    key_mask: ArrayLike | None = None,
    offsets: Sequence[int] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Exact attention, computed in blocks. A query that sees no key gives zeros."""
    return attention(
        q,
        k,
        v,
        kernel=kernel,
        scale=scale,
        causal=causal,
        key_mask=key_mask,
        offsets=offsets,
        threads=threads,
    )


def exact_attention_backward(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    out: ArrayLike,
    out_gradient: ArrayLike,
    *,
    kernel: str | float = "attention",
    scale: float = 1.0,
    causal: bool = False,
    key_mask: ArrayLike | None = None,
    offsets: Sequence[int] | None = None,
    threads: int | None = None,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The gradients of ``exact_attention``."""
    return attention_backward(
        q,
        k,
        v,
        out,
        out_gradient,
        kernel=kernel,
        scale=scale,
        causal=causal,
        key_mask=key_mask,
        offsets=offsets,
        threads=threads,
    )
