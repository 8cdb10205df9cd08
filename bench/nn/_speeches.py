"""State of the Union addresses: text/sotu_233_addresses.txt.tar.xz in the folder that FAVOR_DATA names."""

from __future__ import annotations

import tarfile
from pathlib import Path


def speeches(data: Path) -> list[tuple[str, str]]:
    """Names, which begin with the year, and texts."""
    out = []
    with tarfile.open(data / "text" / "sotu_233_addresses.txt.tar.xz") as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                out.append((Path(member.name).stem, file.read().decode("utf-8", "replace")))
    return sorted(out)
