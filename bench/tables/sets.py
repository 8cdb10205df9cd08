"""The sets of the comparison."""

from __future__ import annotations

from dataclasses import dataclass, field


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
        favor=RIDGE,
        peers=("histgb", "lightgbm"),
    ),
]
