"""The module: a drop-in for ``nn.MultiheadAttention`` whose maps follow the training."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .. import AdaptiveMaps, FeatureMap, HeadReport, LearnedHead, learn_maps
from .._learn import LONGEST, Progress, most_sequences
from .._native import KEEP, LEARN_STEPS, REDRAW
from ._attention import HIDDEN, ExactKeys, Implementation, attend, exact_keys
from ._learnable import learnable
from ._maps import HEADER, contents, file_tensor, header, pack, unpack
from ._operator import to_array

BUFFERS = ("maps", "map_state")


class FavorAttention(nn.Module):
    """Multi-head attention by features.

    Arguments, parameters and calls are those of ``nn.MultiheadAttention``, whose ``state_dict`` it
    loads; weights are not returned, because they never exist, and dropout acts on the outputs. Masks
    hide keys; pairs only by ``is_causal`` or a causal ``attn_mask``.

    Every ``redraw`` calls in training mode (``None``: only once), the maps are drawn again and fitted to a
    running average of the statistics, with decay ``keep`` per call; all other calls use them unchanged.
    Causal calls only use statistics of earlier calls. Before the first call in training mode or
    ``calibrate``, maps are not fitted to any data: still unbiased, but noisier. All of this state is in
    buffers, which take precedence over the arguments.

    ``near``, ``global_keys`` and ``routed`` are exact keys, as in ``favor_sharp.attention``, on the CPU only.
    They are not in the buffers; loading maps learned with different exact keys gives a warning.
    """

    # torch's TransformerEncoderLayer computes exact attention itself, without a call of this module,
    # if it finds the layout that this word promises.
    _qkv_same_embed_dim = False

    # The file of the maps, and that of the ``AdaptiveMaps`` that they come from.
    maps: Tensor
    map_state: Tensor

    # The latter as an object, with the header of the buffer that it was read from or written to.
    _live: tuple[bytes, AdaptiveMaps] | None = None

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
        redraw: int | None = REDRAW,
        keep: float = KEEP,
        near: int = 0,
        global_keys: int = 0,
        routed: tuple[int, int] | None = None,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__()
        if add_bias_kv or add_zero_attn:
            raise ValueError("add_bias_kv and add_zero_attn are not supported")
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is no multiple of num_heads {num_heads}")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.dropout, self.batch_first = dropout, batch_first
        self.features, self.family, self.coupling = features, family, coupling
        self.seed, self.redraw, self.keep = seed, redraw, keep
        self.implementation = implementation
        self.near, self.global_keys, self.routed = exact_keys(near, global_keys, routed)
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
        adaptive = AdaptiveMaps(
            num_heads,
            self.head_dim,
            features=features,
            family=family,
            coupling=coupling,
            seed=seed,
            redraw=redraw,
            keep=keep,
        )
        files = pack(adaptive.maps()), self._state_file(adaptive)
        for name, file in zip(BUFFERS, files, strict=True):
            self.register_buffer(name, file.to(device or "cpu"))

    @classmethod
    def from_multihead(cls, other: nn.MultiheadAttention, **options: Any) -> FavorAttention:
        """A module with the weights of a ``nn.MultiheadAttention``."""
        if other.bias_k is not None or other.add_zero_attn:
            raise ValueError("add_bias_kv and add_zero_attn are not supported")
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
        maps = self._follow(q, k, mask, causal) if self.training else self.maps
        keys = exact_keys(self.near, self.global_keys, self.routed)
        out = attend(q, k, v, maps, mask, causal, keys, implementation=self.implementation)
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
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        learn: bool = False,
        steps: int = LEARN_STEPS,
        progress: Progress = None,
    ) -> list[HeadReport]:
        """Fits the maps to the inputs of a call, and begins the statistics with them.

        With ``learn``, the maps are then learned for the module's exact keys, causal or not, and a report
        per head is returned. They are learned from the first 512 tokens of each sequence and from at most
        131072 tokens in total; sequences that are all padding are skipped. The next draw in training mode
        replaces them; ``redraw=None`` keeps them. ``steps`` and ``progress`` are those of
        ``favor_sharp.learn_maps``. An interrupted call changes nothing.
        """
        if not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = self._project(query, key, value)
        mask = None if key_padding_mask is None else _visible(key_padding_mask)
        if mask is not None and not bool(mask.any()):
            raise ValueError("key_padding_mask: every key is padding; at least one must be seen")
        # A copy: what interrupts the call leaves the module as it was.
        adaptive = AdaptiveMaps.from_bytes(self._adaptive().to_bytes())
        adaptive.calibrate(to_array(q), to_array(k), key_mask=to_array(mask))
        adaptive.end_calibration()
        heads: list[LearnedHead] = []
        if learn:
            how = {"causal": is_causal, "steps": steps, "progress": progress}
            heads = self._learn(adaptive.maps()[0], (q, k, v), mask, **how)
            adaptive.set_maps([head.map for head in heads])
        self._write(adaptive)
        return [head.report for head in heads]

    def _learn(
        self,
        start: FeatureMap,
        call: tuple[Tensor, Tensor, Tensor],
        mask: Tensor | None,
        **how: Any,
    ) -> list[LearnedHead]:
        """Maps for what a call shows, from one like the start on."""
        q, k, _ = call
        most = most_sequences(max(q.shape[2], k.shape[2]), LONGEST)
        *arrays, visible = map(to_array, learnable(*call, mask, LONGEST, most))
        if not len(visible):
            raise ValueError(
                f"key_padding_mask: the first {LONGEST} keys of every sequence are padding"
            )
        return learn_maps(
            *arrays,
            features=start.features,
            near=self.near,
            global_keys=self.global_keys,
            routed=self.routed,
            key_mask=None if mask is None else visible,
            family=start.family,
            coupling=start.coupling,
            seed=start.seed,
            threads=torch.get_num_threads(),
            **how,
        )

    # torch.compile calls this as it is; the rest of a call is traced.
    @torch.compiler.disable
    @torch.no_grad()
    def _follow(self, q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """The maps of a training call."""
        adaptive = self._adaptive()
        before = adaptive.maps()
        arrays = to_array(q), to_array(k)
        own = adaptive.training(*arrays, key_mask=to_array(mask), causal=causal)
        after = adaptive.maps()
        if after is not before:
            self._write(adaptive)
        # A causal call may not use what it has shown.
        return self.maps if own is after else pack(own).to(self.maps.device)

    @property
    def calls(self) -> int:
        """Calls in training mode so far."""
        return self._adaptive().calls

    def _adaptive(self) -> AdaptiveMaps:
        """What the maps come from: read again if somebody wrote to the buffer."""
        own = header(self.map_state)
        if self._live is None or self._live[0] != own:
            self._live = own, AdaptiveMaps.from_bytes(contents(self.map_state))
        return self._live[1]

    def _state_file(self, adaptive: AdaptiveMaps) -> Tensor:
        """Its buffer, of a length that depends on the sizes alone."""
        d = self.head_dim
        length = 8 + HEADER + 16 * self.num_heads * (2 + d + d * d)
        return file_tensor(adaptive.to_bytes(), length)

    # New tensors, not new numbers in the old ones, which a graph may still hold.
    def _write(self, adaptive: AdaptiveMaps) -> None:
        self.maps = pack(adaptive.maps()).to(self.maps.device)
        self._write_state(adaptive)

    def _write_state(self, adaptive: AdaptiveMaps) -> None:
        self.map_state = self._state_file(adaptive).to(self.maps.device)
        self._live = header(self.map_state), adaptive

    def _count(self) -> None:
        """Writes the calls since the maps last changed to the buffer, for those who take it away."""
        if self._live is not None:
            self._write_state(self._adaptive())

    def __getstate__(self) -> dict[str, Any]:
        self._count()
        return {name: value for name, value in self.__dict__.items() if name != "_live"}

    def _save_to_state_dict(self, *arguments: Any, **more: Any) -> None:
        self._count()
        super()._save_to_state_dict(*arguments, **more)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *more: Any) -> None:
        # The files of a checkpoint may be of other lengths.
        for name in BUFFERS:
            file = state_dict.get(prefix + name)
            if isinstance(file, Tensor) and file.dtype == torch.uint8:
                setattr(self, name, torch.empty_like(file, device=self.maps.device))
        super()._load_from_state_dict(state_dict, prefix, *more)
        if prefix + "maps" in state_dict and self.maps.device.type != "meta":
            _compare(self.maps, exact_keys(self.near, self.global_keys, self.routed))


def _compare(maps: Tensor, keys: ExactKeys) -> None:
    """Warns of maps that were learned beside other exact keys."""
    for learned in (map.learned for map in unpack(maps)):
        if learned is None:
            continue
        own = ExactKeys(*(learned[name] for name in ExactKeys._fields))
        if own != keys:
            warnings.warn(
                f"maps learned with {_words(own)} are used with {_words(keys)}; they are most accurate with "
                "the exact keys they were learned with: give these to FavorAttention, or learn again",
                stacklevel=2,
            )
            return


def _words(keys: ExactKeys) -> str:
    return ", ".join(f"{name}={value}" for name, value in keys._asdict().items())


def _visible(padding: Tensor) -> Tensor:
    """True where a key is seen. ``nn.MultiheadAttention`` marks padding: True, or −∞."""
    if padding.dtype == torch.bool:
        return ~padding
    if not padding.is_floating_point():
        raise TypeError(f"key_padding_mask holds {padding.dtype}; bool is needed")
    return padding > HIDDEN


@torch.compiler.disable
def _check_causal(mask: Tensor) -> bool:
    """True for a causal mask; every other hides pairs, which features cannot."""
    hidden = mask if mask.dtype == torch.bool else mask <= HIDDEN
    rows, columns = mask.shape[-2:]
    if not hidden.any():
        return False
    if rows == columns and bool((hidden == torch.ones_like(hidden).triu(1)).all()):
        return True
    raise ValueError(
        "attn_mask: features can hide keys (key_padding_mask) or be causal, nothing else"
    )
