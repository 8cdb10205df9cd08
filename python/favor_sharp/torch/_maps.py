"""Feature maps as one tensor: what modules keep in buffers and operators take.

One row a map, of 64-bit integers that hold the bits of the numbers: a change of a module's floating
type leaves them as they are. A row is a header of eight words, then ω, the quadratic, the two
transforms and the two shifts.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import FeatureMap

FAMILIES = "pos hyperbolic ge sade ade sde sde_shifted ade_shifted balanced".split()
COUPLINGS = "iid orthogonal simplex antithetic sobol".split()
NAMES = "omega quadratic query_transform key_transform query_shift key_shift".split()

HEADER = 8
# Words of the header: two of a digest of the rest, then these.
FAMILY, COUPLING, SEED, ALPHA, SCALE = range(2, 7)

# Maps that were taken apart lately, by digest.
_KEPT: OrderedDict[tuple[int, int], FeatureMap] = OrderedDict()
_MOST_KEPT = 1024


def pack(maps: FeatureMap | Iterable[FeatureMap]) -> Tensor:
    """The maps, all of one size, as a tensor ``[maps, words]``."""
    maps = [maps] if isinstance(maps, FeatureMap) else list(maps)
    sizes = {(m.features, m.dim) for m in maps}
    if len(sizes) != 1:
        raise ValueError(f"maps: {len(sizes)} different sizes; all must have the same")
    if not all(m.positive for m in maps):
        raise ValueError("maps: attention with gradients needs a positive family, not trig")
    return torch.from_numpy(np.stack([_row(map) for map in maps]))


def _row(map: FeatureMap) -> np.ndarray:
    arrays = map.arrays()
    numbers = np.concatenate([np.ravel(arrays[name]) for name in NAMES])
    row = np.zeros(HEADER + numbers.size, np.int64)
    row[FAMILY], row[COUPLING] = FAMILIES.index(map.family), COUPLINGS.index(map.coupling)
    row[SEED] = np.uint64(map.seed).astype(np.int64)
    row[[ALPHA, SCALE]] = np.array([map.alpha, map.scale]).view(np.int64)
    row[HEADER:] = numbers.view(np.int64)
    row[:2] = np.frombuffer(hashlib.blake2b(row[2:].tobytes(), digest_size=16).digest(), np.int64)
    _keep(tuple(row[:2].tolist()), map)
    return row


def _keep(digest: tuple[int, int], map: FeatureMap) -> None:
    _KEPT[digest] = map
    while len(_KEPT) > _MOST_KEPT:
        _KEPT.popitem(last=False)


def features_of(words: int, dim: int) -> int:
    """The number of features of rows of so many words."""
    rest = words - HEADER - 3 * dim - 2 * dim * dim
    if rest <= 0 or rest % dim:
        raise ValueError(f"maps: {words} words are no map of dimension {dim}")
    return rest // dim


def unpack(maps: Tensor, dim: int) -> list[FeatureMap]:
    """The maps of such a tensor. The same maps are taken apart once."""
    return [
        _KEPT.get((a, b)) or _rebuild(maps[i], dim) for i, (a, b) in enumerate(maps[:, :2].tolist())
    ]


def _rebuild(row: Tensor, dim: int) -> FeatureMap:
    bits = np.ascontiguousarray(row.detach().cpu().numpy())
    digest = hashlib.blake2b(bits[2:].tobytes(), digest_size=16).digest()
    if digest != bits[:2].tobytes():
        raise ValueError("maps: the tensor is damaged or not one of maps")
    arrays = {name: part.view(np.float64) for name, part in _split(bits, dim).items()}
    alpha, scale = bits[[ALPHA, SCALE]].view(np.float64)
    map = FeatureMap.from_arrays(
        **arrays,
        family=FAMILIES[bits[FAMILY]],
        coupling=COUPLINGS[bits[COUPLING]],
        seed=int(bits[SEED].astype(np.uint64)),
        kernel=float(alpha),
        scale=float(scale),
    )
    _keep(tuple(bits[:2].tolist()), map)
    return map


def _split(rows: Any, dim: int) -> dict[str, Any]:
    """The arrays of one row or of several, of NumPy or of torch."""
    features = features_of(rows.shape[-1], dim)
    shapes = [(features, dim), (dim,), (dim, dim), (dim, dim), (dim,), (dim,)]
    out, start = {}, HEADER
    for name, shape in zip(NAMES, shapes, strict=True):
        size = int(np.prod(shape))
        out[name] = rows[..., start : start + size].reshape(*rows.shape[:-1], *shape)
        start += size
    return out


def arrays(maps: Tensor, dim: int) -> dict[str, Tensor]:
    """The numbers of the maps as tensors of float64, by plain torch operations; with alpha and scale."""
    # Apple's devices have no float64: the few numbers are then brought to the host.
    maps = maps.cpu() if maps.device.type == "mps" else maps
    out = {name: part.contiguous() for name, part in _split(maps, dim).items()}
    out |= {"alpha": maps[:, ALPHA].clone(), "scale": maps[:, SCALE].clone()}
    return {name: part.view(torch.float64) for name, part in out.items()}
