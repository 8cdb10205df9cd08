"""The public implementations, each behind one function on plain arrays."""

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch


@dataclass
class Candidate:
    """A public implementation: `build(dim, causal)` gives a function of q, k, v and a mask."""

    name: str
    package: str
    build: Callable
    draws: int

    def attend(self, q, k, v, causal=False, keys=None) -> list[np.ndarray]:
        outs = []
        for seed in range(self.draws):
            torch.manual_seed(seed)
            with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
                run = self.build(q.shape[1], causal)
                mask = None if keys is None else torch.from_numpy(keys)
                out = run(*(torch.from_numpy(a) for a in (q, k, v)), mask)
            outs.append(out.double().numpy())
        return outs


def performer(features: int):
    """`SelfAttention` of performer-pytorch, its projections set so that it gets q, k, v as given."""
    from performer_pytorch import SelfAttention

    def build(dim: int, causal: bool):
        module = SelfAttention(
            dim=3 * dim,
            heads=1,
            dim_head=dim,
            nb_features=features,
            causal=causal,
            attn_out_bias=False,
        ).eval()
        eye, zero = torch.eye(dim), torch.zeros(dim, dim)
        parts = {"to_q": [eye, zero, zero], "to_k": [zero, eye, zero], "to_v": [zero, zero, eye]}
        for name, blocks in parts.items():
            getattr(module, name).weight.copy_(torch.cat(blocks, dim=1))
        module.to_out.weight.copy_(torch.cat([eye, zero, zero], dim=0))

        def run(q, k, v, mask):
            tokens = torch.cat([q, k, v], dim=1)[None]
            return module(tokens, mask=None if mask is None else mask[None])[0, :, :dim]

        return run

    return build


def performer_without_epsilon(features: int, draws: int) -> Candidate:
    """The functions of performer-pytorch with eps=0: what its ε hides."""
    from performer_pytorch.performer_pytorch import (
        gaussian_orthogonal_random_matrix,
        linear_attention,
        softmax_kernel,
    )

    def build(dim: int, causal: bool):
        projection = gaussian_orthogonal_random_matrix(features, dim)

        def run(q, k, v, mask):
            options = {"projection_matrix": projection, "eps": 0.0}
            q = softmax_kernel(q[None, None], is_query=True, **options)
            k = softmax_kernel(k[None, None], is_query=False, **options)
            return linear_attention(q, k, v[None, None])[0, 0]

        return run

    return Candidate("performer-pytorch, eps = 0", "performer-pytorch", build, draws)


def fast_transformers(features: int):
    """Linear attention of fast-transformers with its `Favor` feature map, all at their defaults."""
    from fast_transformers.attention import CausalLinearAttention, LinearAttention
    from fast_transformers.feature_maps import Favor
    from fast_transformers.masking import FullMask, LengthMask, TriangularCausalMask

    # It calls a function that torch no longer has; without this line it does not run at all.
    torch.qr = torch.linalg.qr

    def build(dim: int, causal: bool):
        kind = CausalLinearAttention if causal else LinearAttention
        module = kind(dim, feature_map=Favor.factory(n_dims=features)).eval()

        def run(q, k, v, mask):
            count = k.shape[0]
            valid = count if mask is None else int(mask.sum())
            lengths = LengthMask(torch.tensor([valid]), max_len=count)
            attention = TriangularCausalMask(count) if causal else FullMask(q.shape[0], count)
            q, k, v = (a[None, :, None] for a in (q, k, v))
            return module(q, k, v, attention, lengths, lengths)[0, :, 0]

        return run

    return build


def public_candidates(features: int, draws: int) -> list[Candidate]:
    """Those that are installed; fast-transformers does not build everywhere."""
    found = [Candidate("performer-pytorch", "performer-pytorch", performer(features), draws)]
    with contextlib.suppress(ImportError):
        build = fast_transformers(features)
        found.append(Candidate("fast-transformers", "pytorch-fast-transformers", build, draws))
    return found
