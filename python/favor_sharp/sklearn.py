"""scikit-learn: kernel methods by features, in time linear in the number of samples.

``FavorRidge``, ``FavorClassifier``, ``FavorGP`` and ``FavorLogistic`` are linear models on the features of a
kernel; see ``_heads``. The others estimate sums of the Gaussian kernel ``exp(-gamma ‖x - y‖²)``. A map is
fitted first, to the mean and covariance of the data of ``fit``, of the first ``partial_fit`` or of
``fit_map``, and does not change afterwards. Everything else is a sum, independent of the order of the
samples and the number of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import reduce
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    DensityMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data

from . import FAMILIES, FeatureMap, KeySums, Moments
from ._heads import (
    FORMATS,
    FavorClassifier,
    FavorGP,
    FavorLogistic,
    FavorRidge,
)
from ._heads import sample_weights as _weights
from ._native import Readout
from ._states import Header, State, map_name, merge_states

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "FavorClassifier",
    "FavorGP",
    "FavorLogistic",
    "FavorRidge",
    "FavorSampler",
    "KernelClassifier",
    "KernelDensityEstimator",
    "KernelRegressor",
    "merge_states",
]


class _Mapped(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What all of them share: the parameters, the map, and ``transform``, which gives its features.

    gamma: of the kernel; ``"scale"`` is ``1 / (n_features * X.var())``.
    n_components: the number of random features.
    family, coupling: which features, and how their draws depend on one another.
    random_state: decides the draws.
    """

    _families: Sequence[str] = tuple(name for name, _ in FAMILIES)

    def __init__(
        self,
        *,
        gamma: float | str = "scale",
        n_components: int = 256,
        family: str = "balanced",
        coupling: str = "orthogonal",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.gamma = gamma
        self.n_components = n_components
        self.family = family
        self.coupling = coupling
        self.random_state = random_state

    def fit_map(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fits the map alone, for example on a part of the data; ``partial_fit`` then uses it."""
        X = self._samples(X, reset=True)
        self._forget()
        self._fit_map(X, _weights(sample_weight, X))
        return self

    def _samples(self, X: ArrayLike, reset: bool) -> NDArray[Any]:
        return validate_data(self, X, dtype=FORMATS, reset=reset)

    def _forget(self) -> None:
        """What was learned before does not belong to a new map."""
        for name in ("map_", "gamma_", "sums_", "totals_", "classes_", "_width"):
            self.__dict__.pop(name, None)

    def _check(self) -> None:
        if not (self.gamma == "scale" if isinstance(self.gamma, str) else self.gamma > 0):
            raise ValueError(f"gamma={self.gamma!r}: 'scale' or a positive number is needed")
        if not (isinstance(self.n_components, Integral) and self.n_components > 0):
            raise ValueError(f"n_components={self.n_components!r}: a positive integer is needed")
        if self.family not in self._families:
            raise ValueError(f"family={self.family!r} is not one of {', '.join(self._families)}")

    def _fit_map(self, X: NDArray[Any], weights: NDArray[np.float64] | None) -> None:
        self._check()
        if weights is not None and not (weights > 0).any():
            raise ValueError("sample_weight: all weights are zero; at least one must be positive")
        moments = _rounded(Moments(X, weights))
        if self.gamma == "scale":
            mean = moments.mean
            variance = (np.diag(moments.covariance) + mean**2).mean() - mean.mean() ** 2
            self.gamma_ = 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
        else:
            self.gamma_ = float(self.gamma)
        self.map_ = FeatureMap.fit(
            moments,
            features=self.n_components,
            family=self.family,
            coupling=self.coupling,
            kernel="gaussian",
            scale=np.sqrt(2.0 * self.gamma_),
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
        )

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """The random features of the samples, whose inner products estimate the kernel."""
        check_is_fitted(self, "map_")
        rows: NDArray[Any] = validate_data(self, X, dtype=FORMATS, reset=False)
        if not self.map_.positive:
            return self.map_.transform(rows)
        # The two sides of the kernel have the same features but for a constant factor.
        logs = self.map_.log_features(rows) + self.map_.log_features(rows, side="key")
        with np.errstate(over="ignore"):
            features = np.exp(logs / 2 - np.log(self.n_components) / 2, dtype=rows.dtype)
        if not np.isfinite(features).all():
            row = int(np.argmin(np.isfinite(features).all(1)))
            raise ValueError(
                f"the features of sample {row} overflow; scale the data or use a trig family"
            )
        return features

    @property
    def _n_features_out(self) -> int:
        return self.map_.features

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _rounded(moments: Moments) -> Moments:
    """The moments without their last bits, in which weights differ from repetitions and one order of
    the samples from another. Where directions are alike, as with fewer samples than dimensions, these
    bits would decide the directions of the features."""
    mean, covariance = moments.mean, moments.covariance
    unit = 2.0**-34 * np.exp2(np.floor(np.log2(np.trace(covariance) or 1.0)))
    step = 2.0**-34 * np.exp2(np.floor(np.log2(np.abs(mean).max() or 1.0)))
    covariance = np.round(covariance / unit) * unit
    return Moments.from_covariance(1, 1.0, np.round(mean / step) * step, covariance)


class FavorSampler(_Mapped):
    """Features whose inner products estimate the Gaussian kernel, like RBFSampler and Nystroem.

    A positive family gives positive features, so every estimate of the kernel is positive too;
    ``"trig_pair"`` and ``"trig"`` are the classical, bounded random Fourier features.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> Z = FavorSampler(gamma=0.1, n_components=512, random_state=0).fit_transform(X)
    >>> abs(Z[0] @ Z[1] - np.exp(-0.1 * ((X[0] - X[1]) ** 2).sum())) < 0.1
    np.True_
    """

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fits the map to the mean and covariance of the samples."""
        return self.fit_map(X, sample_weight=sample_weight)

    def partial_fit(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """The first call is ``fit``. Later calls do nothing: models trained on the features rely on them
        staying the same."""
        if not hasattr(self, "map_"):
            return self.fit_map(X, sample_weight=sample_weight)
        _weights(sample_weight, self._samples(X, reset=False))
        return self


class _Summed(_Mapped):
    """What is learned by sums over the samples."""

    _families = tuple(name for name, positive in FAMILIES if positive)

    def _add(self, X: NDArray[Any], values: NDArray[Any]) -> None:
        """Adds samples with their values, of one format, in which they are computed."""
        if not hasattr(self, "sums_"):
            self.sums_, self.totals_ = (
                KeySums(self.map_, values.shape[1]),
                np.zeros(values.shape[1]),
            )
        self.sums_.add(self.map_, X, values)
        self.totals_ = self.totals_ + values.sum(0, dtype=np.float64)

    def _readout(self) -> Readout:
        """How the sums become predictions."""
        raise NotImplementedError

    def _outputs(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self, "sums_")
        return self._readout().outputs(*self.sums_.apply(self.map_, self._samples(X, reset=False)))

    def fit_partial(self, X: ArrayLike, y: ArrayLike | None = None, **more: Any) -> bytes:
        """The state of these samples alone, for ``merge``: what ``partial_fit`` would add, with its
        arguments. The estimator needs a map (``fit_map``) and is left unchanged."""
        check_is_fitted(self, "map_")
        worker = copy(self)
        worker.__dict__.pop("sums_", None)
        return worker.partial_fit(X, y, **more).state()

    def state(self) -> bytes:
        """What was learned, without the map, as bytes that ``merge`` takes."""
        return self._state().to_bytes()

    def merge(self, *others: bytes | _Summed) -> Self:
        """Adds what others with the same map have learned: their states, or the estimators."""
        check_is_fitted(self, "map_")
        states = [o._state() if isinstance(o, _Summed) else State.from_bytes(o) for o in others]
        if states:
            own = self._state() if hasattr(self, "sums_") else self._nothing(states[0].header)
            # On an error the estimator is as it was.
            whole = reduce(State.merge, states, own)
            self.sums_, self.totals_ = whole.sums, whole.totals
            self._take(whole.header)
        return self

    def _state(self) -> State:
        check_is_fitted(self, "sums_")
        sums = KeySums.from_parts(self.sums_.log_scale, self.sums_.sums)
        header = Header(type(self).__name__, map_name(self.map_), sums.sums.shape[1])
        return State(self._describe(header), self.totals_, sums)

    def _nothing(self, like: Header) -> State:
        """The state before the first sample, for such samples as another state is of."""
        header = replace(like, kind=type(self).__name__, map=map_name(self.map_))
        return State(header, np.zeros(like.columns), KeySums(self.map_, like.columns))

    def _describe(self, header: Header) -> Header:
        """The header with what this kind of estimator knows of its samples."""
        return header

    def _take(self, header: Header) -> None:
        """What was described, taken over."""


class KernelClassifier(ClassifierMixin, _Summed):
    """The class with the largest sum of kernel values: ``Σ K(x, x_i) r_i`` over one-hot labels ``r``.

    >>> import numpy as np
    >>> X = np.array([[0.0], [0.1], [1.0], [1.1]])
    >>> model = KernelClassifier(gamma=10.0, random_state=0).fit(X, ["a", "a", "b", "b"])
    >>> list(model.predict([[0.05], [1.2]]))
    [np.str_('a'), np.str_('b')]
    """

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fits the map, and sums over the samples."""
        X, y = self._labelled(X, y, reset=True)
        self._forget()
        return self._learn(X, y, unique_labels(y), sample_weight)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Adds samples. The first call names all classes, and fits the map unless ``fit_map`` did."""
        begun = hasattr(self, "classes_")
        X, y = self._labelled(X, y, reset=not hasattr(self, "map_"))
        if not begun and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        if begun and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"classes={classes!r} is not the same as on the first call: {self.classes_!r}"
            )
        return self._learn(X, y, self.classes_ if begun else unique_labels(classes), sample_weight)

    def _labelled(
        self, X: ArrayLike, y: ArrayLike, reset: bool
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        rows, labels = validate_data(self, X, y, dtype=FORMATS, reset=reset)
        check_classification_targets(labels)
        return rows, labels

    def _learn(
        self,
        X: NDArray[Any],
        y: NDArray[Any],
        classes: NDArray[Any],
        sample_weight: ArrayLike | None,
    ) -> Self:
        weights = _weights(sample_weight, X)
        places = np.searchsorted(classes, y)
        unknown = (places >= len(classes)) | (classes[np.minimum(places, len(classes) - 1)] != y)
        if unknown.any():
            raise ValueError(
                f"y holds {y[unknown.argmax()]!r}, which is not one of the classes {classes!r}"
            )
        if not hasattr(self, "map_"):
            self._fit_map(X, weights)
        labels = np.zeros((len(X), len(classes)), X.dtype)
        labels[np.arange(len(X)), places] = 1.0 if weights is None else weights
        self._add(X, labels)
        self.classes_ = classes
        return self

    def _describe(self, header: Header) -> Header:
        kind = self.classes_.dtype.str
        return replace(header, classes=self.classes_.tolist(), classes_type=kind)

    def _take(self, header: Header) -> None:
        self.classes_ = np.array(header.classes, header.classes_type)

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """The class probabilities: the share of each class in the sum, or in all samples where every sum
        vanishes."""
        return self._outputs(X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class."""
        probabilities = self._outputs(X)
        return self.classes_[probabilities.argmax(1)]

    def _readout(self) -> Readout:
        return Readout.classes(self.totals_)


class KernelRegressor(RegressorMixin, _Summed):
    """The kernel-weighted mean of the targets (Nadaraya–Watson estimator).

    Between the samples it is a smooth mean; where a trend matters more, as in many dimensions,
    ``FavorRidge`` is the better choice.
    """

    # The shape of the targets of a sample.
    _width: tuple[int, ...]

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fits the map, and sums over the samples."""
        X, y = self._valued(X, y, reset=True)
        self._forget()
        return self._learn(X, y, sample_weight)

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Adds samples. The first call fits the map unless ``fit_map`` did."""
        X, y = self._valued(X, y, reset=not hasattr(self, "map_"))
        return self._learn(X, y, sample_weight)

    def _valued(
        self, X: ArrayLike, y: ArrayLike, reset: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        rows, targets = validate_data(
            self, X, y, dtype=np.float64, reset=reset, multi_output=True, y_numeric=True
        )
        return rows, np.asarray(targets, np.float64)

    # In float32, targets far from zero would lose the digits in which they differ.
    def _samples(self, X: ArrayLike, reset: bool) -> NDArray[np.float64]:
        return validate_data(self, X, dtype=np.float64, reset=reset)

    def _learn(self, X: NDArray[Any], y: NDArray[Any], sample_weight: ArrayLike | None) -> Self:
        weights = _weights(sample_weight, X)
        if getattr(self, "_width", y.shape[1:]) != y.shape[1:]:
            raise ValueError(
                f"y has shape {y.shape}; the samples before had targets of shape {self._width}"
            )
        if not hasattr(self, "map_"):
            self._fit_map(X, weights)
        values = np.column_stack([np.ones(len(y)), y])
        if weights is not None:
            values *= weights[:, None]
        self._add(X, values)
        self._width = y.shape[1:]
        return self

    def _describe(self, header: Header) -> Header:
        return replace(header, width=list(self._width))

    def _take(self, header: Header) -> None:
        self._width = tuple(header.width or ())

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """The weighted means, or 0 where every weight vanishes."""
        means = self._outputs(X)
        return means.reshape(len(means), *self._width)

    def _readout(self) -> Readout:
        return Readout.means(len(self.totals_) - 1)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        # The check wants half of the variance of a linear function in ten dimensions. With
        # gamma="scale" the exact kernel mean, which features estimate, explains 27 % of it.
        tags.regressor_tags.poor_score = True
        return tags


class KernelDensityEstimator(DensityMixin, _Summed):
    """A density: the mean of Gaussians around the samples, ``gamma = 1 / (2 bandwidth²)``."""

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fits the map, and sums over the samples."""
        X = self._samples(X, reset=True)
        self._forget()
        return self._learn(X, sample_weight)

    def partial_fit(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Adds samples. The first call fits the map unless ``fit_map`` did."""
        return self._learn(self._samples(X, reset=not hasattr(self, "map_")), sample_weight)

    def _learn(self, X: NDArray[Any], sample_weight: ArrayLike | None) -> Self:
        weights = _weights(sample_weight, X)
        if not hasattr(self, "map_"):
            self._fit_map(X, weights)
        values = np.ones(len(X)) if weights is None else weights
        self._add(X, values[:, None].astype(X.dtype))
        return self

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """The log-density at each sample."""
        return self._outputs(X)[:, 0]

    def _readout(self) -> Readout:
        bandwidth = (2.0 * self.gamma_) ** -0.5
        return Readout.density(bandwidth, self.n_features_in_, self.totals_[0])

    def score(self, X: ArrayLike, y: object = None) -> float:
        """The total log-likelihood of the samples."""
        return float(self.score_samples(X).sum())
