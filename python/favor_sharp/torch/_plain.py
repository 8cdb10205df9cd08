"""Attention by features in plain torch operations, for devices that the engine does not know."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._maps import arrays

# Queries and keys of a causal step that meet one by one.
STEP = 16


class Side(NamedTuple):
    """``log f(x) = W(sx + shift) + constants + row term``, one for each map."""

    weights: Tensor
    constants: Tensor
    shift: Tensor
    transform: Tensor
    linear: Tensor
    alpha: Tensor
    scale: Tensor


def sides(maps: Tensor, q: Tensor, dtype: torch.dtype) -> tuple[Side, Side]:
    """The two sides of the maps, with leading axes that go with ``[batch, heads]``."""
    batch, heads, _, dim = q.shape
    a = arrays(maps, dim)
    lead = {1: (1, 1), heads: (1, heads), batch * heads: (batch, heads)}.get(maps.shape[0])
    if lead is None:
        raise ValueError(f"maps: {maps.shape[0]} maps for a batch of {batch} and {heads} heads")
    root = (1 - 4 * a["quadratic"]).sqrt()
    log_d = root.log().sum(-1) / 2
    constants = log_d[:, None] + (a["omega"].square() * a["quadratic"][:, None]).sum(-1)

    def side(own: str, other: str) -> Side:
        transform = a[f"{own}_transform"]
        weights = a["omega"] @ (root[:, :, None] * transform)
        shifts = a[f"{own}_shift"], a[f"{other}_shift"]
        parts = (weights, constants, shifts[0], transform, shifts[1], a["alpha"], a["scale"])
        return Side(*(p.to(q.device, dtype).unflatten(0, lead) for p in parts))

    return side("query", "key"), side("key", "query")


def log_features(side: Side, x: Tensor, row_term: bool) -> Tensor:
    """``[batch, heads, length, features]``. Without the row term, which cancels for queries."""
    x = x * side.scale[..., None, None]
    moved = x + side.shift[..., None, :]
    logs = moved @ side.weights.mT + side.constants[..., None, :]
    if row_term:
        turned = (moved @ side.transform.mT).square().sum(-1) / 2
        linear = (x * side.linear[..., None, :]).sum(-1)
        norm = side.alpha[..., None] * x.square().sum(-1)
        logs = logs + (norm - turned - linear)[..., None]
    return logs


def plain_attention(
    q: Tensor, k: Tensor, v: Tensor, maps: Tensor, key_mask: Tensor | None, causal: bool
) -> Tensor:
    """What the engine computes, with gradients by autograd."""
    given = v.dtype
    dtype = torch.float64 if given == torch.float64 else torch.float32
    q, k, v = (x.to(dtype) for x in (q, k, v))
    if key_mask is not None:
        visible = key_mask[:, None, :, None]
        # Padding may hold anything, and 0 · NaN is NaN.
        k, v = (torch.where(visible, x, x.new_zeros(())) for x in (k, v))
    query_side, key_side = sides(maps, q, dtype)
    queries = log_features(query_side, q, row_term=False)
    keys = log_features(key_side, k, row_term=True)
    if key_mask is not None:
        keys = keys.masked_fill(~visible, -torch.inf)
    attend = causal_sums if causal else all_sums
    return attend(queries, keys, v).to(given)


def finite_max(logs: Tensor, axis: int) -> Tensor:
    """The maximum as a constant: every use of it cancels. 0 where there is nothing but −∞."""
    top = logs.detach().amax(axis, keepdim=True)
    return torch.where(top.isfinite(), top, torch.zeros_like(top))


def ratio(values: Tensor, total: Tensor) -> Tensor:
    """Zeros for a query that saw no key."""
    empty = total == 0
    return torch.where(empty, torch.zeros_like(values), values / torch.where(empty, 1.0, total))


def all_sums(queries: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """Every query sees every key."""
    top = finite_max(keys, -2)
    weights = (keys - top).exp()
    queries = queries + top
    queries = (queries - finite_max(queries, -1)).exp()
    return ratio(queries @ (weights.mT @ v), queries @ weights.sum(-2)[..., None])


def causal_sums(queries: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """Every query sees its own and earlier keys: sums over the steps before, and one by one within
    a step, so that no later key has a say in the scale."""
    top = torch.full_like(keys[..., :1, :].detach(), -torch.inf)
    total = torch.zeros_like(top)
    sums = v.new_zeros(*keys.shape[:2], keys.shape[-1], v.shape[-1])
    out = []
    for start in range(0, keys.shape[-2], STEP):
        step = slice(start, start + STEP)
        f, g, w = queries[..., step, :], keys[..., step, :], v[..., step, :]
        count = f.shape[-2]
        # Within the step.
        later = torch.ones(count, count, dtype=torch.bool, device=v.device).triu(1)
        pairs = f[..., :, None, :] + g[..., None, :, :]
        peak = finite_max(pairs, -1)
        pairs = ((pairs - peak).exp().sum(-1)).clamp_min(torch.finfo(v.dtype).tiny).log() + peak[
            ..., 0
        ]
        seen = g.detach().amax(-1).isfinite()[..., None, :] & ~later
        pairs = pairs.masked_fill(~seen, -torch.inf)
        # The steps before.
        before = f + top
        scale = torch.maximum(
            before.detach().amax(-1, keepdim=True), pairs.detach().amax(-1, keepdim=True)
        )
        scale = torch.where(scale.isfinite(), scale, torch.zeros_like(scale))
        far, near = (before - scale).exp(), (pairs - scale).exp()
        values = far @ sums + near @ w
        out.append(ratio(values, far @ total.mT + near.sum(-1, keepdim=True)))
        # The keys of the step join the sums.
        new = torch.maximum(top, g.detach().amax(-2, keepdim=True))
        safe = torch.where(new.isfinite(), new, torch.zeros_like(new))
        shrink, fresh = (top - safe).exp(), (g - safe).exp()
        sums = shrink.mT * sums + fresh.mT @ w
        total = shrink * total + fresh.sum(-2, keepdim=True)
        top = new
    return torch.cat(out, -2)
