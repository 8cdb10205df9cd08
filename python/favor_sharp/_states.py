"""What a worker has learned, as bytes: a file of sums, with a note of the map that they belong to."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import FeatureMap, KeySums


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
    """The sums of some samples, and the totals of what was summed, without the kernel."""

    header: Header
    totals: NDArray[np.float64]
    sums: KeySums

    def to_bytes(self) -> bytes:
        return self.sums.to_bytes(
            json.dumps(asdict(self.header) | {"totals": self.totals.tolist()})
        )

    @staticmethod
    def from_bytes(state: bytes) -> State:
        if not isinstance(state, (bytes, bytearray, memoryview)):
            raise TypeError(f"state: bytes are needed, not {type(state).__name__}")
        try:
            sums, note = KeySums.from_bytes(bytes(state))
        except ValueError as error:
            raise ValueError(f"state: {error}") from None
        # What has the right checksum was written by the method above.
        about = json.loads(note)
        totals = np.array(about.pop("totals"), np.float64)
        return State(Header(**about), totals, sums)

    def merge(self, other: State) -> State:
        """Adds another one, if it is of the same kind."""
        check_same(self.header, other.header)
        self.sums.merge(other.sums)
        self.totals = self.totals + other.totals
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
    return hashlib.blake2b(map.to_bytes(), digest_size=16).hexdigest()


def merge_states(first: bytes, second: bytes) -> bytes:
    """Merges two states into one, for pairwise reductions.

    ``functools.reduce(merge_states, states)`` gives a state for ``merge``.
    """
    return State.from_bytes(first).merge(State.from_bytes(second)).to_bytes()
