"""The PyTorch layer: the engine and plain operations agree, and torch's machinery works."""

import copy
import io
import itertools
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import favor_sharp as fs  # noqa: E402
from favor_sharp.torch import FavorAttention, favor_attention, fit_maps, pack, unpack  # noqa: E402
from favor_sharp.torch._operator import attention as operator  # noqa: E402
from favor_sharp.torch._plain import linear_attention  # noqa: E402

SHAPE = (2, 3, 70, 8)


def tensors(shape=SHAPE, dtype=torch.float64, spread=0.7):
    generator = torch.Generator().manual_seed(3)
    return [
        (spread * torch.randn(shape, generator=generator, dtype=torch.float64))
        .to(dtype)
        .requires_grad_()
        for _ in range(3)
    ]


@pytest.fixture(scope="module")
def maps():
    q, k, _ = tensors()
    return fit_maps(q, k, features=48, seed=3)


@pytest.fixture
def mask():
    mask = torch.ones(2, 70, dtype=torch.bool)
    mask[0, 50:] = False
    mask[1, 1:9] = False
    return mask


def with_gradients(x, **options):
    out = favor_attention(*x, **options)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return out, *torch.autograd.grad((out * weight.to(out.dtype)).sum(), x)


# The rounding of the format, times what the sums over keys and features can add up to.
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 5e-4)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("count", ["head", "one", "sequence"])
def test_both_ways_agree(maps, mask, causal, masked, count, dtype, tolerance):
    x = tensors(dtype=dtype)
    heads = unpack(maps)
    maps = {"head": maps, "one": pack(heads[0]), "sequence": pack(heads + heads[::-1])}[count]
    options = {"maps": maps, "is_causal": causal, "attn_mask": mask if masked else None}
    rust = with_gradients(x, implementation="rust", **options)
    plain = with_gradients(x, implementation="torch", **options)
    for a, b in zip(rust, plain, strict=True):
        assert (a - b).abs().max() < tolerance * max(1.0, float(b.detach().abs().max()))


def test_large_logits_stay_finite(maps):
    x = tensors(spread=12.0)
    logits = x[0] @ x[1].mT / 8**0.5
    assert logits.abs().max() > 80
    for causal in (False, True):
        for implementation in ("rust", "torch"):
            found = with_gradients(x, maps=maps, is_causal=causal, implementation=implementation)
            assert all(part.isfinite().all() for part in found)


def test_gradients_are_those_of_differences(maps):
    q, k, v = tensors((1, 3, 5, 8))
    for causal in (False, True):
        assert torch.autograd.gradcheck(
            lambda *x, c=causal: favor_attention(*x, maps=maps, is_causal=c), (q, k, v)
        )


def test_the_operator_is_well_made(maps, mask):
    q, k, v = tensors()
    for options in [(mask, False, []), (None, True, []), (mask, True, [0, 2])]:
        key_mask, causal, exact = options
        torch.library.opcheck(operator, (q, k, v, maps, key_mask, causal, 0, 0, [], exact))


def test_a_call_without_maps_fits_them(mask):
    q, k, v = tensors()
    out = favor_attention(q, k, v, features=32, seed=5)
    assert torch.equal(out, favor_attention(q, k, v, maps=fit_maps(q, k, features=32, seed=5)))
    with pytest.raises(ValueError, match="future"):
        favor_attention(q, k, v, is_causal=True)
    padded = torch.where(mask[:, None, :, None], k, torch.nan)
    a, b = (favor_attention(q, x, v, mask[:, None, None], features=32) for x in (k, padded))
    assert torch.equal(a, b)


def test_other_lengths_of_queries(mask):
    q, k, v = tensors()
    few = q[:, :, :20]
    padded = torch.where(mask[:, None, :, None], k, torch.nan)
    a, b = (favor_attention(few, x, v, mask, features=32) for x in (k, padded))
    assert torch.equal(a, b)
    whole = mask.new_ones(mask.shape)
    wanted = favor_attention(few, k, v, features=32)
    assert (favor_attention(few, k, v, whole, features=32) - wanted).abs().max() < 1e-9


def test_masks_are_read_as_torch_reads_them(maps, mask):
    q, k, v = tensors()
    wanted = favor_attention(q, k, v, mask, maps=maps)
    additive = torch.zeros(2, 1, 1, 70).masked_fill(~mask[:, None, None], -torch.inf)
    assert torch.equal(favor_attention(q, k, v, additive, maps=maps), wanted)
    wide = mask[:, None, None].expand(2, 3, 70, 70)
    assert torch.equal(favor_attention(q, k, v, wide, maps=maps), wanted)
    with pytest.raises(ValueError, match="differs between queries"):
        favor_attention(q, k, v, wide.clone(), maps=maps)
    with pytest.raises(ValueError, match="dropout"):
        favor_attention(q, k, v, dropout_p=0.1)
    with pytest.raises(ValueError, match="the maps carry it"):
        favor_attention(q, k, v, maps=maps, scale=1.0)


@pytest.mark.parametrize("kind", ["elu", "relu", "mean"])
def test_a_query_that_sees_no_key_gives_zeros(kind, mask):
    x = tensors()
    none = mask.clone()
    none[1] = False
    out = linear_attention(kind, *x, none, causal=False)
    assert not out[1].any() and torch.equal(out[0], linear_attention(kind, *x, mask, False)[0])
    # The mean of the values has no gradients for queries and keys.
    gradients = torch.autograd.grad(out.square().sum(), x, allow_unused=kind == "mean")
    assert gradients[2] is not None
    assert all(gradient.isfinite().all() for gradient in gradients if gradient is not None)


def test_axes_may_be_missing(maps):
    q, k, v = tensors()
    whole = favor_attention(q, k, v, maps=maps)
    assert torch.equal(favor_attention(q[0], k[0], v[0], maps=maps), whole[0])
    assert torch.equal(
        favor_attention(q[0, 0], k[0, 0], v[0, 0], maps=unpack(maps)[0]), whole[0, 0]
    )
    few = favor_attention(q, k[:, :1], v[:, :1], maps=maps, enable_gqa=True)
    assert torch.equal(
        few, favor_attention(q, *(x[:, :1].repeat(1, 3, 1, 1) for x in (k, v)), maps=maps)
    )


@pytest.mark.parametrize("implementation", ["rust", "torch"])
def test_exact_heads(maps, mask, implementation):
    x = q, k, v = tensors()
    for options in (
        {},
        {"attn_mask": mask},
        {"is_causal": True},
        {"attn_mask": mask, "is_causal": True},
    ):
        options = options | {"maps": maps, "implementation": implementation}
        some, *gradients = with_gradients(x, exact_heads=[2, 0], **options)
        features = favor_attention(q, k, v, **options)
        exact = fs.exact_attention(
            *(x.detach().numpy() for x in (q, k, v)),
            causal=options.get("is_causal", False),
            key_mask=mask.numpy() if "attn_mask" in options else None,
        )
        assert (some[:, 1] - features[:, 1]).abs().max() < 1e-13
        for head in (0, 2):
            assert (some[:, head] - torch.from_numpy(exact[:, head])).abs().max() < 1e-12
        other = {"rust": "torch", "torch": "rust"}[implementation]
        wanted = with_gradients(x, exact_heads=[2, 0], **options | {"implementation": other})[1:]
        for a, b in zip(gradients, wanted, strict=True):
            assert (a - b).abs().max() < 1e-12 * max(1.0, float(b.abs().max()))
    options = {"maps": maps, "implementation": implementation}
    padded = [torch.where(mask[:, None, :, None], x, torch.nan) for x in (k, v)]
    a, b = (favor_attention(q, *x, mask, exact_heads=[0], **options) for x in ((k, v), padded))
    assert torch.equal(a, b)
    with pytest.raises(ValueError, match="head 3 of 3"):
        favor_attention(q, k, v, exact_heads=[3], **options)


@pytest.mark.parametrize("implementation", ["rust", "torch"])
def test_shapes_that_do_not_fit_are_refused(maps, implementation):
    q, k, v = tensors()
    options = {"maps": maps, "implementation": implementation}
    for x, more in (
        ((q, k[:, :, 1:], v[:, :, 1:]), {"is_causal": True}),
        ((q, k[:, :, 1:], v), {}),
        ((q, k[:, :2], v[:, :2]), {}),
        ((q, k[..., 1:], v), {}),
        ((q[..., 1:], k[..., 1:], v), {}),
        ((q[:, :2], k[:, :2], v[:, :2]), {}),
        ((q, k[:, :, :0], v[:, :, :0]), {}),
    ):
        with pytest.raises(ValueError, match=r"do not fit|causal|map|empty"):
            favor_attention(*x, **more, **options)


@pytest.mark.parametrize("implementation", ["rust", "torch"])
def test_exact_heads_have_the_kernel_of_their_map(implementation):
    x = tensors()
    q, k, v = (y.detach().numpy() for y in x)
    maps = fs.fit_maps(q, k, features=16, kernel=-0.2, scale=0.6)
    out = favor_attention(*x, maps=maps, exact_heads=[1], implementation=implementation)
    wanted = torch.from_numpy(fs.exact_attention(q, k, v, kernel=-0.2, scale=0.6))
    assert (out[:, 1] - wanted[:, 1]).abs().max() < 1e-12


def test_the_scale_is_that_of_the_logits():
    x = tensors()
    maps = fit_maps(*x[:2], scale=0.5, features=16)
    out = favor_attention(*x, maps=maps, exact_heads=range(3))
    exact = torch.nn.functional.scaled_dot_product_attention(*x, scale=0.5)
    assert (out - exact).abs().max() < 1e-12
    with pytest.raises(ValueError, match="scale: -1"):
        fit_maps(*x[:2], scale=-1)


def test_strides_of_zero_copy(maps):
    q, k, v = tensors(dtype=torch.float32)
    swapped = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    assert not swapped[0].is_contiguous()
    wanted = favor_attention(q, k, v, maps=maps)
    assert torch.equal(favor_attention(*swapped, maps=maps), wanted)


def test_maps_survive_as_tensors(maps):
    native = unpack(maps)
    assert torch.equal(pack(native), maps)
    # They are a file of maps.
    assert fs.maps_from_bytes(maps.numpy().tobytes()) == native
    from favor_sharp.torch import _maps

    _maps._recent.kept.clear()
    assert unpack(maps.clone()) == native
    for place in (20, 200, len(maps) - 1):
        _maps._recent.kept.clear()
        broken = maps.clone()
        broken[place] ^= 1
        with pytest.raises(ValueError, match="not a readable feature map"):
            unpack(broken)
    trig = fs.FeatureMap.fit(np.eye(3), features=4, family="trig")
    with pytest.raises(ValueError, match="positive"):
        pack(trig)


def test_lengths_of_packed_maps_depend_on_sizes_alone():
    x = tensors()[:2]
    lengths = {len(fit_maps(*x, features=16, seed=s, scale=0.1 + s)) for s in (0, 2**63 + 1)}
    assert len(lengths) == 1


def test_headers_tell_maps_apart(maps):
    """A call looks at the header alone."""
    from favor_sharp.torch._maps import header

    others = [fit_maps(*tensors(spread=s)[:2], features=48, seed=3) for s in (0.7, 0.70001)]
    assert header(others[0]) == header(maps) != header(others[1])
    assert others[0].shape == others[1].shape


# ---- the module


def module(**options):
    torch.manual_seed(0)
    options = {"features": 32, "batch_first": True} | options
    return FavorAttention(24, 3, **options)


def inputs(batch=2, length=40):
    return torch.randn(batch, length, 24, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("batch_first", [False, True])
def test_it_stands_in_for_multihead_attention(batch_first):
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(24, 3, batch_first=batch_first, kdim=10, vdim=12)
    ours = FavorAttention.from_multihead(theirs, near=64, redraw=None)
    x = inputs() if batch_first else inputs().transpose(0, 1)
    k, v = x[..., :10], x[..., :12]
    padding = torch.zeros(2, 40, dtype=torch.bool)
    padding[1, 30:] = True
    # A near field of everything is exact attention.
    causal = torch.nn.Transformer.generate_square_subsequent_mask(40)
    for options in (
        {},
        {"key_padding_mask": padding},
        {"attn_mask": causal},
        {"attn_mask": causal, "is_causal": True},
    ):
        wanted, _ = theirs(x, k, v, need_weights=False, **options)
        out, weights = ours(x, k, v, **options)
        assert weights is None and (out - wanted).abs().max() < 1e-5
    one = ours(
        x[0] if batch_first else x[:, 0], *(y[0] if batch_first else y[:, 0] for y in (k, v))
    )[0]
    whole = ours(x, k, v)[0]
    assert (one - (whole[0] if batch_first else whole[:, 0])).abs().max() < 1e-5
    with pytest.raises(ValueError, match="nothing else"):
        ours(x, k, v, attn_mask=torch.ones(40, 40, dtype=torch.bool).tril(-3))


def test_it_is_called_inside_torchs_encoder(monkeypatch):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(24, 4, 32, batch_first=True).eval()
    wanted = layer(inputs())
    layer.self_attn = FavorAttention.from_multihead(layer.self_attn, features=32, near=64)
    calls, project = [], FavorAttention._project
    # Not by a hook: torch takes no fast path where there are hooks.
    monkeypatch.setattr(FavorAttention, "_project", lambda *x: calls.append(1) or project(*x))
    with torch.inference_mode():
        assert (layer(inputs()) - wanted).abs().max() < 1e-5
    assert calls


def test_padding_and_future_leave_no_trace():
    net, x = module(redraw=None).eval(), inputs()
    with pytest.raises(ValueError, match="every key is padding"):
        net.calibrate(x, x, x, torch.ones(2, 40, dtype=torch.bool))
    net.calibrate(x, x, x)
    short = net(x[:, :30], x[:, :30], x[:, :30])[0]
    padding = torch.zeros(2, 40, dtype=torch.bool)
    padding[:, 30:] = True
    assert (net(x, x, x, key_padding_mask=padding)[0][:, :30] - short).abs().max() < 1e-6
    changed = x.clone()
    changed[:, 30:] = torch.randn(2, 10, 24)
    a, b = (net(y, y, y, is_causal=True)[0][:, :30] for y in (x, changed))
    assert torch.equal(a, b)


def test_padding_is_in_no_statistic():
    x, padding = inputs(), torch.zeros(2, 40, dtype=torch.bool)
    padding[:, 30:] = True
    whole, cut = module(), module()
    noise = x.clone()
    noise[:, 30:] = 1e3
    whole(noise, noise, noise, key_padding_mask=padding)
    cut(x[:, :30], x[:, :30], x[:, :30])
    maps = [unpack(net.maps)[0] for net in (whole, cut)]
    rows = inputs()[0, :, :8].numpy()
    a, b = (map.log_features(rows) for map in maps)
    assert maps[0].seed == maps[1].seed and np.abs(a - b).max() < 1e-4


def test_redraw_policy():
    x = inputs()
    net = module(redraw=3)
    blank = net.maps
    drawn = []
    for _ in range(7):
        net(x, x, x)
        drawn.append(net.maps)
    assert not torch.equal(blank, drawn[0])
    same = [torch.equal(a, b) for a, b in itertools.pairwise(drawn)]
    assert same == [True, True, False, True, True, False]
    net.eval()
    net(x, x, x)
    assert torch.equal(net.maps, drawn[-1])
    once = module(redraw=None)
    once(x, x, x)
    fitted = once.maps
    once(2 * x, x, x)
    assert torch.equal(once.maps, fitted)
    # The maps are those of the statistics.
    q, k, _ = once._project(x, x, x)
    assert torch.equal(fit_maps(q, k, features=32), fitted)


def test_causal_statistics_are_of_the_past():
    x, other = inputs(), 3 * inputs().flip(1)
    nets = module(), module()
    outs = [
        net(y, y, y, is_causal=True)[0]
        for net, y in zip(nets, (x, torch.cat([x[:, :20], other[:, 20:]], 1)), strict=True)
    ]
    assert torch.equal(outs[0][:, :20], outs[1][:, :20])
    # The first call knew nothing; the next one knows it.
    assert torch.equal(module().eval()(x, x, x, is_causal=True)[0], outs[0])
    assert not torch.equal(nets[0](x, x, x, is_causal=True)[0], outs[0])


def test_state_is_kept():
    x = inputs()
    net = module()
    net(x, x, x)
    net.eval()
    wanted = net(x, x, x)[0]
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    other = module(seed=9).eval()
    assert not torch.equal(other(x, x, x)[0], wanted)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x, x, x)[0], wanted)
    twin = copy.deepcopy(net)
    assert torch.equal(twin(x, x, x)[0], wanted)
    net.train()(2 * x, x, x)
    assert torch.equal(twin(x, x, x)[0], wanted)


def test_a_training_goes_on_where_it_was():
    """Calls between two changes of the maps are counted in what is kept."""
    x, net = inputs(), module(redraw=3)
    for _ in range(5):
        net(x, x, x)
    other = module(redraw=100, seed=4, features=8)
    other.load_state_dict(net.state_dict())
    nets = [net, copy.deepcopy(net), pickle.loads(pickle.dumps(net)), other]
    assert [n.calls for n in nets] == [5] * 4
    for n in nets:
        for _ in range(2):
            n(2 * x, x, x)
        assert n.calls == 7 and torch.equal(n.maps, net.maps)
        assert torch.equal(n.state_dict()["map_state"], net.state_dict()["map_state"])


def test_buffers_can_be_copied_in_place():
    """As averages of models and other processes do, whatever was before."""
    x, net = inputs(), module(redraw=2)
    other = copy.deepcopy(net)
    other(x, x, x)
    seed = module(redraw=2, seed=12345)
    for _ in range(3):
        net(3 * x, x, x)
    for copied in (other, seed):
        for a, b in zip(copied.buffers(), net.buffers(), strict=True):
            a.copy_(b)
        copied(x, x, x)
        copied(x, x, x)
    net(x, x, x)
    net(x, x, x)
    assert torch.equal(other.maps, net.maps) and torch.equal(seed.maps, net.maps)


def test_other_formats():
    x = inputs()
    net = module(redraw=None)
    net(x, x, x)
    net.eval()
    wanted = net(x, x, x)[0]
    maps = net.maps
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = net(x, x, x)[0]
    assert mixed.dtype == torch.bfloat16 and (mixed.float() - wanted).abs().max() < 0.05
    for dtype, tolerance in ((torch.float64, 1e-5), (torch.bfloat16, 0.05), (torch.float16, 0.01)):
        cast = copy.deepcopy(net).to(dtype)
        assert torch.equal(cast.maps, maps)
        y = x.to(dtype)
        assert (cast(y, y, y)[0].to(wanted.dtype) - wanted).abs().max() < tolerance


def test_sixteen_bits_are_computed_in_place(maps, mask):
    for dtype, step in ((torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)):
        x = tensors(dtype=dtype)
        swapped = [y.detach().transpose(1, 2).contiguous().transpose(1, 2) for y in x]
        out, *gradients = with_gradients(x, maps=maps, attn_mask=mask)
        assert torch.equal(favor_attention(*swapped, maps=maps, attn_mask=mask), out)
        wide = [y.detach().float().requires_grad_() for y in x]
        wanted = with_gradients(wide, maps=maps, attn_mask=mask)
        assert out.dtype == dtype
        # A rounding of the output, which goes into the gradients of queries and keys too.
        assert (out - wanted[0]).abs().max() < step * wanted[0].abs().max()
        for a, b in zip(gradients, wanted[1:], strict=True):
            assert a.dtype == dtype and (a - b).norm() < 4 * step * b.norm()


def test_training_with_autocast():
    x, net = inputs(), module()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        net(x, x, x)[0].float().square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def test_compile():
    x = inputs().requires_grad_()
    net = module(redraw=None)
    net(x, x, x)
    net.eval()
    wanted = net(x, x, x)[0]
    fast = torch.compile(net, fullgraph=True, backend="aot_eager")
    out = fast(x, x, x)[0]
    assert (out - wanted).abs().max() < 1e-6
    gradients = [torch.autograd.grad(o.square().sum(), x)[0] for o in (out, wanted)]
    assert (gradients[0] - gradients[1]).abs().max() < 1e-4
    training = torch.compile(module(), backend="aot_eager")
    training(x, x, x)[0].sum().backward()
    assert training.calls == 1


def test_it_learns():
    torch.manual_seed(0)
    net = torch.nn.ModuleDict(
        {
            "attention": FavorAttention(16, 2, batch_first=True, features=64),
            "out": torch.nn.Linear(16, 1),
        }
    )
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    losses = []
    for step in range(80):
        x = torch.randn(16, 20, 16, generator=torch.Generator().manual_seed(step))
        loss = (
            (net["out"](net["attention"](x, x, x)[0])[..., 0] - x[..., 0].mean(1, keepdim=True))
            .square()
            .mean()
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-10:]) < 0.3 * np.mean(losses[:10])


def test_two_processes(tmp_path, python):
    """DistributedDataParallel over gloo: the same gradients and maps everywhere."""
    program = Path(__file__).with_name("two_processes.py")
    file = tmp_path / "meeting"
    run = [subprocess.Popen([*python, program, str(rank), file]) for rank in (0, 1)]
    try:
        # If one fails, the other waits for it.
        assert [p.wait(timeout=900) for p in run] == [0, 0]
    finally:
        for process in run:
            process.kill()
