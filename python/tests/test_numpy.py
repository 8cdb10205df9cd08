"""The NumPy layer: equal to plain definitions, whatever the strides, masks and formats."""

import copy
import os
import pickle
import subprocess

import numpy as np
import pytest

import favor_sharp as fs
from favor_sharp import _native

SHAPE = (2, 3, 70, 8)


def tensors(shape=SHAPE, dtype=np.float64, spread=0.7):
    rng = np.random.default_rng(7)
    return tuple((spread * rng.standard_normal(shape)).astype(dtype) for _ in range(3))


def by_definition(q, k, v, maps, causal=False, key_mask=None):
    """Attention by features, straight from the features of each head."""
    out = np.empty((*q.shape[:3], v.shape[3]))
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            map = maps[h % len(maps)]
            weights = map.transform(q[b, h]) @ map.transform(k[b, h], side="key").T
            if causal:
                weights = np.tril(weights)
            if key_mask is not None:
                weights = weights * key_mask[b]
            out[b, h] = weights @ v[b, h] / weights.sum(1, keepdims=True)
    return out


@pytest.fixture(scope="module")
def maps():
    q, k, _ = tensors()
    return fs.fit_maps(q, k, features=48, seed=3)


@pytest.fixture
def mask():
    mask = np.ones((2, 70), bool)
    mask[0, 50:] = False
    mask[1, :9] = False
    return mask


# The rounding of each format, times what a sum over 70 keys and 48 features can add up to.
TOLERANCE = {np.float64: 1e-12, np.float32: 2e-4, np.float16: 2e-2}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_its_definition(maps, mask, causal, dtype):
    q, k, v = tensors(dtype=dtype)
    if causal:
        mask[1, 0] = True  # every query sees a key
    out = fs.attention(q, k, v, maps, causal=causal, key_mask=mask)
    assert out.dtype == dtype and out.shape == SHAPE
    wide = [x.astype(np.float64) for x in (q, k, v)]
    wanted = by_definition(*wide, maps, causal, mask)
    assert np.abs(out - wanted).max() < TOLERANCE[dtype]


def test_strides_are_read_in_place(maps):
    q, k, v = tensors(dtype=np.float32)
    wanted = fs.attention(q, k, v, maps)
    swapped = [
        np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for x in (q, k, v)
    ]
    assert not swapped[0].flags.c_contiguous
    assert np.array_equal(fs.attention(*swapped, maps), wanted)
    reversed_keys = fs.attention(q, k[:, :, ::-1], v[:, :, ::-1], maps)
    assert np.allclose(reversed_keys, wanted, atol=1e-5)
    doubled = np.repeat(q, 2, axis=3)[..., ::2]
    assert np.array_equal(fs.attention(doubled, k, v, maps), wanted)
    raw = np.zeros(q.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(np.float32).reshape(q.shape)
    unaligned[...] = q
    assert np.array_equal(fs.attention(unaligned, k, v, maps), wanted)
    broadcast = np.broadcast_to(k[:1], k.shape)
    assert np.array_equal(
        fs.attention(q, broadcast, v, maps), fs.attention(q, broadcast.copy(), v, maps)
    )


def test_axes_may_be_missing(maps):
    q, k, v = tensors()
    whole = fs.attention(q, k, v, maps)
    assert np.array_equal(fs.attention(q[0], k[0], v[0], maps), whole[0])
    assert np.array_equal(fs.attention(q[0, 1], k[0, 1], v[0, 1], maps[1]), whole[0, 1])


def test_padding_leaves_no_trace(maps, mask):
    q, k, v = tensors()
    out = fs.attention(q, k, v, maps, key_mask=mask)
    k, v = k.copy(), v.copy()
    k[~mask[:, None].repeat(3, 1)] = np.nan
    v[~mask[:, None].repeat(3, 1)] = np.inf
    assert np.array_equal(fs.attention(q, k, v, maps, key_mask=mask), out)


def test_exact_is_softmax(mask):
    q, k, v = tensors()
    logits = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(8)
    logits = np.where(mask[:, None, None], logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = fs.exact_attention(q, k, v, key_mask=mask)
    assert np.abs(out - weights @ v).max() < 1e-12


def test_features_come_close_to_exact():
    q, k, v = tensors((1, 1, 400, 8))
    v = v + 1.0
    exact = fs.exact_attention(q, k, v)
    map = fs.fit_maps(q, k, features=4096)
    predicted = fs.predicted_error(map[0], q[0, 0, ::40], k[0, 0], v[0, 0])
    error = np.linalg.norm(fs.attention(q, k, v, map) - exact) / np.linalg.norm(exact)
    # The prediction is for independent draws of a sample of the queries.
    assert 0.3 * predicted < error < 2 * predicted < 0.5


def test_near_field_and_packed_sequences(maps):
    q, k, v = tensors((1, 3, 70, 8))
    everything = fs.attention(q, k, v, maps, near=70)
    assert np.abs(everything - fs.exact_attention(q, k, v)).max() < 1e-12
    packed = fs.attention(q, k, v, maps, offsets=[0, 30, 70])
    apart = [fs.attention(*(x[:, :, a:b] for x in (q, k, v)), maps) for a, b in ((0, 30), (30, 70))]
    assert np.abs(packed - np.concatenate(apart, 2)).max() < 1e-13


def test_auto_keeps_hopeless_heads_exact():
    q, k, v = tensors((1, 2, 300, 8))
    q[:, 1] *= 40
    maps = fs.fit_maps(q, k, features=32)
    choices = fs.choose_heads(q, k, v + 1, maps, tolerance=0.5)
    assert [c.exact for c in choices] == [False, True]
    assert "exact" in str(choices[1]) and choices[0].predicted_error < 0.5
    out = fs.attention(q, k, v, maps, exact_heads=choices)
    assert np.abs(out[:, 1] - fs.exact_attention(q, k, v)[:, 1]).max() < 1e-12
    assert np.array_equal(out[:, 0], fs.attention(q, k, v, maps)[:, 0])
    assert np.array_equal(out, fs.attention(q, k, v, maps, exact_heads=[1]))
    # One map for all heads, and what is chosen for each sequence.
    twice = [np.concatenate([x, x[:, ::-1]]) for x in (q, k, v + 1)]
    choices = fs.choose_heads(*twice, maps[0], tolerance=0.5)
    assert [c.exact for c in choices] == [False, True, True, False]
    out = fs.attention(*twice, maps[0], exact_heads=choices)
    assert np.array_equal(out[1, ::-1], out[0])


def test_gradients_are_those_of_differences(maps, mask):
    q, k, v = tensors()
    weight = np.random.default_rng(5).standard_normal(SHAPE)

    def check(forward, backward):
        out = forward(q, k, v)
        gradients = backward(q, k, v, out, weight)
        for which in range(3):
            step = np.random.default_rng(which).standard_normal(SHAPE)
            moved = [
                [x + s * 1e-5 * step * (i == which) for i, x in enumerate((q, k, v))]
                for s in (1, -1)
            ]
            slope = (
                sum(s * (forward(*x) * weight).sum() for s, x in zip((1, -1), moved, strict=True))
                / 2e-5
            )
            assert slope == pytest.approx((gradients[which] * step).sum(), rel=1e-6, abs=1e-6)

    for options in ({"key_mask": mask}, {"causal": True}, {"near": 16}):
        check(
            lambda *x, o=options: fs.attention(*x, maps, **o),
            lambda *x, o=options: fs.attention_backward(*x, maps, **o),
        )
    check(fs.exact_attention, fs.exact_attention_backward)
    check(
        lambda *x: fs.attention(*x, maps, exact_heads=[0, 2], key_mask=mask),
        lambda *x: fs.attention_backward(*x, maps, exact_heads=[0, 2], key_mask=mask),
    )


def bits(x):
    """The upper halves of float32 numbers, which are bfloat16, and the numbers that these are."""
    high = (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return high.view(fs.BFLOAT16), wide(high)


def wide(high):
    return (high.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def test_bfloat16(maps, mask):
    given, same = zip(*(bits(x) for x in tensors()), strict=True)
    # The rounding of one number of eight bits.
    step = 2.0**-8
    for options in ({"key_mask": mask}, {"causal": True}, {"exact_heads": [1]}):
        out = fs.attention(*given, maps, **options)
        wanted = fs.attention(*same, maps, **options)
        assert out.dtype == fs.BFLOAT16 and out.shape == SHAPE
        assert np.abs(wide(out) - wanted).max() < step * np.abs(wanted).max()
        gradients = fs.attention_backward(*given, out, given[2], maps, **options)
        wanted = fs.attention_backward(*same, wide(out), same[2], maps, **options)
        for a, b in zip(gradients, wanted, strict=True):
            assert np.abs(wide(a) - b).max() < step * np.abs(b).max()
    fitted = fs.fit_maps(*given[:2], features=8)
    assert fitted == fs.fit_maps(*same[:2], features=8)
    state = fs.DecodeState(maps, batch=2, heads=3, value_dim=8, dtype="bfloat16")
    assert state.advance(*given).dtype == fs.BFLOAT16
    with pytest.raises(TypeError, match="uint16"):
        fs.attention(*(x.view(np.uint16) for x in given), maps)


def test_names_are_those_of_the_library():
    assert list(fs.FAMILY_TITLES) == [family for family, _ in fs.FAMILIES]
    assert fs.FAMILY_TITLES["sade"] == "SADE (FAVOR#)"
    x = np.random.default_rng(1).standard_normal((20, 3))
    for family, positive in fs.FAMILIES:
        for coupling in fs.COUPLINGS:
            map = fs.FeatureMap.fit(x, features=6, family=family, coupling=coupling)
            assert (map.family, map.positive, map.coupling) == (family, positive, coupling)


def test_a_side_is_what_projects():
    x = np.random.default_rng(2).standard_normal((20, 3))
    for family in ("hyperbolic", "balanced", "trig"):
        map = fs.FeatureMap.fit(x, 2 * x, features=6, family=family, kernel=-0.3, scale=0.7)
        for name in ("query", "key"):
            side, y = map.side(name), 0.7 * x
            projected = (y + side["shift"]) @ side["weights"].T + side["constants"]
            norm = (y**2).sum(1, keepdims=True)
            if family == "trig":
                found = np.sqrt(2) * np.cos(projected) * np.exp((0.5 + side["alpha"]) * norm)
                assert np.allclose(found, np.sqrt(6) * map.transform(x, side=name), rtol=1e-12)
            else:
                inner = ((y + side["shift"]) @ side["transform"].T) ** 2
                row = side["alpha"] * norm - inner.sum(1, keepdims=True) / 2 - side["constant"]
                row -= (y @ side["linear"])[:, None]
                assert np.allclose(projected + row, map.log_features(x, side=name), rtol=1e-12)
    with pytest.raises(ValueError, match="left"):
        map.side("left")


def test_break_even():
    assert fs.break_even(64, 64) < 128 < fs.break_even(16384, 16384)
    assert fs.break_even(100, 100, causal=True) < fs.break_even(100, 100)


def test_maps_follow_a_training():
    q, k, _ = tensors()
    maps = fs.AdaptiveMaps(3, 8, features=16, redraw=2, seed=7)
    blank = maps.maps()
    first = maps.training(q, k)
    assert first is maps.maps() is maps.training(q, k) and first != blank
    assert [m.seed for m in maps.training(q, k)] == [8] * 3 and maps.calls == 3
    again = pickle.loads(pickle.dumps(maps))
    assert again.calls == 3 and again.maps() == maps.maps() == maps.evaluation(2 * q, k)
    # Causal calls see what was before them, and the next one sees them.
    causal = fs.AdaptiveMaps(3, 8, features=16, redraw=1)
    assert causal.training(q, k, causal=True) == fs.AdaptiveMaps(3, 8, features=16).maps()
    calibrated = fs.AdaptiveMaps(3, 8, features=16, statistics="calibrated")
    calibrated.calibrate(q[:1], k[:1])
    calibrated.calibrate(q[1:], k[1:])
    calibrated.end_calibration()
    wanted = [m.transform(q[0, 0]) for m in fs.fit_maps(q, k, features=16)]
    for found in (calibrated.maps(), calibrated.training(5 * q, k)):
        assert np.allclose([m.transform(q[0, 0]) for m in found], wanted, rtol=1e-9)
    own = fs.AdaptiveMaps(3, 8, features=16, statistics="sequence").evaluation(q, k)
    assert list(own) == fs.fit_maps(q, k, features=16, per_sequence=True) and len(own) == 6
    for options, words in (
        ({"redraw": 0}, "redraw"),
        ({"keep": 2.0}, "keep"),
        ({"statistics": "none"}, "not one of running"),
    ):
        with pytest.raises(ValueError, match=words):
            fs.AdaptiveMaps(3, 8, **options)
    with pytest.raises(ValueError, match="3 heads of dimension 8"):
        maps.training(q[:, :2], k[:, :2])
    with pytest.raises(ValueError, match="adaptive maps"):
        fs.AdaptiveMaps.from_bytes(maps.maps()[0].to_bytes())


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_decoding_is_causal_attention(maps, dtype):
    q, k, v = tensors(dtype=dtype)
    whole = fs.attention(q, k, v, maps, causal=True)
    state = fs.DecodeState(maps, batch=2, heads=3, value_dim=8, dtype=np.dtype(dtype).name)
    parts = [state.advance(*(x[:, :, :60] for x in (q, k, v)))]
    state = fs.DecodeState.from_bytes(maps, state.to_bytes(), dtype=state.dtype)
    parts += [state.advance(*(x[:, :, i : i + 1] for x in (q, k, v))) for i in range(60, 70)]
    assert state.tokens == 70
    # A copy goes its own way.
    last = [x[:, :, -1:] for x in (q, k, v)]
    other = state.copy()
    ends = [other.advance(*last), copy.deepcopy(state).advance(*last)]
    assert (state.tokens, other.tokens) == (70, 71) and np.array_equal(*ends)
    assert np.abs(np.concatenate(parts, 2) - whole).max() < TOLERANCE[dtype]
    with pytest.raises(TypeError, match="state is of"):
        state.advance(
            *(x.astype(np.float64 if dtype != np.float64 else np.float32) for x in (q, k, v))
        )


def test_products():
    rng = np.random.default_rng(4)
    x, y = 0.4 * rng.standard_normal((90, 5)), 0.4 * rng.standard_normal((120, 5))
    c = rng.standard_normal((120, 2))
    kernel = np.exp(-0.5 * ((x[:, None] - y[None]) ** 2).sum(2))
    exact = fs.exact_kernel_product(x, y, c, kernel="gaussian")
    assert np.allclose(exact, kernel @ c, atol=1e-12)
    assert np.allclose(fs.log_kernel(x, y, kernel=-0.5), np.log(kernel), atol=1e-12)
    map = fs.FeatureMap.fit(x, y, features=64, kernel="gaussian")
    features = map.transform(x) @ map.transform(y, side="key").T
    assert np.allclose(fs.kernel_product(map, x, y, c), features @ c, atol=1e-12)
    assert np.allclose(np.exp(map.log_features(x)) / 8, map.transform(x), rtol=1e-12)
    scale, rows = fs.kernel_product(map, 1e3 * x, y, c, log_scale=True)
    assert np.isfinite(scale).all() and np.isfinite(rows).all()
    with pytest.raises(ValueError, match=r"overflow|log"):
        fs.exact_kernel_product(100 * x, 100 * y, c, kernel="softmax")
    whole = fs.KeySums(map, 2)
    whole.add(map, y[:50], c[:50])
    rest = pickle.loads(pickle.dumps(fs.KeySums(map, 2)))
    rest.add(map, y[50:], c[50:])
    whole.merge(rest)
    scale, rows = whole.apply(map, x)
    assert np.allclose(np.exp(scale)[:, None] * rows, features @ c, atol=1e-12)
    # In float32 if all are; a refused piece leaves no trace.
    single = fs.KeySums(map, 2)
    single.add(map, y.astype("f4"), c.astype("f4"))
    before = single.sums
    with pytest.raises(ValueError, match=r"nan|NaN"):
        single.add(map, y, np.nan * c)
    assert np.array_equal(single.sums, before)
    logs, small = single.apply(map, x.astype("f4"))
    assert small.dtype == np.float32
    assert np.allclose(np.exp(logs)[:, None] * small, features @ c, atol=1e-4)
    assert single.apply(map, x)[1].dtype == np.float64


def test_moments_merge_and_fit():
    x = np.random.default_rng(3).standard_normal((40, 3))
    first, second = fs.Moments(x[:10]), fs.Moments(x[10:], np.ones(30))
    both = first.merge(second)
    assert np.allclose(both.mean, x.mean(0)) and np.allclose(both.covariance, np.cov(x.T, ddof=0))
    again = pickle.loads(pickle.dumps(both))
    assert again.count == 40 and np.allclose(again.covariance, both.covariance, rtol=1e-15)
    fitted = fs.FeatureMap.fit(both, features=8), fs.FeatureMap.fit(x, features=8)
    assert np.allclose(fitted[0].transform(x), fitted[1].transform(x))


def test_maps_are_kept(tmp_path):
    x = np.random.default_rng(4).standard_normal((40, 3))
    for family in ("balanced", "sde", "trig"):
        map = fs.FeatureMap.fit(x, features=8, family=family, seed=2**63 + 5)
        map.save(tmp_path / "map")
        assert map == fs.FeatureMap.load(tmp_path / "map") == pickle.loads(pickle.dumps(map))
    map = fs.FeatureMap.fit(x, features=8)
    spec = {n: getattr(map, n) for n in ("family", "scale", "coupling", "seed")}
    assert fs.FeatureMap.from_arrays(**map.arrays(), kernel=map.alpha, **spec) == map
    maps = [fs.FeatureMap.fit(x, features=8, seed=s) for s in range(3)]
    assert fs.maps_from_bytes(fs.maps_to_bytes(maps)) == maps
    assert fs.maps_to_bytes(maps[0]) == maps[0].to_bytes()
    with pytest.raises(ValueError, match="3 maps where one"):
        fs.FeatureMap.from_bytes(fs.maps_to_bytes(maps))
    with pytest.raises(OSError, match="does not exist"):
        map.save(tmp_path / "none" / "map")
    (tmp_path / "map").write_bytes(b"not a map")
    with pytest.raises(ValueError, match=r"map: not a readable feature map"):
        fs.FeatureMap.load(tmp_path / "map")
    with pytest.raises(OSError, match="missing"):
        fs.FeatureMap.load(tmp_path / "missing")


def test_inspect():
    q, k, v = tensors((2, 60, 4))
    found = fs.inspect(q, k, v, features=[16], families=["pos", "balanced"])
    assert len(found.heads) == 2 and found.heads[0]["dim"] == 4
    assert "d^(-1/4)" in str(found)
    alone = fs.inspect(q[0], k[0], features=[16], families=["pos"])
    assert alone.heads[0]["scale"] == 1.0


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda q, k, v, m: fs.attention(q.astype(int), k, v, m), TypeError, "int64"),
        (lambda q, k, v, m: fs.attention(q, k.astype("f4"), v, m), TypeError, "k holds float32"),
        (lambda q, k, v, m: fs.attention(q.astype(">f8"), k, v, m), TypeError, "foreign byte"),
        (lambda q, k, v, m: fs.attention(q, k[:, :, :5], v, m), ValueError, "do not fit"),
        (lambda q, k, v, m: fs.attention(q, k, v, m[:2]), ValueError, "2 maps"),
        (lambda q, k, v, m: fs.attention(q, k, v, [1]), TypeError, "FeatureMap"),
        (lambda q, k, v, m: fs.attention(q, k, v, m, scale=2.0), ValueError, "the maps carry"),
        (lambda q, k, v, m: fs.attention(q, k, v, exact_heads=[0]), ValueError, "without maps"),
        (lambda q, k, v, m: fs.attention(q, k, v, m, exact_heads=[3]), ValueError, "head 3 of 3"),
        (lambda q, k, v, m: fs.attention(q, k, v, m, exact_heads=["a"]), TypeError, "exact_heads"),
        (lambda q, k, v, m: fs.attention(q, k, v, m, key_mask=np.ones((2, 70))), TypeError, "bool"),
        (lambda q, k, v, m: fs.attention(q[0, 0, 0], k, v, m), ValueError, "1 axes"),
        (lambda q, k, v, m: fs.attention(q * np.nan, k, v, m), ValueError, "nan|NaN"),
        (lambda q, k, v, m: fs.attention("abc", k, v, m), TypeError, "q holds"),
        (lambda q, k, v, m: fs.attention(q, k, v, m, near=-1), ValueError, "-1 is not between"),
        (lambda q, k, v, m: fs.fit_maps(q, k, family="best"), ValueError, "not one of trig"),
        (lambda q, k, v, m: fs.fit_maps(q, k, kernel="rbf"), ValueError, "not one of softmax"),
        (lambda q, k, v, m: fs.fit_maps(q, k, features=0), ValueError, "rows|feature|ω"),
        (lambda q, k, v, m: fs.inspect(q[0], k[0], features=[0]), ValueError, "features: 0"),
        (lambda q, k, v, m: fs.FeatureMap.fit(q[0, 0, :0]), ValueError, "empty"),
        (lambda q, k, v, m: fs.DecodeState(m, heads=2, value_dim=3), ValueError, "3 maps"),
        (
            lambda q, k, v, m: fs.DecodeState(m, heads=3, value_dim=3, dtype="int8"),
            ValueError,
            "int8",
        ),
        (lambda q, k, v, m: fs.KeySums(m[0], 2**63), ValueError, "memory"),
        (lambda q, k, v, m: m[0].transform(q[0, 0], side="left"), ValueError, "left"),
    ],
)
def test_refusals_are_told(maps, call, error, words):
    with pytest.raises(error, match=words):
        call(*tensors(), maps)


@pytest.mark.parametrize("long", [False, True])
def test_panics_stay_inside(long):
    with pytest.raises(RuntimeError, match="internal error, please report it: on purpose"):
        _native._panic(long)


def test_long_calls_release_the_lock_and_can_be_interrupted(python):
    """A call that would take an hour, and a thread that waits until it computes and then interrupts it."""
    program = """
import os, signal, sys, threading, time
import numpy as np, favor_sharp as fs

# What a shell starts in the background ignores the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
main, reached = threading.get_ident(), threading.Event()

class Values:
    # The last thing that the call asks of Python.
    def __array__(self, dtype=None, copy=None):
        reached.set()
        return np.broadcast_to(np.float32(1), (1, 1 << 20, 8192, 1))

def interrupt():
    reached.wait()
    # Once Python's side of the call is over, this thread can run only if the lock was released.
    while sys._current_frames()[main].f_code.co_name != "<module>":
        time.sleep(0.001)
    print("computing", flush=True)
    signal.raise_signal(signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
rows = np.random.default_rng(0).standard_normal((8192, 64), dtype=np.float32)
queries, keys = (np.broadcast_to(x, (1, 1 << 20, *x.shape)) for x in (rows[:64], rows))
try:
    fs.attention(queries, keys, Values())
    print("ended", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
small = rows[:100]
print(fs.exact_attention(small, small, small).shape, flush=True)
os._exit(0)
"""
    # The limit is for a call that cannot be interrupted.
    done = subprocess.run(
        [*python, "-c", program], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.stdout.splitlines() == ["computing", "interrupted", "(100, 64)"], done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forked_processes_are_told(python):
    program = """
import os, numpy as np, favor_sharp as fs
x = np.ones((8, 2))
fs.exact_attention(x, x, x)
if os.fork() == 0:
    try:
        fs.exact_attention(x, x, x)
    except RuntimeError as e:
        os._exit(7 if "spawn" in str(e) else 8)
    os._exit(9)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
fs.exact_attention(x, x, x)
"""
    subprocess.run([*python, "-c", program], check=True, timeout=900)


def test_real_heads(data):
    """Heads of a pretrained model, most of which are hard: auto is never far off."""
    file = data / "qkv" / "minilm_l6_layer3_h12_L512_d32_f16.npz"
    if not file.exists():
        pytest.skip(f"{file} is missing")
    with np.load(file) as arrays:
        q, k, v = (arrays[name].astype(np.float32) for name in "qkv")
    exact = fs.exact_attention(q, k, v)
    maps = fs.fit_maps(q, k, features=128)
    choices = fs.choose_heads(q, k, v, maps, tolerance=0.5)
    assert 0 < sum(c.exact for c in choices) <= 12
    out = fs.attention(q, k, v, maps, exact_heads=choices)
    for head in range(12):
        error = np.linalg.norm(out[head] - exact[head]) / np.linalg.norm(exact[head])
        assert error < (1e-5 if choices[head].exact else 0.75)
