"""A small GPT with a state of fixed size: learned maps, a window and routed keys in place of a growing cache.

    python examples/long_gpt.py tinyshakespeare.txt

Trains a GPT (NeoX) of a million weights on the characters of a text for some minutes with exact attention, leaves
its weights as they are, and compares perplexities on the last tenth of the text: exact attention, ours, and
with as much memory as ours an exact window alone, and the first tokens with a window (StreamingLLM). Needs
PyTorch and transformers. The text may be compressed by gzip.

Three steps of the training in four are on short pieces, the others on pieces of the full length.
"""

from __future__ import annotations

import argparse
import gzip
import math
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    get_cosine_schedule_with_warmup,
)

import favor_sharp.hf as hf

WIDTH, LAYERS, HEADS, SINKS = 128, 4, 4, 4
# Tokens of a short piece; one step in so many sees pieces of the full length.
SHORT, LONG = 256, 4
RATE = 3e-3


def characters(path: Path) -> tuple[Tensor, Tensor, int]:
    """The text as numbers, the last tenth apart, and how many kinds of characters there are."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    kinds = sorted(set(text))
    number = {kind: n for n, kind in enumerate(kinds)}
    ids = torch.tensor([number[c] for c in text])
    cut = len(ids) * 9 // 10
    return ids[:cut], ids[cut:], len(kinds)


def train(model: GPTNeoXForCausalLM, ids: Tensor, length: int, steps: int, tokens: int) -> None:
    """So many steps of so many tokens on random pieces of the text."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=0.1)
    schedule = get_cosine_schedule_with_warmup(optimiser, steps // 20, steps)
    draw = torch.Generator().manual_seed(0)
    start = time.perf_counter()
    for step in range(steps):
        own = length if step % LONG == 0 else min(SHORT, length)
        count = max(tokens // own, 1)
        places = torch.randint(len(ids) - own, (count,), generator=draw)
        pieces = torch.stack([ids[p : p + own] for p in places])
        loss = model(pieces, labels=pieces).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        if (step + 1) % 50 == 0 or step + 1 == steps:
            seconds = time.perf_counter() - start
            print(
                f"step {step + 1} of {steps}, loss {loss.item():.3f}, {seconds:.0f} s", flush=True
            )


@torch.inference_mode()
def perplexity(model: GPTNeoXForCausalLM, pieces: Tensor) -> float:
    losses = [model(part, labels=part).loss.item() * len(part) for part in pieces.split(4)]
    return math.exp(sum(losses) / len(pieces))


def limited(window: int, sinks: int) -> None:
    """Makes an attention known that sees the first tokens and a window."""

    def attention(
        module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, None]:
        place = torch.arange(query.shape[2])
        back = place[:, None] - place
        seen = (back >= 0) & ((back < window) | (place < sinks))
        out = scaled_dot_product_attention(query, key, value, seen)
        return out.transpose(1, 2).contiguous(), None

    AttentionInterface.register("limited", attention)
    AttentionMaskInterface.register("limited", lambda *_, **__: None)


@torch.inference_mode()
def state_size(model: GPTNeoXForCausalLM, ids: Tensor) -> tuple[int, int]:
    """Bytes of the state in the middle of a text and at its end."""
    cache, sizes = hf.DecodeCache(), []
    for part in ids[None].split(len(ids) // 2, 1):
        model(part, past_key_values=cache)
        sizes.append(cache.size_in_bytes)
    return sizes[0], sizes[-1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("text", type=Path)
    parser.add_argument("--length", type=int, default=1024, help="tokens of a sequence")
    parser.add_argument("--training", type=int, default=1200, help="steps of training the model")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens of such a step")
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--near", type=int, default=16)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--steps", type=int, default=800, help="steps of learning the maps")
    parser.add_argument("--model", type=Path, help="keep the trained model here, and use one found")
    options = parser.parse_args()
    torch.manual_seed(0)
    learned_from, unseen, kinds = characters(options.text)
    length = options.length
    if options.model and options.model.exists():
        model = GPTNeoXForCausalLM.from_pretrained(options.model)
    else:
        config = GPTNeoXConfig(
            vocab_size=kinds,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=4 * WIDTH,
            max_position_embeddings=length,
            eos_token_id=0,
        )
        model = GPTNeoXForCausalLM(config).train()
        train(model, learned_from, length, options.training, options.tokens)
        if options.model:
            model.save_pretrained(options.model)
    model.eval()
    pieces = unseen[: len(unseen) // length * length].unflatten(0, (-1, length))[:32]
    model.set_attn_implementation("sdpa")
    found = {"exact": perplexity(model, pieces)}
    texts = learned_from[: len(learned_from) // length * length].unflatten(0, (-1, length))
    texts = texts[:: max(len(texts) // 128, 1)]
    keys = {"near": options.near, "routed": (options.slots, options.members)}
    hf.calibrate(
        model,
        [{"input_ids": part} for part in texts.split(8)],
        features=options.features,
        steps=options.steps,
        longest=length,
        learn=True,
        auto=False,
        save=False,
        quiet=True,
        progress=True,
        **keys,
    )
    found["learned maps, window, routed keys"] = perplexity(model, pieces)
    middle, size = state_size(model, pieces[0])
    # Keys and values of all layers, four bytes for each number.
    window = size // (2 * 4 * WIDTH * LAYERS)
    limited(window, 0)
    model.set_attn_implementation("limited")
    found[f"window of {window} alone, as much memory"] = perplexity(model, pieces)
    limited(window - SINKS, SINKS)
    found[f"{SINKS} first tokens and a window of {window - SINKS}"] = perplexity(model, pieces)
    limited(options.near, 0)
    found[f"window of {options.near} alone"] = perplexity(model, pieces)
    print(f"{len(pieces)} unseen pieces of {length} characters")
    for name, value in found.items():
        print(f"  {value:7.4f}  {100 * (value / found['exact'] - 1):+6.2f} %  {name}")
    whole = 2 * 4 * WIDTH * LAYERS * length
    print(
        f"state: {middle} bytes after half of a piece, {size} at its end; a cache of all keys {whole}"
    )


if __name__ == "__main__":
    main()
