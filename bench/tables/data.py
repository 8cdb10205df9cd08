"""Makes the table of the comparison: columns of numbers, classes around centres of their own."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CHUNK = 250_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--columns", type=int, default=16)
    parser.add_argument("--classes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    centres = np.random.default_rng(0).normal(size=(a.classes, a.columns))
    random = np.random.default_rng(a.seed + 1)
    writer = None
    for start in range(0, a.rows, CHUNK):
        count = min(CHUNK, a.rows - start)
        label = random.integers(a.classes, size=count)
        x = (centres[label] + 1.5 * random.normal(size=(count, a.columns))).astype(np.float32)
        columns = {f"x{c}": x[:, c] for c in range(a.columns)}
        table = pa.table({**columns, "label": label})
        writer = writer or pq.ParquetWriter(a.path, table.schema)
        writer.write_table(table, row_group_size=CHUNK)
    if writer:
        writer.close()


if __name__ == "__main__":
    main()
