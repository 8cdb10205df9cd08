"""The ways to attend that are compared: each is made for some heads, and called on others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

import favor_sharp as fs

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
Calibration = tuple[Tensor, Tensor, Tensor]
PARTS = {
    "learned": {},
    "learned, ±16": {"near": 16},
    "learned, ±16, 4 × 8": {"near": 16, "routed": (4, 8)},
}
FAMILIES = {"FAVOR+": "pos", "FAVOR#": "sde", "balanced": "balanced"}


def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v)


def ours_exact(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.from_numpy(fs.attention(q.numpy(), k.numpy(), v.numpy()))


def window(near: int) -> Attend:
    """Keys at most so far away, exactly and nothing else: blocks of queries with three blocks of keys."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        length, dim = q.shape[2:]
        blocks = -(-length // near)
        fill = blocks * near - length
        q = pad(q, (0, 0, 0, fill)).unflatten(2, (blocks, near))
        k, v = (pad(x, (0, 0, near, near + fill)).unfold(2, 3 * near, near).mT for x in (k, v))
        logits = q @ k.mT * dim**-0.5
        row, column = torch.arange(near)[:, None], torch.arange(3 * near)
        seen = (column >= row) & (column <= row + 2 * near)
        place = torch.arange(blocks)[:, None, None] * near + column - near
        seen = seen & (place >= 0) & (place < length)
        weights = logits.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num()
        return (weights @ v).flatten(2, 3)[:, :, :length]

    return attend


def nystrom(landmarks: int) -> Attend:
    """Nyströmformer (Xiong et al., 2021): means of segments as landmarks, and a pseudoinverse. Its cut is the
    best of 1e-4 to 0.3 on sequences that are not scored."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scale = q.shape[-1] ** -0.5
        left, right = (
            torch.stack([part.mean(2) for part in x.tensor_split(landmarks, 2)], 2) for x in (q, k)
        )
        first = (q @ right.mT * scale).softmax(-1)
        middle = (left @ right.mT * scale).softmax(-1)
        last = (left @ k.mT * scale).softmax(-1)
        return first @ (torch.linalg.pinv(middle, rtol=0.03) @ (last @ v))

    return attend


def performer(features: int, dim: int) -> Attend:
    """FAVOR+ of performer-pytorch, with its own scaling and its ε."""
    from performer_pytorch import FastAttention

    attention = FastAttention(dim_heads=dim, nb_features=features, causal=False)
    return lambda q, k, v: attention(q, k, v)


def features(maps: list[fs.FeatureMap], **keys: object) -> Attend:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.from_numpy(fs.attention(q.numpy(), k.numpy(), v.numpy(), maps, **keys))

    return attend


def learned(calibration: Calibration, count: int, steps: int, keys: dict) -> list[fs.FeatureMap]:
    arrays = [np.ascontiguousarray(x.numpy()) for x in calibration]
    return [head.map for head in fs.learn_maps(*arrays, features=count, steps=steps, **keys)]


def ways(calibration: Calibration, counts: list[int], steps: int) -> Iterator[tuple[str, Attend]]:
    """All of them, by name, those that fit or learn from the calibration data made on the way."""
    q, k, _ = calibration
    yield "exact, ours", ours_exact
    yield "exact, SDPA", sdpa
    for near in (16, 64, 256):
        yield f"window ±{near}", window(near)
    for count in counts:
        for name, family in FAMILIES.items():
            fitted = fs.fit_maps(q.numpy(), k.numpy(), features=count, family=family)
            yield f"{name}, {count}", features(fitted)
        for name, keys in PARTS.items():
            yield f"{name}, {count}", features(learned(calibration, count, steps, keys), **keys)
        yield f"performer-pytorch, {count}", performer(count, q.shape[-1])
        yield f"Nyström, {count}", nystrom(count)
