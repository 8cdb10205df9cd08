"""Compares favor with its peers on real tables and on one of five million rows.

Everyone gets the same training and test files and runs in a process of its own. Ours is timed as the
whole command with its start; a peer's time begins when its arrays are ready. Scores are of all seeds;
times are taken apart from them (`--part times`), of the first seed and the best of two turns, so that scores
can be made on a busy machine. Every cell is kept as a file in `--folder`: a run can be taken up again or made
in pieces; a full run or `--part page` writes the page from all cells.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from favor_sharp._native import write_atomically

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from sets import SETS, Set  # noqa: E402

ROOT = HERE.parent.parent
# Sizes of the large table.
ROWS = (500_000, 5_000_000)
BANDWIDTH = "3.3333333333333335"
NAMES = {
    "histgb": "HistGradientBoosting",
    "lightgbm": "LightGBM",
    "nystroem-ridge": "Nystroem + Ridge",
    "rbf-sgd": "RBFSampler + SGD",
    "sgpr": "GPyTorch SGPR, 512 points",
}


def measured(command: list[str]) -> dict[str, Any]:
    """Wall and processor time and peak memory of a process, and what it printed."""
    readable, writable = os.pipe()
    launcher = [sys.executable, "-S", str(HERE / "measure.py"), str(writable)]
    process = subprocess.run(
        launcher + command, stdout=subprocess.PIPE, text=True, pass_fds=(writable,), check=False
    )
    os.close(writable)
    if process.returncode != 0:
        raise SystemExit(f"failed: {' '.join(command)}")
    with os.fdopen(readable) as found:
        return {**json.load(found), "text": process.stdout}


class Bench:
    def __init__(self, favor: str, data: Path, folder: Path) -> None:
        self.favor, self.data, self.folder = favor, data, folder
        self.cells = folder / "cells"
        self.cells.mkdir(parents=True, exist_ok=True)

    @property
    def results(self) -> dict[str, Any]:
        """All cells that there are."""
        read = {f: json.loads(f.read_text()) for f in sorted(self.cells.glob("*.json"))}
        return {cell["key"]: cell for cell in read.values()}

    def once(self, key: str, work: Any) -> None:
        """Fills a cell, unless it is filled."""
        name = "".join(c if c.isalnum() or c in "-." else "_" for c in key)
        path = self.cells / f"{name}.json"
        if path.exists():
            return
        found = work()
        found.pop("text", None)
        text = json.dumps({"key": key, **found}, indent=1, sort_keys=True)
        write_atomically(path, text.encode())
        print(key, json.dumps(found), file=sys.stderr, flush=True)

    def split(self, chosen: Set, seed: int) -> tuple[Path, Path]:
        """The training and the test file of a seed."""
        train, test = (self.folder / f"{chosen.name}-{seed}-{p}.parquet" for p in ("train", "test"))
        if not (train.exists() and test.exists()):
            command = [sys.executable, str(HERE / "split.py"), chosen.name, str(self.data)]
            subprocess.run([*command, str(train), str(test), "--seed", str(seed)], check=True)
        return train, test

    def ours(self, chosen: Set, name: str, seed: int) -> dict[str, Any]:
        train, test = self.split(chosen, seed)
        model = str(self.folder / f"{chosen.name}.favor")
        command = [self.favor, "fit", str(train), "--target", chosen.target, f"--{chosen.task}"]
        command += ["--features", str(chosen.features), "--seed", str(seed), "--out", model]
        found = measured([*command, *chosen.favor[name]])
        judged = json.loads(measured([self.favor, "evaluate", model, str(test), "--json"])["text"])
        more = judged["judgement"]
        found["score"] = {
            "accuracy": lambda: judged["score"],
            "auc": lambda: more["auc"],
            "rmse": lambda: more["rmse"],
            "nrmse": lambda: math.sqrt(1 - more["r2"]),
        }[chosen.measure]()
        found["log_loss"] = more.get("log_loss")
        coverage = {p: share for p, share in more.get("coverage", [])}
        found["coverage"] = coverage.get(95.0)
        info = json.loads(measured([self.favor, "info", model, "--json"])["text"])
        spec = info["design"]
        found["chosen"] = f"{spec['basis']}, {spec['shape']}"
        return found

    def peer(self, chosen: Set, peer: str, seed: int) -> dict[str, Any]:
        train, test = self.split(chosen, seed)
        command = [sys.executable, str(HERE / "peers.py"), peer, str(train), str(test)]
        command += ["--target", chosen.target, "--task", chosen.task, "--measure", chosen.measure]
        command += ["--features", str(chosen.features), "--seed", str(seed)]
        return json.loads(measured(command)["text"])

    def ways(self, chosen: Set, seed: int) -> dict[str, Any]:
        """Everyone on a set, by name."""
        ours = {f"favor {n}": lambda n=n: self.ours(chosen, n, seed) for n in chosen.favor}
        return {**ours, **{p: lambda p=p: self.peer(chosen, p, seed) for p in chosen.peers}}

    def scores(self, chosen: Set, seeds: int) -> None:
        for seed in range(min(seeds, chosen.seeds)):
            for name, work in self.ways(chosen, seed).items():
                self.once(f"{chosen.name}/{name}/{seed}", work)

    def times(self, chosen: Set) -> None:
        """Everyone once, then everyone once more."""
        for turn in range(2):
            for name, work in self.ways(chosen, 0).items():
                self.once(f"time/{chosen.name}/{name}/{turn}", work)

    def same_landmarks(self) -> dict[str, Any]:
        """The same estimator from arrays, against scikit-learn's."""
        chosen = next(c for c in SETS if c.name == "protein")
        train, test = self.split(chosen, 0)
        command = [sys.executable, str(HERE / "landmarks.py"), str(train), str(test)]
        return json.loads(measured(command)["text"])

    def large(self, rows: int) -> Path:
        path = self.folder / f"table-{rows}.parquet"
        if not path.exists():
            command = [sys.executable, str(HERE / "data.py"), str(path), "--rows", str(rows)]
            subprocess.run(command, check=True)
        return path

    def large_ours(self, rows: int) -> dict[str, Any]:
        data, model = str(self.large(rows)), str(self.folder / "large.favor")
        command = [self.favor, "fit", data, "--target", "label", "--classify", "--features", "256"]
        found = measured([*command, "--out", model])
        out = str(self.folder / "large-out.parquet")
        predicted = measured([self.favor, "predict", model, data, "--out", out])
        judged = measured([self.favor, "evaluate", model, data, "--json"])
        found["predict_seconds"] = predicted["seconds"]
        found["peak_mib"] = max(found["peak_mib"], predicted["peak_mib"])
        found["score"] = json.loads(judged["text"])["score"]
        return found

    def large_peer(self, rows: int) -> dict[str, Any]:
        data = str(self.large(rows))
        command = [sys.executable, str(HERE / "stream.py")]
        more = ["sgd", data, "--model", str(self.folder / "sgd.pickle"), "--bandwidth", BANDWIDTH]
        more += ["--out", str(self.folder / "sgd.parquet")]
        found = json.loads(measured([*command, "fit", *more])["text"])
        predicted = json.loads(measured([*command, "predict", *more])["text"])
        scored = json.loads(measured([*command, "predict", *more, "--score"])["text"])
        found["predict_seconds"] = predicted["seconds"]
        found["score"] = scored["accuracy"]
        return found


def machine() -> str:
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(n.split(":", 1)[1].strip() for n in lines if n.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{model}, {os.cpu_count()} cores"


def versions() -> str:
    found = []
    for name in ("scikit-learn", "lightgbm", "gpytorch", "torch", "pyarrow"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


# What a cell says that has not been filled.
MISSING = "not measured"

MEASURES = {
    "accuracy": "accuracy",
    "auc": "AUC",
    "nrmse": "RMSE / deviation",
    "rmse": "RMSE",
}


def ways_of(chosen: Set) -> list[tuple[str, str]]:
    """The key and the title of everyone on a set, ours first."""
    ours = [(f"favor {n}", f"**favor, {n}**") for n in chosen.favor]
    return ours + [(p, NAMES[p]) for p in chosen.peers]


def scores_of(chosen: Set, key: str, results: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells of all seeds that there are."""
    cells = [results.get(f"{chosen.name}/{key}/{seed}") for seed in range(chosen.seeds)]
    return [c for c in cells if c]


def lines_of(chosen: Set, results: dict[str, Any]) -> list[str]:
    """The rows of a set: mean and deviation of the scores over the seeds, and the best of the times."""
    lines = []
    for key, title in ways_of(chosen):
        found = scores_of(chosen, key, results)
        scores = [f["score"] for f in found]
        score = f"{statistics.mean(scores):.4f}" if scores else MISSING
        score += f" ± {statistics.stdev(scores):.4f}" if len(scores) > 1 else ""
        more = []
        if found and found[0].get("coverage") is not None:
            covered = statistics.mean(f["coverage"] for f in found)
            more.append(f"95 % intervals cover {100 * covered:.1f} %")
        if found and found[0].get("log_loss") is not None and chosen.measure == "auc":
            loss = statistics.mean(f["log_loss"] for f in found)
            more.append(f"log-loss {loss:.4f}")
        if found and found[0].get("chosen"):
            more.append(" or ".join(sorted({f["chosen"] for f in found})))
        turns = [results.get(f"time/{chosen.name}/{key}/{turn}") for turn in range(2)]
        turns = [t for t in turns if t]
        costs = f"| {MISSING} | |"
        if turns:
            best = min(turns, key=lambda f: f["seconds"])
            costs = f"| {best['seconds']:.1f} s | {best['cpu']:.1f} s | {best['peak_mib']:.0f} MiB"
        lines.append(
            f"| {chosen.name} | {title} | {score} | {len(found)} {costs} | {'; '.join(more)} |"
        )
    return lines


def losses(results: dict[str, Any]) -> list[str]:
    """Where the best of the peers has a better mean score than the best of ours."""
    lost, compared = [], 0
    for chosen in SETS:
        sign = -1 if chosen.measure in ("rmse", "nrmse") else 1
        means = {}
        for key, _ in ways_of(chosen):
            if found := scores_of(chosen, key, results):
                means[key] = statistics.mean(f["score"] for f in found)
        ours = [m for key, m in means.items() if key not in NAMES]
        theirs = {key: m for key, m in means.items() if key in NAMES}
        if not ours or not theirs:
            continue
        compared += 1
        best = max(theirs, key=lambda key: sign * theirs[key])
        own = max(ours, key=lambda mean: sign * mean)
        if sign * theirs[best] > sign * own:
            lost.append(
                f"{chosen.name} ({NAMES[best]}, {theirs[best]:.4f} compared with {own:.4f})"
            )
    if not compared:
        return []
    where = ", ".join(lost) if lost else "none of them"
    return ["", f"Of the {compared} sets compared, a peer has the better mean score on: {where}."]


def grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def page(b: Bench) -> str:
    results = b.results
    lines = [
        "# Tables: accuracy and speed",
        "",
        f"Measured by `cargo xtask bench tables` on {machine()}; {versions()}.",
        "",
        "All methods use the same rows for training and testing: the standard split of the data set (census, "
        "protein, kin40k) or a random 90 % for training, with a new split per seed. Peers run with their "
        "defaults; bandwidth and penalty of scikit-learn's kernel methods are chosen on 6000 training rows. "
        "Scores are means and standard deviations over seeds. Time and memory are those of the faster of two "
        "runs: for ours, the whole command from the file to the model, including the choice of features; for "
        "peers, the fit alone, from arrays in memory. The second table has the number of features.",
        "",
        "| data set | | score | seeds | fit | CPU time | peak memory | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for chosen in SETS:
        lines += lines_of(chosen, results)
    lines += losses(results)
    lines += ["", "| data set | score | features |", "|---|---|---|"]
    for chosen in SETS:
        lines.append(f"| {chosen.name} | {MEASURES[chosen.measure]} | {chosen.features} |")
    lines += [
        "",
        "## Many rows",
        "",
        "A table of 16 columns and 8 classes, one cluster per class. The best possible accuracy is 0.801, and "
        "a linear rule reaches it; the point is time and memory. 256 features. Ours is the whole command, "
        "including the choice of features; scikit-learn reads the same file in batches with a given "
        "bandwidth, not counting imports.",
        "",
        "| rows | | fit | predict | peak memory | accuracy |",
        "|---|---|---|---|---|---|",
    ]
    cells = [("favor", rows, "**favor, ridge**") for rows in ROWS]
    for name, rows, title in [*cells, ("sgd", max(ROWS), "RBFSampler + SGDClassifier")]:
        if found := results.get(f"large/{name}/{rows}"):
            lines.append(
                f"| {grouped(rows)} | {title} | {found['seconds']:.1f} s "
                f"| {found['predict_seconds']:.1f} s | {found['peak_mib']:.0f} MiB "
                f"| {found['score']:.4f} |"
            )
        else:
            lines.append(f"| {grouped(rows)} | {title} | {MISSING} | | | |")
    if "landmarks" in results:
        same = results["landmarks"]
        lines += [
            "",
            "## The same estimator",
            "",
            f"`FavorRidge` and scikit-learn's `Nystroem` with `Ridge` on {grouped(same['rows'])} rows of protein in "
            f"memory, with the same {same['features']} landmarks, bandwidth and penalty: fit and prediction "
            f"take {same['ours']:.2f} s compared with {same['theirs']:.2f} s, "
            f"{same['theirs'] / same['ours']:.1f} × faster (taking turns, best of {same['turns']}); predictions "
            f"differ by at most {same['difference']:.1e} standard deviations of the target.",
        ]
    if "overhead" in results:
        lines += ["", results["overhead"]["line"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--favor", required=True, help="the favor command, built with tables")
    parser.add_argument("--overhead", help="the example that measures the query engine's part")
    parser.add_argument("--data", type=Path, default=os.environ.get("FAVOR_DATA"))
    parser.add_argument(
        "--only", nargs="*", help="these sets only; large for the large table, or landmarks"
    )
    parser.add_argument("--part", choices=["scores", "times", "page"], help="this part only")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where tables and results are kept")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks-tables.md")
    a = parser.parse_args()
    if a.data is None or not (Path(a.data) / "tables").is_dir():
        raise SystemExit("the sets are not there; choose their folder with --data or FAVOR_DATA")
    with tempfile.TemporaryDirectory() as temporary:
        folder = a.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        b = Bench(a.favor, Path(a.data), folder)
        sets = [c for c in SETS if not a.only or c.name in a.only]
        if a.part in (None, "scores"):
            for chosen in sets:
                b.scores(chosen, a.seeds)
        if a.part in (None, "times"):
            for chosen in sets:
                b.times(chosen)
            if not a.only or "landmarks" in a.only:
                b.once("landmarks", b.same_landmarks)
            if not a.only or "large" in a.only:
                for rows in ROWS:
                    b.once(f"large/favor/{rows}", lambda r=rows: b.large_ours(r))
                most = max(ROWS)
                b.once(f"large/sgd/{most}", lambda: b.large_peer(most))
                if a.overhead:
                    b.once("overhead", lambda: {"line": measured([a.overhead])["text"].strip()})
        text = page(b)
    # A part of the cells makes no page.
    if a.part == "page" or not (a.part or a.only):
        a.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
