"""Ridge regression, Gaussian processes and logistic regression on kernel features, for scikit-learn.

``fit`` chooses a design (the features of a kernel), sums the products of its columns over the samples, and
solves. The sums are all that is kept of the samples, so that more can be added (``partial_fit``), models of
different samples merged (``merge``), and samples taken out again (``subtract``).
"""

from __future__ import annotations

import json
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data

from ._native import KERNEL_SHAPES, HeadModel

if TYPE_CHECKING:
    from typing_extensions import Self

# Samples are computed in their own format, if it is one of these, else in the first.
FORMATS = [np.float64, np.float32]


def sample_weights(sample_weight: ArrayLike | None, X: NDArray[Any]) -> NDArray[np.float64] | None:
    """One weight per sample, or None if all have weight one."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Real):
        sample_weight = np.full(len(X), float(sample_weight))
    weights = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weights.shape != (len(X),):
        raise ValueError(f"sample_weight has shape {weights.shape}; {(len(X),)} is needed")
    if (weights < 0).any():
        raise ValueError("sample_weight: negative weights make no sense")
    return weights


class _Headed(BaseEstimator):
    """What all heads share.

    n_components: the number of features.
    basis: ``"nystrom"`` (the kernel with samples, the landmarks), a family of random features such as
        ``"trig"`` or ``"balanced"``, or ``"auto"`` for the best of them by the folds.
    kernel: ``"gaussian"``, ``"laplace"``, ``"matern32"``, ``"matern52"``, or ``"auto"``.
    bandwidth: of the kernel, a width in units of the standardised columns; ``"auto"`` for the best by the
        folds on at most ``subsample`` samples.
    alpha: the penalty, as in ``sklearn.linear_model.Ridge``; ``"auto"`` for the best by the folds.
    linear: whether the columns themselves are part of the model, beside the features.
    metric: whether a bandwidth per column is learned, and kept where the folds approve.
    standardise: whether columns are brought to mean 0 and variance 1.
    folds: how many; a hash of a sample's contents decides its own.
    subsample: the most different samples that designs are compared on and landmarks taken from.
    random_state: decides draws and landmarks.
    """

    _head = "ridge"

    def __init__(
        self,
        *,
        n_components: int = 256,
        basis: str = "nystrom",
        kernel: str = "gaussian",
        bandwidth: float | Literal["auto"] = "auto",
        alpha: float | Literal["auto"] = "auto",
        linear: bool = False,
        metric: bool = False,
        standardise: bool = True,
        folds: int = 4,
        subsample: int = 4096,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.basis = basis
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.alpha = alpha
        self.linear = linear
        self.metric = metric
        self.standardise = standardise
        self.folds = folds
        self.subsample = subsample
        self.random_state = random_state

    def _check(self) -> None:
        for name in ("n_components", "folds", "subsample"):
            value = getattr(self, name)
            if not (isinstance(value, Integral) and int(value) > 0):
                raise ValueError(f"{name}={value!r}: a positive integer is needed")
        for name in ("bandwidth", "alpha"):
            value = getattr(self, name)
            if not (value == "auto" if isinstance(value, str) else value > 0):
                raise ValueError(f"{name}={value!r}: 'auto' or a positive number is needed")
        if self.kernel not in ("auto", *KERNEL_SHAPES):
            names = ", ".join(("auto", *KERNEL_SHAPES))
            raise ValueError(f"kernel={self.kernel!r} is not one of {names}")

    def _fit_model(
        self,
        X: NDArray[Any],
        targets: NDArray[Any],
        weights: NDArray[np.float64] | None,
        classes: int | None = None,
    ) -> None:
        self._check()
        self.model_ = HeadModel.fit(
            X,
            targets,
            weights,
            head=self._head,
            classes=classes,
            basis=self.basis,
            kernel=self.kernel,
            features=int(self.n_components),
            bandwidth=None if isinstance(self.bandwidth, str) else float(self.bandwidth),
            penalty=None if isinstance(self.alpha, str) else float(self.alpha),
            metric=bool(self.metric),
            standardise=bool(self.standardise),
            linear=bool(self.linear),
            folds=int(self.folds),
            sample=int(self.subsample),
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            **self._more_options(),
        )

    def _more_options(self) -> dict[str, Any]:
        """What one head alone is told."""
        return {}

    def _ready(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self, "model_")
        rows: NDArray[Any] = validate_data(self, X, dtype=FORMATS, reset=False)
        return rows

    def features(self, X: ArrayLike) -> NDArray[Any]:
        """The columns of the design: the linear part, if there is one, and the features."""
        X = self._ready(X)
        return self.model_.transform(X)

    @property
    def report_(self) -> dict[str, Any]:
        """How the head was chosen: ``penalty``, ``score`` (cross-validated R²), ``curve`` (the score of the
        first 32, 64, … features), ``doubled`` (the estimated score of twice as many),
        ``penalties``, ``target_scores`` and ``noise``."""
        check_is_fitted(self, "model_")
        report: dict[str, Any] = json.loads(self.model_.report())
        return report

    @property
    def trials_(self) -> list[dict[str, Any]]:
        """The designs that were compared, with their cross-validation scores."""
        check_is_fitted(self, "model_")
        trials: list[dict[str, Any]] = json.loads(self.model_.trials())
        return trials

    @property
    def design_(self) -> dict[str, Any]:
        """The chosen design: basis, shape, bandwidths and so on."""
        check_is_fitted(self, "model_")
        spec: dict[str, Any] = json.loads(self.model_.spec())
        return spec

    @property
    def alpha_(self) -> float:
        """The chosen penalty."""
        check_is_fitted(self, "model_")
        return self.model_.penalty

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """The root mean square of the slope along each standardised column; their sum is 1."""
        check_is_fitted(self, "model_")
        slopes = self.model_.slopes
        total = slopes.sum()
        importances: NDArray[np.float64] = slopes / total if total > 0 else slopes
        return importances


class _Mergeable(_Headed):
    """Heads in closed form, which need nothing but the sums."""

    def state(self) -> bytes:
        """What was learned, as bytes that ``merge`` and ``subtract`` take."""
        check_is_fitted(self, "model_")
        return self.model_.to_bytes()

    def merge(self, *others: bytes | _Mergeable) -> Self:
        """Adds the samples of others with the same design: their states, or the estimators."""
        return self._combine("merge", others)

    def subtract(self, *others: bytes | _Mergeable) -> Self:
        """Removes the samples of others, all of which must be in this one."""
        return self._combine("subtract", others)

    def _combine(self, how: str, others: tuple[bytes | _Mergeable, ...]) -> Self:
        check_is_fitted(self, "model_")
        # On an error the estimator is as it was.
        whole = self.model_.copy()
        for other in others:
            model = other.model_ if isinstance(other, _Mergeable) else HeadModel.from_bytes(other)
            getattr(whole, how)(model)
        self.model_ = whole
        return self


class _Numbers(MultiOutputMixin, RegressorMixin, _Mergeable):
    """Heads of numbers."""

    # The shape of the targets of a sample.
    _width: tuple[int, ...]

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Chooses a design, sums over the samples, and solves."""
        X, y = self._valued(X, y, reset=True)
        self._fit_model(X, y.reshape(len(y), -1), sample_weights(sample_weight, X))
        self._width = y.shape[1:]
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Adds samples. The first call is ``fit``, which chooses the design for good."""
        if not hasattr(self, "model_"):
            return self.fit(X, y, sample_weight)
        X, y = self._more(X, y)
        self.model_.add(X, y.reshape(len(y), -1), sample_weights(sample_weight, X))
        return self

    def fit_partial(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> bytes:
        """The state of these samples alone, with this estimator's design, for ``merge`` and ``subtract``."""
        check_is_fitted(self, "model_")
        X, y = self._more(X, y)
        weights = sample_weights(sample_weight, X)
        return self.model_.elsewhere(X, y.reshape(len(y), -1), weights).to_bytes()

    def _valued(
        self, X: ArrayLike, y: ArrayLike, reset: bool
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        rows, targets = validate_data(
            self, X, y, dtype=FORMATS, reset=reset, multi_output=True, y_numeric=True
        )
        return rows, np.asarray(targets, np.float64)

    def _more(self, X: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], NDArray[np.float64]]:
        X, y = self._valued(X, y, reset=False)
        if y.shape[1:] != self._width:
            raise ValueError(
                f"y has shape {y.shape}; the samples before had targets of shape {self._width}"
            )
        return X, y

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """The targets."""
        X = self._ready(X)
        found = self.model_.predict(X)
        return found.reshape(len(found), *self._width)


class FavorRidge(_Numbers):
    """Ridge regression on kernel features, with penalty and bandwidth chosen by exact cross-validation.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(500, 1))
    >>> model = FavorRidge(n_components=64, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.0]])[0] - np.sin(1.0)) < 0.01)
    True
    """


class FavorGP(_Numbers):
    """A Gaussian process on kernel features: ridge regression with predictive standard deviations.

    ``alpha`` is the ratio of the noise variance to that of the function; ``"auto"`` maximises the marginal
    likelihood.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(500, 1))
    >>> model = FavorGP(n_components=64, random_state=0).fit(X, np.sin(X[:, 0]) + rng.normal(0, 0.2, 500))
    >>> mean, std = model.predict([[1.0]], return_std=True)
    >>> bool(abs(std[0] - 0.2) < 0.03)
    True
    """

    _head = "gp"

    def predict(  # type: ignore[override]
        self, X: ArrayLike, return_std: bool = False
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The means and, with ``return_std``, the standard deviations of new observations, noise included."""
        if not return_std:
            return super().predict(X)
        X = self._ready(X)
        mean, deviation = self.model_.predict_with_deviation(X)
        shape = (len(mean), *self._width)
        return mean.reshape(shape), deviation.reshape(shape)


class _Classes(ClassifierMixin, _Headed):
    """Heads of classes."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Chooses a design, sums over the samples, and solves."""
        X, y = self._labelled(X, y, reset=True)
        return self._begin(X, y, unique_labels(y), sample_weight)

    def _begin(
        self,
        X: NDArray[Any],
        y: NDArray[Any],
        classes: NDArray[Any],
        sample_weight: ArrayLike | None,
    ) -> Self:
        weights = sample_weights(sample_weight, X)
        self._fit_model(X, _places(y, classes), weights, len(classes))
        self.classes_ = classes
        return self

    def _labelled(
        self, X: ArrayLike, y: ArrayLike, reset: bool
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        rows, labels = validate_data(self, X, y, dtype=FORMATS, reset=reset)
        check_classification_targets(labels)
        return rows, labels

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The probabilities of the classes."""
        X = self._ready(X)
        return self.model_.probabilities(X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most likely class."""
        X = self._ready(X)
        labels: NDArray[Any] = self.classes_[self.model_.predict(X).argmax(1)]
        return labels


def _places(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """The index of the class of each label."""
    places = np.searchsorted(classes, y)
    unknown = (places >= len(classes)) | (classes[np.minimum(places, len(classes) - 1)] != y)
    if unknown.any():
        raise ValueError(
            f"y holds {y[unknown.argmax()]!r}, which is not one of the classes {classes!r}"
        )
    return places


class FavorClassifier(_Classes, _Mergeable):
    """Ridge regression on one-hot labels and kernel features: a classifier in closed form.

    ``predict_proba`` clips its values and normalises them to sum to 1; ``FavorLogistic`` gives better
    probabilities but takes more passes over the samples.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(500, 1))
    >>> y = np.where(np.abs(X[:, 0]) > 1.5, "far", "near")
    >>> model = FavorClassifier(n_components=64, random_state=0).fit(X, y)
    >>> list(model.predict([[0.0], [2.5]]))
    [np.str_('near'), np.str_('far')]
    """

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Adds samples. The first call names all classes and chooses the design for good."""
        begun = hasattr(self, "model_")
        X, y = self._labelled(X, y, reset=not begun)
        if not begun and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        if begun and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"classes={classes!r} is not the same as on the first call: {self.classes_!r}"
            )
        if not begun:
            return self._begin(X, y, unique_labels(classes), sample_weight)
        self.model_.add(X, _places(y, self.classes_), sample_weights(sample_weight, X))
        return self

    def fit_partial(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> bytes:
        """The state of these samples alone, with this estimator's design, for ``merge`` and ``subtract``."""
        check_is_fitted(self, "model_")
        X, y = self._labelled(X, y, reset=False)
        places, weights = _places(y, self.classes_), sample_weights(sample_weight, X)
        return self.model_.elsewhere(X, places, weights).to_bytes()


class FavorLogistic(_Classes):
    """Logistic regression on kernel features, started from the ridge solution and preconditioned by its
    matrix, so that it takes few passes.

    It stops when the next pass would lower the mean loss by less than ``tol``, or after ``max_passes``
    passes. A logistic loss is not a function of sums, so this is the only head with neither
    ``partial_fit`` nor ``merge``: new coefficients need all samples again. ``FavorClassifier`` has both.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(2000, 1))
    >>> y = rng.uniform(size=2000) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> model = FavorLogistic(n_components=32, random_state=0).fit(X, y)
    >>> bool(abs(model.predict_proba([[0.5]])[0, 1] - 1 / (1 + np.exp(-1))) < 0.1)
    True
    """

    _head = "logistic"

    def __init__(
        self,
        *,
        n_components: int = 256,
        basis: str = "nystrom",
        kernel: str = "gaussian",
        bandwidth: float | Literal["auto"] = "auto",
        alpha: float | Literal["auto"] = "auto",
        linear: bool = False,
        metric: bool = False,
        standardise: bool = True,
        folds: int = 4,
        subsample: int = 4096,
        tol: float = 1e-5,
        max_passes: int = 50,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(
            n_components=n_components,
            basis=basis,
            kernel=kernel,
            bandwidth=bandwidth,
            alpha=alpha,
            linear=linear,
            metric=metric,
            standardise=standardise,
            folds=folds,
            subsample=subsample,
            random_state=random_state,
        )
        self.tol = tol
        self.max_passes = max_passes

    def _more_options(self) -> dict[str, Any]:
        if not (isinstance(self.tol, Real) and self.tol > 0):
            raise ValueError(f"tol={self.tol!r}: a positive number is needed")
        if not (isinstance(self.max_passes, Integral) and self.max_passes > 0):
            raise ValueError(f"max_passes={self.max_passes!r}: a positive integer is needed")
        return {"tolerance": float(self.tol), "passes": int(self.max_passes)}


__all__ = ["FavorClassifier", "FavorGP", "FavorLogistic", "FavorRidge"]
