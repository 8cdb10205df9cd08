"""The engine as registered operators: autograd, torch.compile and the rest of torch know them."""

# Not postponed: the operators' schemas are read from these annotations.
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import BFLOAT16, _native
from ._maps import unpack


def to_array(x: Optional[Tensor]) -> Any:  # noqa: UP045
    """A tensor as an array, without a copy if it is on the CPU; None stays None."""
    if x is None:
        return None
    x = x.detach().cpu()
    if x.dtype == torch.bfloat16:
        return x.view(torch.int16).numpy().view(BFLOAT16)
    return x.numpy()


def to_tensor(array: NDArray[Any]) -> Tensor:
    """An array as a tensor, without a copy."""
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _options(
    maps: Tensor,
    key_mask: Optional[Tensor],  # noqa: UP045
    causal: bool,
    near: int,
    global_keys: int,
    routed: Sequence[int],
    exact_heads: Sequence[int],
) -> dict[str, Any]:
    return {
        "maps": unpack(maps),
        "exact_heads": exact_heads,
        "key_mask": to_array(key_mask),
        "causal": causal,
        "near": near,
        "global_keys": global_keys,
        # None is no type of an operator: no numbers stand for it.
        "routed": tuple(routed) or None,
        "threads": torch.get_num_threads(),
    }


@torch.library.custom_op("favor_sharp::attention", mutates_args=(), device_types="cpu")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: Tensor,
    key_mask: Optional[Tensor],  # noqa: UP045
    causal: bool,
    near: int,
    global_keys: int,
    routed: Sequence[int],
    exact_heads: Sequence[int],
) -> Tensor:
    """Attention by features, but for some heads, by the engine."""
    options = _options(maps, key_mask, causal, near, global_keys, routed, exact_heads)
    return to_tensor(_native.attention(*(to_array(x) for x in (q, k, v)), **options))


@attention.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: Tensor,
    key_mask: Optional[Tensor],  # noqa: UP045
    causal: bool,
    near: int,
    global_keys: int,
    routed: Sequence[int],
    exact_heads: Sequence[int],
) -> Tensor:
    return q.new_empty((*q.shape[:-1], v.shape[-1]))


@torch.library.custom_op("favor_sharp::attention_backward", mutates_args=(), device_types="cpu")
def attention_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    out_gradient: Tensor,
    maps: Tensor,
    key_mask: Optional[Tensor],  # noqa: UP045
    causal: bool,
    near: int,
    global_keys: int,
    routed: Sequence[int],
    exact_heads: Sequence[int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Its gradients, by recomputation."""
    arrays = (to_array(x) for x in (q, k, v, out, out_gradient))
    options = _options(maps, key_mask, causal, near, global_keys, routed, exact_heads)
    to_q, to_k, to_v = (to_tensor(g) for g in _native.attention_backward(*arrays, **options))
    return to_q, to_k, to_v


@attention_backward.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    out_gradient: Tensor,
    maps: Tensor,
    key_mask: Optional[Tensor],  # noqa: UP045
    causal: bool,
    near: int,
    global_keys: int,
    routed: Sequence[int],
    exact_heads: Sequence[int],
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, k, v, maps, key_mask, *ctx.options = inputs
    ctx.save_for_backward(q, k, v, output, maps, key_mask)


def _differentiate(ctx: Any, out_gradient: Tensor) -> tuple[Optional[Tensor], ...]:  # noqa: UP045
    q, k, v, out, maps, key_mask = ctx.saved_tensors
    gradients = attention_backward(q, k, v, out, out_gradient, maps, key_mask, *ctx.options)
    return (*gradients, None, None, *(None for _ in ctx.options))


attention.register_autograd(_differentiate, setup_context=_save)
