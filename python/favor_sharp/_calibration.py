"""Maps for the layers of a model, fitted to texts, kept beside it, with a report of every head."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from . import (
    AdaptiveMaps,
    FeatureMap,
    HeadReport,
    LearnedHead,
    learn_maps,
    maps_from_bytes,
    maps_to_bytes,
    predicted_error,
)
from ._learn import LONGEST, Progress, most_sequences, told, unless_quiet
from ._native import LEARN_STEPS, note_from_bytes, write_atomically
from ._sequences import Calls, collect
from ._watch import Call, Watcher, run
from .torch import pack, unpack
from .torch._attention import ExactKeys, exact_keys, kernel
from .torch._operator import to_array

FILE = "favor_sharp.safetensors"
MAPS, EXACT, KEYS_EXACT = "favor_maps", "favor_exact_heads", "favor_exact_keys"
# Attention without maps, by its name.
KIND = "favor_kind"
# What may be better than a learned map, by its name in a report.
BETTER = {
    "window": "an exact window alone is no worse at the same cost",
    "exact": "exact attention takes no longer at this length",
}
# Queries and keys of each sampled sequence that a prediction looks at, and sequences of each layer.
QUERIES, KEYS, SEQUENCES = 8, 128, 6


@dataclass
class Head:
    """One head: the relative error of its output by features, and what is done. The error is predicted,
    or that of a learned map as it was measured on held-out sequences, with all else in ``learned``."""

    layer: str
    head: int
    predicted_error: float
    exact: bool
    learned: HeadReport | None = None


@dataclass
class Calibration:
    """What was fitted; ``print`` it."""

    heads: list[Head]
    features: int
    family: str
    exact_keys: ExactKeys
    tolerance: float
    file: Path | None

    @property
    def by_features(self) -> int:
        """Number of heads that use features."""
        return sum(not head.exact for head in self.heads)

    def __str__(self) -> str:
        learned = [head.learned for head in self.heads if head.learned]
        close = sum(head.predicted_error <= self.tolerance for head in self.heads)
        lines = [
            f"{self.features} features of {self.family}: {close} of {len(self.heads)} heads have an error of "
            f"at most {100 * self.tolerance:.0f} %"
        ]
        if learned:
            before, after = (
                np.mean([getattr(r, name) for r in learned]) for name in ("before", "after")
            )
            lines.append(
                f"learned: mean error {100 * before:.0f} % before, {100 * after:.0f} % after"
            )
            for way, why in BETTER.items():
                which = [
                    head for head in self.heads if head.learned and head.learned.recommended == way
                ]
                if which:
                    lines.append(
                        f"for {len(which)} of {len(learned)} heads {why}: {_places(which)}"
                    )
        layers: dict[str, list[Head]] = {}
        for head in self.heads:
            layers.setdefault(head.layer, []).append(head)
        width = max(map(len, layers))
        for layer, heads in layers.items():
            errors = " ".join(
                f"{_percent(h.predicted_error)}{'*' if h.exact else ' '}" for h in heads
            )
            lines.append(f"  {layer:{width}} {errors}")
        kind = "held-out" if learned else "predicted"
        lines.append(f"{kind} relative error of each head's output in %; * stays exact")
        lines.append(
            f"saved to {self.file}"
            if self.file
            else "not saved: the model has no folder; give save="
        )
        return "\n".join(lines)


def _places(heads: list[Head]) -> str:
    """The heads of each layer."""
    layers: dict[str, list[str]] = {}
    for head in heads:
        layers.setdefault(head.layer, []).append(str(head.head))
    return "; ".join(f"{layer} {', '.join(own)}" for layer, own in layers.items())


def _percent(error: float) -> str:
    return f"{min(100 * error, 999):4.0f}"


@dataclass
class _Layer:
    """What a layer's calls have shown: maps of each kind that was asked for, and some queries, keys and
    values."""

    maps: list[AdaptiveMaps]
    samples: list[tuple[NDArray[np.float64], ...]] = field(default_factory=list)


class Recorder(Watcher):
    """Fits maps of these kinds to the layers of a model."""

    def __init__(self, *kinds: dict[str, Any]) -> None:
        self.kinds = kinds
        self.layers: dict[nn.Module, _Layer] = {}

    def remember(self, module: nn.Module, call: Call) -> None:
        """Adds a call to the statistics, and keeps a few rows of it."""
        q, k, v, mask, _, scaling = call
        layer = self.layers.get(module)
        if layer is None:
            how = {"heads": q.shape[1], "dim": q.shape[3], "statistics": "calibrated"}
            every = [AdaptiveMaps(**how, **kernel(scaling), **kind) for kind in self.kinds]
            layer = self.layers[module] = _Layer(every)
        arrays, key_mask = (to_array(q), to_array(k)), to_array(mask)
        for maps in layer.maps:
            maps.calibrate(*arrays, key_mask=key_mask)
        # As many queries as keys share their padding, as in self-attention.
        query_mask = mask if q.shape[2] == k.shape[2] else None
        for b in range(min(len(q), SEQUENCES - len(layer.samples))):
            rows = slice(None) if mask is None else mask[b]
            own = slice(None) if query_mask is None else query_mask[b]
            sampled = _thin(q[b][:, own], QUERIES)
            layer.samples.append((sampled, _thin(k[b][:, rows], KEYS), _thin(v[b][:, rows], KEYS)))


def _thin(x: Tensor, most: int) -> NDArray[np.float64]:
    """At most so many rows of each head, evenly spaced."""
    step = -(-x.shape[1] // most)
    return x[:, ::step].detach().to("cpu", torch.float64).numpy()


def calibrate(
    model: nn.Module,
    texts: Sequence[str] | Iterable[dict[str, Tensor]],
    *,
    tokenizer: Any = None,
    features: int = 256,
    family: str = "balanced",
    seed: int = 0,
    near: int = 0,
    global_keys: int = 0,
    routed: tuple[int, int] | None = None,
    learn: bool = False,
    steps: int = LEARN_STEPS,
    longest: int = LONGEST,
    auto: bool = True,
    tolerance: float = 0.1,
    short_is_exact: bool = True,
    batch_size: int = 32,
    save: str | os.PathLike[str] | bool = True,
    quiet: bool = False,
    progress: Progress = None,
) -> Calibration:
    """Fits maps to texts for every layer and head, and reports which heads they are accurate enough for.

    texts: strings, or batches of model inputs as returned by a tokenizer.
    near, global_keys, routed: exact keys, as in ``favor_sharp.attention``; on the CPU only.
    learn: learn the maps in ``steps`` steps; see ``favor_sharp.learn_maps``. Errors are then measured on
        held-out sequences. Maps are learned from the first ``longest`` tokens of each text and from at most
        131072 tokens in total. One pass through the model collects as many layers as fit into 2 GiB.
    auto: keep heads exact whose error is above ``tolerance``. The error is predicted for features alone,
        unless it was measured.
    short_is_exact: use exact attention for sequences so short that features would cost more. Ignored in
        causal models, where the beginning of a text would change as the text grows.
    save: a file, or True for ``favor_sharp.safetensors`` in the model's own folder, if it has one.
    quiet: do not print the report, nor the progress of learning unless ``progress`` is given.
    progress: reports the steps of learning, as in ``favor_sharp.learn_maps``. The default is a bar on
        stderr if that is a terminal; False turns it off.
    """
    from . import hf

    hf.register()
    if longest < 1:
        raise ValueError(f"longest: {longest}; at least one token of a text is needed")
    keys = exact_keys(near, global_keys, routed)
    kind = {"features": features, "family": family, "seed": seed}
    was_training, before = model.training, model.config._attn_implementation
    model.eval()
    model.set_attn_implementation(hf.NAME)
    try:
        batches = _batches(model, texts, tokenizer, batch_size, longest if learn else None)
        if learn:
            how = kind | keys._asdict() | {"steps": steps}
            tell = told(unless_quiet(progress, quiet))
            made = _learned(model, list(batches), longest, how, tell)
        else:
            made = _fitted(model, batches, kind)
        if not made:
            raise ValueError(
                "texts: no layer of the model was called with the attention of favor_sharp"
            )
    except BaseException:
        model.set_attn_implementation(before)
        raise
    finally:
        model.train(was_training)
    names = {module: name for name, module in model.named_modules()}
    heads = []
    for module, maps, errors, reports in made:
        found = [
            Head(names[module], h, error, auto and error > tolerance, report)
            for h, (error, report) in enumerate(zip(errors, reports, strict=True))
        ]
        heads += found
        exact = [h.head for h in found if h.exact]
        _attach(module, pack(maps), exact, keys, short_is_exact)
    report = Calibration(heads, features, family, keys, tolerance, _place(model, save))
    if report.file:
        _save(model, report.file)
    if not quiet:
        print(report)
    return report


# A layer, and of each of its heads the map, the error, and what was measured if it was learned.
_Made = tuple[nn.Module, list[FeatureMap], list[float], list[HeadReport | None]]


def _fitted(
    model: nn.Module, batches: Iterable[dict[str, Tensor]], kind: dict[str, Any]
) -> list[_Made]:
    """Maps in closed form, and predicted errors."""
    recorder = Recorder(kind)
    run(model, recorder, batches)
    made: list[_Made] = []
    for module, layer in recorder.layers.items():
        maps = list(layer.maps[0].maps())
        errors = [_error(map, layer, h) for h, map in enumerate(maps)]
        made.append((module, maps, errors, [None] * len(maps)))
    return made


def _learned(
    model: nn.Module,
    batches: list[dict[str, Tensor]],
    longest: int,
    how: dict[str, Any],
    tell: Any,
) -> list[_Made]:
    """Learned maps, and measured errors."""
    made: list[_Made] = []
    names = {module: name for name, module in model.named_modules()}
    for number, (module, calls, count) in enumerate(collect(model, batches, longest)):
        source = {"source": f"{names[module]} of {type(model).__name__}"}
        heads = _learn_layer(calls, how | source, _part(tell, number, count))
        reports = [head.report for head in heads]
        errors = [report.after for report in reports]
        made.append((module, [head.map for head in heads], errors, [*reports]))
    return made


def _learn_layer(calls: Calls, how: dict[str, Any], progress: Progress) -> list[LearnedHead]:
    q, k, v, mask = calls.arrays()
    more = {"threads": torch.get_num_threads(), "progress": progress}
    return learn_maps(
        q, k, v, key_mask=mask, causal=calls.causal, **kernel(calls.scaling), **how, **more
    )


def _part(tell: Any, number: int, count: int) -> Progress:
    """The progress of one layer as a part of the whole."""
    if tell is None:
        return None
    return lambda done, total, last: tell(number * total + done, count * total, last)


def _error(map: FeatureMap, layer: _Layer, head: int) -> float:
    """The mean over the sampled sequences; nan for a family without a prediction."""
    errors = [predicted_error(map, q[head], k[head], v[head]) for q, k, v in layer.samples]
    known = [e for e in errors if e is not None]
    return float(np.mean(known)) if known else float("nan")


def _attach(
    module: nn.Module, maps: Tensor, exact: list[int], keys: ExactKeys, short_is_exact: bool
) -> None:
    device = next(module.parameters()).device
    # Not among the weights of the model: they have a file of their own.
    module.register_buffer(MAPS, maps.to(device), persistent=False)
    setattr(module, EXACT, tuple(exact))
    setattr(module, KEYS_EXACT, keys)
    module.favor_short_is_exact = short_is_exact


def _batches(
    model: nn.Module,
    texts: Iterable[Any],
    tokenizer: Any,
    size: int,
    learn_from: int | None = None,
) -> Iterator[dict[str, Tensor]]:
    """Inputs of the model. Of strings no more than are learned from, if so many tokens of each are."""
    texts = [texts] if isinstance(texts, str) else list(texts)
    if not texts:
        raise ValueError("texts: at least one is needed")
    device = next(model.parameters()).device
    if not isinstance(texts[0], str):
        for batch in texts:
            yield {name: x.to(device) for name, x in batch.items()}
        return
    if tokenizer is None:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(model.name_or_path)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    longest = getattr(model.config, "max_position_embeddings", None)
    if learn_from is not None:
        ids = tokenizer(texts, truncation=True, max_length=longest)["input_ids"]
        texts = texts[:: -(-len(texts) // most_sequences(max(map(len, ids)), learn_from))]
    # Long ones first, so that predictions look at them.
    texts.sort(key=len, reverse=True)
    for start in range(0, len(texts), size):
        batch = tokenizer(
            texts[start : start + size],
            return_tensors="pt",
            padding=True,
            truncation=True,
            max_length=longest,
        )
        yield {name: x.to(device) for name, x in batch.items()}


def _place(model: nn.Module, save: str | os.PathLike[str] | bool) -> Path | None:
    if not isinstance(save, bool):
        return Path(save)
    folder = Path(getattr(model, "name_or_path", "") or "-")
    return folder / FILE if save and folder.is_dir() else None


def _save(model: nn.Module, file: Path) -> None:
    """One file of the maps of all layers, with a note that says whose they are."""
    maps, layers = [], []
    for name, module in model.named_modules():
        if hasattr(module, MAPS):
            own = unpack(getattr(module, MAPS))
            maps += own
            layers.append(
                {
                    "name": name,
                    "maps": len(own),
                    "exact": list(getattr(module, EXACT)),
                    "exact_keys": getattr(module, KEYS_EXACT)._asdict(),
                    "short_is_exact": module.favor_short_is_exact,
                }
            )
    write_atomically(file, maps_to_bytes(maps, note=json.dumps({"layers": layers})))


def load(model: nn.Module, file: str | os.PathLike[str] | None = None) -> None:
    """Attaches the maps of an earlier ``calibrate`` or conversion to a model, by default from its own folder.
    Maps of a model with a head also fit the same model without it, and vice versa."""
    from . import hf

    place = _place(model, True) if file is None else Path(file)
    if place is None or not place.is_file():
        raise FileNotFoundError(f"{place or FILE}: no maps there; make them with calibrate")
    contents = place.read_bytes()
    try:
        maps = maps_from_bytes(contents)
        note = note_from_bytes(contents)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    layers = json.loads(note or "{}").get("layers")
    if layers is None:
        raise ValueError(f"{place}: maps, but not of the layers of a model")
    modules = _modules(model)
    for layer in layers:
        if layer["name"] not in modules:
            raise ValueError(
                f"{place}: the model has no layer {layer['name']!r}; the maps are of another one"
            )
    for layer in layers:
        module = modules[layer["name"]]
        if layer.get("kind"):
            setattr(module, KIND, layer["kind"])
            continue
        own, maps = maps[: layer["maps"]], maps[layer["maps"] :]
        routed = layer["exact_keys"]["routed"]
        keys = ExactKeys(**layer["exact_keys"])._replace(routed=tuple(routed) if routed else None)
        _attach(module, pack(own), layer["exact"], keys, layer["short_is_exact"])
    hf.register()
    model.set_attn_implementation(hf.NAME)


def _modules(model: nn.Module) -> dict[str, nn.Module]:
    """All modules by name, with and without the prefix that a model with a head has before its base."""
    named = dict(model.named_modules())
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    for name, module in list(named.items()):
        other = name.removeprefix(prefix) if name.startswith(prefix) else prefix + name
        named.setdefault(other, module)
    return named
