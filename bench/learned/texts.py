"""The texts of the comparison, as inputs of the model."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import numpy as np
import torch

# Sequences of a batch.
BATCH = 16


def windows(tokenizer, texts: list[str], length: int, most: int) -> list[dict]:
    """At most so many sequences of exactly this many tokens, at even distances, in batches."""
    body = length - 2
    found = []
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        found += [ids[i : i + body] for i in range(0, len(ids) - body + 1, body)]
    if not found:
        raise SystemExit(f"no text has {length} tokens")
    places = np.linspace(0, len(found) - 1, min(most, len(found))).round().astype(int)
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    ids = torch.tensor([[first, *found[i], last] for i in places])
    return [{"input_ids": x, "attention_mask": torch.ones_like(x)} for x in ids.split(BATCH)]


def wikitext(data: Path, part: str) -> list[str]:
    """WikiText-2, the whole part as one text."""
    with gzip.open(data / "text" / f"wikitext2_{part}.txt.gz", "rt", encoding="utf-8") as file:
        return [file.read()]


def addresses(data: Path) -> list[str]:
    """The beginnings of the State of the Union addresses, long enough for one sequence each."""
    with tarfile.open(data / "text" / "sotu_233_addresses.txt.tar.xz") as archive:
        files = sorted((m for m in archive if m.isfile()), key=lambda m: m.name)
        read = [archive.extractfile(m).read().decode("utf-8", "replace") for m in files]
    return [text[:4000] for text in read]


def sentence_pairs(data: Path, part: str) -> tuple[list[str], list[str], np.ndarray]:
    """STS-B: sentences, their partners, and the scores of people."""
    with gzip.open(data / "glue" / "STS-B" / f"{part}.tsv.gz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    return [r[7] for r in rows], [r[8] for r in rows], np.array([float(r[9]) for r in rows])
