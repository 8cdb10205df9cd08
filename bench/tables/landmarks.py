"""FavorRidge and scikit-learn's Nystroem with Ridge: the same landmarks, the same bandwidth and penalty.

Both fit and predict from arrays in memory, taking turns. It prints JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from favor_sharp.sklearn import FavorRidge

ALPHA, GAMMA = 0.1, 0.25


def arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    table = pq.read_table(path)
    names = [n for n in table.column_names if n != "y"]
    return np.column_stack([table[n].to_numpy() for n in names]), table["y"].to_numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--turns", type=int, default=3)
    a = parser.parse_args()
    (x, y), (v, _) = arrays(a.train), arrays(a.test)
    centre, scale = x.mean(0), x.std(0)
    x, v = (x - centre) / scale, (v - centre) / scale
    y = (y - y.mean()) / y.std()

    ours: Any = FavorRidge(
        n_components=a.features,
        bandwidth=1 / np.sqrt(2 * GAMMA),
        alpha=ALPHA,
        standardise=False,
        random_state=0,
    )
    best, found = [np.inf, np.inf], [np.empty(0), np.empty(0)]
    for _ in range(a.turns):
        start = time.perf_counter()
        found[0] = ours.fit(x, y).predict(v)
        best[0] = min(best[0], time.perf_counter() - start)

        # Nystroem takes the first rows of a permutation, here of the landmarks alone.
        landmarks = ours.model_.landmarks
        theirs = Nystroem(gamma=GAMMA, n_components=len(landmarks), random_state=0)
        start = time.perf_counter()
        theirs.fit(landmarks)
        ridge = Ridge(alpha=ALPHA, solver="cholesky").fit(theirs.transform(x), y)
        found[1] = make_pipeline(theirs, ridge).predict(v)
        best[1] = min(best[1], time.perf_counter() - start)
    difference = float(np.abs(found[0] - found[1]).max())
    result = {"rows": len(x), "features": len(ours.model_.landmarks), "turns": a.turns}
    print(json.dumps({**result, "ours": best[0], "theirs": best[1], "difference": difference}))


if __name__ == "__main__":
    main()
