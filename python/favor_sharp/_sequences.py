"""Queries, keys and values of the layers of a model, collected while it computes exactly."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ._learn import MOST, most_sequences
from ._watch import Call, Watcher, run
from .torch._learnable import learnable

# Bytes of the layers that are collected in one pass through the model, unless a single one has more.
MEMORY = 2 << 30


@dataclass
class Calls:
    """What a layer was called with: float16 arrays ``[sequences, heads, length, dim]`` and masks."""

    causal: bool
    scaling: float
    # Bytes of a token.
    size: int
    # Tokens of a sequence that are kept.
    longest: int
    count: int = 0
    length: int = 0
    parts: list[tuple[NDArray[Any], ...]] = field(default_factory=list)

    def add(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> None:
        """Adds sequences, as long as there is room."""
        self.length = max(self.length, q.shape[2], k.shape[2])
        *cut, visible = learnable(q, k, v, mask, self.longest, self.room)
        if not len(visible):
            return
        self.count += len(visible)
        half = (x.to("cpu", torch.float16).numpy() for x in cut)
        self.parts.append((*half, visible.numpy()))

    @property
    def room(self) -> int:
        """How many more sequences of the length so far there can be."""
        return most_sequences(self.length, self.longest) - self.count

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Queries, keys, values and the mask of keys, all sequences as long as the longest."""
        return tuple(_joined([part[i] for part in self.parts]) for i in range(4))


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """One array of all, padded with zeros. The length is the third axis, or the second of masks."""
    axis = min(parts[0].ndim - 1, 2)
    shape = list(parts[0].shape)
    shape[0], shape[axis] = sum(map(len, parts)), max(p.shape[axis] for p in parts)
    out, start = np.zeros(shape, parts[0].dtype), 0
    for part in parts:
        place = [slice(start, start + len(part))] + [slice(n) for n in part.shape[1:]]
        out[tuple(place)] = part
        start += len(part)
    return out


class Collector(Watcher):
    """Keeps what the wanted layers are called with, as long as there is room."""

    def __init__(self, wanted: Collection[nn.Module], longest: int) -> None:
        self.wanted, self.longest = wanted, longest
        self.layers: dict[nn.Module, Calls] = {}

    def remember(self, module: nn.Module, call: Call) -> None:
        """Keeps the sequences of a call."""
        q, _, v, *_ = call
        if module not in self.layers:
            # Two bytes for each number of a query, a key and a value.
            size = 2 * q.shape[1] * (2 * q.shape[3] + v.shape[3])
            self.layers[module] = Calls(call.causal, call.scaling, size, self.longest)
        if module in self.wanted:
            self.layers[module].add(*call[:4])

    @property
    def has_enough(self) -> bool:
        """Whether there is no room left in any wanted layer."""
        full = (m in self.layers and self.layers[m].room <= 0 for m in self.wanted)
        return bool(self.wanted) and all(full)


def collect(
    model: nn.Module, batches: list[dict[str, Tensor]], longest: int
) -> Iterator[tuple[nn.Module, Calls, int]]:
    """Each layer, what it was called with, and how many layers there are. As many layers as fit into the
    memory are collected in one pass through the model."""
    first = Collector((), longest)
    run(model, first, batches[:1])
    sizes = {module: calls.size * MOST for module, calls in first.layers.items()}
    waiting = list(sizes)
    while waiting:
        group = waiting[: max(1, MEMORY // sizes[waiting[0]])]
        waiting = waiting[len(group) :]
        collector = Collector(set(group), longest)
        run(model, collector, batches)
        for module in group:
            yield module, collector.layers.pop(module), len(sizes)
