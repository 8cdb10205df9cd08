"""The cases in which performer-pytorch goes wrong, side by side: we pass them all.

What is said of theirs holds for one version, so these tests are skipped with any other.
"""

from importlib.metadata import version

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from favor_sharp.torch import FavorAttention, favor_attention, fit_maps  # noqa: E402

DIM, LENGTH, HEADS = 32, 48, 2
KNOWN = "1.1.4"


def tensors(spread=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [spread * torch.randn(1, HEADS, LENGTH, DIM, generator=generator) for _ in range(3)]


@pytest.fixture
def performer():
    """Their package, in the version that was looked at."""
    package = pytest.importorskip("performer_pytorch", reason="performer-pytorch is not installed")
    found = version("performer-pytorch")
    if found != KNOWN:
        pytest.skip(f"performer-pytorch is {found}, and what is compared is {KNOWN}")
    torch.manual_seed(0)
    return package


def theirs(performer, causal=False):
    return performer.FastAttention(
        dim_heads=DIM, nb_features=256, causal=causal, no_projection=False
    )


def exact(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def error(found, wanted):
    return float((found - wanted).detach().norm() / wanted.detach().norm())


def test_padding_changes_nothing():
    q, k, v = tensors(0.8)
    maps = fit_maps(q, k, features=256)
    mask = torch.zeros(1, LENGTH, dtype=torch.bool)
    mask[:, :30] = True
    wanted = favor_attention(q, k[:, :, :30], v[:, :, :30], maps=maps)
    for padding in (0.0, 1e3, torch.nan):
        wide = [torch.where(mask[:, None, :, None], x, padding) for x in (k, v)]
        assert (favor_attention(q, *wide, mask, maps=maps) - wanted).abs().max() < 1e-6


def test_their_padding_does(performer):
    """Padded values are set to zero there, but padded keys stay in the normalisation."""
    layer = performer.SelfAttention(dim=DIM, heads=2, dim_head=16, causal=False).eval()
    x = torch.randn(1, LENGTH, DIM)
    mask = torch.zeros(1, LENGTH, dtype=torch.bool)
    mask[:, :30] = True
    short, padded = layer(x[:, :30]), layer(x, mask=mask)[:, :30]
    assert error(padded, short) > 0.05
    ours = FavorAttention(DIM, 2, features=256, batch_first=True).eval()
    short, padded = ours(*[x[:, :30]] * 3)[0], ours(x, x, x, key_padding_mask=~mask)[0][:, :30]
    assert error(padded, short) < 1e-5


def test_the_future_changes_nothing():
    q, k, v = tensors(0.8)
    maps = fit_maps(*tensors(0.8, seed=9)[:2], features=256)
    out = favor_attention(q, k, v, is_causal=True, maps=maps)
    later = [x.clone() for x in (q, k, v)]
    for x in later:
        x[:, :, 30:] = 5 * torch.randn_like(x[:, :, 30:])
    again = favor_attention(*later, is_causal=True, maps=maps)
    assert torch.equal(again[:, :, :30], out[:, :, :30])


def test_their_future_does(performer):
    """The largest value over all keys, later ones too, is subtracted there before an ε is added."""
    attention = theirs(performer, causal=True)
    q, k, v = tensors(0.8)
    k_later = k.clone()
    k_later[:, :, 30:] *= 12
    out, again = attention(q, k, v), attention(q, k_later, v)
    assert error(again[:, :, :30], out[:, :, :30]) > 0.05


def test_logits_of_eighty_are_finite_and_no_mean():
    q, k, v = tensors(4.8)
    logits = q @ k.mT / DIM**0.5
    assert logits.max() > 80 and logits.min() < -80
    maps = fit_maps(q, k, features=256)
    for causal in (False, True):
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        out = favor_attention(*inputs, is_causal=causal, maps=maps)
        gradients = torch.autograd.grad(out.sum(), inputs)
        assert out.isfinite().all() and all(g.isfinite().all() for g in gradients)
    assert error(favor_attention(q, k, v, maps=maps), v.mean(2, keepdim=True).expand_as(v)) > 1


def test_outputs_are_not_the_mean_of_the_values():
    q, k, v = tensors(2.0)
    v = v + 0.3 * k
    mean = v.mean(2, keepdim=True).expand_as(v)
    found = favor_attention(q, k, v, maps=fit_maps(q, k, features=256))
    assert error(found, mean) > 1


def test_their_outputs_are(performer):
    """On ordinary inputs the ε of theirs outweighs the features themselves."""
    q, k, v = tensors(2.0)
    v = v + 0.3 * k
    mean = v.mean(2, keepdim=True).expand_as(v)
    assert error(theirs(performer)(q, k, v), mean) < 0.5 * error(exact(q, k, v), mean)


def test_features_work_where_theirs_do(performer):
    """On tame inputs both approximate; ours are nearer."""
    q, k, v = tensors(0.5)
    v = v + 1
    wanted = exact(q, k, v)
    ours = np.mean(
        [error(favor_attention(q, k, v, features=256, seed=s), wanted) for s in range(8)]
    )
    others = []
    for seed in range(8):
        torch.manual_seed(seed)
        attention = theirs(performer)
        torch.manual_seed(seed)
        attention.redraw_projection_matrix(torch.device("cpu"))
        others.append(error(attention(q, k, v), wanted))
    assert ours < np.mean(others)
