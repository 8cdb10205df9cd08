"""The function: as ``scaled_dot_product_attention``, by features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .. import FeatureMap, _native
from ._maps import pack
from ._operator import attention as engine_attention
from ._operator import to_array
from ._plain import plain_attention

Implementation = Literal["auto", "rust", "torch"]

# An additive mask hides what is no more than this: as good as −∞, also where −∞ is written as a number.
HIDDEN = -1e4


class ExactKeys(NamedTuple):
    """The keys that are exact beside the features."""

    near: int = 0
    global_keys: int = 0
    routed: tuple[int, int] | None = None


def exact_keys(near: int, global_keys: int, routed: Any) -> ExactKeys:
    """The keys of arguments of these names."""
    is_pair = isinstance(routed, (tuple, list)) and len(routed) == 2
    if routed is not None and not (is_pair and all(isinstance(n, int) for n in routed)):
        raise TypeError("routed: a pair (slots, members) of integers is needed")
    return ExactKeys(near, global_keys, None if routed is None else tuple(routed))


def favor_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    maps: Tensor | FeatureMap | Iterable[FeatureMap] | None = None,
    features: int = 256,
    family: str = "balanced",
    seed: int = 0,
    near: int = 0,
    global_keys: int = 0,
    routed: tuple[int, int] | None = None,
    exact_heads: Sequence[int] = (),
    implementation: Implementation = "auto",
) -> Tensor:
    """Feature attention over ``[batch, heads, length, dim]``, linear in the length.

    The arguments before the star are those of ``scaled_dot_product_attention``. A mask may hide keys
    (``[batch, keys]``, or any shape with a query axis of one), not pairs.

    maps: from ``fit_maps`` or ``pack``; they include the scale. By default, maps are fitted to this call's
        queries and keys, which is an error for causal attention, since it would see the future.
    near, global_keys, routed: exact keys, as in ``favor_sharp.attention``; on the CPU only.
    exact_heads: heads to compute exactly, where features are not accurate enough.
    implementation: ``"rust"`` or ``"torch"`` forces the engine or plain torch operations.
    """
    if dropout_p:
        raise ValueError("dropout_p: there are no attention weights to drop; drop outputs instead")
    if query.dim() < 2:
        raise ValueError(f"query has {query.dim()} axes; [batch, heads, length, dim] is needed")
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(times, -3) for x in (key, value))
    lead = query.shape[:-2]
    if query.dim() != 4:
        heads = query.shape[-3] if query.dim() > 2 else 1
        fold = (lead[:-1].numel(), heads)
        query, key, value = (x.reshape(*fold, *x.shape[-2:]) for x in (query, key, value))
    mask = key_mask(attn_mask, query.shape[0], key.shape[-2])
    if maps is None:
        if is_causal:
            raise ValueError(
                "maps: causal attention needs maps that were fitted beforehand, or it would see the "
                "future; fit them on other sequences with fit_maps"
            )
        maps = fit_maps(
            query, key, key_mask=mask, scale=scale, features=features, family=family, seed=seed
        )
    elif scale is not None:
        raise ValueError("scale: the maps carry it; give it to fit_maps")
    if not isinstance(maps, Tensor):
        maps = pack(maps)
    keys = exact_keys(near, global_keys, routed)
    out = attend(query, key, value, maps, mask, is_causal, keys, exact_heads, implementation)
    return out.reshape(*lead, *out.shape[-2:])


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: Tensor,
    mask: Tensor | None,
    causal: bool,
    keys: ExactKeys,
    exact_heads: Sequence[int] = (),
    implementation: Implementation = "auto",
) -> Tensor:
    """Chooses between the engine and plain operations."""
    if implementation not in ("auto", "rust", "torch"):
        raise ValueError(
            f"implementation: {implementation!r} is not one of 'auto', 'rust', 'torch'"
        )
    on_cpu = q.device.type == "cpu"
    if implementation == "rust" and not on_cpu:
        raise ValueError(
            f"implementation: the Rust engine computes CPU tensors, not {q.device.type}"
        )
    if implementation == "torch" or not on_cpu:
        if any(keys):
            raise ValueError(
                "near, global_keys, routed: exact keys are computed by the Rust engine alone, on the CPU"
            )
        return plain_attention(q, k, v, maps, mask, causal, exact_heads)
    dtype = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    q, k, v = (x.to(dtype) for x in (q, k, v))
    exact = keys.near, keys.global_keys, list(keys.routed or ())
    return engine_attention(q, k, v, maps, mask, causal, *exact, list(exact_heads))


def key_mask(mask: Tensor | None, batch: int, keys: int) -> Tensor | None:
    """A mask of keys as ``[batch, keys]`` of bool, True where a key is seen."""
    if mask is None:
        return None
    if mask.dtype != torch.bool:
        if not mask.is_floating_point():
            raise TypeError(f"attn_mask holds {mask.dtype}; bool or floating numbers are needed")
        mask = mask > HIDDEN
    if mask.dim() > 2:
        one = all(mask.shape[i] == 1 or mask.stride(i) == 0 for i in range(1, mask.dim() - 1))
        if not one:
            raise ValueError(
                f"attn_mask of shape {tuple(mask.shape)} differs between queries or heads; features "
                "can hide keys only: give [batch, 1, 1, keys], and is_causal for the rest"
            )
        mask = mask[(slice(None), *([0] * (mask.dim() - 2)))]
    if mask.dim() == 1:
        mask = mask[None]
    if mask.shape[-1] != keys or mask.shape[0] not in (1, batch):
        raise ValueError(f"attn_mask of shape {tuple(mask.shape)} for {batch} × {keys} keys")
    return mask.expand(batch, keys).contiguous()


def kernel(scale: float | None) -> dict[str, Any]:
    """The kernel of attention whose logits are multiplied by ``scale``, 1/√dim by default, as arguments of
    what fits maps, where ``scale`` multiplies the vectors on either side."""
    if scale is None:
        return {"kernel": "attention"}
    if not scale > 0:
        raise ValueError(f"scale: {scale} is not positive")
    return {"kernel": "softmax", "scale": scale**0.5}


@torch.compiler.disable
@torch.no_grad()
def fit_maps(
    q: Tensor,
    k: Tensor,
    *,
    key_mask: Tensor | None = None,
    scale: float | None = None,
    features: int = 256,
    family: str = "balanced",
    coupling: str = "orthogonal",
    seed: int = 0,
) -> Tensor:
    """Maps for these queries and keys, one per head, as the tensor that ``favor_attention`` takes.

    ``scale`` is that of ``scaled_dot_product_attention``: 1/√dim by default.
    """
    dtype = torch.promote_types(q.dtype, k.dtype)
    maps = _native.fit_maps(
        *(to_array(x.to(dtype)) for x in (q, k)),
        key_mask=to_array(key_mask),
        features=features,
        family=family,
        coupling=coupling,
        seed=seed,
        **kernel(scale),
    )
    return pack(maps).to(q.device)
