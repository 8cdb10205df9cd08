"""The engine as registered operators: autograd, torch.compile and the rest of torch know them."""

# Not postponed: the operators' schemas are read from these annotations.
from typing import Optional

import torch
from torch import Tensor

from .. import _native
from ._maps import unpack


def _array(x: Tensor | None):
    return None if x is None else x.detach().numpy()


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
        *(_array(x) for x in (q, k, v)),
        unpack(maps, q.shape[-1]),
        key_mask=_array(key_mask),
        causal=causal,
        near=near,
        threads=torch.get_num_threads(),
    )
    return torch.from_numpy(out)


@attention.register_fake
def _(q, k, v, maps, key_mask, causal, near):
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
        *(_array(x) for x in (q, k, v, out, gradient)),
        unpack(maps, q.shape[-1]),
        key_mask=_array(key_mask),
        causal=causal,
        near=near,
        threads=torch.get_num_threads(),
    )
    return tuple(torch.from_numpy(g) for g in gradients)


@attention_backward.register_fake
def _(q, k, v, out, gradient, maps, key_mask, causal, near):
    return tuple(x.new_empty(x.shape) for x in (q, k, v))


def _save(ctx, inputs, output):
    q, k, v, maps, key_mask, ctx.causal, ctx.near = inputs
    ctx.save_for_backward(q, k, v, output, maps, key_mask)


def _differentiate(ctx, gradient):
    q, k, v, out, maps, key_mask = ctx.saved_tensors
    gradients = attention_backward(q, k, v, out, gradient, maps, key_mask, ctx.causal, ctx.near)
    return (*gradients, None, None, None, None)


attention.register_autograd(_differentiate, setup_context=_save)
