"""The function: as ``scaled_dot_product_attention``, by features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from .. import FeatureMap, Moments, _native
from ._maps import SCALE, pack
from ._operator import attention as engine_attention
from ._plain import plain_attention

Engine = Literal["auto", "rust", "torch"]


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
    exact_heads: Sequence[int] = (),
    engine: Engine = "auto",
) -> Tensor:
    """Attention by features over ``[batch, heads, length, dim]``, linear in the length.

    The arguments before the star are those of ``scaled_dot_product_attention``. A mask may hide keys
    (``[batch, keys]``, or any shape with a query axis of one), not pairs.

    maps: from ``fit_maps`` or ``pack``, with the scale in them. Without maps they are fitted to this
        call's queries and keys, which causal attention refuses: it would see the future.
    exact_heads: heads to compute exactly, where features do not serve.
    engine: ``"rust"`` and ``"torch"`` insist on the engine or on plain torch operations.
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
    out = _some_exact(query, key, value, maps, mask, is_causal, near, exact_heads, engine)
    return out.reshape(*lead, *out.shape[-2:])


def _some_exact(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: Tensor,
    mask: Tensor | None,
    causal: bool,
    near: int,
    exact_heads: Sequence[int],
    engine: Engine,
) -> Tensor:
    if not exact_heads:
        return attend(q, k, v, maps, mask, causal, near, engine)
    exact = [h for h in range(q.shape[1]) if h in set(exact_heads)]
    rest = [h for h in range(q.shape[1]) if h not in set(exact_heads)]
    if maps.shape[0] not in (1, q.shape[1]):
        raise ValueError("exact_heads: needs one map for all heads or one a head")
    scale = maps[:, SCALE].contiguous().view(torch.float64).square().to(q.dtype)
    scaled = q * (scale if len(scale) == 1 else scale[:, None, None]).to(q.device)
    pairs = None
    if mask is not None:
        pairs = mask[:, None, None, :]
        # Padding may hold anything, and 0 · NaN is NaN.
        k, v = (torch.where(mask[:, None, :, None], x, torch.zeros_like(x)) for x in (k, v))
        if causal:
            length = q.shape[2]
            pairs = pairs & torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    one = scaled_dot_product_attention(
        scaled[:, exact],
        k[:, exact],
        v[:, exact],
        pairs,
        is_causal=causal and mask is None,
        scale=1.0,
    )
    if pairs is not None:
        # Zeros for a query that sees no key, whatever this version of torch makes of it.
        one = torch.where(pairs.any(-1, keepdim=True), one, torch.zeros_like(one))
    if not rest:
        return one
    own = maps if maps.shape[0] == 1 else maps[rest]
    two = attend(q[:, rest], k[:, rest], v[:, rest], own, mask, causal, near, engine)
    order = torch.tensor([*exact, *rest], device=q.device).argsort()
    return torch.cat([one, two.to(one.dtype)], 1)[:, order]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: Tensor,
    mask: Tensor | None,
    causal: bool,
    near: int,
    engine: Engine = "auto",
) -> Tensor:
    """Chooses between the engine and plain operations."""
    if engine not in ("auto", "rust", "torch"):
        raise ValueError(f"engine: {engine!r} is none of 'auto', 'rust', 'torch'")
    on_cpu = q.device.type == "cpu"
    if engine == "rust" and not on_cpu:
        raise ValueError(f"engine: the Rust engine computes CPU tensors, not {q.device.type}")
    if engine == "torch" or not on_cpu:
        if near:
            raise ValueError("near: a near field is computed by the Rust engine alone, on the CPU")
        return plain_attention(q, k, v, maps, mask, causal)
    given = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    # The engine computes 16-bit numbers in float32; bfloat16 is unknown to NumPy.
    dtype = torch.float32 if given == torch.bfloat16 else given
    out = engine_attention(*(x.to(dtype) for x in (q, k, v)), maps, mask, causal, near)
    return out.to(given)


def key_mask(mask: Tensor | None, batch: int, keys: int) -> Tensor | None:
    """A mask of keys as ``[batch, keys]`` of bool, True where a key is seen."""
    if mask is None:
        return None
    if mask.dtype != torch.bool:
        if not mask.is_floating_point():
            raise TypeError(f"attn_mask holds {mask.dtype}; bool or floating numbers are needed")
        # An additive mask: nothing, or as good as −∞.
        mask = mask > -1e4
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
    """Maps for these queries and keys, one a head, as the tensor that ``favor_attention`` takes.

    ``scale`` is that of ``scaled_dot_product_attention``: 1/√dim by default.
    """
    rows = [
        x.detach().to("cpu", torch.promote_types(x.dtype, torch.float32)).numpy() for x in (q, k)
    ]
    mask = None if key_mask is None else key_mask.cpu().numpy()
    kernel = (
        {"kernel": "attention"} if scale is None else {"kernel": "softmax", "scale": scale**0.5}
    )
    options = {"features": features, "family": family, "coupling": coupling, "seed": seed} | kernel
    if mask is None or q.shape[-2] == k.shape[-2]:
        return pack(_native.fit_maps(*rows, key_mask=mask, **options)).to(q.device)
    # As many queries as keys share their padding, as in self-attention; otherwise only keys have it.
    heads = [x.reshape(-1, *x.shape[-3:]).swapaxes(0, 1) for x in rows]
    queries, keys = (x.reshape(len(x), -1, x.shape[-1]) for x in heads)
    made = [
        FeatureMap.fit(Moments(a), Moments(b, mask.ravel().astype(float)), **options)
        for a, b in zip(queries, keys, strict=True)
    ]
    return pack(made).to(q.device)
