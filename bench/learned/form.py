"""Features learned in PyTorch by autograd: the form of our maps, and Hedgehog's (arXiv 2402.04347)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Form(nn.Module):
    """Logarithms of features, linear in queries and keys, for all heads of a layer at once.

    hedgehog: half as many projections, each with both signs, from the identity on; otherwise as many as
    there are features, from a random draw on.
    """

    def __init__(self, heads: int, dim: int, features: int, *, hedgehog: bool, seed: int) -> None:
        super().__init__()
        self.hedgehog, self.scale = hedgehog, dim**-0.25
        count = features // 2 if hedgehog else features
        draw = torch.randn(heads, count, dim, generator=torch.Generator().manual_seed(seed))
        if hedgehog:
            draw = torch.eye(dim).repeat(-(-count // dim), 1)[:count].expand(heads, -1, -1)
        make = {"query": draw.clone(), "key": draw.clone()}
        self.weights = nn.ParameterDict({side: nn.Parameter(x) for side, x in make.items()})
        self.constants = nn.ParameterDict(
            {side: nn.Parameter(torch.zeros(heads, 1, count)) for side in make}
        )
        # What one unit of the features is beside exact weights.
        self.unit = nn.Parameter(torch.zeros(heads, 1, 1))

    def logs(self, x: Tensor, side: str) -> Tensor:
        """``[batch, heads, length, features]``."""
        found = self.scale * x @ self.weights[side].to(x.dtype).mT + self.constants[side]
        if self.hedgehog:
            found = torch.cat([found, -found], -1)
        return found + self.unit if side == "query" else found


def learn(
    form: Form,
    q: Tensor,
    k: Tensor,
    mask: Tensor | None,
    *,
    near: int,
    steps: int,
    rate: float,
    batch: int = 4,
    seed: int = 0,
) -> float:
    """Descends the divergence of the attention weights, with the window in place: Adam, one cycle. Returns
    the mean divergence of the last tenth of the steps."""
    optimiser = torch.optim.Adam(form.parameters(), lr=rate, betas=(0.9, 0.98))
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    order = torch.Generator().manual_seed(seed)
    place = torch.arange(q.shape[2])
    close = (place[:, None] - place).abs() <= near if near else None
    last = []
    for step in range(steps):
        rows = torch.randint(len(q), (batch,), generator=order)
        loss = divergence(form, q[rows], k[rows], None if mask is None else mask[rows], close)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(form.parameters(), 1.0)
        optimiser.step()
        cycle.step()
        if step >= steps - steps // 10:
            last.append(loss.item())
    return sum(last) / max(len(last), 1)


def divergence(
    form: Form, q: Tensor, k: Tensor, mask: Tensor | None, close: Tensor | None
) -> Tensor:
    """The mean over queries of the divergence of the weights."""
    exact = q @ k.mT * form.scale**2
    p, s = form.logs(q, "query"), form.logs(k, "key")
    top, own = s.detach().amax(2, keepdim=True), p.detach()
    row = (own + top).amax(3, keepdim=True)
    found = ((p + top - row).exp() @ (s - top).exp().mT).clamp_min(1e-30).log() + row
    found = found - torch.tensor(float(s.shape[-1])).log()
    if close is not None:
        found = torch.where(close, exact, found)
    if mask is not None:
        exact, found = (x.masked_fill(~mask[:, None, None], -1e4) for x in (exact, found))
    target = exact.log_softmax(-1)
    terms = (target.exp() * (target - found.log_softmax(-1))).sum(-1)
    if mask is None:
        return terms.mean()
    seen = mask[:, None].expand_as(terms)
    return terms[seen].mean()
