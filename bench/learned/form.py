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


# Tokens of a step, as the library has them, and sequences at least.
STEP_TOKENS, LEAST = 1024, 4
# Pairs of all heads that are in memory at a time: 64 MiB for each array of them.
PAIRS = 1 << 24


def learn(
    form: Form,
    q: Tensor,
    k: Tensor,
    mask: Tensor | None,
    *,
    near: int,
    steps: int,
    rate: float,
    seed: int = 0,
) -> float:
    """Descends the divergence of the attention weights, with the window in place: Adam, one cycle, and steps
    of as many sequences as the library takes. Returns the mean divergence of the last tenth of the steps."""
    optimiser = torch.optim.Adam(form.parameters(), lr=rate, betas=(0.9, 0.98))
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    order = torch.Generator().manual_seed(seed)
    visible = torch.ones(len(q), q.shape[2], dtype=torch.bool) if mask is None else mask
    batch = step_sequences(visible)
    last = []
    for step in range(steps):
        rows = torch.randint(len(q), (batch,), generator=order)
        optimiser.zero_grad()
        total = 0.0
        for part in parts(visible[rows], q.shape[1]):
            some = rows[part]
            length = longest(visible[some])
            terms = divergences(
                form, q[some, :, :length], k[some, :, :length], visible[some, :length], near
            )
            loss = terms.sum() / (q.shape[1] * visible[rows].sum())
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(form.parameters(), 1.0)
        optimiser.step()
        cycle.step()
        if step >= steps - steps // 10:
            last.append(total)
    return sum(last) / max(len(last), 1)


def step_sequences(visible: Tensor) -> int:
    """Sequences of a step: as many as have so many tokens together, on average."""
    return max(LEAST, -(-STEP_TOKENS * len(visible) // int(visible.sum())))


def longest(visible: Tensor) -> int:
    """Tokens up to the last that is seen."""
    return int(visible.any(0).nonzero()[-1]) + 1


def parts(visible: Tensor, heads: int) -> list[Tensor]:
    """The sequences of a step, in parts whose pairs fit into memory."""
    size = max(1, PAIRS // (heads * longest(visible) ** 2))
    return list(torch.arange(len(visible)).split(size))


def divergences(form: Form, q: Tensor, k: Tensor, visible: Tensor, near: int) -> Tensor:
    """The divergence of the weights of each query that is seen, for all heads."""
    exact = q @ k.mT * form.scale**2
    p, s = form.logs(q, "query"), form.logs(k, "key")
    top, own = s.detach().amax(2, keepdim=True), p.detach()
    row = (own + top).amax(3, keepdim=True)
    found = ((p + top - row).exp() @ (s - top).exp().mT).clamp_min(1e-30).log() + row
    found = found - torch.tensor(float(s.shape[-1])).log()
    if near:
        place = torch.arange(q.shape[2])
        found = torch.where((place[:, None] - place).abs() <= near, exact, found)
    padded = not bool(visible.all())
    if padded:
        hidden = ~visible[:, None, None]
        exact, found = (x.masked_fill(hidden, -1e4) for x in (exact, found))
    target = exact.log_softmax(-1)
    terms = (target.exp() * (target - found.log_softmax(-1))).sum(-1)
    return terms[visible[:, None].expand_as(terms)] if padded else terms
