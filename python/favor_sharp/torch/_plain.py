"""Attention in plain torch operations, for devices that the engine does not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from .. import FeatureMap, _native
from ._maps import Recent, header, unpack

# Queries and keys of a causal step that meet one by one.
STEP = 16


class Side(NamedTuple):
    """``log f(x) = W(sx + shift) + constants + row term`` of each map, and ``s`` and ``α`` of its kernel."""

    weights: Tensor
    constants: Tensor
    shift: Tensor
    transform: Tensor
    linear: Tensor
    alpha: Tensor
    scale: Tensor


_recent: Recent[tuple[list[FeatureMap], Side, Side]] = Recent(64)


# torch.compile calls this as it is.
@torch.compiler.disable
def sides(
    maps: Tensor, qkv: Sequence[Tensor], causal: bool, exact_heads: Sequence[int]
) -> tuple[Side, Side]:
    """The two sides of the maps, with leading axes that go with ``[batch, heads]``. Refuses what the engine
    refuses."""
    q = qkv[0]
    key = header(maps), q.device, q.dtype
    made, query, keys = _recent.get(key, lambda: _sides(maps, q.device, q.dtype))
    of_q, of_k, of_v = (tuple(x.shape) for x in qkv)
    _native.check_attention(of_q, of_k, of_v, made, exact_heads=exact_heads, causal=causal)
    batch, heads = q.shape[:2]
    lead = {1: (1, 1), heads: (1, heads), batch * heads: (batch, heads)}[len(made)]
    return Side(*(x.unflatten(0, lead) for x in query)), Side(*(x.unflatten(0, lead) for x in keys))


def _sides(
    maps: Tensor, device: torch.device, dtype: torch.dtype
) -> tuple[list[FeatureMap], Side, Side]:
    made = unpack(maps)

    def side(which: Literal["query", "key"]) -> Side:
        numbers = [map.side(which) | {"scale": map.scale} for map in made]
        parts = (np.stack([n[name] for n in numbers]) for name in Side._fields)
        return Side(*(torch.from_numpy(part).to(device, dtype) for part in parts))

    # Calls with gradients may use them later.
    with torch.inference_mode(False):
        return made, side("query"), side("key")


def log_features(side: Side, x: Tensor, row_term: bool) -> Tensor:
    """``[batch, heads, length, features]``. Without the row term, which cancels for queries."""
    x = x * side.scale[..., None, None]
    shifted = x + side.shift[..., None, :]
    logs = shifted @ side.weights.mT + side.constants[..., None, :]
    if row_term:
        quadratic = (shifted @ side.transform.mT).square().sum(-1) / 2
        linear = (x * side.linear[..., None, :]).sum(-1)
        norm = side.alpha[..., None] * x.square().sum(-1)
        logs = logs + (norm - quadratic - linear)[..., None]
    return logs


def plain_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: Tensor,
    key_mask: Tensor | None,
    causal: bool,
    exact_heads: Sequence[int] = (),
) -> Tensor:
    """What the engine computes, with gradients by autograd."""
    given = v.dtype
    dtype = torch.float64 if given == torch.float64 else torch.float32
    q, k, v = (x.to(dtype) for x in (q, k, v))
    both = sides(maps, (q, k, v), causal, exact_heads)
    if key_mask is not None:
        # Padding may hold anything, and 0 · NaN is NaN.
        visible = key_mask[:, None, :, None]
        k, v = (torch.where(visible, x, x.new_zeros(())) for x in (k, v))
    if not exact_heads:
        return by_features(q, k, v, both, key_mask, causal).to(given)
    every, numbers = range(q.shape[1]), set(exact_heads)
    exact, rest = ([h for h in every if (h in numbers) == wanted] for wanted in (True, False))
    out = q.new_empty(*q.shape[:-1], v.shape[-1])
    for heads, attend in ((exact, exactly), (rest, by_features)):
        if heads:
            own = [Side(*(x if x.shape[1] == 1 else x[:, heads] for x in side)) for side in both]
            found = attend(q[:, heads], k[:, heads], v[:, heads], own, key_mask, causal)
            out = out.index_copy(1, torch.tensor(heads, device=q.device), found)
    return out.to(given)


def exactly(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sides: Sequence[Side],
    key_mask: Tensor | None,
    causal: bool,
) -> Tensor:
    """With the kernels of the maps."""
    query, key = sides
    q, k = q * query.scale[..., None, None], k * key.scale[..., None, None]
    # α‖y‖² as one more dimension; α‖x‖² cancels.
    norm = key.alpha[..., None, None] * k.square().sum(-1, keepdim=True)
    q, k = torch.cat([q, torch.ones_like(q[..., :1])], -1), torch.cat([k, norm], -1)
    return softmax_attention(q, k, v, key_mask, causal, scale=1.0)


def softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """Exact attention with a mask of keys. A query that sees no key gives zeros."""
    if key_mask is None:
        return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    pairs = key_mask[:, None, None, :]
    if causal:
        length = k.shape[2]
        pairs = pairs & torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    out = scaled_dot_product_attention(q, k, v, pairs, scale=scale)
    # Whatever this version of torch makes of it.
    return torch.where(pairs.any(-1, keepdim=True), out, torch.zeros_like(out))


def by_features(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sides: Sequence[Side],
    key_mask: Tensor | None,
    causal: bool,
) -> Tensor:
    """With the features of the maps."""
    query, key = sides
    queries = log_features(query, q, row_term=False)
    keys = log_features(key, k, row_term=True)
    if key_mask is not None:
        keys = keys.masked_fill(~key_mask[:, None, :, None], -torch.inf)
    return (causal_sums if causal else all_sums)(queries, keys, v)


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


# ε of the ReLU features: that of favor-nn, which the wheel does not contain.
RELU_EPSILON = 1e-3


def linear_attention(
    kind: str, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, causal: bool
) -> Tensor:
    """Attention by features that estimate no softmax: ``elu(x) + 1``, ``relu(x) + ε``, or 1, which gives the
    plain mean of the values. A query that sees no key gives zeros."""
    if kind not in ("elu", "relu", "mean"):
        known = "'elu', 'relu' and 'mean' are known"
        raise ValueError(f"favor_sharp: attention of the kind {kind!r}; {known}")
    if causal:
        raise ValueError(f"favor_sharp: {kind} attention is not causal")

    def features(x: Tensor) -> Tensor:
        if kind == "mean":
            return torch.ones_like(x)
        return torch.nn.functional.elu(x) + 1 if kind == "elu" else torch.relu(x) + RELU_EPSILON

    queries, keys = features(q), features(k)
    if key_mask is not None:
        hidden = ~key_mask[:, None, :, None]
        keys, v = keys.masked_fill(hidden, 0.0), v.masked_fill(hidden, 0.0)
    total = queries @ keys.sum(2, keepdim=True).transpose(2, 3)
    return ratio(queries @ (keys.transpose(2, 3) @ v), total)
