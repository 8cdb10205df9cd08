"""What the tests share: data that may be absent, a list of what was skipped, and other interpreters."""

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# Some virtual machines promise matrix registers that then fault, inside torch's own bfloat16 products.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


@pytest.fixture
def data() -> Path:
    """The folder that `FAVOR_DATA` names; without it the test is skipped."""
    folder = os.environ.get("FAVOR_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("set FAVOR_DATA to the folder of the data")
    return Path(folder)


@pytest.fixture
def python() -> list[str]:
    """The beginning of a command for another interpreter like this one, which writes nothing beside the sources."""
    cache = ["-X", f"pycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else ["-B"]
    return [sys.executable, "-I", "-X", "utf8", *cache]


@pytest.fixture(autouse=True)
def _seed() -> None:
    """What a test draws does not depend on the tests before it."""
    np.random.seed(0)  # scikit-learn's own checks draw from it
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _record(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _record(report)


def _record(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Adds a skipped test, or a file of tests, to the list that `FAVOR_SKIPPED` names: a line `test<TAB>reason`."""
    file = os.environ.get("FAVOR_SKIPPED")
    if not file or not report.skipped:
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    line = "\t".join(" ".join(part.split()) for part in (report.nodeid, reason))
    with open(file, "a", encoding="utf-8") as skipped:
        skipped.write(line.replace("Skipped: ", "", 1) + "\n")


@pytest.fixture
def not_passed():
    """What scikit-learn's checks of an estimator say, if it is not that they passed: names and reasons."""
    from sklearn.utils.estimator_checks import check_estimator

    def run(estimator: Any) -> dict[str, str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = check_estimator(estimator, on_fail=None, on_skip=None)
        assert len(results) > 40
        # Needs SCIPY_ARRAY_API before SciPy is imported.
        known = {"check_array_api_input"}
        rest = (r for r in results if r["status"] != "passed" and r["check_name"] not in known)
        return {r["check_name"]: str(r["exception"]) for r in rest}

    return run
