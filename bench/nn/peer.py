"""A training step of a BERT in PyTorch: ``peer.py LENGTH BATCH``, seconds of the best step out."""

from __future__ import annotations

import os
import sys
import time

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch
from transformers import BertConfig, BertForSequenceClassification


def main() -> None:
    length, batch = int(sys.argv[1]), int(sys.argv[2])
    torch.manual_seed(0)
    # The shape of MiniLM, with exact attention by scaled_dot_product_attention.
    config = BertConfig(
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        max_position_embeddings=max(512, length),
        attn_implementation="sdpa",
    )
    model = BertForSequenceClassification(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    ids = (1000 + 7919 * torch.arange(batch * length) % 29000).reshape(batch, length)
    labels = torch.arange(batch) % 2

    def step() -> float:
        start = time.perf_counter()
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return time.perf_counter() - start

    step()
    print(f"{min(step() for _ in range(4)):.4f}")


main()
