"""Converted models: what the command writes gives the same numbers here, and conversion in Python."""

import copy
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import favor_sharp.hf as hf  # noqa: E402

FIXTURES = Path(__file__).parents[2] / "crates/favor-nn/tests/fixtures"
KINDS = ["learned", "routed", "sde", "elu"]


def opened(kind, cls=transformers.AutoModel):
    model = cls.from_pretrained(FIXTURES / "converted" / kind).eval()
    hf.load(model)
    return model


def tokens(texts):
    words = (FIXTURES / "tiny-bert/vocab.txt").read_text().split("\n")
    known = {word: i for i, word in enumerate(words)}
    return [[2, *(known[word] for word in text.split()), 3] for text in texts]


def batch(rows, side="right"):
    length = max(map(len, rows))
    before = [(length - len(row)) * (side == "left") for row in rows]
    ids, mask = (torch.zeros(len(rows), length, dtype=torch.long) for _ in range(2))
    for i, (row, start) in enumerate(zip(rows, before, strict=True)):
        ids[i, start : start + len(row)] = torch.tensor(row)
        mask[i, start : start + len(row)] = 1
    return {"input_ids": ids, "attention_mask": mask}


@torch.no_grad()
def vectors(model, rows):
    inputs = batch(rows)
    states = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None]
    means = (states * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(means).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_those_of_the_command(kind):
    """Both sides round to 2⁻²⁴ in some thousand operations: values of order one agree to 1e-4."""
    model = opened(kind)
    rows = tokens((FIXTURES / "converted/texts.txt").read_text().splitlines())
    wanted = np.loadtxt(FIXTURES / "converted" / kind / "vectors.tsv", delimiter="\t")
    together = vectors(model, rows)
    np.testing.assert_allclose(together, wanted, atol=1e-4)
    # In any order, and alone: padding is not looked at.
    np.testing.assert_allclose(vectors(model, rows[::-1])[::-1], wanted, atol=1e-4)
    for row, vector in zip(rows, wanted, strict=True):
        np.testing.assert_allclose(vectors(model, [row])[0], vector, atol=1e-4)
    # The maps have a say: exactly computed, the model is another one.
    model.set_attn_implementation("eager")
    assert np.abs(vectors(model, rows) - wanted).max() > 1e-3


def test_maps_fit_a_model_with_and_without_its_head():
    rows = tokens(["the cat sat"])
    bare = opened("learned")
    headed = opened("learned", transformers.AutoModelForMaskedLM)
    states = headed.base_model(**batch(rows)).last_hidden_state
    torch.testing.assert_close(bare(**batch(rows)).last_hidden_state, states)


def small():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        initializer_range=0.3,
        attn_implementation="sdpa",
    )
    return transformers.BertModel(config).eval()


def texts(count=12, seed=3, words=99):
    draw = torch.Generator().manual_seed(seed)
    rows = [torch.randint(5, words, (24,), generator=draw).tolist() for _ in range(4 * count)]
    return [batch(rows[4 * i : 4 * i + 4]) for i in range(count)]


def test_a_model_is_converted_and_kept(tmp_path, capsys):
    model = small()
    exact = copy.deepcopy(model)
    options = {"features": 4, "learn_steps": 40, "steps": 240, "rate": 2e-3}
    shown = texts(60, words=9)
    report = hf.convert(model, shown, out=tmp_path / "linear", **options)
    # Four words in random order: what four features get wrong on all texts, the weights make up for.
    assert 0 < report.steps <= 240 and report.after < 0.85 * report.before
    assert "saved to" in capsys.readouterr().out
    again = transformers.AutoModel.from_pretrained(tmp_path / "linear").eval()
    hf.load(again)
    one = texts(1, seed=9, words=9)[0]
    with torch.no_grad():
        mine = model(**one).last_hidden_state
        torch.testing.assert_close(again(**one).last_hidden_state, mine, atol=1e-5, rtol=1e-5)
        far = (exact(**one).last_hidden_state - mine).norm() / mine.norm()
    # Texts that nobody has seen are as far as those that were held out: 96 tokens, a third more or less.
    assert far < 1.33 * report.after
    assert "4 learned features" in (tmp_path / "linear/README.md").read_text()


def test_weights_can_stay_as_they_are():
    model = small()
    before = copy.deepcopy(model.state_dict())
    report = hf.convert(model, texts(4), features=8, learn_steps=5, steps=0, quiet=True)
    assert report.steps == 0 and report.before == report.after
    for name, weight in before.items():
        assert torch.equal(model.state_dict()[name], weight)


def test_what_makes_no_sense_is_refused(tmp_path):
    model = small()
    with pytest.raises(ValueError, match="at least two batches"):
        hf.convert(model, texts(1), out=tmp_path / "out")
    with pytest.raises(ValueError, match="rate"):
        hf.convert(model, texts(2), rate=-1.0, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert model.config._attn_implementation == "sdpa"
