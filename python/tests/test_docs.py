"""The snippets of the documents and the notebooks run as they stand."""

import re
import runpy
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDS = {
    "python/README.md": [],
    "docs/python.md": [],
    "docs/sklearn.md": ["sklearn"],
    "docs/pytorch.md": ["torch"],
    "docs/huggingface.md": ["transformers"],
    "docs/migrating-from-performer.md": ["torch"],
}
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
