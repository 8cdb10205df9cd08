"""A long text through a BERT in PyTorch: ``long_peer.py MODEL FILE LENGTH``.

Prints the seconds of the pass, after one over a short text, and the text's vector: the mean of its tokens, of
length one. Beyond the model's positions they are interpolated as ``favor embed`` does.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch
from torch.nn import functional
from transformers import AutoTokenizer, BertModel


def spread(table: torch.Tensor, length: int) -> torch.Tensor:
    """The vectors of so many positions: the known ones spread evenly, and those between interpolated."""
    known = table.shape[0]
    if length <= known:
        return table
    rows = table.T[None]
    return functional.interpolate(rows, size=length, mode="linear", align_corners=True)[0].T


def main() -> None:
    folder, file, length = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    model = BertModel.from_pretrained(folder, attn_implementation="sdpa").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    embeddings = model.embeddings
    table = spread(embeddings.position_embeddings.weight.data, length).contiguous()
    embeddings.position_embeddings = torch.nn.Embedding.from_pretrained(table)
    ids = tokenizer(
        file.read_text(), truncation=True, max_length=length, return_tensors="pt", verbose=False
    )["input_ids"]
    places = torch.arange(ids.shape[1])[None]
    kinds = torch.zeros_like(ids)

    @torch.no_grad()
    def vector(n: int) -> torch.Tensor:
        given = {"input_ids": ids, "position_ids": places, "token_type_ids": kinds}
        states = model(**{name: x[:, :n] for name, x in given.items()}).last_hidden_state
        return functional.normalize(states.mean(1))[0]

    vector(128)
    start = time.perf_counter()
    found = vector(ids.shape[1])
    print(time.perf_counter() - start)
    print(" ".join(map(str, found.tolist())))


main()
