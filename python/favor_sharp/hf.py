"""transformers: feature attention for models that choose their attention by name.

>>> import favor_sharp.hf  # doctest: +SKIP
>>> favor_sharp.hf.register()
>>> model = AutoModel.from_pretrained(name, attn_implementation="favor_sharp")
>>> favor_sharp.hf.calibrate(model, texts)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

from ._calibration import EXACT, KEYS_EXACT, KIND, MAPS, Calibration, calibrate, load
from ._convert import Conversion, convert
from ._decode import DecodeCache, DecodeLayer
from ._native import exact_is_no_slower
from ._watch import Call, watching
from .torch import favor_attention, fit_maps, unpack
from .torch._attention import ExactKeys
from .torch._plain import linear_attention

__all__ = [
    "Calibration",
    "Conversion",
    "DecodeCache",
    "calibrate",
    "convert",
    "load",
    "register",
]

NAME = "favor_sharp"

# What fits the maps of layers that were not calibrated.
_options: dict[str, Any] = {}


def register(*, features: int = 256, family: str = "balanced", seed: int = 0) -> None:
    """Registers the attention and mask for ``attn_implementation="favor_sharp"``.

    The arguments apply to layers without maps of their own (see ``calibrate``). Encoders then fit maps to
    each batch; causal models raise an error, because such maps would see the future.
    """
    _options.update(features=features, family=family, seed=seed)
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Tensor | None = None,
    **_: object,
) -> Tensor | None:
    """``[batch, keys]``, True where a key is no padding; None if there is none."""
    causal = mask_function is causal_mask_function
    if not causal and mask_function is not bidirectional_mask_function:
        raise ValueError(
            "favor_sharp: features can hide padding and the future, not windows, packed sequences or "
            "other patterns; use another attn_implementation"
        )
    if causal and q_offset + q_length != kv_offset + kv_length:
        raise ValueError("favor_sharp: static caches are not supported; use a DecodeCache")
    if attention_mask is None:
        return None
    visible = attention_mask[:, kv_offset : kv_offset + kv_length].bool()
    if visible.shape[1] != kv_length:
        raise ValueError(
            f"favor_sharp: a mask of {visible.shape[1]} keys where there are {kv_length}"
        )
    return None if bool(visible.all()) else visible


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **more: object,
) -> tuple[Tensor, None]:
    """What transformers calls in each layer: ``[batch, heads, length, dim]`` in, heads third out."""
    for name in ("position_bias", "softcap", "cache", "s_aux", "sliding_window"):
        if more.get(name) is not None:
            raise ValueError(
                f"favor_sharp: {name} is not supported; use another attn_implementation"
            )
    layer = getattr(key, "favor_layer", None)
    if key.shape[1] != query.shape[1]:
        times = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(times, 1) for x in (key, value))
    if is_causal is None:
        config = getattr(module, "config", None)
        is_causal = (
            getattr(module, "is_causal", True) and getattr(config, "is_causal", True) is not False
        )
    length, keys = query.shape[2], key.shape[2]
    if layer is not None:
        out = _decode(layer, module, query, key, value, attention_mask, bool(is_causal))
    else:
        # One query at the end sees every key.
        causal = bool(is_causal) and length > 1
        if causal and length < keys:
            # Queries whose outputs nobody reads stand for the tokens in the cache.
            query = functional.pad(query, (0, 0, keys - length, 0))
        scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
        watcher = watching()
        kind = getattr(module, KIND, None)
        if kind is not None:
            out = linear_attention(kind, query, key, value, attention_mask, causal)
        elif watcher is not None:
            call = Call(query, key, value, attention_mask, causal, scaling)
            out = watcher.record(module, call)
        else:
            cached = bool(is_causal) and length < keys
            maps, exact = _maps(
                module, query, key, attention_mask, bool(is_causal), cached, scaling
            )
            out = favor_attention(
                query,
                key,
                value,
                attention_mask,
                is_causal=causal,
                maps=maps,
                exact_heads=exact,
                **_exact_keys(module)._asdict(),
            )
    out = functional.dropout(out[:, :, -length:], dropout, module.training)
    return out.transpose(1, 2).contiguous(), None


def _maps(
    module: nn.Module,
    q: Tensor,
    k: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    cached: bool,
    scaling: float,
) -> tuple[Tensor, Sequence[int]]:
    """The maps of a layer, and the heads to compute exactly."""
    if is_causal:
        maps, exact = _frozen(module)
        if cached and len(exact) < q.shape[1]:
            raise ValueError(
                "favor_sharp: features over a growing cache would be more work than exact attention; "
                "give past_key_values=favor_sharp.hf.DecodeCache() to generate or to the first call"
            )
        return maps, exact
    maps, exact = getattr(module, MAPS, None), getattr(module, EXACT, ())
    if maps is None:
        return fit_maps(q, k, key_mask=mask, scale=scaling, **_options), ()
    # Not in causal layers, where a text would change its beginning by growing long.
    if getattr(module, "favor_short_is_exact", False) and _is_short(module, q, k, maps):
        exact = range(q.shape[1])
    return maps, exact


def _frozen(module: nn.Module) -> tuple[Tensor, Sequence[int]]:
    maps = getattr(module, MAPS, None)
    if maps is None:
        raise ValueError(
            "favor_sharp: a causal model needs maps before its first call; make them with "
            "favor_sharp.hf.calibrate(model, texts)"
        )
    return maps, getattr(module, EXACT, ())


def _exact_keys(module: nn.Module) -> ExactKeys:
    return getattr(module, KEYS_EXACT, ExactKeys())


def _decode(
    layer: DecodeLayer,
    module: nn.Module,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool,
) -> Tensor:
    if not is_causal:
        raise ValueError("favor_sharp: a DecodeCache is for causal attention; use a DynamicCache")
    maps, exact = _frozen(module)
    return layer.attend(q, k, v, mask, maps, exact, _exact_keys(module))


def _is_short(module: nn.Module, q: Tensor, k: Tensor, maps: Tensor) -> bool:
    """Whether exact attention takes no longer."""
    keys = _exact_keys(module)._asdict()
    return exact_is_no_slower(unpack(maps)[0], q.shape[2], k.shape[2], **keys)
