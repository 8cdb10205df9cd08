"""The peers' side of the speed comparison: one measurement a call, printed as JSON.

Each peer computes attention for tensors [heads, length, dim] of 32-bit floats on the processor. The
feature attention of the peers is the same mathematics as ours: project, exponentials relative to
the largest key of each feature and the largest feature of each query, two sums, one division.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

# Short work is repeated for this many seconds: processors take a while to come up to speed.
LEAST = 0.5


def best_time(runs: int, work: Callable[[], Any]) -> float:
    work()  # the first run compiles, allocates and warms up
    best, done, began = math.inf, 0, time.perf_counter()
    while done < runs or time.perf_counter() - began < LEAST:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
        done += 1
    return best


def torch_features(torch: Any, q: Any, k: Any, v: Any, w: Any, scale: float) -> Any:
    q, k = q * scale, k * scale
    keys = k @ w.T - 0.5 * (k * k).sum(-1, keepdim=True)
    top = keys.amax(-2, keepdim=True)
    keys = torch.exp(keys - top)
    queries = q @ w.T + top
    queries = torch.exp(queries - queries.amax(-1, keepdim=True))
    numerator = queries @ (keys.transpose(-1, -2) @ v)
    return numerator / (queries @ keys.sum(-2).unsqueeze(-1))


def numpy_features(np: Any, q: Any, k: Any, v: Any, w: Any, scale: float) -> Any:
    q, k = q * scale, k * scale
    keys = k @ w.T - 0.5 * (k * k).sum(-1, keepdims=True)
    top = keys.max(-2, keepdims=True)
    keys = np.exp(keys - top)
    queries = q @ w.T + top
    queries = np.exp(queries - queries.max(-1, keepdims=True))
    numerator = queries @ (keys.swapaxes(-1, -2) @ v)
    return numerator / (queries @ keys.sum(-2)[..., None])


def run_torch(a: argparse.Namespace) -> dict[str, Any]:
    import torch

    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    shape = (a.heads, a.length, a.dim)
    if a.work == "sgemm":
        x, y = torch.randn(2048, 2048), torch.randn(2048, 2048)
        seconds = best_time(a.runs, lambda: x @ y)
        return {"seconds": seconds, "gflops": 2 * 2048**3 / seconds / 1e9}
    q, k, v = (torch.randn(shape) * s for s in (0.35, 0.35, 1.0))
    w = torch.randn(a.features, a.dim)
    scale = a.dim**-0.25
    if a.work.startswith("exact"):

        def attend(q: Any, k: Any, v: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])

    else:

        def attend(q: Any, k: Any, v: Any) -> Any:
            return torch_features(torch, q, k, v, w, scale)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if a.work.endswith("backward"):
        for t in (q, k, v):
            t.requires_grad_(True)

        def work() -> None:
            for t in (q, k, v):
                t.grad = None
            attend(q, k, v).sum().backward()

    else:

        def work() -> None:
            with torch.no_grad():
                attend(q, k, v)

    seconds = best_time(a.runs, work)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "extra_bytes": (peak - before) * 1024}


def run_performer(a: argparse.Namespace) -> dict[str, Any]:
    import torch
    from performer_pytorch import FastAttention

    torch.set_num_threads(a.threads)
    shape = (1, a.heads, a.length, a.dim)
    q, k, v = (torch.randn(shape) * s for s in (0.35, 0.35, 1.0))
    attend = FastAttention(dim_heads=a.dim, nb_features=a.features, causal=False)

    def work() -> None:
        with torch.no_grad():
            attend(q, k, v)

    return {"seconds": best_time(a.runs, work)}


def run_jax(a: argparse.Namespace) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(0)
    shape = (a.heads, a.length, a.dim)
    q, k, v = (jnp.asarray(rng.normal(size=shape, scale=s), jnp.float32) for s in (0.35, 0.35, 1.0))
    w = jnp.asarray(rng.normal(size=(a.features, a.dim)), jnp.float32)

    def attend(q: Any, k: Any, v: Any) -> Any:
        return numpy_features(jnp, q, k, v, w, a.dim**-0.25)

    if a.work == "backward":
        both = jax.jit(jax.value_and_grad(lambda q, k, v: attend(q, k, v).sum(), argnums=(0, 1, 2)))
    else:
        both = jax.jit(attend)
    return {"seconds": best_time(a.runs, lambda: jax.block_until_ready(both(q, k, v)))}


def run_numpy(a: argparse.Namespace) -> dict[str, Any]:
    import numpy as np

    rng = np.random.default_rng(0)
    if a.work == "sgemm":
        x, y = (rng.normal(size=(2048, 2048)).astype(np.float32) for _ in range(2))
        seconds = best_time(a.runs, lambda: x @ y)
        return {"seconds": seconds, "gflops": 2 * 2048**3 / seconds / 1e9}
    shape = (a.heads, a.length, a.dim)
    q, k, v = (rng.normal(size=shape, scale=s).astype(np.float32) for s in (0.35, 0.35, 1.0))
    w = rng.normal(size=(a.features, a.dim)).astype(np.float32)
    attend = lambda: numpy_features(np, q, k, v, w, a.dim**-0.25)  # noqa: E731
    return {"seconds": best_time(a.runs, attend)}


def run_sklearn(a: argparse.Namespace) -> dict[str, Any]:
    import numpy as np
    from sklearn.kernel_approximation import RBFSampler

    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(a.length, a.dim), scale=0.35).astype(np.float32) for _ in range(2))
    c = rng.normal(size=(a.length, 4)).astype(np.float32)
    # exp(−γ‖x−y‖²) with the bandwidth of ours: ½ / dim.
    sampler = RBFSampler(gamma=0.5 / a.dim, n_components=a.features, random_state=0).fit(y)

    def product(x: Any) -> Any:
        return sampler.transform(x) @ (sampler.transform(y).T @ c)

    distance = ((x[:200, None, :] - y[None, :20000, :]) ** 2).sum(-1)
    exact = np.exp(-0.5 / a.dim * distance) @ c[:20000]
    some = sampler.transform(x[:200]) @ (sampler.transform(y[:20000]).T @ c[:20000])
    error = float(np.linalg.norm(some - exact) / np.linalg.norm(exact))
    seconds = best_time(a.runs, lambda: product(x))
    return {"seconds": seconds, "relative_error": error}


PEERS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "torch": run_torch,
    "performer": run_performer,
    "jax": run_jax,
    "numpy": run_numpy,
    "sklearn": run_sklearn,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("work")
    for name, default in [("length", 1024), ("features", 128), ("dim", 64), ("heads", 8)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    a = parser.parse_args()
    json.dump(PEERS[a.peer](a), sys.stdout)
    print()


if __name__ == "__main__":
    # Before any library starts its threads.
    if "--threads" in sys.argv:
        count = sys.argv[sys.argv.index("--threads") + 1]
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, count)
    main()
