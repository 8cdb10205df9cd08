"""The scikit-learn layer: its own checks, and agreement with exact kernel sums."""

import functools
import pickle

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")

from scipy.sparse import csr_array  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.datasets import load_digits, make_moons  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.metrics.pairwise import rbf_kernel  # noqa: E402
from sklearn.model_selection import GridSearchCV, train_test_split  # noqa: E402
from sklearn.neighbors import KernelDensity  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from favor_sharp import FAMILIES  # noqa: E402
from favor_sharp._native import Readout  # noqa: E402
from favor_sharp.sklearn import (  # noqa: E402
    FavorSampler,
    KernelClassifier,
    KernelDensityEstimator,
    KernelRegressor,
    merge_states,
)

ALL = [FavorSampler, KernelClassifier, KernelRegressor, KernelDensityEstimator]
SUMMED = ALL[1:]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3))
Y = (X[:, 0] + 0.3 * RNG.normal(size=300) > 0).astype(int) + 2 * (X[:, 1] > 1)


# Sums need positive features, which those of trig_pair are not.
@pytest.mark.parametrize(
    ("kind", "family"), [*((kind, "balanced") for kind in ALL), (FavorSampler, "trig_pair")]
)
def test_their_own_checks(kind, family, not_passed):
    assert not_passed(kind(family=family)) == {}


def output(model, X):
    for name in ("predict_proba", "predict", "score_samples", "transform"):
        if hasattr(model, name):
            return getattr(model, name)(X)


@pytest.mark.parametrize("family", [name for name, _ in FAMILIES])
def test_features_estimate_the_kernel(family):
    x = X[:60]
    exact = rbf_kernel(x, gamma=0.15)
    many = [
        FavorSampler(
            gamma=0.15, n_components=512, family=family, coupling="iid", random_state=s
        ).fit_transform(x)
        for s in range(24)
    ]
    estimates = np.stack([z @ z.T for z in many])
    error = estimates.mean(0) - exact
    deviation = estimates.std(0, ddof=1) / np.sqrt(len(many))
    # Unbiased: the mean of all pairs lies within its standard error, from pairs that share draws.
    assert np.sqrt((error**2).mean()) < 2 * np.sqrt((deviation**2).mean()) < 0.1


def test_sums_come_close_to_exact_ones():
    kernel = rbf_kernel(X[:50], X, gamma=0.2)
    options = {"gamma": 0.2, "n_components": 4096, "random_state": 0}
    labels = np.eye(4)[Y]
    shares = kernel @ labels / kernel.sum(1, keepdims=True)
    assert (
        np.abs(KernelClassifier(**options).fit(X, Y).predict_proba(X[:50]) - shares).mean() < 0.02
    )
    targets = np.column_stack([X[:, 0], X[:, 1] ** 2])
    means = kernel @ targets / kernel.sum(1, keepdims=True)
    assert np.abs(KernelRegressor(**options).fit(X, targets).predict(X[:50]) - means).mean() < 0.05
    theirs = KernelDensity(bandwidth=np.sqrt(1 / 0.4)).fit(X)
    ours = KernelDensityEstimator(**options).fit(X)
    assert np.abs(ours.score_samples(X[:50]) - theirs.score_samples(X[:50])).mean() < 0.05
    assert ours.score(X[:50]) == pytest.approx(ours.score_samples(X[:50]).sum())


@pytest.mark.parametrize("kind", SUMMED)
def test_single_precision(kind):
    """Sums of some hundred terms of 24 bits, over more samples than one thread takes at a time."""
    x, y = np.tile(X, (60, 1)), np.tile(Y, 60)
    wide = kind(n_components=64, random_state=1).fit(x, y)
    model = kind(n_components=64, random_state=1).fit(x.astype("f4"), y)
    found, wanted = output(model, X.astype("f4")), output(wide, X)
    assert np.allclose(found, wanted, rtol=1e-3, atol=1e-4)
    # Targets may be far from zero, so their sums are always computed in double precision.
    computed = model._samples(X.astype("f4"), reset=False).dtype
    assert computed == (np.float64 if kind is KernelRegressor else np.float32)


def test_a_readout_takes_sums_of_its_own_shape():
    found = Readout.means(1).outputs([0.0, 1.0], [[2.0, 6.0], [0.0, 0.0]])
    assert found.tolist() == [[3.0], [0.0]]
    with pytest.raises(ValueError, match=r"shape \(2, 1\); \(2, 2\) is needed"):
        Readout.means(1).outputs([0.0, 1.0], [[2.0], [0.0]])
    with pytest.raises(ValueError, match=r"\(1, 3\) is needed"):
        Readout.classes([1.0, 1.0, 1.0]).outputs([0.0], [[1.0]])
    assert Readout.classes([3.0, 1.0]).outputs([0.0], [[0.0, 0.0]]).tolist() == [[0.75, 0.25]]
    with pytest.raises(ValueError, match="weight of zero"):
        Readout.density(1.0, 2, 0.0)


def test_targets_keep_their_digits():
    """Samples of float32 do not cost the digits in which large targets differ."""
    model = KernelRegressor(gamma=0.2, n_components=64, random_state=1).fit(X, X[:, 0])
    far = KernelRegressor(gamma=0.2, n_components=64, random_state=1)
    far.fit(X.astype("f4"), X[:, 0] + 1e6)
    assert np.abs(far.predict(X.astype("f4")) - 1e6 - model.predict(X)).max() < 1e-4


@pytest.mark.parametrize("kind", SUMMED)
def test_many_samples(kind):
    """Sixty copies of each sample change nothing, though several threads sum them."""
    begun = kind(n_components=64, random_state=1).fit_map(X)
    once, often = (pickle.loads(pickle.dumps(begun)) for _ in range(2))
    more = {"classes": np.unique(Y)} if kind is KernelClassifier else {}
    once.partial_fit(X, Y, **more)
    often.partial_fit(np.tile(X, (60, 1)), np.tile(Y, 60), **more)
    assert np.allclose(output(often, X), output(once, X), rtol=1e-9)


@pytest.mark.parametrize("kind", SUMMED)
def test_pieces_and_workers(kind):
    model = kind(n_components=64, random_state=1).fit(X, Y)
    begun = kind(n_components=64, random_state=1).fit_map(X)
    more = {"classes": np.unique(Y)} if kind is KernelClassifier else {}
    workers = [pickle.loads(pickle.dumps(begun)) for _ in range(3)]
    parts = zip(np.split(X, 3), np.split(Y, 3), strict=True)
    states = [
        pickle.dumps(w.partial_fit(x, y, **more)) for w, (x, y) in zip(workers, parts, strict=True)
    ]
    whole = pickle.loads(states[0])
    for state in states[1:]:
        whole.merge(pickle.loads(state))
    assert np.allclose(output(whole, X), output(model, X), rtol=1e-9)
    with pytest.raises(ValueError, match="maps differ"):
        whole.merge(kind(n_components=64, random_state=2).fit(X, Y))


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        (KernelClassifier, Y),
        (KernelClassifier, Y.astype(str)),
        (KernelClassifier, Y.astype(str).astype(object)),
        (KernelRegressor, X[:, 0]),
        (KernelRegressor, X[:, :2]),
        (KernelDensityEstimator, Y),
    ],
)
def test_states_travel(kind, labels):
    more = {"classes": np.unique(labels)} if kind is KernelClassifier else {}
    weights = np.random.default_rng(2).uniform(0.5, 2, 300)
    alone = kind(n_components=64, random_state=1).fit_map(X)
    begun = pickle.loads(pickle.dumps(alone))
    alone.partial_fit(X, labels, sample_weight=weights, **more)
    cuts = [slice(0, 90), slice(90, 100), slice(100, 300)]
    states = [begun.fit_partial(X[c], labels[c], sample_weight=weights[c], **more) for c in cuts]
    assert all(isinstance(s, bytes) for s in states) and not hasattr(begun, "sums_")
    whole = pickle.loads(pickle.dumps(begun)).merge(*states)
    pairs = pickle.loads(pickle.dumps(begun)).merge(functools.reduce(merge_states, states))
    later = pickle.loads(pickle.dumps(begun)).partial_fit(
        X[:90], labels[:90], sample_weight=weights[:90], **more
    )
    later.merge(*states[1:])
    for model in (whole, pairs, later):
        assert np.allclose(output(model, X), output(alone, X), rtol=1e-9)
        assert model.totals_ == pytest.approx(alone.totals_)
    assert whole.state() == pairs.state()
    if kind is KernelClassifier:
        assert np.array_equal(whole.classes_, alone.classes_)
        assert whole.classes_.dtype == alone.classes_.dtype
    # A worker that has learned gives out what is new alone.
    assert (
        later.fit_partial(X[cuts[1]], labels[cuts[1]], sample_weight=weights[cuts[1]]) == states[1]
    )


@pytest.mark.parametrize("kind", SUMMED)
def test_states_that_do_not_fit(kind):
    more = {"classes": np.unique(Y)} if kind is KernelClassifier else {}
    begun = kind(n_components=16, random_state=1).fit_map(X)
    good = begun.fit_partial(X, Y, **more)
    begun.merge(good)
    before = begun.state()
    for place in range(0, len(good), 7):
        bad = bytearray(good)
        bad[place] ^= 1
        with pytest.raises(ValueError, match="state: not a readable state of key sums"):
            begun.merge(good, bytes(bad))
    for end in (*range(60), len(good) - 1):
        with pytest.raises(ValueError, match="state: "):
            begun.merge(good[:end])
    with pytest.raises(ValueError, match="state: "):
        begun.merge(good + b"0")
    with pytest.raises(TypeError, match="bytes"):
        begun.merge("state")
    other = kind(n_components=16, random_state=2).fit_map(X).fit_partial(X, Y, **more)
    with pytest.raises(ValueError, match="maps differ"):
        begun.merge(good, other)
    with pytest.raises(ValueError, match="maps differ"):
        kind(n_components=16, random_state=1).fit_map(X).merge(other)
    with pytest.raises(ValueError, match="maps differ"):
        merge_states(good, other)
    foreign = KernelDensityEstimator if kind is not KernelDensityEstimator else KernelRegressor
    with pytest.raises(ValueError, match="does not go with"):
        begun.merge(foreign(n_components=16, random_state=1).fit_map(X).fit_partial(X, Y))
    # Nothing of all that was refused has left a trace.
    assert begun.state() == before
    with pytest.raises(NotFittedError):
        kind().merge(good)
    with pytest.raises(NotFittedError):
        kind().fit_partial(X, Y)
    with pytest.raises(NotFittedError):
        kind().fit_map(X).state()


def test_states_of_other_targets():
    begun = KernelClassifier(n_components=16, random_state=1).fit_map(X)
    with pytest.raises(ValueError, match="classes differ"):
        begun.merge(
            begun.fit_partial(X, Y, classes=range(4)), begun.fit_partial(X, Y, classes=range(5))
        )
    begun = KernelRegressor(n_components=16, random_state=1).fit_map(X)
    with pytest.raises(ValueError, match="targets of shape"):
        begun.merge(begun.fit_partial(X, Y), begun.fit_partial(X, X[:, :2]))


@pytest.mark.parametrize("kind", ALL)
def test_weights_are_repetitions(kind):
    weights = np.random.default_rng(3).integers(0, 4, 300)
    a = kind(n_components=64, random_state=1).fit(X, Y, sample_weight=weights)
    b = kind(n_components=64, random_state=1).fit(np.repeat(X, weights, 0), np.repeat(Y, weights))
    assert np.allclose(output(a, X), output(b, X), rtol=1e-6)


@pytest.mark.parametrize("kind", ALL)
def test_copies_and_refusals(kind):
    model = kind(n_components=32, random_state=0).fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(output(again, X), output(model, X))
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(TypeError, match="dense data is required"):
        kind().fit(csr_array(X), Y)
    with pytest.raises(ValueError, match="family"):
        kind(family="best").fit(X, Y)
    with pytest.raises(ValueError, match="gamma"):
        kind(gamma=-1.0).fit(X, Y)
    with pytest.raises(ValueError, match="NaN"):
        kind().fit(np.where(X > 2, np.nan, X), Y)


@pytest.mark.parametrize("kind", ALL)
def test_names_and_features(kind):
    model = kind(n_components=3, random_state=0).fit(X, Y)
    name = kind.__name__.lower()
    assert list(model.get_feature_names_out()) == [f"{name}{i}" for i in range(3)]
    # All give the features of the map that their sums are made of.
    sampler = FavorSampler(n_components=3, random_state=0).fit(X)
    assert np.array_equal(model.transform(X), sampler.transform(X))
    table = model.set_output(transform="pandas").transform(X)
    assert list(table.columns) == list(model.get_feature_names_out())


def test_frozen_after_the_first_piece():
    sampler = FavorSampler(n_components=16, random_state=0).partial_fit(X[:100])
    before = sampler.transform(X)
    assert np.array_equal(sampler.partial_fit(5 * X).transform(X), before)


def test_pipelines_and_searches():
    x, y = make_moons(400, noise=0.2, random_state=0)
    pipeline = make_pipeline(
        StandardScaler(),
        FavorSampler(n_components=100, random_state=0),
        LogisticRegression(max_iter=2000),
    )
    search = GridSearchCV(
        pipeline,
        {"favorsampler__gamma": [0.1, 1.0], "favorsampler__family": ["balanced", "trig_pair"]},
        cv=3,
    )
    assert search.fit(x, y).best_score_ > 0.93
    search = GridSearchCV(KernelClassifier(random_state=0), {"gamma": [1.0, 10.0]}, cv=3)
    assert search.fit(x, y).best_score_ > 0.93


def test_digits():
    x, y = load_digits(return_X_y=True)
    a, b, c, d = train_test_split(x / 16, y, random_state=0)
    model = KernelClassifier(gamma=0.2, n_components=4096, random_state=0).fit(a, c)
    exact = (rbf_kernel(b, a, gamma=0.2) @ np.eye(10)[c]).argmax(1)
    assert model.score(b, d) > (exact == d).mean() - 0.03 > 0.85
