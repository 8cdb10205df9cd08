"""Other ways to spend the same operations, plainly in PyTorch: what learned maps stand beside.

Each is a function of queries, keys and values ``[batch, heads, length, dim]`` and a mask of keys, and looks
at all pairs. Only outputs are of interest here, not time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from form import Form
from torch import Tensor

import favor_sharp as fs

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class Keys:
    """The keys that are exact beside the features."""

    near: int = 0
    routed: tuple[int, int] | None = None

    def named(self) -> dict:
        """As arguments of the package."""
        return {"near": self.near, "routed": self.routed}

    @property
    def members(self) -> int:
        return self.routed[0] * self.routed[1] if self.routed else 0


NO_KEYS = Keys()


def logits(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """Exact logits; masked keys have none."""
    found = q @ k.mT * q.shape[-1] ** -0.5
    return found if mask is None else found.masked_fill(~mask[:, None, None], -torch.inf)


def average(log_weights: Tensor, v: Tensor) -> Tensor:
    return log_weights.softmax(-1).nan_to_num() @ v


def window(near: int, length: int) -> Tensor:
    """The pairs that are at most so far apart."""
    place = torch.arange(length)
    return (place[:, None] - place).abs() <= near


def exact(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    return average(logits(q, k, mask), v)


def mean(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    return average(logits(0 * q, k, mask), v)


def window_alone(near: int) -> Attend:
    """An exact window and nothing else."""

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        far = ~window(near, q.shape[2])
        return average(logits(q, k, mask).masked_fill(far, -torch.inf), v)

    return attend


# Singular values that the pseudoinverse of landmarks leaves out, relative to the largest, chosen by
# control_settings.py.
CUT = 0.03


def nystrom(landmarks: int, cut: float = CUT) -> Attend:
    """Nyströmformer (Xiong et al., 2021): means of segments as landmarks, and a pseudoinverse."""

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        out = torch.empty(*q.shape[:3], v.shape[-1], dtype=v.dtype)
        for b in range(len(q)):
            rows = slice(None) if mask is None else mask[b]
            own, keys, values = q[b].double(), k[b][:, rows].double(), v[b][:, rows].double()
            count = min(landmarks, keys.shape[1])
            left, right = _segments(q[b][:, rows].double(), count), _segments(keys, count)
            pairs = ((own, right), (left, right), (left, keys))
            first, middle, last = (logits(a, c, None).softmax(-1) for a, c in pairs)
            out[b] = (first @ torch.linalg.pinv(middle, rtol=cut) @ (last @ values)).to(v.dtype)
        return out

    return attend


def _segments(x: Tensor, count: int) -> Tensor:
    return torch.stack([part.mean(1) for part in x.tensor_split(count, 1)], 1)


class Features:
    """The features of a layer: logarithms for queries and keys, ``[batch, heads, length, features]``."""

    def __init__(self, of: list[fs.FeatureMap] | Form) -> None:
        self.of = of

    def logs(self, x: Tensor, side: str) -> Tensor:
        if isinstance(self.of, Form):
            return self.of.logs(x.double(), side)
        found = [
            torch.from_numpy(m.log_features(x[:, h].flatten(0, 1).double().numpy(), side=side))
            for h, m in enumerate(self.of)
        ]
        return torch.stack(found).unflatten(1, (len(x), -1)).transpose(0, 1)


def log_estimates(p: Tensor, s: Tensor) -> Tensor:
    """``log Σ_m exp(p_im + s_jm) / M`` for all pairs."""
    top = s.amax(2, keepdim=True)
    p, s = p + top, (s - top).exp()
    row = p.amax(3, keepdim=True)
    return ((p - row).exp() @ s.mT).log() + row - torch.tensor(float(s.shape[-1])).log()


def members(
    p: Tensor, s: Tensor, mask: Tensor | None, routed: tuple[int, int], bonus: Tensor | None = None
) -> Tensor:
    """The pairs of queries and members of the slots that they prefer; a bonus for keys helps them in."""
    if mask is not None:
        s = s.masked_fill(~mask[:, None, :, None], -torch.inf)
    slots = (p + s.logsumexp(2, keepdim=True)).topk(routed[0], 3).indices
    held = (
        (s if bonus is None else s + bonus[..., None]).topk(min(routed[1], s.shape[2]), 2).indices
    )
    holds = torch.zeros_like(s, dtype=torch.bool).scatter(2, held, True)
    prefers = torch.zeros_like(p, dtype=torch.bool).scatter(3, slots, True)
    return (prefers.float() @ holds.float().mT) > 0


def with_features(
    features: Features,
    keys: Keys,
    *,
    far: bool = True,
    global_keys: int = 0,
    by_norm: bool = False,
) -> Attend:
    """Features and exact keys in one normalisation, or the exact keys alone; with keys that are exact for
    all queries, chosen as LoLA does (arXiv 2505.23666): those whose value the features recall worst."""

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        p, s = features.logs(q, "query"), features.logs(k, "key")
        weights = logits(q, k, mask).double()
        near = torch.zeros(*weights.shape, dtype=torch.bool)
        if keys.near:
            near |= window(keys.near, q.shape[2])
        if keys.routed:
            bonus = v.double().norm(dim=-1).log() if by_norm else None
            near |= members(p, s, mask, keys.routed, bonus)
        if global_keys:
            recalled = average(
                _masked(log_estimates(features.logs(k, "query"), s), mask), v.double()
            )
            off = (recalled - v).norm(dim=-1)
            if mask is not None:
                off = off.masked_fill(~mask[:, None], -1)
            worst = off.topk(min(global_keys, off.shape[-1]), -1).indices
            chosen = torch.zeros_like(off, dtype=torch.bool).scatter(2, worst, True)
            near |= chosen[:, :, None]
        rest = _masked(log_estimates(p, s), mask) if far else torch.full_like(weights, -torch.inf)
        return average(torch.where(near, weights, rest), v.double()).to(v.dtype)

    return attend


def _masked(log_weights: Tensor, mask: Tensor | None) -> Tensor:
    return (
        log_weights if mask is None else log_weights.masked_fill(~mask[:, None, None], -torch.inf)
    )
