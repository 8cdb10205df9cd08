"""Ridge, Gaussian-process and logistic heads: scikit-learn's checks, and agreement with its own models."""

import pickle

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.datasets import make_moons  # noqa: E402
from sklearn.kernel_approximation import Nystroem  # noqa: E402
from sklearn.linear_model import LogisticRegression, Ridge  # noqa: E402
from sklearn.metrics import log_loss, roc_auc_score  # noqa: E402

from favor_sharp.sklearn import (  # noqa: E402
    FavorClassifier,
    FavorGP,
    FavorLogistic,
    FavorRidge,
)

HEADS = [FavorRidge, FavorGP, FavorClassifier, FavorLogistic]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3))
Y = np.sin(1.5 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * RNG.normal(size=600)


@pytest.mark.parametrize("kind", HEADS)
def test_their_own_checks(kind, not_passed):
    found = not_passed(kind(n_components=64))
    if kind is FavorLogistic:
        # Its passes end at a tolerance of the loss, not at the last digit: 1e-7 is beyond them. The next test
        # asks for as much as they promise.
        del found["check_sample_weight_equivalence_on_dense_data"]
    assert found == {}


def test_logistic_weights_are_repetitions():
    """The same loss, minimised until a pass gains less than ``tol`` of it: near the minimum the loss is
    quadratic, so that probabilities agree to its root."""
    labels = (X[:, 0] + X[:, 1] > 0).astype(int)
    weights = np.random.default_rng(3).integers(0, 4, size=len(X))
    how = {"n_components": 20, "bandwidth": 2.0, "alpha": 0.5, "random_state": 0, "tol": 1e-8}
    how |= {"basis": "trig", "max_passes": 200, "standardise": False}
    weighted = FavorLogistic(**how).fit(X, labels, sample_weight=weights)
    repeated = FavorLogistic(**how).fit(np.repeat(X, weights, 0), np.repeat(labels, weights))
    assert np.abs(weighted.predict_proba(X) - repeated.predict_proba(X)).max() < 1e-3


@pytest.mark.parametrize("alpha", [1e-3, 1.0])
def test_ridge_is_that_of_scikit_learn(alpha):
    gamma, plain = 0.15, {"standardise": False, "n_components": 80, "alpha": alpha}
    model = FavorRidge(bandwidth=1 / np.sqrt(2 * gamma), random_state=0, **plain).fit(X, Y)
    landmarks = model.model_.landmarks
    theirs = Nystroem(gamma=gamma, n_components=len(landmarks), random_state=0).fit(landmarks)
    ridge = Ridge(alpha=alpha, solver="cholesky").fit(theirs.transform(X), Y)
    more = np.random.default_rng(2).normal(size=(200, 3))
    assert np.abs(model.predict(more) - ridge.predict(theirs.transform(more))).max() < 1e-6


def test_logistic_is_that_of_scikit_learn():
    features, labels = make_moons(400, noise=0.3, random_state=0)
    model = FavorLogistic(n_components=20, alpha=0.5, random_state=0).fit(features, labels)
    # The softmax of two classes has twice the logit, and each half of the penalty.
    theirs = LogisticRegression(C=1 / (0.5 * 0.5), max_iter=1000, tol=1e-8)
    theirs.fit(model.features(features), labels)
    expected = theirs.predict_proba(model.features(features))
    assert abs(log_loss(labels, model.predict_proba(features)) - log_loss(labels, expected)) < 1e-3
    assert np.abs(model.predict_proba(features) - expected).max() < 0.02


@pytest.mark.parametrize("kind", [FavorRidge, FavorGP])
def test_samples_come_and_go(kind):
    options = {"n_components": 60, "bandwidth": 2.0, "alpha": 0.01, "random_state": 0}
    whole = kind(**options).fit(X, Y)
    parts = kind(**options).fit(X, Y)
    parts.subtract(parts.fit_partial(X[200:], Y[200:]))
    assert parts.model_.rows == 200
    worker = kind(**options).fit(X, Y)
    with pytest.raises(ValueError, match="only rows that were added can"):
        parts.subtract(worker)
    parts.merge(parts.fit_partial(X[200:400], Y[200:400]))
    parts.partial_fit(X[400:], Y[400:])
    assert np.abs(parts.predict(X) - whole.predict(X)).max() < 1e-6
    other = kind(**{**options, "bandwidth": 3.0}).fit(X, Y)
    with pytest.raises(ValueError, match="designs differ"):
        parts.merge(other)


def test_classes_come_and_go():
    labels = np.where(Y > 0.5, "high", np.where(Y < -0.5, "low", "middle"))
    model = FavorClassifier(n_components=60, random_state=0)
    with pytest.raises(ValueError, match="classes must be passed"):
        model.partial_fit(X, labels)
    model.partial_fit(X[:400], labels[:400], classes=["high", "low", "middle", "unseen"])
    state = model.fit_partial(X[400:], labels[400:])
    model.merge(state)
    assert (model.predict(X) == labels).mean() > 0.8
    assert np.allclose(model.predict_proba(X).sum(1), 1)
    model.subtract(state)
    assert model.model_.rows == 400
    with pytest.raises(ValueError, match="not one of the classes"):
        model.partial_fit(X, np.full(600, "other"))


def test_a_process_knows_its_errors():
    seen, new = slice(0, 400), slice(400, 600)
    model = FavorGP(n_components=100, random_state=0).fit(X[seen], Y[seen])
    mean, std = model.predict(X[new], return_std=True)
    assert np.array_equal(mean, model.predict(X[new]))
    inside = (np.abs(mean - Y[new]) < 1.96 * std).mean()
    # Four deviations of a binomial of 200.
    assert abs(inside - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 200)
    far = model.predict(np.full((1, 3), 20.0), return_std=True)[1]
    assert far[0] > std.max()
    two = FavorGP(n_components=50, random_state=0).fit(X, np.stack([Y, 100 * Y], 1))
    mean, std = two.predict(X, return_std=True)
    assert mean.shape == std.shape == (600, 2)
    assert np.allclose(std[:, 1], 100 * std[:, 0])


def test_reports_say_what_was_chosen():
    model = FavorRidge(n_components=128, basis="auto", kernel="auto", metric=True, random_state=0)
    model.fit(X, Y)
    report = model.report_
    assert 0.9 < report["score"] <= 1 and report["penalty"] == model.alpha_
    assert [p["features"] for p in report["curve"]][:3] == [32, 64, 128]
    assert {t["spec"]["basis"] for t in model.trials_} == {"nystrom", "trig", "balanced"}
    assert len({t["spec"]["shape"] for t in model.trials_}) == 4
    assert np.isclose(model.feature_importances_.sum(), 1)
    silent = np.column_stack([X, np.random.default_rng(3).normal(size=(600, 3))])
    model = FavorRidge(n_components=128, metric=True, random_state=0).fit(silent, Y)
    assert model.feature_importances_[:3].min() > 2 * model.feature_importances_[3:].max()
    assert len(model.design_["bandwidths"]) == 6


@pytest.mark.parametrize("kind", HEADS)
def test_models_are_pickled_and_single_precision_is_close(kind):
    y = (Y > 0).astype(int) if kind in (FavorClassifier, FavorLogistic) else Y
    # Rounded first: the landmarks are chosen by the contents of the samples.
    x = X.astype(np.float32).astype(np.float64)
    model = kind(n_components=50, bandwidth=2.0, random_state=0).fit(x, y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(X), model.predict(X))
    single = clone(model).fit(x.astype(np.float32), y)
    found, expected = (
        m.predict_proba(X) if hasattr(m, "predict_proba") else m.predict(X) for m in (single, model)
    )
    assert np.abs(found - expected).max() < 0.02


def test_probabilities_are_judged():
    rng = np.random.default_rng(1)
    x = rng.uniform(-3, 3, size=(4000, 2))
    p = 1 / (1 + np.exp(-3 * np.sin(x[:, 0]) * x[:, 1]))
    y = rng.uniform(size=4000) < p
    model = FavorLogistic(n_components=100, random_state=0).fit(x[:3000], y[:3000])
    found = model.predict_proba(x[3000:])[:, 1]
    best = roc_auc_score(y[3000:], p[3000:])
    assert roc_auc_score(y[3000:], found) > best - 0.02
    assert log_loss(y[3000:], found) < log_loss(y[3000:], p[3000:]) + 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"bandwidth": -1.0}, "bandwidth"),
        ({"alpha": "none"}, "alpha"),
        ({"kernel": "cubic"}, "not one of auto, gaussian"),
        ({"basis": "fourier"}, "not one of nystrom, trig"),
        ({"basis": "balanced", "kernel": "laplace"}, "use trig or nystrom"),
    ],
)
def test_bad_parameters_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        FavorRidge(**options).fit(X, Y)


def test_every_head_has_an_estimator():
    from favor_sharp import HEADS
    from favor_sharp._heads import _Headed

    def kinds(estimator):
        return {estimator._head}.union(*map(kinds, estimator.__subclasses__()))

    assert kinds(_Headed) == set(HEADS)
