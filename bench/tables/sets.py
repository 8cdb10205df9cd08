"""The sets of the comparison: from the data folder to a training and a test file for everyone."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq


@dataclass(frozen=True)
class Set:
    """One set: where it is, what is predicted, and how favor is asked to do it."""

    name: str
    target: str
    task: str  # classify or regress
    measure: str  # accuracy, auc, nrmse or rmse
    features: int
    seeds: int = 5
    favor: dict[str, list[str]] = field(default_factory=dict)
    peers: tuple[str, ...] = ("histgb", "lightgbm", "nystroem-ridge", "rbf-sgd")
    ignore: tuple[str, ...] = ()


RIDGE = {"ridge": ["--head", "ridge"]}

SETS = [
    Set("fars", "INJURY_SEVERITY", "classify", "accuracy", 1024, favor=RIDGE),
    Set(
        "census",
        "income",
        "classify",
        "auc",
        1024,
        favor={**RIDGE, "logistic": ["--head", "logistic"]},
        ignore=("instance_weight",),
    ),
    Set(
        "chess",
        "depth",
        "classify",
        "accuracy",
        2048,
        favor={**RIDGE, "ridge, learned metric": ["--head", "ridge", "--metric", "learned"]},
    ),
    Set(
        "protein",
        "y",
        "regress",
        "nrmse",
        1024,
        favor={
            "ridge, gaussian": ["--head", "ridge", "--kernel", "gaussian"],
            "ridge, laplace": ["--head", "ridge", "--kernel", "laplace"],
            "ridge, laplace, learned metric": [
                *["--head", "ridge", "--kernel", "laplace"],
                *["--metric", "learned"],
            ],
        },
    ),
    Set(
        "kin40k",
        "y",
        "regress",
        "rmse",
        1024,
        favor={"gp": ["--head", "gp"]},
        peers=("histgb", "lightgbm", "nystroem-ridge", "sgpr"),
    ),
    Set("california", "MedHouseVal", "regress", "nrmse", 1024, favor=RIDGE),
    Set(
        "flights",
        "late",
        "classify",
        "auc",
        512,
        seeds=1,
        favor=RIDGE,
        peers=("histgb", "lightgbm"),
    ),
]


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


def split(chosen: Set, data: Path, seed: int, folder: Path) -> tuple[Path, Path]:
    """The training and the test file of a seed: the set's own division, or nine tenths at random."""
    paths = tuple(folder / f"{chosen.name}-{seed}-{part}.parquet" for part in ("train", "test"))
    if all(p.exists() for p in paths):
        return paths[0], paths[1]
    table, test = read(chosen.name, data)
    if chosen.ignore:
        table = table.drop_columns(list(chosen.ignore))
    if test is None:
        test = np.random.default_rng(seed).random(len(table)) < 0.1
    for path, part in zip(paths, (~test, test), strict=True):
        pq.write_table(table.filter(pa.array(part)), path, row_group_size=65_536)
    return paths[0], paths[1]
