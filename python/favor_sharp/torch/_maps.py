"""Feature maps as one tensor: the bytes of their own file, which modules keep in buffers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import Generic, TypeVar

import torch
from torch import Tensor

from .. import FeatureMap, maps_from_bytes, maps_to_bytes

# More bytes than the header of a file needs, and than it needs for each map.
HEADER, HEADER_OF_MAP = 1024, 1024

V = TypeVar("V")


class Recent(Generic[V]):
    """What was made lately."""

    def __init__(self, most: int) -> None:
        self.most, self.kept, self.lock = most, OrderedDict[Hashable, V](), Lock()

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """What was made for the key, or is made now."""
        with self.lock:
            if key in self.kept:
                self.kept.move_to_end(key)
                return self.kept[key]
        made = make()
        with self.lock:
            self.kept[key] = made
            if len(self.kept) > self.most:
                self.kept.popitem(last=False)
        return made


_recent: Recent[tuple[FeatureMap, ...]] = Recent(128)


def pack(maps: FeatureMap | Iterable[FeatureMap]) -> Tensor:
    """The maps as a tensor of bytes. Its length depends on the sizes of the maps alone."""
    maps = (maps,) if isinstance(maps, FeatureMap) else tuple(maps)
    if not all(m.positive for m in maps):
        raise ValueError("maps: attention with gradients needs a positive family, not trig")
    file = maps_to_bytes(maps)
    numbers = len(file) - 8 - int.from_bytes(file[:8], "little")
    packed = file_tensor(file, 8 + HEADER + HEADER_OF_MAP * len(maps) + numbers)
    _recent.get(header(packed), lambda: maps)
    return packed


def unpack(maps: Tensor) -> list[FeatureMap]:
    """The maps of such a tensor. The same maps are read once."""
    return list(_recent.get(header(maps), lambda: tuple(maps_from_bytes(contents(maps)))))


def file_tensor(file: bytes, length: int) -> Tensor:
    """A safetensors file as a tensor of at least this length: blanks fill up its header, as the format
    allows. Buffers of one length can be copied onto one another and handed round between processes."""
    end = 8 + int.from_bytes(file[:8], "little")
    blanks = max(length - len(file), 0)
    size = (end - 8 + blanks).to_bytes(8, "little")
    padded = bytearray().join((size, file[8:end], b" " * blanks, file[end:]))
    return torch.frombuffer(padded, dtype=torch.uint8)


def header(file: Tensor) -> bytes:
    """The header of such a tensor. It holds a checksum: other contents have another header."""
    size = int.from_bytes(contents(file[:8]), "little")
    return contents(file[8 : 8 + size])


def contents(file: Tensor) -> bytes:
    """The bytes of a tensor."""
    return file.detach().cpu().numpy().tobytes()
