"""How long kernel estimators take to learn from and to predict a million samples.

Prints one line of JSON with the best time of each step, so that two builds can take turns.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from favor_sharp.sklearn import KernelClassifier, KernelDensityEstimator, KernelRegressor


def data(rows: int, columns: int, classes: int, dtype: str) -> tuple[np.ndarray, ...]:
    """Samples around one centre per class, their classes, and a smooth target."""
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=rows)
    samples = rng.standard_normal((classes, columns))[labels] + rng.standard_normal((rows, columns))
    return samples.astype(dtype), labels, np.sin(samples[:, 0]) + samples[:, 1] ** 2


def best(runs: int, work: Callable[[], object]) -> float:
    """The least of some times."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return round(min(times), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=16)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--classes", type=int, default=8)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    X, labels, targets = data(options.rows, options.columns, options.classes, options.dtype)
    how = {"n_components": options.features, "random_state": 0}
    found = {}
    for kind, y in (
        (KernelClassifier, labels),
        (KernelRegressor, targets),
        (KernelDensityEstimator, None),
    ):
        model = kind(**how)
        predict = getattr(model, "predict", None) or model.score_samples
        found[f"{kind.__name__} fit"] = best(options.runs, partial(model.fit, X, y))
        found[f"{kind.__name__} predict"] = best(options.runs, partial(predict, X))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
