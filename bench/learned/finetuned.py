"""A model that is fine-tuned exactly on STS-B: both sentences as one input, one score out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr
from subject import FOLDER
from transformers import AutoModelForSequenceClassification, get_linear_schedule_with_warmup

# Epochs, batch and rate, as usual for a model of this size.
EPOCHS, BATCH, RATE = 4, 16, 5e-5
# Pairs that maps are learned from, and tokens of the longest: as many as calibration takes.
LEARNED, LONGEST = 2048, 64


def finetuned(pairs: tuple[list[str], list[str], np.ndarray], tokenizer, folder: Path, epochs: int):
    """The model, from the folder if it was fine-tuned before."""
    if (folder / "config.json").exists():
        return AutoModelForSequenceClassification.from_pretrained(folder).eval()
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(FOLDER, num_labels=1).train()
    left, right, scores = pairs
    steps = epochs * -(-len(left) // BATCH)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = get_linear_schedule_with_warmup(optimiser, steps // 10, steps)
    # Pairs of like length together, so that there is little padding.
    lengths = [len(ids) for ids in tokenizer(left, right)["input_ids"]]
    for epoch in range(epochs):
        order = sorted(torch.randperm(len(left)).tolist(), key=lambda i: lengths[i] // 8)
        batches = [order[i : i + BATCH] for i in range(0, len(order), BATCH)]
        for number in torch.randperm(len(batches)).tolist():
            rows = batches[number]
            inputs = tokens(tokenizer, [left[i] for i in rows], [right[i] for i in rows])
            wanted = torch.tensor([float(scores[i]) / 5 for i in rows])
            loss = (model(**inputs).logits[:, 0] - wanted).square().mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
        print(f"  fine-tuned {epoch + 1} of {epochs} epochs", flush=True)
    model.eval().save_pretrained(folder)
    return model


def tokens(tokenizer, left: list[str], right: list[str]) -> dict:
    return tokenizer(
        left, right, return_tensors="pt", padding=True, truncation=True, max_length=128
    )


def inputs(tokenizer, pairs: tuple[list[str], list[str], np.ndarray]) -> list[dict]:
    """Batches to learn from: pairs at even distances, without the few long ones, which would take the room of
    many."""
    left, right, _ = pairs
    lengths = [len(ids) for ids in tokenizer(left, right)["input_ids"]]
    short = [i for i, length in enumerate(lengths) if length <= LONGEST]
    places = np.linspace(0, len(short) - 1, min(LEARNED, len(short))).round().astype(int)
    order = sorted((short[i] for i in places), key=lambda i: lengths[i], reverse=True)
    parts = [order[i : i + 32] for i in range(0, len(order), 32)]
    return [tokens(tokenizer, [left[i] for i in p], [right[i] for i in p]) for p in parts]


@torch.inference_mode()
def score(model, tokenizer, pairs: tuple[list[str], list[str], np.ndarray]) -> float:
    left, right, scores = pairs
    found = []
    for i in range(0, len(left), 64):
        batch = tokens(tokenizer, left[i : i + 64], right[i : i + 64])
        found += model(**batch).logits[:, 0].tolist()
    return float(spearmanr(found, scores).statistic)
