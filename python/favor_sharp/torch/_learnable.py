"""Which sequences of a call maps are learned from."""

from __future__ import annotations

import torch
from torch import Tensor


def learnable(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, longest: int, most: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The first ``longest`` tokens of at most ``most`` sequences, and their mask of keys. Sequences that
    are padding alone are left out: there is nothing to learn from them."""
    everything = torch.ones(len(k), k.shape[2], dtype=torch.bool)
    visible = (everything if mask is None else mask.cpu())[:, :longest]
    rows = visible.any(1).nonzero()[: max(most, 0), 0]
    q, k, v = (x[rows.to(x.device), :, :longest] for x in (q, k, v))
    return q, k, v, visible[rows]
