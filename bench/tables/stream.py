"""scikit-learn's side: RBFSampler from a Parquet file, batch by batch, with sums or with SGD.

A process does one thing, so that its peak of memory is that of this thing. It prints JSON.
"""

from __future__ import annotations

import argparse
import json
import pickle
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDClassifier

BATCH = 65_536


def batches(path: Path, target: bool) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    file = pq.ParquetFile(path)
    names = [n for n in file.schema_arrow.names if n != "label"]
    for batch in file.iter_batches(BATCH, columns=[*names, "label"] if target else names):
        x = np.column_stack([batch.column(n).to_numpy() for n in names])
        yield x, batch.column("label").to_numpy() if target else None


def fit(a: argparse.Namespace) -> dict[str, Any]:
    """Mean and deviation in a first pass, features in a second, as our side does."""
    count, total, squares = 0, 0.0, 0.0
    for x, _ in batches(a.data, False):
        count += len(x)
        total = total + x.sum(0, dtype=np.float64)
        squares = squares + (x.astype(np.float64) ** 2).sum(0)
    mean = total / count
    deviation = np.sqrt(squares / count - mean**2)
    sampler = RBFSampler(gamma=0.5 / a.bandwidth**2, n_components=a.features, random_state=0)
    sampler.fit(np.zeros((1, len(mean)), np.float32))
    sums = np.zeros((a.features, a.classes))
    sgd = SGDClassifier(loss="log_loss", random_state=0)
    for x, y in batches(a.data, True):
        z = sampler.transform(((x - mean) / deviation).astype(np.float32))
        if a.kind == "sums":
            sums += z.T @ np.eye(a.classes, dtype=z.dtype)[y]
        else:
            sgd.partial_fit(z, y, classes=np.arange(a.classes))
    model = (mean, deviation, sampler, sums if a.kind == "sums" else sgd)
    a.model.write_bytes(pickle.dumps(model))
    return {"rows": count}


def predict(a: argparse.Namespace) -> dict[str, Any]:
    import pyarrow as pa

    mean, deviation, sampler, rest = pickle.loads(a.model.read_bytes())
    writer, rows, right = None, 0, 0
    for x, y in batches(a.data, a.score):
        z = sampler.transform(((x - mean) / deviation).astype(np.float32))
        found = (z @ rest).argmax(1) if a.kind == "sums" else rest.predict(z)
        table = pa.table({"prediction": found})
        writer = writer or pq.ParquetWriter(a.out, table.schema)
        writer.write_table(table)
        rows += len(x)
        right += int((found == y).sum()) if a.score else 0
    if writer:
        writer.close()
    return {"rows": rows, "accuracy": right / rows if a.score else None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=["fit", "predict"])
    parser.add_argument("kind", choices=["sums", "sgd"])
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--classes", type=int, default=8)
    parser.add_argument("--bandwidth", type=float, default=10 / 3)
    parser.add_argument("--score", action="store_true", help="compare with the labels too")
    a = parser.parse_args()
    start = time.perf_counter()
    found = fit(a) if a.work == "fit" else predict(a)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**found, "seconds": seconds, "peak_mib": peak}))


if __name__ == "__main__":
    main()
