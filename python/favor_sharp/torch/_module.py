"""The module: a drop-in for ``nn.MultiheadAttention`` whose maps follow the training."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from .. import FeatureMap, Moments
from ._attention import Engine, attend
from ._maps import pack


class FavorAttention(nn.Module):
    """Multi-head attention by features.

    Arguments, parameters and calls are those of ``nn.MultiheadAttention``, whose ``state_dict`` it
    loads; weights are not returned, because they never exist, and dropout acts on the outputs. Masks
    hide keys; pairs only by ``is_causal`` or a causal ``attn_mask``.

    Every ``redraw`` calls in training mode (``None``: only once) the maps are fitted anew to a running
    mean of the statistics, with a new draw; the other calls and evaluation use them as they are.
    Causal calls use statistics of earlier calls alone. Before the first call in training mode, or
    ``calibrate``, maps know nothing of the data: right on average, but with more noise. All of this is
    in buffers.
    """

    # torch's TransformerEncoderLayer computes exact attention itself, without a call of this module,
    # if it finds the layout that this word promises.
    _qkv_same_embed_dim = False

    maps: Tensor
    statistics: Tensor
    calls: Tensor

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        features: int = 256,
        family: str = "balanced",
        coupling: str = "orthogonal",
        seed: int = 0,
        redraw: int | None = 1000,
        keep: float = 0.9,
        near: int = 0,
        engine: Engine = "auto",
    ) -> None:
        super().__init__()
        if add_bias_kv or add_zero_attn:
            raise ValueError("add_bias_kv and add_zero_attn are not offered")
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is no multiple of num_heads {num_heads}")
        if redraw is not None and redraw < 1:
            raise ValueError(f"redraw: every {redraw} calls makes no sense; None is never")
        if not 0 <= keep <= 1:
            raise ValueError(f"keep: {keep} is not between 0 and 1")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.dropout, self.batch_first = dropout, batch_first
        self.features, self.family, self.coupling = features, family, coupling
        self.seed, self.redraw, self.keep, self.near, self.engine = seed, redraw, keep, near, engine
        make = {"device": device, "dtype": dtype}
        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = nn.Parameter(torch.empty(3 * embed_dim, embed_dim, **make))
        else:
            sizes = {"q": embed_dim, "k": self.kdim, "v": self.vdim}
            for name, size in sizes.items():
                weight = nn.Parameter(torch.empty(embed_dim, size, **make))
                self.register_parameter(f"{name}_proj_weight", weight)
            self.register_parameter("in_proj_weight", None)
        bias_parameter = nn.Parameter(torch.zeros(3 * embed_dim, **make)) if bias else None
        self.register_parameter("in_proj_bias", bias_parameter)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, **make)
        for name, parameter in self.named_parameters():
            if "proj_weight" in name:
                nn.init.xavier_uniform_(parameter)
        if bias:
            nn.init.zeros_(self.out_proj.bias)
        d = self.head_dim
        self.register_buffer(
            "maps", self._fit([_standard(d)] * num_heads, seed).to(device or "cpu")
        )
        # Weight, mean and covariance of queries and of keys for each head, as the bits of float64.
        statistics = torch.zeros(2, num_heads, 1 + d + d * d, dtype=torch.int64, device=device)
        self.register_buffer("statistics", statistics)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64, device=device))

    @classmethod
    def from_multihead(cls, other: nn.MultiheadAttention, **options: Any) -> FavorAttention:
        """A module with the weights of a ``nn.MultiheadAttention``."""
        if other.bias_k is not None or other.add_zero_attn:
            raise ValueError("add_bias_kv and add_zero_attn are not offered")
        weight = other.out_proj.weight
        made = cls(
            other.embed_dim,
            other.num_heads,
            dropout=other.dropout,
            bias=other.in_proj_bias is not None,
            kdim=other.kdim,
            vdim=other.vdim,
            batch_first=other.batch_first,
            device=weight.device,
            dtype=weight.dtype,
            **options,
        )
        made.load_state_dict(other.state_dict(), strict=False)
        return made.train(other.training)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        """The outputs, and ``None`` where ``nn.MultiheadAttention`` may give weights."""
        alone = query.dim() == 2
        if alone:
            query, key, value = (x[None] for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        causal = is_causal or (attn_mask is not None and _check_causal(attn_mask))
        mask = None if key_padding_mask is None else _visible(key_padding_mask)
        q, k, v = self._project(query, key, value)
        if self.training:
            self._follow(q, k, mask, causal)
        out = attend(q, k, v, self.maps, mask, causal, self.near, self.engine)
        out = functional.dropout(out, self.dropout, self.training)
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        if alone:
            return out[0], None
        return (out if self.batch_first else out.transpose(0, 1)), None

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        biases = [None] * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        sides = zip((query, key, value), weights, biases, strict=True)
        projected = [functional.linear(x, w, b) for x, w, b in sides]
        return [x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in projected]

    @torch.no_grad()
    def calibrate(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None
    ) -> None:
        """Fits the maps to the inputs of a call, and begins the statistics with them."""
        if not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, _ = self._project(query, key, value)
        mask = None if key_padding_mask is None else _visible(key_padding_mask)
        if mask is not None and not bool(mask.any()):
            raise ValueError("key_padding_mask: every key is padding; at least one must be seen")
        self._learn(_moments(q, k, mask), keep=0.0)
        self.maps = self._fit(self._pairs() or [], self._current_seed()).to(self.maps.device)
        self.calls.clamp_(min=2)

    # torch.compile calls this as it is; the rest of a call is traced.
    @torch.compiler.disable
    @torch.no_grad()
    def _follow(self, q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> None:
        calls = int(self.calls)
        self.calls += 1
        due = self.redraw is not None and calls % self.redraw == 0
        # The first causal call has no earlier one to learn from; the second makes up for it.
        if not (due or calls == 0 or (causal and calls == 1)):
            return
        before = self._pairs()
        self._learn(_moments(q, k, mask), self.keep)
        known = before if causal else self._pairs()
        if known is not None:
            self.maps = self._fit(known, self._current_seed()).to(self.maps.device)

    def _current_seed(self) -> int:
        return self.seed if self.redraw is None else self.seed + int(self.calls) // self.redraw

    def _fit(self, pairs: list[tuple[Moments, Moments]], seed: int) -> Tensor:
        return pack(
            FeatureMap.fit(
                q,
                k,
                features=self.features,
                family=self.family,
                coupling=self.coupling,
                kernel="attention",
                seed=seed,
            )
            for q, k in pairs
        )

    def _pairs(self) -> list[tuple[Moments, Moments]] | None:
        """The statistics of each head, once there are any."""
        numbers = self.statistics.cpu().view(torch.float64).numpy()
        if not numbers[0, 0, 0] > 0:
            return None
        d = self.head_dim

        def moments(row: NDArray[np.float64]) -> Moments:
            return Moments.from_parts(1, 1.0, row[1 : 1 + d], row[1 + d :].reshape(d, d))

        return [(moments(q), moments(k)) for q, k in zip(*numbers, strict=True)]

    def _learn(self, new: Tensor, keep: float) -> None:
        old = self.statistics.view(torch.float64)
        if keep > 0 and bool(old[0, 0, 0] > 0):
            new = _mixed(old, new, keep, self.head_dim)
        # A new tensor, not new numbers in the old one, which a graph may still hold.
        self.statistics = new.contiguous().view(torch.int64)


def _standard(dim: int) -> tuple[Moments, Moments]:
    """The statistics of data that nothing is known of."""
    standard = Moments.from_parts(1, 1.0, [0.0] * dim, torch.eye(dim, dtype=torch.float64).numpy())
    return standard, standard


def _moments(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """Weight, mean and covariance of queries and keys over batch and length, without padding."""

    def side(x: Tensor, mask: Tensor | None) -> Tensor:
        x = x.detach().to(torch.float64).transpose(1, 2).flatten(0, 1)
        if mask is not None:
            x = x[mask.flatten()]
        mean = x.mean(0)
        centred = (x - mean).transpose(0, 1)
        covariance = centred.mT @ centred / max(len(x), 1)
        weight = torch.full_like(mean[:, :1], float(len(x) > 0))
        return torch.cat([weight, mean, covariance.flatten(1)], 1)

    # A mask of keys is one of queries too if they are as many, as in self-attention.
    query_mask = mask if mask is not None and q.shape[2] == k.shape[2] else None
    return torch.stack([side(q, query_mask), side(k, mask)])


def _mixed(old: Tensor, new: Tensor, keep: float, d: int) -> Tensor:
    """The moments of a mixture of two sets."""
    out = keep * old + (1 - keep) * new
    apart = (old - new)[..., 1 : 1 + d]
    between = keep * (1 - keep) * apart[..., :, None] * apart[..., None, :]
    out[..., 1 + d :] += between.flatten(-2)
    return out


def _visible(padding: Tensor) -> Tensor:
    """True where a key is seen. ``nn.MultiheadAttention`` marks padding: True, or −∞."""
    if padding.dtype == torch.bool:
        return ~padding
    if not padding.is_floating_point():
        raise TypeError(f"key_padding_mask holds {padding.dtype}; bool is needed")
    return padding > -1e4


@torch.compiler.disable
def _check_causal(mask: Tensor) -> bool:
    """True for a causal mask; every other hides pairs, which features cannot."""
    hidden = mask if mask.dtype == torch.bool else mask <= -1e4
    rows, columns = mask.shape[-2:]
    if not hidden.any():
        return False
    if rows == columns and bool((hidden == torch.ones_like(hidden).triu(1)).all()):
        return True
    raise ValueError(
        "attn_mask: features can hide keys (key_padding_mask) or be causal, nothing else"
    )
