"""Learned maps and exact keys in PyTorch, and learning itself beside a plain implementation in torch."""

import copy
import io
import json
import os
import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import favor_sharp as fs  # noqa: E402
from favor_sharp.torch import FavorAttention, favor_attention, pack, unpack  # noqa: E402
from favor_sharp.torch._operator import attention as operator  # noqa: E402

SHAPE = (6, 2, 60, 8)
KEYS = {"near": 3, "global_keys": 2, "routed": (2, 3)}


def tensors(shape=SHAPE, dtype=torch.float64, spread=2.0, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return [
        (spread * torch.randn(shape, generator=generator, dtype=torch.float64))
        .to(dtype)
        .requires_grad_()
        for _ in range(3)
    ]


def learn(q, k, v=None, **options):
    arrays = [None if x is None else x.detach().numpy() for x in (q, k, v)]
    return fs.learn_maps(*arrays, **{"features": 16, "steps": 60} | options)


@pytest.fixture(scope="module")
def maps():
    return pack(h.map for h in learn(*tensors(), **KEYS))


# ---- attention


@pytest.mark.parametrize("causal", [False, True])
def test_both_ways_agree(maps, causal):
    """Plain operations take the numbers of a learned map from its sides."""
    x = tensors(spread=1.0)
    found = []
    for implementation in ("rust", "torch"):
        out = favor_attention(*x, maps=maps, is_causal=causal, implementation=implementation)
        weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).double()
        found.append((out, *torch.autograd.grad((out * weight).sum(), x)))
    for a, b in zip(*found, strict=True):
        assert (a - b).abs().max() < 1e-10 * max(1.0, float(b.detach().abs().max()))


def test_exact_keys_are_those_of_the_engine(maps):
    x = tensors()
    arrays = [y.detach().numpy() for y in x]
    out = favor_attention(*x, maps=maps, **KEYS)
    assert np.array_equal(out.detach().numpy(), fs.attention(*arrays, unpack(maps), **KEYS))
    exact = torch.nn.functional.scaled_dot_product_attention(*x)
    # Taking estimates back may cost 35 of the 53 bits of a double.
    assert (favor_attention(*x, maps=maps, near=60) - exact).abs().max() < 2.0**-18 * x[
        2
    ].abs().max()
    alone = favor_attention(*x, maps=maps)
    assert (out - exact).norm() < (alone - exact).norm()
    torch.library.opcheck(
        operator,
        (*(y.detach() for y in x), maps, None, True, 3, 2, [2, 3], []),
    )


def test_gradients_with_every_key_exact_are_those_of_differences(maps):
    x = tensors((1, 2, 9, 8), spread=0.7)
    for causal in (False, True):
        assert torch.autograd.gradcheck(
            lambda *x, c=causal: favor_attention(*x, maps=maps, is_causal=c, near=9), x
        )


@pytest.mark.parametrize(
    "keys", [{"near": 2}, {"global_keys": 2}, {"routed": (2, 2)}, KEYS], ids=str
)
def test_gradients_with_exact_keys_are_those_of_differences(maps, keys):
    x = tensors((1, 2, 9, 8), spread=0.7)
    for causal in (False, True):
        assert torch.autograd.gradcheck(
            lambda *x, c=causal: favor_attention(*x, maps=maps, is_causal=c, **keys), x
        )


def test_bad_exact_keys_are_told(maps):
    x = tensors((1, 2, 20, 8))
    for keys in ({"near": 2}, {"global_keys": 2}, {"routed": (1, 2)}):
        with pytest.raises(ValueError, match="on the CPU"):
            favor_attention(*x, maps=maps, implementation="torch", **keys)
    meta = [y.detach().to("meta") for y in x]
    with pytest.raises(ValueError, match="on the CPU"):
        favor_attention(*meta, maps=maps, routed=(1, 2))
    for routed in (4, (1, 2, 3), (1.5, 2)):
        with pytest.raises(TypeError, match="pair"):
            favor_attention(*x, maps=maps, routed=routed)
    for keys, words in (
        ({"routed": (0, 1)}, "positive"),
        ({"routed": (17, 1)}, "17 preferred slots"),
        ({"near": -1}, "-1 is not between"),
    ):
        with pytest.raises(ValueError, match=words):
            favor_attention(*x, maps=maps, **keys)


# ---- the module


def module(**options):
    torch.manual_seed(0)
    options = {"features": 16, "batch_first": True, "redraw": None} | KEYS | options
    net = FavorAttention(16, 2, **options)
    # Logits then have a standard deviation of 2.
    with torch.no_grad():
        net.in_proj_weight[:32] *= 2
    return net


def inputs(batch=8, length=40, seed=2):
    return torch.randn(batch, length, 16, generator=torch.Generator().manual_seed(seed))


def exact_output(net, x):
    other = torch.nn.MultiheadAttention(16, 2, batch_first=True)
    own = {name: p for name, p in net.state_dict().items() if "map" not in name}
    other.load_state_dict(own)
    return other(x, x, x, need_weights=False)[0]


@torch.no_grad()
def test_a_module_learns_its_maps():
    net, x, new = module().eval(), inputs(), inputs(seed=5)
    assert net.calibrate(x, x, x) == []
    exact, drawn = exact_output(net, new), net(new, new, new)[0]
    reports = net.calibrate(x, x, x, learn=True, steps=100)
    assert len(reports) == 2 and all(r.after <= r.before for r in reports)
    own = unpack(net.maps)[0].learned
    assert own["routed"] == (2, 3) and own["near"] == 3 and not own["causal"]
    out = net(new, new, new)[0]
    assert (out - exact).norm() < (drawn - exact).norm()
    # Training uses them as long as nothing is drawn again.
    before = net.maps
    net.train()(x, x, x)
    assert torch.equal(net.maps, before)
    again = module(redraw=1)
    again.calibrate(x, x, x, learn=True, steps=2)
    again(x, x, x)
    again(x, x, x)
    assert unpack(again.maps)[0].learned is None


@torch.no_grad()
def test_what_a_module_learns_from(monkeypatch):
    """At most so many sequences and tokens, without padding, for causal calls if asked."""
    from favor_sharp import _learn
    from favor_sharp.torch import _module

    monkeypatch.setattr(_learn, "MOST", 5 * 30)
    monkeypatch.setattr(_module, "LONGEST", 30)
    x, padding = inputs(), torch.zeros(8, 40, dtype=torch.bool)
    padding[:, 20:] = True
    noise = torch.where(padding[..., None], torch.tensor(1e3), x)
    noise[5:] = 7
    found = []
    for y in (x, noise):
        net = module()
        net.calibrate(y, y, y, padding, learn=True, steps=5, is_causal=True)
        found.append(unpack(net.maps)[0])
    own = found[0].learned
    assert own["sequences"] + own["held_out"] == 5 and own["causal"]
    assert found[0] == found[1]


@torch.no_grad()
def test_sequences_of_padding_alone_are_left_out():
    x = inputs(6)
    padding = torch.zeros(6, 40, dtype=torch.bool)
    padding[[0, 3]] = True
    kept = x[[1, 2, 4, 5]]
    found = []
    for arguments in ((x, x, x, padding), (kept, kept, kept)):
        net = module()
        net.calibrate(*arguments, learn=True, steps=5)
        found.append(unpack(net.maps))
    assert found[0] == found[1] and found[0][0].learned["sequences"] == 3
    # Padding as far as is learned from, and keys that are seen behind it.
    late, hidden = inputs(2, 600), torch.zeros(2, 600, dtype=torch.bool)
    hidden[:, :512] = True
    with pytest.raises(ValueError, match="first 512 keys"):
        net.calibrate(late, late, late, hidden, learn=True, steps=1)
    assert unpack(net.maps) == found[1]


class Enough(Exception):
    """What ends learning."""


def stop(*_):
    raise Enough


@torch.no_grad()
def test_interrupted_learning_leaves_a_module_as_it_was():
    x, other = inputs(), inputs(seed=8)
    net, untouched = module(redraw=3), module(redraw=3)
    for own in (net, untouched):
        own.calibrate(x, x, x, learn=True, steps=20)
        # The buffers learn of this call when they are taken away.
        own(x, x, x)
    buffers = net.maps.clone(), net.map_state.clone()
    with pytest.raises(Enough):
        net.calibrate(other, other, other, learn=True, steps=20, progress=stop)
    assert all(map(torch.equal, (net.maps, net.map_state), buffers))
    assert unpack(net.maps)[0].learned is not None and net.calls == 1
    # The statistics too: what is drawn next is the same.
    for own in (net, untouched):
        for _ in range(3):
            own(x, x, x)
    assert unpack(net.maps)[0].learned is None
    wanted = untouched.state_dict()
    assert all(torch.equal(file, wanted[name]) for name, file in net.state_dict().items())


@torch.no_grad()
def test_learned_maps_are_kept():
    net, x = module().eval(), inputs()
    net.calibrate(x, x, x, learn=True, steps=20)
    wanted = net(x, x, x)[0]
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    other = module(seed=9).eval()
    assert not torch.equal(other(x, x, x)[0], wanted)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x, x, x)[0], wanted)
    assert torch.equal(copy.deepcopy(net)(x, x, x)[0], wanted)
    # Buffers of one length can be copied onto one another.
    others = module().eval()
    others.calibrate(2 * x, x, x, learn=True, steps=3)
    assert others.maps.shape == net.maps.shape
    others.maps.copy_(net.maps)
    assert torch.equal(others(x, x, x)[0], wanted)


@torch.no_grad()
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"near": 5}, r"near=3, .*routed=\(2, 3\) are used with near=5, global_keys=2"),
        ({"global_keys": 0}, "global_keys=2.* are used with near=3, global_keys=0"),
        ({"routed": None}, "are used with .*routed=None"),
    ],
)
def test_maps_with_other_exact_keys_are_told(options, words):
    net, x = module().eval(), inputs()
    net.calibrate(x, x, x, learn=True, steps=2)
    state = net.state_dict()
    with pytest.warns(UserWarning, match=words):
        module(**options).load_state_dict(state)
    # As part of a model too.
    model = torch.nn.Sequential(module(**options))
    with pytest.warns(UserWarning, match=words):
        model.load_state_dict(torch.nn.Sequential(net).state_dict())


@torch.no_grad()
def test_maps_with_their_own_exact_keys_are_not():
    net, x = module().eval(), inputs()
    drawn = net.state_dict()
    net.calibrate(x, x, x, learn=True, steps=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module(routed=[2, 3]).load_state_dict(net.state_dict())
        # Those that were not learned fit any.
        module(near=7).load_state_dict(drawn)


def test_gradients_reach_the_weights():
    net, x = module(near=3, global_keys=0, routed=None), inputs(2)
    net.calibrate(x, x, x, learn=True, steps=5)
    net(x, x, x)[0].square().sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.abs().max() > 0 for p in [net.in_proj_weight])


def test_compile():
    net, x = module().eval(), inputs(2)
    net.calibrate(x, x, x, learn=True, steps=5)
    fast = torch.compile(net, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert (fast(x, x, x)[0] - net(x, x, x)[0]).abs().max() < 1e-6


# ---- learning


def sides(map):
    """The numbers of a map, as tensors that gradients reach."""
    return {
        (name, key): torch.as_tensor(value, dtype=torch.float64)
        for name in ("query", "key")
        for key, value in map.side(name).items()
    }


def log_features(numbers, name, x, scale):
    """The logarithms of the features of rows ``[..., length, dim]``."""
    side = {key: value for (which, key), value in numbers.items() if which == name}
    x = scale * x
    shifted = x + side["shift"]
    row = side["alpha"] * x.square().sum(-1) - (shifted @ side["transform"].T).square().sum(-1) / 2
    row = row - x @ side["linear"] - side["constant"]
    return shifted @ side["weights"].T + side["constants"] + row[..., None]


def divergence(numbers, scale, q, k, near):
    """Mean divergence of the weights of each sequence: exact ones, and those by features but for a window."""
    exact = (scale * q) @ (scale * k).mT
    queries = log_features(numbers, "query", q, scale)
    keys = log_features(numbers, "key", k, scale)
    features = queries.shape[-1]
    estimates = torch.logsumexp(queries[..., :, None, :] + keys[..., None, :, :], -1)
    estimates = estimates - np.log(features)
    places = torch.arange(q.shape[-2])
    window = (places[:, None] - places).abs() <= near
    mixed = torch.where(window, exact, estimates)
    p, log_p, log_w = exact.softmax(-1), exact.log_softmax(-1), mixed.log_softmax(-1)
    return (p * (log_p - log_w)).sum(-1).mean(-1)


def test_learning_descends_the_divergence():
    """Of four sequences one is held out, and nobody says which. It is the one on which a divergence
    written in torch is what is reported, at the start, fitted to the three others, and at the end."""
    q, k, v = (x.detach() for x in tensors((4, 1, 60, 8), spread=1.5))
    options = {"features": 16, "near": 3, "steps": 120, "seed": 5}
    (head,) = learn(q, k, v, **options)
    report, map = head.report, head.map
    assert report.kept == "learned"
    after = divergence(sides(map), map.scale, q[:, 0], k[:, 0], 3)
    starts = []
    for left_out in range(4):
        rest = [b for b in range(4) if b != left_out]
        starts += fs.fit_maps(q[rest].numpy(), k[rest].numpy(), features=16, seed=5)
    before = torch.stack(
        [divergence(sides(m), m.scale, q[b, 0], k[b, 0], 3) for b, m in enumerate(starts)]
    )
    held_out = int((after - report.kl_after).abs().argmin())
    # Learning computes in float32.
    assert float(after[held_out]) == pytest.approx(report.kl_after, rel=1e-4)
    assert float(before[held_out]) == pytest.approx(report.kl_before, rel=1e-4)
    assert after[held_out] < before[held_out]
    # The way from the start to the end goes downhill from the beginning, on what was learned from.
    rest = [b for b in range(4) if b != held_out]
    start, end = sides(starts[held_out]), sides(map)
    names = [name for name in start if not torch.equal(start[name], end[name])]
    moved = {name: start[name].clone().requires_grad_() for name in names}
    loss = divergence(start | moved, map.scale, q[rest, 0], k[rest, 0], 3).mean()
    gradients = torch.autograd.grad(loss, list(moved.values()))
    slope = sum(((end[n] - start[n]) * g).sum() for n, g in zip(names, gradients, strict=True))
    assert slope < 0
    assert divergence(end, map.scale, q[rest, 0], k[rest, 0], 3).mean() < 0.9 * loss


def test_gradients_of_learning_are_those_of_autograd():
    """What the Rust tests compare with is what PyTorch makes of their cases now."""
    cases = os.environ.get("FAVOR_AUTOGRAD")
    if not cases or not Path(cases).is_file():
        pytest.skip("the Rust tests write the cases: run all of `cargo xtask test`")
    room = Path(__file__).resolve().parents[2] / "crates" / "favor" / "src" / "learned"
    gradients = runpy.run_path(str(room / "autograd.py"))["gradients"]
    with open(cases, encoding="utf-8") as lines:
        found = gradients(lines)
    stored = json.loads((room / "autograd.json").read_text(encoding="utf-8"))
    assert [(c["case"], c["outputs"]) for c in found] == [(c["case"], c["outputs"]) for c in stored]
    for one, other in zip(found, stored, strict=True):
        for name in one.keys() - {"case", "outputs"}:
            a, b = np.array(one[name]), np.array(other[name])
            # Sums over 90 queries of 90 keys, perhaps in another order; what cancels is zero up to rounding.
            assert np.abs(a - b).max() <= 90 * 90 * 2.0**-53 * max(np.abs(b).max(), 1e-3), name
