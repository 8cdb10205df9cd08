"""Where the data of some tests are."""

import os
from pathlib import Path

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
