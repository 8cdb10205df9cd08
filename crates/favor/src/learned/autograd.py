"""Gradients of the objective by PyTorch's autograd, for the cases that a test of this room writes.

FAVOR_AUTOGRAD=/tmp/cases cargo test -p favor --lib gradient_is_that_of_autograd
python autograd.py < /tmp/cases > autograd.json
"""

import json
import math
import sys

import torch

NAMES = ("query", "key", "constants", "query_rho", "key_rho")


def objective(case, parts):
    """The mean divergence, and by the part `outputs` the squared relative error of the outputs."""
    z_q, z_k, query_terms, key_terms, logits, values = (
        torch.tensor(case[name], dtype=torch.float64)
        for name in ("z_q", "z_k", "query_terms", "key_terms", "logits", "values")
    )
    query, key, constants, query_rho, key_rho = parts
    half = 0.5 * math.log2(math.e)
    p = z_q @ query.T + constants + (query_terms - half * (z_q**2 @ query_rho**2))[:, None]
    s = z_k @ key.T + (key_terms - half * (z_k**2 @ key_rho**2))[:, None]
    both = (p[:, None] + s[None]) * math.log(2)
    estimates = both.logsumexp(-1) - math.log(len(constants))
    exact = logits * math.log(2)
    is_exact = torch.zeros_like(exact, dtype=torch.bool)
    for i, keys in enumerate(case["exact"]):
        is_exact[i, keys] = True
    seen = torch.arange(len(z_k)) < torch.tensor(case["seen"])[:, None]
    mixed = torch.where(is_exact, exact, estimates)
    target, found = (x.masked_fill(~seen, -torch.inf).log_softmax(-1) for x in (exact, mixed))
    gap = (target.exp() * (target - found).masked_fill(~seen, 0)).sum(-1).mean()
    wanted, out = target.exp() @ values, found.exp() @ values
    error = ((out - wanted) ** 2).sum() / (wanted**2).sum()
    return (1 - case["outputs"]) * gap + case["outputs"] * error


def gradients(lines):
    """Those of each case, by name."""
    results = []
    for line in lines:
        case = json.loads(line)
        parts = [torch.tensor(case[n], dtype=torch.float64, requires_grad=True) for n in NAMES]
        found = torch.autograd.grad(objective(case, parts), parts)
        own = {n: g.flatten().tolist() for n, g in zip(NAMES, found, strict=True)}
        results.append({"case": case["case"], "outputs": case["outputs"], **own})
    return results


if __name__ == "__main__":
    print("[\n" + ",\n".join(map(json.dumps, gradients(sys.stdin))) + "\n]")
