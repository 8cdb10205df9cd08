"""Layers of a model, watched while they compute exactly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .torch._plain import softmax_attention


class Call(NamedTuple):
    """What a layer's attention was called with."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    causal: bool
    scaling: float


class Watcher(ABC):
    """Is told of every call of a layer's attention."""

    @abstractmethod
    def remember(self, module: nn.Module, call: Call) -> None:
        """Takes from a call what is needed."""

    @property
    def has_enough(self) -> bool:
        """Whether nothing more is needed."""
        return False

    def record(self, module: nn.Module, call: Call) -> Tensor:
        """Exact attention, remembered."""
        if call.mask is not None and call.mask.dim() != 2:
            raise ValueError(
                f"favor_sharp: a mask of shape {tuple(call.mask.shape)}; [batch, keys] is needed"
            )
        self.remember(module, call)
        return softmax_attention(*call)


_watcher: Watcher | None = None


def watching() -> Watcher | None:
    """Who watches at the moment."""
    return _watcher


@contextmanager
def _watch(watcher: Watcher) -> Iterator[None]:
    global _watcher
    _watcher = watcher
    try:
        yield
    finally:
        _watcher = None


@torch.no_grad()
def run(model: nn.Module, watcher: Watcher, batches: Iterable[dict[str, Tensor]]) -> None:
    """One pass through the model, or less of it if the watcher has enough before."""
    with _watch(watcher):
        for batch in batches:
            model(**batch)
            if watcher.has_enough:
                break
