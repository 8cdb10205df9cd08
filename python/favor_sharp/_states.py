"""What a worker has learned, as bytes: sums with the name of the map that they belong to.

A line that names the format, a digest of all that follows, a header in JSON of a length given before
it, then the scales and the sums as 64-bit floats, little-endian.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from . import FeatureMap, KeySums

FORMAT = b"favor_sharp.state.v1\n"
DIGEST = 16


@dataclass
class Header:
    """What must be the same in two states that are merged, and in the estimator that takes them."""

    kind: str
    map: str
    columns: int
    classes: list[Any] | None = None
    classes_type: str | None = None
    width: list[int] | None = None


@dataclass
class State:
    """The sums of some samples, and the sum of their weights."""

    header: Header
    weight: float
    sums: KeySums

    def to_bytes(self) -> bytes:
        about = json.dumps(asdict(self.header) | {"weight": self.weight}).encode()
        arrays = (self.sums.log_scale, self.sums.sums)
        rest = len(about).to_bytes(4, "little") + about
        rest += b"".join(np.ascontiguousarray(a, "<f8").tobytes() for a in arrays)
        return FORMAT + _digest(rest) + rest

    @staticmethod
    def from_bytes(state: bytes) -> State:
        if not isinstance(state, (bytes, bytearray, memoryview)):
            raise TypeError(f"state: bytes are needed, not {type(state).__name__}")
        state = bytes(state)
        if not state.startswith(FORMAT):
            raise ValueError(
                f"state: no state of this version ({FORMAT.decode().strip()}), but bytes that begin "
                f"with {state[: len(FORMAT)]!r}"
            )
        digest, rest = np.split(np.frombuffer(state[len(FORMAT) :], np.uint8), [DIGEST])
        if digest.tobytes() != _digest(rest.tobytes()):
            raise ValueError(f"state: {len(state)} bytes that are damaged or cut off")
        # What has the right digest was written by the method above.
        start = 4 + int.from_bytes(rest[:4].tobytes(), "little")
        about = json.loads(rest[4:start].tobytes())
        weight = about.pop("weight")
        header = Header(**about)
        numbers = np.frombuffer(rest[start:].tobytes(), "<f8")
        features = len(numbers) // (1 + header.columns)
        sums = KeySums.from_parts(numbers[:features], numbers[features:].reshape(features, -1))
        return State(header, weight, sums)

    def merge(self, other: State) -> State:
        """Adds another one, if it is of the same kind."""
        check_same(self.header, other.header)
        self.sums.merge(other.sums)
        self.weight += other.weight
        return self


def check_same(own: Header, other: Header) -> None:
    """An error that says in what two states differ."""
    if own.kind != other.kind:
        raise ValueError(f"merge: a state of {other.kind} does not go with one of {own.kind}")
    if own.map != other.map:
        raise ValueError("merge: the maps differ; give copies of one fit_map to all workers")
    if (own.classes, own.classes_type) != (other.classes, other.classes_type):
        raise ValueError("merge: the classes differ; name them all in partial_fit")
    if own.width != other.width or own.columns != other.columns:
        raise ValueError(f"merge: targets of shape {other.width} do not go with {own.width}")


def map_name(map: FeatureMap) -> str:
    """A digest of the numbers of a map, the same in every process."""
    return _digest(map.to_bytes()).hex()


def merge_states(first: bytes, second: bytes) -> bytes:
    """The state of all samples of two states, for reductions in pairs.

    ``functools.reduce(merge_states, states)`` gives what ``merge`` takes.
    """
    return State.from_bytes(first).merge(State.from_bytes(second)).to_bytes()


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST).digest()
