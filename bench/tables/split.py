"""From the data folder to a training and a test file: the set's own division, or nine tenths at random."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
from sets import SETS


def read(name: str, data: Path) -> tuple[pa.Table, np.ndarray | None]:
    """All rows, and which of them are for the test where the set says so."""
    tables = data / "tables"
    if name == "census":
        parts = [pq.read_table(tables / f"census_income_{p}.parquet") for p in ("train", "test")]
        test = np.repeat([False, True], [len(p) for p in parts])
        return pa.concat_tables(parts), test
    if name == "chess":
        names = [*(f"{piece}{axis}" for piece in ("wk", "wr", "bk") for axis in "fr"), "depth"]
        options = pcsv.ReadOptions(column_names=names)
        # Every column is a category, also the ranks of the board.
        types = pcsv.ConvertOptions(column_types={n: pa.string() for n in names})
        path = data / "uci8" / "chess.data"
        return pcsv.read_csv(path, read_options=options, convert_options=types), None
    if name in ("protein", "kin40k"):
        table = pq.read_table(tables / f"{name}.parquet")
        return table.drop_columns(["test"]), table["test"].to_numpy(zero_copy_only=False)
    if name == "flights":
        table = pq.read_table(tables / "flights_3m.parquet")
        late = pc.cast(pc.greater(table["delay"], 15), pa.string())
        return table.drop_columns(["delay"]).append_column("late", late), None
    return pq.read_table(tables / f"{name}.parquet"), None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[chosen.name for chosen in SETS])
    parser.add_argument("data", type=Path)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    chosen = next(c for c in SETS if c.name == a.name)
    table, test = read(a.name, a.data)
    if chosen.ignore:
        table = table.drop_columns(list(chosen.ignore))
    if test is None:
        test = np.random.default_rng(a.seed).random(len(table)) < 0.1
    for path, part in ((a.train, ~test), (a.test, test)):
        pq.write_table(table.filter(pa.array(part)), path, row_group_size=65_536)


if __name__ == "__main__":
    main()
