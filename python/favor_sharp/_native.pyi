"""The native half of the package. Nearly everything here is offered by ``favor_sharp`` itself.

Tensors are NumPy arrays ``[length, dim]``, ``[heads, length, dim]`` or ``[batch, heads, length, dim]``
of float16, float32, float64 or ``BFLOAT16``, all of the same type. They are read where they are, whatever
their strides; arrays in reverse order are copied. Results are new arrays that take over the engine's
memory. Long calls release the interpreter's lock and end at Ctrl-C.

Sets of vectors, ``[rows, dim]``, are computed in float32 if all of them are float32, else in float64.

``kernel`` is ``"softmax"`` for exp(xᵀy), ``"gaussian"`` for exp(-‖x-y‖²/2), ``"attention"`` for
exp(xᵀy/√dim), or a number α for exp(α‖x‖² + xᵀy + α‖y‖²). Vectors are multiplied by ``scale``
beforehand.

``family`` is a name in ``FAMILIES``, ``coupling`` one in ``COUPLINGS``, ``head`` one in ``HEADS``.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias, final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

_Array: TypeAlias = NDArray[Any]
_Doubles: TypeAlias = NDArray[np.float64]
_Mask: TypeAlias = ArrayLike | None
_Maps: TypeAlias = FeatureMap | Iterable[FeatureMap]
_Dtype: TypeAlias = Literal["float16", "bfloat16", "float32", "float64"]

__version__: str

BFLOAT16: np.dtype[np.void]
"""The type of arrays that hold the bits of bfloat16, which NumPy lacks: ``bits.view(BFLOAT16)`` of
uint16."""

FAMILIES: tuple[tuple[str, bool], ...]
"""The name of every family, and whether its features are positive."""

FAMILY_TITLES: dict[str, str]
"""What each family is called in text and figures, by its name."""

COUPLINGS: tuple[str, ...]
"""The name of every coupling."""

KERNEL_SHAPES: tuple[str, ...]
"""The name of every shape of the kernel that models with a head know."""

HEADS: tuple[str, ...]
"""The name of every head that is fitted behind features."""

LEARN_STEPS: int
"""Steps of the optimiser that learns maps, unless it is told otherwise."""

REDRAW: int
"""Training calls after which a layer draws its maps again, unless it is told otherwise."""

KEEP: float
"""What a training call keeps of the running average of statistics, unless it is told otherwise."""

@final
class Moments:
    """Weighted mean and covariance of a set of vectors; all that fitting needs to know of it."""

    def __new__(cls, rows: ArrayLike, weights: ArrayLike | None = None) -> Moments: ...
    @staticmethod
    def from_covariance(
        count: int, weight: float, mean: ArrayLike, covariance: ArrayLike
    ) -> Moments:
        """Moments that were computed elsewhere."""
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
        kernel: str | float = "softmax",
        scale: float = 1.0,
        coupling: str = "orthogonal",
        seed: int = 0,
    ) -> FeatureMap:
        """The map that is best for the two sets, ``[rows, dim]`` each; one set can be both."""
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
    def side(self, side: Literal["query", "key"]) -> dict[str, Any]:
        """One side as the numbers that rows are projected by.

        With x the vector times ``scale``, a positive feature has the logarithm
        ``weights @ (x + shift) + constants - |transform @ (x + shift)|²/2 - linear @ x - constant
        + alpha |x|²``; a trigonometric one is ``√2 cos(weights @ x + constants) exp((1/2 + alpha) |x|²)``.
        """
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
    def omega(self) -> _Doubles | None:
        """None for a learned map."""
    @property
    def learned(self) -> dict[str, Any] | None:
        """What a learned map was learned on, None for any other: ``source``, ``sequences``, ``tokens``,
        ``held_out``, ``steps``, ``near``, ``global_keys``, ``routed``, ``causal``, ``seed``, ``kl_before``,
        ``kl_after``."""

def maps_to_bytes(maps: _Maps, *, note: str | None = None) -> bytes:
    """The maps as the bytes of one safetensors file, with a note in JSON under its checksum."""

def note_from_bytes(bytes: bytes) -> str | None:
    """The note of such bytes, in JSON."""

def maps_from_bytes(bytes: bytes) -> list[FeatureMap]:
    """The maps of such bytes, or those of ``FeatureMap.to_bytes``."""

def fit_maps(
    q: ArrayLike,
    k: ArrayLike,
    *,
    features: int = 256,
    family: str = "balanced",
    kernel: str | float = "attention",
    scale: float = 1.0,
    coupling: str = "orthogonal",
    seed: int = 0,
    key_mask: _Mask = None,
    per_sequence: bool = False,
) -> list[FeatureMap]:
    """One map per head, fitted to the batch, or one per sequence and head.

    Not to be fitted on the very sequence that causal attention then sees. Where there are as many
    queries as keys, as in self-attention, ``key_mask`` is theirs too.
    """

@final
class AdaptiveMaps:
    """One map per head, kept in step with the data of a training. It can be pickled.

    ``redraw``: draw again after so many training calls; None is never.
    ``statistics``: where those of queries and keys come from. ``"running"`` is an average over training
        calls that keeps ``keep`` per call and reaches the maps when they are drawn again, or at the first
        call; ``"calibrated"`` the average of all calls until ``freeze``, or of a calibration; ``"batch"``
        and ``"sequence"`` are those of the call itself, which causal calls refuse.

    Before the first call the maps know nothing of the data. Maps are given out as the same object as
    before, as long as they have not changed.
    """

    def __new__(
        cls,
        heads: int,
        dim: int,
        *,
        features: int = 256,
        family: str = "balanced",
        kernel: str | float = "attention",
        scale: float = 1.0,
        coupling: str = "orthogonal",
        seed: int = 0,
        redraw: int | None = None,
        statistics: Literal["running", "calibrated", "batch", "sequence"] = "running",
        keep: float = KEEP,
    ) -> AdaptiveMaps: ...
    def training(
        self, q: ArrayLike, k: ArrayLike, *, key_mask: _Mask = None, causal: bool = False
    ) -> tuple[FeatureMap, ...]:
        """The maps for one training call. A causal one gets what earlier calls have shown."""
    def evaluation(
        self, q: ArrayLike, k: ArrayLike, *, key_mask: _Mask = None, causal: bool = False
    ) -> tuple[FeatureMap, ...]:
        """The maps for an evaluation: nothing is learned and nothing drawn again."""
    def maps(self) -> tuple[FeatureMap, ...]:
        """The maps as they are."""
    def set_maps(self, maps: _Maps) -> None:
        """Puts maps from elsewhere, one per head, in the place of the fitted ones: until the next draw or
        calibration."""
    def calibrate(self, q: ArrayLike, k: ArrayLike, *, key_mask: _Mask = None) -> None:
        """Adds a batch to the statistics of a calibration, which replace those from before it."""
    def end_calibration(self) -> None: ...
    def freeze(self) -> None:
        """Ends the learning of statistics; drawing again goes on."""
    @property
    def calls(self) -> int:
        """Training calls so far."""
    def to_bytes(self) -> bytes: ...
    @staticmethod
    def from_bytes(bytes: bytes) -> AdaptiveMaps: ...

def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    maps: _Maps | None = None,
    *,
    exact_heads: Sequence[int] | Sequence[Choice] = (),
    kernel: str | float | None = None,
    scale: float | None = None,
    causal: bool = False,
    key_mask: _Mask = None,
    near: int = 0,
    global_keys: int = 0,
    routed: tuple[int, int] | None = None,
    offsets: Sequence[int] | None = None,
    threads: int | None = None,
) -> _Array:
    """Attention by features, linear in the length; without maps exactly, in blocks.

    ``maps`` is one map, one per head, or one per sequence and head. ``exact_heads`` are computed exactly,
    with the kernels of their maps: numbers of heads, or what ``choose_heads`` gave, which has the keys
    that learned maps were learned with too, unless the call says other ones. ``kernel`` and ``scale`` are
    for calls without maps, by default those of attention. ``key_mask`` is
    ``[batch, keys]``, False at padding. ``offsets`` cut a batch of one into packed sequences. A query that
    sees no key gives zeros.

    Some keys can be exact beside the features, in one normalisation. ``near``: those at most so far from
    the query. ``global_keys``: so many for every query, the first ones and, with a learned map, mostly
    those that it estimates worst. ``routed``, a pair (slots, members): a slot is a feature, its members
    are the keys for which it is largest, and a query attends those of the slots that give it most.
    """

def attention_backward(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    out: ArrayLike,
    out_gradient: ArrayLike,
    maps: _Maps | None = None,
    *,
    exact_heads: Sequence[int] | Sequence[Choice] = (),
    kernel: str | float | None = None,
    scale: float | None = None,
    causal: bool = False,
    key_mask: _Mask = None,
    near: int = 0,
    global_keys: int = 0,
    routed: tuple[int, int] | None = None,
    offsets: Sequence[int] | None = None,
    threads: int | None = None,
) -> tuple[_Array, _Array, _Array]:
    """The gradients of ``attention`` with respect to q, k and v, given its output and the gradient of
    that."""

def check_attention(
    q: Sequence[int],
    k: Sequence[int],
    v: Sequence[int],
    maps: _Maps,
    *,
    exact_heads: Sequence[int] | Sequence[Choice] = (),
    causal: bool = False,
) -> None:
    """Refuses shapes ``[batch, heads, length, dim]`` that ``attention`` refuses, for code that computes the
    same on another device."""

@final
class HeadReport:
    """What was measured for a head on held-out sequences. Errors are those of outputs, relative to the
    exact ones."""

    @property
    def before(self) -> float:
        """The error of the start, with the same exact keys."""
    @property
    def after(self) -> float:
        """The error of the map that was kept."""
    @property
    def exact_alone(self) -> float | None:
        """The error of the exact keys alone, if there are any."""
    @property
    def window_alone(self) -> float | None:
        """The error of an exact window alone that takes as many operations; none unless there are as
        many queries as keys."""
    @property
    def window(self) -> int:
        """The width of that window."""
    @property
    def uniform(self) -> float:
        """The error of the plain mean of the values."""
    @property
    def kl_before(self) -> float:
        """The mean divergence of the weights of the start."""
    @property
    def kl_after(self) -> float:
        """The same of the map that was kept; if only the exact keys are kept, about 1000 times the weight
        of all other keys."""
    @property
    def exact_keys(self) -> float:
        """Exact keys per query."""
    @property
    def kept(self) -> Literal["learned", "start", "exact_alone"]:
        """``"start"`` if learning made nothing better, ``"exact_alone"`` for a map whose features are
        switched off, because the exact keys are better without them."""
    @property
    def recommended(self) -> Literal["map", "window", "exact"]:
        """What to use for the head: ``"window"`` if an exact window alone that takes as many operations is
        no worse than the map, or if a window was kept without features; ``"exact"`` if exact attention takes
        no longer at this length."""

@final
class LearnedHead:
    """A learned map and what it is worth."""

    @property
    def map(self) -> FeatureMap: ...
    @property
    def report(self) -> HeadReport: ...

def learn_maps(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike | None = None,
    *,
    features: int = 64,
    near: int = 0,
    global_keys: int = 0,
    routed: tuple[int, int] | None = None,
    causal: bool = False,
    key_mask: _Mask = None,
    source: str = "",
    family: str = "balanced",
    kernel: str | float = "attention",
    scale: float = 1.0,
    coupling: str = "orthogonal",
    steps: int = LEARN_STEPS,
    batch: int | None = None,
    rate: float | None = None,
    outputs: float | None = None,
    pull: float = 0.0,
    holdout: float = 0.25,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[int, int, float], object] | None = None,
) -> list[LearnedHead]: ...

@final
class Choice:
    """How one head is computed, and why; ``str`` says it in words."""

    @property
    def exact(self) -> bool: ...
    @property
    def predicted_error(self) -> float | None: ...

def choose_heads(
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
    predicted relative error of the output is above the tolerance. The error of a learned map is
    measured, with the exact keys it was learned with."""

def break_even(queries: int, keys: int, *, causal: bool = False) -> float:
    """The number of features at which they cost as much as the exact kernel; with more, exact is no
    slower."""

def exact_is_no_slower(
    map: FeatureMap,
    queries: int,
    keys: int,
    *,
    causal: bool = False,
    near: int = 0,
    global_keys: int = 0,
    routed: tuple[int, int] | None = None,
) -> bool:
    """Whether exact attention takes no longer than features with these exact keys."""

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
    """What causal attention keeps of all tokens so far: sums, and with exact keys a window, global keys
    and the members of slots. The next token costs the same however many came before."""

    def __new__(
        cls,
        maps: _Maps,
        *,
        batch: int = 1,
        heads: int = 1,
        value_dim: int,
        near: int = 0,
        global_keys: int = 0,
        routed: tuple[int, int] | None = None,
        dtype: _Dtype = "float32",
    ) -> DecodeState: ...
    def advance(self, q: ArrayLike, k: ArrayLike, v: ArrayLike) -> _Array:
        """Attends from new tokens to themselves and all before, and adds them."""
    def copy(self) -> DecodeState:
        """A state of its own after the same tokens, for continuations that part here."""
    def to_bytes(self) -> bytes: ...
    @staticmethod
    def from_bytes(maps: _Maps, bytes: bytes, *, dtype: _Dtype = "float32") -> DecodeState: ...
    @property
    def tokens(self) -> int: ...
    @property
    def size_in_bytes(self) -> int:
        """The memory of what is kept, without the maps."""
    @property
    def dtype(self) -> str: ...

@final
class HeadModel:
    """A design, the sums of its columns over rows, and a head: `favor::learn::HeadModel`."""

    @staticmethod
    def fit(
        rows: ArrayLike,
        targets: ArrayLike,
        weights: ArrayLike | None = None,
        *,
        head: str,
        classes: int | None = None,
        basis: str = "nystrom",
        kernel: str = "gaussian",
        features: int = 256,
        bandwidth: float | None = None,
        penalty: float | None = None,
        metric: bool = False,
        standardise: bool = True,
        linear: bool = False,
        folds: int = 4,
        sample: int = 4096,
        seed: int = 0,
        tolerance: float = 1e-5,
        passes: int = 50,
    ) -> HeadModel:
        """Fits to rows. Targets are the indices of classes (one axis) or numbers (two)."""
    def add(
        self, rows: ArrayLike, targets: ArrayLike, weights: ArrayLike | None = None
    ) -> None: ...
    def remove(
        self, rows: ArrayLike, targets: ArrayLike, weights: ArrayLike | None = None
    ) -> None: ...
    def elsewhere(
        self, rows: ArrayLike, targets: ArrayLike, weights: ArrayLike | None = None
    ) -> HeadModel:
        """A model of other rows with the same design."""
    def merge(self, other: HeadModel) -> None: ...
    def subtract(self, other: HeadModel) -> None: ...
    def predict(self, rows: ArrayLike) -> _Doubles: ...
    def probabilities(self, rows: ArrayLike) -> _Doubles: ...
    def predict_with_deviation(self, rows: ArrayLike) -> tuple[_Doubles, _Doubles]: ...
    def transform(self, rows: ArrayLike) -> _Array: ...
    def report(self) -> str:
        """JSON."""
    def trials(self) -> str:
        """JSON."""
    def spec(self) -> str:
        """JSON."""
    @property
    def landmarks(self) -> _Doubles | None: ...
    @property
    def slopes(self) -> _Doubles: ...
    @property
    def penalty(self) -> float: ...
    @property
    def features(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def weight(self) -> float: ...
    def to_bytes(self) -> bytes: ...
    @staticmethod
    def from_bytes(bytes: bytes) -> HeadModel: ...
    def copy(self) -> HeadModel: ...

@final
class KeySums:
    """Sums over keys, fed in pieces, merged, and applied to queries. It can be pickled."""

    def __new__(cls, map: FeatureMap, columns: int) -> KeySums: ...
    def add(self, map: FeatureMap, keys: ArrayLike, values: ArrayLike) -> None: ...
    def merge(self, other: KeySums) -> None: ...
    def apply(self, map: FeatureMap, queries: ArrayLike) -> tuple[_Doubles, _Array]:
        """Logarithmic scales of the rows, and the rows."""
    @staticmethod
    def from_parts(log_scale: ArrayLike, sums: ArrayLike) -> KeySums: ...
    def to_bytes(self, note: str) -> bytes:
        """The sums as the bytes of a safetensors file, with a note of what they belong to."""
    @staticmethod
    def from_bytes(bytes: bytes) -> tuple[KeySums, str]:
        """The sums of such bytes, and their note."""
    @property
    def log_scale(self) -> _Doubles: ...
    @property
    def sums(self) -> _Doubles: ...

@final
class Readout:
    """What ``KeySums.apply`` gives, turned into predictions: the Nadaraya–Watson estimator."""

    @staticmethod
    def classes(weights: ArrayLike) -> Readout:
        """Of one sum per class its share; the shares of ``weights`` where no feature reaches."""
    @staticmethod
    def means(targets: int) -> Readout:
        """Of the sum of the weights and one sum per target the means; 0 where no feature reaches."""
    @staticmethod
    def density(bandwidth: float, dim: int, weight: float) -> Readout:
        """Of the sum of the weights the logarithm of the density, for samples of this total weight."""
    def outputs(self, log_scale: ArrayLike, sums: ArrayLike) -> _Doubles: ...

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
def write_atomically(path: str | os.PathLike[str], bytes: bytes) -> None:
    """Writes a file, whole or not at all."""

def _panic(long: bool) -> None:
    """Panics inside a call, for the tests."""

def inspect_maps(
    maps: _Maps,
    queries: ArrayLike,
    keys: ArrayLike,
    values: ArrayLike | None = None,
    *,
    near: int | None = None,
    global_keys: int | None = None,
    routed: tuple[int, int] | None = None,
    causal: bool | None = None,
) -> tuple[str, str]: ...
