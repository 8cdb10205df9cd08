"""Learned maps and exact keys on NumPy arrays: better than drawn ones, and equal to plain definitions."""

import pickle
import subprocess

import numpy as np
import pytest

import favor_sharp as fs

HEADS, LENGTH, DIM = 2, 64, 8


def sequences(count=12, length=LENGTH, spread=2.0, seed=3, dtype=np.float32):
    """Heads that attend to few keys: logits have a standard deviation of ``spread²``."""
    rng = np.random.default_rng(seed)
    shape = count, HEADS, length, DIM
    return tuple((s * rng.standard_normal(shape)).astype(dtype) for s in (spread, spread, 1.0))


def learn(*x, **options):
    return fs.learn_maps(*x, **{"features": 16, "steps": 120} | options)


@pytest.fixture(scope="module")
def learned():
    return learn(*sequences(), near=2, routed=(2, 3), source="noise")


def error(out, exact):
    return np.linalg.norm(out - exact) / np.linalg.norm(exact)


# ---- learning


@pytest.mark.parametrize(
    "keys",
    [{}, {"near": 2}, {"near": 2, "routed": (2, 3)}, {"global_keys": 4}, {"causal": True}],
    ids=str,
)
def test_learning_is_worth_it(keys):
    heads = learn(*sequences(), **keys)
    assert len(heads) == HEADS
    for head in heads:
        report = head.report
        assert report.kept == "learned" and report.after < report.before
        assert report.kl_after < 0.9 * report.kl_before
        assert (report.exact_alone is None) == (set(keys) <= {"causal"})
        assert report.uniform > 0 and report.window > 0 and report.window_alone > 0
        better = "map" if report.after < report.window_alone else "window"
        short = fs.exact_is_no_slower(head.map, LENGTH, LENGTH, **keys)
        assert report.recommended == ("exact" if short else better)
    # And on data that nobody has seen.
    q, k, v = sequences(6, seed=9)
    exact = fs.exact_attention(q, k, v, causal=keys.get("causal", False))
    maps = [head.map for head in heads]
    drawn = fs.fit_maps(*sequences()[:2], features=16)
    assert error(fs.attention(q, k, v, maps, **keys), exact) < error(
        fs.attention(q, k, v, drawn, **keys), exact
    )


def test_what_learning_says_of_a_map(learned):
    map = learned[0].map
    assert map.omega is None and map.family == "balanced" and map.features == 16
    from_ = map.learned
    assert from_["sequences"] == 9 and from_["held_out"] == 3 and 0 < from_["steps"] <= 120
    assert from_["tokens"] == 9 * LENGTH and from_["source"] == "noise"
    assert (from_["near"], from_["global_keys"], from_["routed"]) == (2, 0, (2, 3))
    assert from_["kl_after"] == learned[0].report.kl_after and not from_["causal"]
    assert fs.fit_maps(*sequences()[:2], features=4)[0].learned is None
    assert fs.learn_maps(*sequences(), features=4, steps=1)[0].map.learned["source"] == ""
    assert "learned" in repr(map) and "after" in repr(learned[0].report)
    with pytest.raises(ValueError, match="learned map has no parameters"):
        map.arrays()


def test_no_map_is_worse_than_the_start():
    """Too few and too short sequences to learn anything from, with a rate that is far too large."""
    for seed in range(4):
        for keys in ({}, {"near": 1}, {"near": 1, "routed": (1, 2)}):
            heads = learn(*sequences(2, 8, seed=seed), rate=3.0, steps=30, seed=seed, **keys)
            for report in (h.report for h in heads):
                assert report.after <= report.before
                assert (report.exact_alone is None) == (not keys)
                assert not keys or report.after <= report.exact_alone
    heads = learn(*sequences(), steps=0)
    assert {h.report.kept for h in heads} == {"start"}
    assert all(h.report.after == h.report.before for h in heads)


def test_neither_threads_nor_strides_show():
    q, k, v = sequences()
    wanted = learn(q, k, v, steps=20, routed=(1, 2), threads=1)
    for threads in (2, 5):
        found = learn(q, k, v, steps=20, routed=(1, 2), threads=threads)
        assert [h.map for h in found] == [h.map for h in wanted]
        assert [h.report for h in found] == [h.report for h in wanted]
    swapped = [
        np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for x in (q, k, v)
    ]
    found = learn(*swapped, steps=20, routed=(1, 2))
    assert [h.map for h in found] == [h.map for h in wanted]
    other = learn(q, k, v, steps=20, routed=(1, 2), seed=1)
    assert other[0].map != wanted[0].map


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_formats(dtype):
    x = sequences(4, dtype=np.float16)
    found = learn(*(y.astype(dtype) for y in x), steps=10)
    # The numbers of all formats are the same, and so is what is learned.
    wanted = learn(*(y.astype(np.float32) for y in x), steps=10)
    assert [h.map for h in found] == [h.map for h in wanted]


def test_padding_is_not_looked_at():
    q, k, v = sequences(4)
    mask = np.ones((4, LENGTH), bool)
    mask[:, 50:] = False
    noise = [np.where(mask[:, None, :, None], x, np.float32(np.nan)) for x in (q, k, v)]
    found = learn(*noise, key_mask=mask, steps=10)
    wanted = learn(*(x[:, :, :50] for x in (q, k, v)), steps=10)
    assert [h.map for h in found] == [h.map for h in wanted]


def test_one_sequence_and_no_values():
    q, k, v = sequences(1, 200)
    whole = learn(q, k, steps=10)
    assert [h.map for h in learn(q[0], k[0], steps=10)] == [h.map for h in whole]
    # Values say what an error is, and change no step.
    sides = [h.map.side("key")["weights"] for h in (whole[0], learn(q, k, v, steps=10)[0])]
    assert np.array_equal(*sides)
    # One head.
    assert len(learn(q[0, 0], k[0, 0], steps=5)) == 1


def test_learned_maps_are_kept(learned, tmp_path):
    maps = [head.map for head in learned]
    assert fs.maps_from_bytes(fs.maps_to_bytes(maps)) == maps
    assert pickle.loads(pickle.dumps(maps[0])) == maps[0]
    maps[0].save(tmp_path / "map")
    again = fs.FeatureMap.load(tmp_path / "map")
    assert again == maps[0] and again.learned == maps[0].learned
    x = sequences(1)
    for options in ({}, {"near": 2, "routed": (2, 3)}):
        a, b = (fs.attention(*(y[0, 0] for y in x), m, **options) for m in (again, maps[0]))
        assert np.array_equal(a, b)


def test_a_side_of_a_learned_map_is_what_projects(learned):
    map, x = learned[0].map, np.random.default_rng(0).standard_normal((20, DIM))
    for name in ("query", "key"):
        side, y = map.side(name), map.scale * x
        projected = (y + side["shift"]) @ side["weights"].T + side["constants"]
        inner = ((y + side["shift"]) @ side["transform"].T) ** 2
        row = side["alpha"] * (y**2).sum(1, keepdims=True) - inner.sum(1, keepdims=True) / 2
        row -= (y @ side["linear"])[:, None] + side["constant"]
        assert np.allclose(projected + row, map.log_features(x, side=name), rtol=1e-10)


def test_progress():
    calls = []
    learn(*sequences(4), steps=30, progress=lambda *x: calls.append(x))
    done, total, loss = zip(*calls, strict=True)
    assert set(total) == {30 * HEADS} and done[-1] == 30 * HEADS
    assert list(done) == sorted(set(done)) and all(x > 0 for x in loss)

    def refuse(*_):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        learn(*sequences(), steps=600, progress=refuse)
    # No terminal, no bar.
    learn(*sequences(2), steps=2, progress=True)


@pytest.mark.parametrize("outputs", [0.0, 1.0])
def test_progress_tells_the_objective(outputs):
    """Of one head, whose last step is its best: what was told last is the divergence that is reported, or
    the square of the error."""
    x = [y[:, :1] for y in sequences()]
    told = []
    (head,) = learn(*x, outputs=outputs, progress=lambda *now: told.append(now))
    report = head.report
    assert report.kept == "learned" and head.map.learned["steps"] == told[-1][1] == 120
    wanted = report.after**2 if outputs else report.kl_after
    assert told[-1][2] == pytest.approx(wanted, rel=1e-12)
    assert abs(report.after**2 - report.kl_after) > 1e-3


def test_the_bar_names_what_it_shows(capsys):
    from favor_sharp import _learn

    _learn._bar(30, 60, 0.25)
    assert "30/60 steps, objective 0.2500" in capsys.readouterr().err


def test_learning_can_be_interrupted(python):
    """Learning that would take days, and a thread that waits until it computes and then interrupts it."""
    program = """
import os, signal, sys, threading, time
import numpy as np, favor_sharp as fs

signal.signal(signal.SIGINT, signal.default_int_handler)
main, reached = threading.get_ident(), threading.Event()
x = np.random.default_rng(0).standard_normal((4, 2, 64, 8))

class Values:
    # The last thing that the call asks of Python.
    def __array__(self, dtype=None, copy=None):
        reached.set()
        return x

def interrupt():
    reached.wait()
    while sys._current_frames()[main].f_code.co_name == "__array__":
        time.sleep(0.001)
    signal.raise_signal(signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    fs.learn_maps(x, x, Values(), features=8, steps=10**9)
    print("ended", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(len(fs.learn_maps(x, x, features=8, steps=2)), flush=True)
os._exit(0)
"""
    # The limit is for a call that cannot be interrupted.
    done = subprocess.run(
        [*python, "-c", program], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.stdout.splitlines() == ["interrupted", "2"], done.stderr


def ragged(x):
    """Sequences of different lengths, as a list."""
    return [x[0], x[1, :, :20]]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda q, k, v: learn(q.astype(int), k, v), TypeError, "int64"),
        (lambda q, k, v: learn(q, k[:, :1], v), ValueError, "do not fit"),
        (lambda q, k, v: learn(ragged(q), ragged(k)), ValueError, "q: .*lengths.*pad"),
        (lambda q, k, v: learn(q, ragged(k)), ValueError, "k: .*lengths.*pad"),
        (lambda q, k, v: learn(q, k, v[:, :, :5]), ValueError, "do not fit"),
        (lambda q, k, v: learn(q[:, :, :5], k, v, near=1), ValueError, "window"),
        (lambda q, k, v: learn(q[:, :, :5], k, v, causal=True), ValueError, "causal"),
        (lambda q, k, v: learn(q * np.inf, k, v), ValueError, "sequence 0, head 0: queries"),
        (lambda q, k, v: learn(q[:0], k[:0], v[:0]), ValueError, "empty"),
        (lambda q, k, v: learn(q[:1, :, :1], k[:1, :, :1]), ValueError, "too short"),
        (lambda q, k, v: learn(q, k, v, holdout=1.0), ValueError, "holdout"),
        (lambda q, k, v: learn(q, k, v, batch=0), ValueError, "batch"),
        (lambda q, k, v: learn(q, k, v, rate=-1.0), ValueError, "rate"),
        (lambda q, k, v: learn(q, k, v, family="best"), ValueError, "not one of trig"),
        (lambda q, k, v: learn(q, k, v, family="trig"), ValueError, "positive"),
        (lambda q, k, v: learn(q, k, v, routed=(17, 1)), ValueError, "17 preferred slots"),
        (lambda q, k, v: learn(q, k, v, routed=4), TypeError, "pair"),
        (lambda q, k, v: learn(q, k, v, progress=7), TypeError, "progress"),
        (lambda q, k, v: learn(q, k, v, key_mask=np.ones((4, 3), bool)), ValueError, "mask"),
        (
            lambda q, k, v: learn(q, k, v, key_mask=np.zeros((4, LENGTH), bool)),
            ValueError,
            "no key that can be seen",
        ),
    ],
)
def test_refusals_are_told(call, error, words):
    with pytest.raises(error, match=words):
        call(*sequences(4))


def constant(x):
    return np.full_like(x, 0.5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda q, k, v: (constant(q), k, v), {"near": 2}),
        (lambda q, k, v: (q, constant(k), v), {"routed": (2, 3)}),
        (lambda q, k, v: (constant(q), constant(k), constant(v)), {"global_keys": 3}),
        (lambda q, k, v: (q, k, v), {"near": LENGTH + 1}),
        (lambda q, k, v: (q, k, v), {"near": 2**64 - 1}),
        (lambda q, k, v: (q, k, v), {"routed": (2, LENGTH + 1)}),
        (lambda q, k, v: (q, k, v), {"routed": (2, 2**64 - 1), "global_keys": 2**64 - 1}),
        (lambda q, k, v: (q[:, :, :6], k[:, :, :6], v[:, :, :6]), {"near": 1, "routed": (4, 8)}),
        (lambda q, k, v: (q[:, :, :1], k[:, :, :1], v[:, :, :1]), {"near": 3}),
    ],
)
def test_odd_data_give_finite_figures(make, options, causal):
    """Data that say little: constant ones, and fewer tokens than features, members or the window."""
    x = make(*sequences(4))
    heads = learn(*x, steps=5, causal=causal, **options)
    for head in heads:
        report = head.report
        figures = report.before, report.after, report.uniform, report.kl_before, report.kl_after
        assert np.isfinite(figures).all() and report.after <= report.before
        assert np.isfinite(report.window_alone) and report.exact_keys <= x[1].shape[2]
    maps = [head.map for head in heads]
    assert np.isfinite(fs.attention(*x, maps, causal=causal, **options)).all()


def test_a_learned_map_promises_no_error(learned):
    """Its features do not estimate the kernel, so that no closed form holds."""
    x = [y[0, 0] for y in sequences(1)]
    assert fs.predicted_error(fs.fit_maps(*x[:2], features=4)[0], *x) > 0
    with pytest.raises(ValueError, match="no variance in closed form; measure its error"):
        fs.predicted_error(learned[0].map, *x)


def test_maps_are_measured_on_other_data():
    keys = {"near": 2, "routed": (2, 3)}
    maps = [head.map for head in learn(*sequences(8), **keys)]
    other = sequences(3, seed=9)
    found = fs.inspect_maps(maps, *other)
    exact, out = fs.exact_attention(*other), fs.attention(*other, maps, **keys)
    off = np.sqrt(((out - exact) ** 2).sum((0, 2, 3)) / (exact**2).sum((0, 2, 3)))
    assert np.allclose([head["error"] for head in found.heads], off, rtol=1e-4)
    assert "window" in str(found)
    # Other exact keys than those that were learned with.
    wide = fs.inspect_maps(maps, *other, near=LENGTH)
    assert all(head["error"] < 1e-5 for head in wide.heads)
    with pytest.raises(ValueError, match="maps"):
        fs.inspect_maps(maps[:1] * 5, *other)


def test_cross_attention_has_no_window():
    q, k, v = sequences()
    for head in learn(q[:, :, :40], k, v, steps=5):
        assert head.report.window_alone is None and head.report.recommended == "map"


def test_heads_are_chosen_with_the_keys_of_their_maps():
    # So few features that exact attention is slower at this length.
    few = learn(*sequences(), features=4, near=2, routed=(2, 3), steps=20)
    maps = [head.map for head in few]
    assert not fs.exact_is_no_slower(maps[0], LENGTH, LENGTH, near=2, routed=(2, 3))
    x = sequences(1, seed=9, dtype=np.float64)
    exact, out = fs.exact_attention(*x), fs.attention(*x, maps, near=2, routed=(2, 3))
    off = np.sqrt(((out - exact) ** 2).sum((0, 2, 3)) / (exact**2).sum((0, 2, 3)))
    choices = fs.choose_heads(*x, maps, tolerance=10)
    assert not any(choice.exact for choice in choices)
    assert np.allclose([choice.predicted_error for choice in choices], off, rtol=1e-9)
    # The choices bring these keys along; a call can say other ones.
    assert np.array_equal(fs.attention(*x, maps, exact_heads=choices), out)
    wide = fs.attention(*x, maps, near=LENGTH, exact_heads=choices)
    # Taking the estimates of all keys back leaves at least 18 bits.
    assert np.abs(wide - exact).max() < 2**-18 * np.abs(x[2]).max()


# ---- exact keys


def largest(count, scores):
    """The places of the largest, the earlier of two equals first."""
    return np.argsort(-np.asarray(scores), kind="stable")[:count]


def by_definition(map, q, k, v, near=0, global_keys=0, routed=None, causal=False, visible=None):
    """One head from the definition: which keys are exact, and all pairs one by one. The map is a drawn
    one, for which global keys are the first ones."""
    length = len(k)
    places = np.arange(length) if visible is None else np.flatnonzero(visible)
    exact = fs.log_kernel(q, k, kernel=map.alpha, scale=map.scale)
    queries, keys = map.log_features(q), map.log_features(k, side="key")
    out = np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        seen = places[places <= i] if causal else places
        # Causal queries are routed by whole blocks of keys before them.
        before = int((places < i).sum())
        known = places[: before - before % 48] if causal else places
        chosen = set(places[:global_keys])
        if near:
            chosen |= {j for j in seen if abs(i - j) <= near}
        if routed and len(known):
            slots, members = routed
            shares = queries[i] + np.log(np.exp(keys[known]).sum(0))
            for m in largest(slots, shares):
                chosen |= set(known[largest(members, keys[known, m])])
        weights = np.array(
            [
                np.exp(exact[i, j]) if j in chosen else np.exp(queries[i] + keys[j]).mean()
                for j in seen
            ]
        )
        if len(seen):
            out[i] = weights @ v[seen] / weights.sum()
    return out


def head(length=110, spread=1.2, seed=5):
    rng = np.random.default_rng(seed)
    q, k, v = (spread * rng.standard_normal((length, 4)) for _ in range(3))
    return q, k, v, fs.fit_maps(q, k, features=12, seed=2)[0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "keys",
    [
        {"near": 3},
        {"global_keys": 5},
        {"routed": (2, 3)},
        {"near": 3, "global_keys": 2, "routed": (3, 4)},
        {"routed": (12, 200)},
    ],
    ids=str,
)
def test_exact_keys_are_their_definition(keys, masked, causal):
    q, k, v, map = head()
    visible = np.ones(len(k), bool)
    if masked:
        visible[[4, 17, 60]] = visible[100:] = False
    out = fs.attention(
        q, k, v, map, **keys, causal=causal, key_mask=visible[None] if masked else None
    )
    wanted = by_definition(map, q, k, v, **keys, causal=causal, visible=visible)
    assert np.abs(out - wanted).max() < 1e-12
    single = fs.attention(
        *(x.astype(np.float32) for x in (q, k, v)),
        map,
        **keys,
        causal=causal,
        key_mask=visible[None] if masked else None,
    )
    # At least 14 of the 24 bits of the two sums of a quotient are left.
    bound = 2 * 2.0**-14 * np.abs(v).max()
    decided = np.ones(len(q), bool)
    if "routed" in keys:
        # Rounding decides which of two slots or members comes first, if they are nearly alike.
        rng = np.random.default_rng(0)
        for _ in range(4):
            x = (y * (1 + 2.0**-20 * rng.standard_normal(y.shape)) for y in (q, k))
            moved = by_definition(map, *x, v, **keys, causal=causal, visible=visible)
            decided &= np.abs(moved - wanted).max(1) < bound
        assert decided.sum() > len(q) / 2
    assert np.abs(single - wanted)[decided].max() < bound


# Taking estimates back may cost 35 of the 53 bits of a double; where it would cost more, it is done otherwise.
TAKEN_BACK = 2.0**-18


def test_all_keys_exact_is_exact_attention(learned):
    q, k, v = (x.astype(np.float64) for x in sequences(3))
    maps = [h.map for h in learned]
    for causal in (False, True):
        exact = fs.exact_attention(q, k, v, causal=causal)
        for keys in ({"near": LENGTH}, {"near": 2**64 - 1}, {"global_keys": 4 * LENGTH}):
            out = fs.attention(q, k, v, maps, **keys, causal=causal)
            assert np.abs(out - exact).max() < TAKEN_BACK * np.abs(v).max()
    out = fs.attention(q, k, v, maps, routed=(16, LENGTH))
    assert np.abs(out - fs.exact_attention(q, k, v)).max() < TAKEN_BACK * np.abs(v).max()
    # Exact heads are exact beside others with exact keys.
    some = fs.attention(q, k, v, maps, near=2, exact_heads=[1])
    assert np.abs(some[:, 1] - fs.exact_attention(q, k, v)[:, 1]).max() < 1e-12
    assert np.array_equal(some[:, 0], fs.attention(q, k, v, maps, near=2)[:, 0])


def test_more_exact_keys_are_better(learned):
    q, k, v = sequences(6, seed=11)
    exact = fs.exact_attention(q, k, v)
    maps = [h.map for h in learned]
    errors = [
        error(fs.attention(q, k, v, maps, near=2, **keys), exact)
        for keys in ({}, {"routed": (2, 3)}, {"routed": (4, 8)}, {"routed": (8, 16)})
    ]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"near": -1}, ValueError, "-1 is not between"),
        ({"global_keys": -1}, ValueError, "-1 is not between"),
        ({"near": 1.5}, TypeError, "float"),
        ({"routed": 4}, TypeError, "pair"),
        ({"routed": (1, 2, 3)}, TypeError, "pair"),
        ({"routed": (0, 8)}, ValueError, "positive"),
        ({"routed": (-1, 8)}, ValueError, "-1 is not between"),
        ({"routed": (13, 1)}, ValueError, "13 preferred slots of 12 features"),
        ({"routed": (2**62, 2**62)}, ValueError, "preferred slots"),
    ],
)
def test_bad_exact_keys_are_told(options, error, words):
    q, k, v, map = head(20)
    for call in (
        lambda: fs.attention(q, k, v, map, **options),
        lambda: fs.attention_backward(q, k, v, v, v, map, **options),
    ):
        with pytest.raises(error, match=words):
            call()
    with pytest.raises(ValueError, match="without maps every key is exact"):
        fs.attention(q, k, v, near=3)
    with pytest.raises(ValueError, match="window"):
        fs.attention(q[:5], k, v, map, near=3)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "keys",
    [{"near": 3}, {"global_keys": 4}, {"routed": (2, 3)}, {"near": 3, "routed": (2, 3)}],
    ids=str,
)
def test_gradients_with_exact_keys_are_those_of_differences(learned, keys, causal):
    """Which keys are exact is a constant of the gradient."""
    q, k, v = (x.astype(np.float64) for x in sequences(1, spread=1.0))
    maps = [h.map for h in learned]
    weight = np.random.default_rng(5).standard_normal(q.shape)
    options = keys | {"causal": causal}
    out = fs.attention(q, k, v, maps, **options)
    gradients = fs.attention_backward(q, k, v, out, weight, maps, **options)
    for which in range(3):
        step = np.random.default_rng(which).standard_normal(q.shape)
        ends = []
        for s in (1, -1):
            moved = [x + s * 1e-5 * step * (i == which) for i, x in enumerate((q, k, v))]
            ends.append((fs.attention(*moved, maps, **options) * weight).sum())
        slope = (ends[0] - ends[1]) / 2e-5
        assert slope == pytest.approx((gradients[which] * step).sum(), rel=1e-5, abs=1e-6)
