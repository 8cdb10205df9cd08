"""The peers on one set: a process fits one of them and scores it, so that time and memory are its own.

Words become one-hot columns or categories as each peer prefers. Bandwidth and penalty of the kernel
methods are chosen on a tenth of the training rows that the fit of each candidate does not see.
It prints JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

GRID = (0.25, 0.5, 1.0, 2.0, 4.0)


def times(column: pa.ChunkedArray) -> np.ndarray:
    """A time as favor encodes it: days, and sine and cosine of the year, the week and the day."""
    days = column.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() / 86_400e6
    parts = [days]
    for length, offset in ((365.2425, 0.0), (7.0, 3.0), (1.0, 0.0)):
        turn = 2 * np.pi * (days + offset) / length
        parts += [np.sin(turn), np.cos(turn)]
    return np.column_stack(parts)


def columns(table: pa.Table, target: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers, codes of words, and the target."""
    numbers, words = [], []
    for name in table.column_names:
        column = table[name]
        if name == target:
            continue
        if pa.types.is_timestamp(column.type):
            numbers += list(times(column).T)
        elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            words.append(column.to_numpy(zero_copy_only=False).astype(str))
        else:
            numbers.append(column.to_numpy().astype(np.float64))
    rows = len(table)
    stacked = [np.column_stack(c) if c else np.empty((rows, 0)) for c in (numbers, words)]
    return stacked[0], stacked[1], table[target].to_numpy(zero_copy_only=False)


def encoded(train: pa.Table, test: pa.Table, target: str, one_hot: bool) -> tuple[Any, ...]:
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    (a, b, y), (c, d, z) = columns(train, target), columns(test, target)
    if one_hot:
        scaler = StandardScaler().fit(a) if a.shape[1] else None
        parts = [(scaler.transform(a), scaler.transform(c))] if scaler else []
        if b.shape[1]:
            coder = OneHotEncoder(
                handle_unknown="ignore", sparse_output=False, max_categories=256, dtype=np.float32
            ).fit(b)
            parts.append((coder.transform(b), coder.transform(d)))
        x, v = (np.hstack([p[k] for p in parts]).astype(np.float32) for k in (0, 1))
        return x, y, v, z, None
    coder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    b, d = (coder.fit_transform(b), coder.transform(d)) if b.shape[1] else (b, d)
    few = [bool(np.nanmax(b[:, k]) < 255) for k in range(b.shape[1])]
    categories = [False] * a.shape[1] + few
    return np.hstack([a, b]).astype(float), y, np.hstack([c, d]).astype(float), z, categories


def score(measure: str, model: Any, x: np.ndarray, y: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    if measure == "accuracy":
        return float((model.predict(x) == y).mean())
    if measure == "auc":
        values = getattr(model, "predict_proba", None) or model.decision_function
        found = values(x)
        return float(
            roc_auc_score(y == model.classes_[1], found[:, 1] if found.ndim > 1 else found)
        )
    error = float(np.sqrt(np.mean((model.predict(x) - y) ** 2)))
    return error / float(y.std()) if measure == "nrmse" else error


def boosting(a: argparse.Namespace, train: pa.Table, test: pa.Table) -> dict[str, Any]:
    x, y, v, z, categories = encoded(train, test, a.target, one_hot=False)
    classify = a.task == "classify"
    start, cpu = time.perf_counter(), time.process_time()
    if a.peer == "histgb":
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        kind = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
        model = kind(categorical_features=categories, random_state=a.seed).fit(x, y)
    else:
        from lightgbm import LGBMClassifier, LGBMRegressor

        kind = LGBMClassifier if classify else LGBMRegressor
        model = kind(random_state=a.seed, verbosity=-1)
        places = [k for k, c in enumerate(categories) if c]
        model.fit(x, y, categorical_feature=places or "auto")
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {"score": score(a.measure, model, v, z), "seconds": seconds, "cpu": cpu}


def kernel(a: argparse.Namespace, train: pa.Table, test: pa.Table) -> dict[str, Any]:
    """Nystroem or RBFSampler before a linear model."""
    from sklearn.kernel_approximation import Nystroem, RBFSampler
    from sklearn.linear_model import Ridge, RidgeClassifier, SGDClassifier, SGDRegressor
    from sklearn.pipeline import make_pipeline

    x, y, v, z, _ = encoded(train, test, a.target, one_hot=True)
    classify = a.task == "classify"
    total = float(x.var(0).sum())

    def pipeline(features: int, factor: float, penalty: float) -> Any:
        gamma = 0.5 / (factor**2 * total)
        if a.peer == "nystroem-ridge":
            first = Nystroem(gamma=gamma, n_components=features, random_state=a.seed)
            last = (RidgeClassifier if classify else Ridge)(alpha=penalty)
        else:
            first = RBFSampler(gamma=gamma, n_components=features, random_state=a.seed)
            kind, loss = (
                (SGDClassifier, "log_loss") if classify else (SGDRegressor, "squared_error")
            )
            last = kind(loss=loss, alpha=penalty * 1e-6, random_state=a.seed)
        return make_pipeline(first, last)

    random = np.random.default_rng(a.seed)
    rows = random.permutation(len(x))[:6000]
    held, seen = rows[: len(rows) // 4], rows[len(rows) // 4 :]
    best: tuple[float, float, float] | None = None
    start, cpu = time.perf_counter(), time.process_time()
    for factor in GRID:
        for penalty in (1e-3, 1e-1, 10.0):
            model = pipeline(min(a.features, 256), factor, penalty).fit(x[seen], y[seen])
            found = score(a.measure, model, x[held], y[held])
            found = -found if a.measure in ("rmse", "nrmse") else found
            if best is None or found > best[0]:
                best = (found, factor, penalty)
    assert best
    chosen = time.perf_counter() - start
    model = pipeline(a.features, best[1], best[2]).fit(x, y)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    found = score(a.measure, model, v, z)
    return {"score": found, "seconds": seconds, "cpu": cpu, "choice_seconds": chosen}


def sgpr(a: argparse.Namespace, train: pa.Table, test: pa.Table) -> dict[str, Any]:
    import gpytorch
    import torch

    x, y, v, z, _ = encoded(train, test, a.target, one_hot=True)
    torch.manual_seed(a.seed)
    centre, scale = y.mean(), y.std()
    inputs, targets = torch.tensor(x), torch.tensor((y - centre) / scale, dtype=torch.float32)
    landmarks = inputs[torch.randperm(len(inputs))[:512]].clone()

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            likelihood = gpytorch.likelihoods.GaussianLikelihood()
            super().__init__(inputs, targets, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            base = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.RBFKernel(ard_num_dims=inputs.shape[1])
            )
            self.covar_module = gpytorch.kernels.InducingPointKernel(
                base, inducing_points=landmarks, likelihood=likelihood
            )

        def forward(self, rows: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(rows), self.covar_module(rows)
            )

    model = Model()
    start, cpu = time.perf_counter(), time.process_time()
    loss = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    model.train()
    for _ in range(50):
        optimiser.zero_grad()
        value = -loss(model(inputs), targets)
        value.backward()
        optimiser.step()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    model.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        found = model.likelihood(model(torch.tensor(v)))
    mean = found.mean.numpy() * scale + centre
    deviation = found.stddev.numpy() * scale
    inside = float((np.abs(mean - z) <= 1.959964 * deviation).mean())
    error = float(np.sqrt(np.mean((mean - z) ** 2)))
    return {"score": error, "seconds": seconds, "cpu": cpu, "coverage": inside}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer")
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--task", required=True)
    parser.add_argument("--measure", required=True)
    parser.add_argument("--features", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    train, test = pq.read_table(a.train), pq.read_table(a.test)
    run = {"histgb": boosting, "lightgbm": boosting, "sgpr": sgpr}.get(a.peer, kernel)
    found = run(a, train, test)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**found, "peak_mib": peak}))


if __name__ == "__main__":
    main()
