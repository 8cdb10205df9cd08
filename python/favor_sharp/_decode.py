"""Generation with sums in place of keys: a new token costs the same after ten tokens as after a million."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from . import DecodeState, FeatureMap
from .torch import favor_attention, pack, unpack
from .torch._attention import ExactKeys


class DecodeCache(Cache):
    """What a causal model remembers of the tokens so far, for ``generate`` and for calls of the model.

    Heads with features keep sums of a fixed size on the CPU, plus the window, global keys and slot members
    that were passed to ``calibrate``. Heads that it left exact keep all their keys and values, which grow
    as in any other cache.

    >>> model.generate(ids, past_key_values=favor_sharp.hf.DecodeCache())  # doctest: +SKIP
    """

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=DecodeLayer)

    @property
    def size_in_bytes(self) -> int:
        """The memory of all layers, without the maps."""
        return sum(layer.size_in_bytes for layer in self.layers)


class DecodeLayer(CacheLayerMixin):
    """One layer: a state for each sequence, so that padding is left out and beams can part."""

    is_sliding = False
    supports_early_init = False

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        """As before the first token."""
        self.tokens = 0
        self.states: list[DecodeState] = []
        # Which tokens were seen, if not all; maps, keys and values of exact heads.
        self.visible: Tensor | None = None
        self.exact_maps: Tensor | None = None
        self.keys = self.values = None
        self.waiting = self.is_initialized = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing: states are made for the maps of the layer that calls ``attend``."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """The new keys alone, with a note for the attention of whose they are."""
        if self.waiting:
            raise ValueError(
                "favor_sharp: the tokens before did not reach the state; begin with a new DecodeCache, "
                "and use a model whose attention is favor_sharp and gets the keys as the cache gives them"
            )
        self.waiting = self.is_initialized = True
        self.tokens += key_states.shape[-2]
        # Another tensor of the same numbers, since the note is not for other users of the keys.
        keys = key_states.view_as(key_states)
        keys.favor_layer = self
        return keys, value_states

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        maps: Tensor,
        exact: Sequence[int],
        keys: ExactKeys,
    ) -> Tensor:
        """Attention from new tokens to themselves and to all before, which then remember them."""
        if not self.waiting:
            raise ValueError(
                "favor_sharp: layers that share their keys cannot generate with a DecodeCache; "
                "use another attn_implementation"
            )
        if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
            raise ValueError(
                "favor_sharp: there are no gradients through a DecodeCache; call the model under "
                "torch.no_grad(), or without a cache"
            )
        self._check_mask(mask, q.shape[2])
        rest = [h for h in range(q.shape[1]) if h not in exact]
        out = v.new_zeros(*q.shape[:-1], v.shape[-1])
        if rest:
            own = _maps_of(maps, rest)
            out[:, rest] = self._by_features(q[:, rest], k[:, rest], v[:, rest], mask, own, keys)
        if exact:
            heads = list(exact)
            if self.exact_maps is None:
                self.exact_maps = pack(_maps_of(maps, heads))
            out[:, heads] = self._exactly(q[:, heads], k[:, heads], v[:, heads], mask)
        self.visible, self.waiting = mask, False
        return out

    def _check_mask(self, mask: Tensor | None, new: int) -> None:
        """What was summed cannot be hidden any more, and what was hidden is not in the sums."""
        before, seen = None if mask is None else mask[:, :-new], self.visible
        # None stands for no padding at all.
        before = None if before is None or bool(before.all()) else before
        seen = None if seen is None or bool(seen.all()) else seen
        same = before is seen is None
        if before is not None and seen is not None:
            same = torch.equal(before, seen)
        if not same:
            raise ValueError(
                "favor_sharp: the mask of tokens that a DecodeCache has seen has changed; give the "
                "same attention_mask as before, longer by the new tokens"
            )

    def _by_features(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        maps: list[FeatureMap],
        keys: ExactKeys,
    ) -> Tensor:
        batch, heads, length, _ = q.shape
        dtype = torch.float64 if v.dtype == torch.float64 else torch.float32
        inputs = [x.detach().to("cpu", dtype) for x in (q, k, v)]
        if not self.states:
            name = str(dtype).removeprefix("torch.")
            make = {"heads": heads, "value_dim": v.shape[-1], "dtype": name, **keys._asdict()}
            self.states = [DecodeState(maps, **make) for _ in range(batch)]
        if len(self.states) != batch:
            raise ValueError(
                f"favor_sharp: {batch} sequences for a DecodeCache of {len(self.states)}"
            )
        out = torch.zeros(batch, heads, length, v.shape[-1], dtype=dtype)
        for b, state in enumerate(self.states):
            rows = slice(None) if mask is None else mask[b, -length:].cpu()
            found = state.advance(*(x[b : b + 1, :, rows].numpy() for x in inputs))
            out[b, :, rows] = torch.from_numpy(found[0])
        return out.to(v.device, v.dtype)

    def _exactly(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        if self.keys is not None:
            k, v = torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2)
        self.keys, self.values = k, v
        length, before = q.shape[2], k.shape[2] - q.shape[2]
        causal = length > 1
        if causal and before:
            # Queries whose outputs nobody reads stand for the tokens before.
            q = torch.nn.functional.pad(q, (0, 0, before, 0))
        heads = range(q.shape[1])
        out = favor_attention(
            q, k, v, mask, is_causal=causal, maps=self.exact_maps, exact_heads=heads
        )
        return out[:, :, -length:]

    @property
    def size_in_bytes(self) -> int:
        """The memory of what is kept of the tokens, without the maps."""
        kept = (x for x in (self.keys, self.values, self.visible) if x is not None)
        return sum(s.size_in_bytes for s in self.states) + sum(x.nbytes for x in kept)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """As many keys as tokens so far and new ones."""
        return self.tokens + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens so far, padding included."""
        return self.tokens

    def get_max_length(self) -> int:
        """None."""
        return -1

    def crop(self, tokens_to_remove: int) -> None:
        """Refused: what is in a sum cannot be taken out of it."""
        if tokens_to_remove:
            raise ValueError(
                "favor_sharp: a DecodeCache cannot forget tokens, as assisted generation wants; keep a "
                "copy.deepcopy of it, or use another attn_implementation"
            )

    def offload(self) -> None:
        """Nothing: states are on the CPU."""

    def prefetch(self) -> None:
        """Nothing."""

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Gives each beam a copy of the state that it continues."""
        places = beam_idx.tolist()
        if self.states:
            self.states = [self.states[b].copy() for b in places]
        for name in ("keys", "values", "visible"):
            kept = getattr(self, name)
            if kept is not None:
                setattr(self, name, kept[beam_idx.to(kept.device)])

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keeps these sequences alone."""
        if indices.dtype == torch.bool:
            indices = indices.nonzero()[:, 0]
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every sequence so many times."""
        if self.is_initialized:
            batch = len(self.states) or len(self.keys if self.keys is not None else ())
            self.reorder_cache(torch.arange(batch).repeat_interleave(repeats))


def _maps_of(maps: Tensor, heads: Sequence[int]) -> list[FeatureMap]:
    """The maps of these heads: one for all, or one per head."""
    made = unpack(maps)
    return made if len(made) == 1 else [made[h] for h in heads]
