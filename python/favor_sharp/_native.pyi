"""The native half of the package. Everything here is offered by ``favor_sharp`` itself.

Tensors are NumPy arrays ``[length, dim]``, ``[heads, length, dim]`` or ``[batch, heads, length, dim]``
of float16, float32 or float64, all of the same type. They are read where they are, whatever their
strides; arrays in reverse order are copied. Results are new arrays that take over the engine's
memory. Long calls release the interpreter's lock and end at Ctrl-C.

``kernel`` is ``"softmax"`` for exp(xᵀy), ``"gaussian"`` for exp(-‖x-y‖²/2), ``"attention"`` for
exp(xᵀy/√dim), or a number α for exp(α‖x‖² + xᵀy + α‖y‖²). Vectors are multiplied by ``scale``
beforehand.

``family`` is one of trig, trig_pair, pos, hyperbolic, ge, sade, ade, sde, sde_shifted, ade_shifted and
balanced; ``coupling`` one of iid, orthogonal, simplex, antithetic and sobol.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias, final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

_Array: TypeAlias = NDArray[Any]
_Doubles: TypeAlias = NDArray[np.float64]
_Mask: TypeAlias = ArrayLike | None
_Maps: TypeAlias = FeatureMap | Iterable[FeatureMap]

__version__: str

@final
class Moments:
    """Weighted mean and covariance of a set of vectors; all that fitting needs to know of it."""

    def __new__(cls, rows: ArrayLike, weights: ArrayLike | None = None) -> Moments: ...
    @staticmethod
    def from_parts(
        count: int, weight: float, mean: ArrayLike, covariance: ArrayLike
    ) -> Moments: ...
    def merge(self, other: Moments) -> Moments:
        """The moments of both sets together."""
    @property
    def count(self) -> int: ...
    @property
    def weight(self) -> float: ...
    @property
    def dim(self) -> int: ...
    @property
    def mean(self) -> _Doubles: ...
    @property
    def covariance(self) -> _Doubles: ...

@final
class FeatureMap:
    """A fitted map: immutable, one for both sides of the kernel. It can be pickled."""

    @staticmethod
    def fit(
        queries: ArrayLike | Moments,
        keys: ArrayLike | Moments | None = None,
        *,
        features: int = 256,
        family: str = "balanced",
        kernel: str | float | None = "softmax",
        scale: float = 1.0,
        coupling: str = "orthogonal",
        seed: int = 0,
    ) -> FeatureMap:
        """The map that is best for the two sets, ``[rows, dim]`` each; one set serves as both."""
    @staticmethod
    def from_arrays(
        omega: ArrayLike,
        quadratic: ArrayLike,
        query_transform: ArrayLike,
        key_transform: ArrayLike,
        query_shift: ArrayLike,
        key_shift: ArrayLike,
        *,
        family: str,
        kernel: str | float,
        scale: float,
        coupling: str,
        seed: int,
    ) -> FeatureMap:
        """The map of what ``arrays`` gave out, or of parameters and draws of the caller's own."""
    def arrays(self) -> dict[str, _Doubles]:
        """The numbers of a positive map, by the names that ``from_arrays`` takes."""
    def transform(self, rows: ArrayLike, *, side: Literal["query", "key"] = "query") -> _Array:
        """Features with ``transform(x) @ transform(y, side="key").T`` ≈ K(x, y)."""
    def log_features(self, rows: ArrayLike, *, side: Literal["query", "key"] = "query") -> _Array:
        """The logarithms of the features of a positive map, without the factor M^-1/2."""
    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a safetensors file, whole or not at all."""
    @staticmethod
    def load(path: str | os.PathLike[str]) -> FeatureMap: ...
    def to_bytes(self) -> bytes: ...
    @staticmethod
    def from_bytes(bytes: bytes) -> FeatureMap: ...
    @property
    def family(self) -> str: ...
    @property
    def coupling(self) -> str: ...
    @property
    def features(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def alpha(self) -> float: ...
    @property
    def scale(self) -> float: ...
    @property
    def positive(self) -> bool: ...
    @property
    def omega(self) -> _Doubles: ...

def fit_maps(
    q: ArrayLike,
    k: ArrayLike,
    *,
    features: int = 256,
    family: str = "balanced",
    kernel: str | float | None = "attention",
    scale: float = 1.0,
    coupling: str = "orthogonal",
    seed: int = 0,
    key_mask: _Mask = None,
    per_sequence: bool = False,
) -> list[FeatureMap]:
    """One map a head, fitted to the batch, or one a sequence and head.

    Not to be fitted on the very sequence that causal attention then sees.
    """

def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    maps: _Maps,
    *,
    causal: bool = False,
    key_mask: _Mask = None,
    near: int = 0,
    offsets: Sequence[int] | None = None,
    threads: int | None = None,
) -> _Array:
    """Attention by features, linear in the length.

    ``maps`` is one map, one a head, or one a sequence and head. ``key_mask`` is ``[batch, keys]``, False
    at padding. At least ``near`` neighbours of each token are attended exactly. ``offsets`` cut a batch
    of one into packed sequences.
    """

def exact_attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    kernel: str | float | None = "attention",
    scale: float = 1.0,
    causal: bool = False,
    key_mask: _Mask = None,
    offsets: Sequence[int] | None = None,
    threads: int | None = None,
) -> _Array:
    """Attention without approximation, in blocks; a query that sees no key gives zeros."""

def attention_backward(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    out: ArrayLike,
    gradient: ArrayLike,
    maps: _Maps,
    *,
    causal: bool = False,
    key_mask: _Mask = None,
    near: int = 0,
    offsets: Sequence[int] | None = None,
    threads: int | None = None,
) -> tuple[_Array, _Array, _Array]:
    """The gradients of ``attention`` with respect to q, k and v, given its output and that's gradient."""

def exact_attention_backward(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    out: ArrayLike,
    gradient: ArrayLike,
    *,
    kernel: str | float | None = "attention",
    scale: float = 1.0,
    causal: bool = False,
    key_mask: _Mask = None,
    offsets: Sequence[int] | None = None,
    threads: int | None = None,
) -> tuple[_Array, _Array, _Array]:
    """The gradients of ``exact_attention``."""

@final
class Choice:
    """How one head is computed, and why; ``str`` says it in words."""

    @property
    def exact(self) -> bool: ...
    @property
    def predicted_error(self) -> float | None: ...

def choose(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    maps: _Maps,
    *,
    tolerance: float = 0.1,
    causal: bool = False,
    key_mask: _Mask = None,
    offsets: Sequence[int] | None = None,
) -> list[Choice]:
    """Decides for each head of each sequence: exact where that is no more work, or where the
    predicted relative error of the output is above the tolerance."""

def auto_attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    maps: _Maps,
    choices: Sequence[Choice],
    *,
    causal: bool = False,
    key_mask: _Mask = None,
    near: int = 0,
    offsets: Sequence[int] | None = None,
    threads: int | None = None,
) -> _Array:
    """Attention with the choices of ``choose``."""

def predicted_error(
    map: FeatureMap,
    queries: ArrayLike,
    keys: ArrayLike,
    values: ArrayLike,
    *,
    features: int | None = None,
) -> float | None:
    """The predicted relative error of the attention output of one head, from a small sample of its
    rows; None for a family without closed form."""

@final
class DecodeState:
    """The sums of causal attention over all tokens so far: the next token costs O(M·dim)."""

    def __new__(
        cls,
        maps: _Maps,
        *,
        batch: int = 1,
        heads: int = 1,
        value_dim: int,
        dtype: Literal["float16", "float32", "float64"] = "float32",
    ) -> DecodeState: ...
    def advance(self, q: ArrayLike, k: ArrayLike, v: ArrayLike) -> _Array:
        """Attends from new tokens to themselves and all before, and adds them."""
    def copy(self) -> DecodeState:
        """A state of its own after the same tokens, for continuations that part here."""
    def to_bytes(self) -> bytes: ...
    @staticmethod
    def from_bytes(
        maps: _Maps, bytes: bytes, *, dtype: Literal["float16", "float32", "float64"] = "float32"
    ) -> DecodeState: ...
    @property
    def tokens(self) -> int: ...
    @property
    def dtype(self) -> str: ...

@final
class KeySums:
    """Sums over keys, fed in pieces, merged, and applied to queries. It can be pickled."""

    def __new__(cls, map: FeatureMap, columns: int) -> KeySums: ...
    def add(self, map: FeatureMap, keys: ArrayLike, values: ArrayLike) -> None: ...
    def merge(self, other: KeySums) -> None: ...
    def apply(self, map: FeatureMap, queries: ArrayLike) -> tuple[_Doubles, _Doubles]:
        """Logarithmic scales of the rows, and the rows."""
    @staticmethod
    def from_parts(log_scale: ArrayLike, sums: ArrayLike) -> KeySums: ...
    @property
    def log_scale(self) -> _Doubles: ...
    @property
    def sums(self) -> _Doubles: ...

@overload
def kernel_product(
    map: FeatureMap,
    x: ArrayLike,
    y: ArrayLike,
    c: ArrayLike,
    *,
    log_scale: Literal[False] = False,
) -> _Array:
    """K(X, Y)·C by features; with ``log_scale`` as logarithmic row scales and rows."""

@overload
def kernel_product(
    map: FeatureMap, x: ArrayLike, y: ArrayLike, c: ArrayLike, *, log_scale: Literal[True]
) -> tuple[_Doubles, _Array]: ...
@overload
def exact_kernel_product(
    x: ArrayLike,
    y: ArrayLike,
    c: ArrayLike,
    *,
    kernel: str | float,
    scale: float = 1.0,
    log_scale: Literal[False] = False,
) -> _Array:
    """K(X, Y)·C exactly, in blocks, never the whole kernel matrix."""

@overload
def exact_kernel_product(
    x: ArrayLike,
    y: ArrayLike,
    c: ArrayLike,
    *,
    kernel: str | float,
    scale: float = 1.0,
    log_scale: Literal[True],
) -> tuple[_Doubles, _Array]: ...
def log_kernel(x: ArrayLike, y: ArrayLike, *, kernel: str | float, scale: float = 1.0) -> _Doubles:
    """log K of every pair."""

def inspect(
    queries: ArrayLike,
    keys: ArrayLike,
    values: ArrayLike | None = None,
    *,
    kernel: str | float | None = None,
    scale: float = 1.0,
    features: list[int] | None = None,
    families: list[str] | None = None,
    seed: int = 0,
) -> tuple[str, str]: ...
def _panic(long: bool) -> None:
    """Panics inside a call, for the tests."""
