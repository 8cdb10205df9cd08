"""The engine as registered operators: autograd, torch.compile and the rest of torch know them."""

# Not postponed: the operators' schemas are read from these annotations.
from typing import Any, Optional

import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import _native
from ._maps import unpack


def _array(x: Tensor) -> NDArray[Any]:
    return x.detach().numpy()


def _optional(x: Optional[Tensor]) -> Optional[NDArray[Any]]:  # noqa: UP045
    return None if x is None else _array(x)


@torch.library.custom_op("favor_sharp::attention", mutates_args=(), device_types="cpu")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: Tensor,
    key_mask: Optional[Tensor],  # noqa: UP045
    causal: bool,
    near: int,
) -> Tensor:
    """Attention by features, by the engine."""
    out = _native.attention(
        _array(q),
        _array(k),
        _array(v),
        unpack(maps, q.shape[-1]),
        key_mask=_optional(key_mask),
        causal=causal,
        near=near,
        threads=torch.get_num_threads(),
    )
    return torch.from_numpy(out)


@attention.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: Tensor,
    key_mask: Optional[Tensor],  # noqa: UP045
    causal: bool,
    near: int,
) -> Tensor:
    return q.new_empty((*q.shape[:-1], v.shape[-1]))


@torch.library.custom_op("favor_sharp::attention_backward", mutates_args=(), device_types="cpu")
def attention_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    gradient: Tensor,
    maps: Tensor,
    key_mask: Optional[Tensor],  # noqa: UP045
    causal: bool,
    near: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Its gradients, by recomputation."""
    gradients = _native.attention_backward(
        _array(q),
        _array(k),
        _array(v),
        _array(out),
        _array(gradient),
        unpack(maps, q.shape[-1]),
        key_mask=_optional(key_mask),
        causal=causal,
        near=near,
        threads=torch.get_num_threads(),
    )
    to_q, to_k, to_v = (torch.from_numpy(g) for g in gradients)
    return to_q, to_k, to_v


@attention_backward.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    gradient: Tensor,
    maps: Tensor,
    key_mask: Optional[Tensor],  # noqa: UP045
    causal: bool,
    near: int,
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, k, v, maps, key_mask, ctx.causal, ctx.near = inputs
    ctx.save_for_backward(q, k, v, output, maps, key_mask)


def _differentiate(ctx: Any, gradient: Tensor) -> tuple[Optional[Tensor], ...]:  # noqa: UP045
    q, k, v, out, maps, key_mask = ctx.saved_tensors
    gradients = attention_backward(q, k, v, out, gradient, maps, key_mask, ctx.causal, ctx.near)
    return (*gradients, None, None, None, None)


attention.register_autograd(_differentiate, setup_context=_save)
