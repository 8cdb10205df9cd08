"""A search by quoted sentences: passages of State of the Union addresses, found by their vectors.

    python bench/nn/retrieval.py --favor favor --model minilm --converted "learned=routed" "window ±64=window"

Speeches are cut into passages of about so many words at the ends of sentences. From some passages a sentence is
quoted; a model finds it if the passage is among the ten whose vectors are nearest to the sentence's. Vectors of
passages and sentences come from the same model. Beside recall at 10 and the mean reciprocal rank stands how many
of the ten nearest passages of the exact model are found (what a user would notice), and the mean cosine to its
vectors.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from _speeches import speeches

NEAREST = 10


def passages(data: Path, words: int) -> list[list[str]]:
    """Sentences of each passage, in the order of the speeches."""
    out: list[list[str]] = []
    for _, text in speeches(data):
        sentences = re.split(r"(?<=[.!?;])\s+", " ".join(text.split()))
        passage: list[str] = []
        for sentence in sentences:
            passage.append(sentence)
            if sum(len(s.split()) for s in passage) >= words:
                out.append(passage)
                passage = []
    return out


def vectors(favor: str, model: str, attention: list[str], texts: list[str]) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "texts.txt", Path(folder) / "vectors.npy"
        file.write_text("\n".join(texts) + "\n")
        command = [favor, "embed", "--model", model, *attention, str(file), "--out", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return np.load(out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--favor", required=True, help="the favor command, built with nn")
    parser.add_argument("--model", required=True, help="folder of the exact model")
    parser.add_argument("--converted", nargs="*", default=[], metavar="NAME=DIR")
    parser.add_argument("--words", type=int, default=300, help="of a passage, about")
    parser.add_argument("--passages", type=int, default=2000, help="evenly spaced in all speeches")
    parser.add_argument("--queries", type=int, default=500)
    options = parser.parse_args()
    all_passages = passages(Path(os.environ.get("FAVOR_DATA", "data")), options.words)
    places = np.linspace(0, len(all_passages) - 1, min(options.passages, len(all_passages)))
    chosen = [all_passages[int(i)] for i in places]
    draw = random.Random(0)
    truth = draw.sample(range(len(chosen)), min(options.queries, len(chosen)))
    queries = []
    for i in truth:
        long = [s for s in chosen[i] if len(s.split()) >= 8] or chosen[i]
        queries.append(draw.choice(long))
    texts = [" ".join(sentences) for sentences in chosen]
    print(f"{len(texts)} passages of about {options.words} words, {len(queries)} quoted sentences")
    print("| attention | recall at 10 | reciprocal rank | of exact's ten | cosine of passages |")
    print("|---|---|---|---|---|")
    exact_documents = exact_nearest = None
    models = [("exact", options.model, ["--attention", "exact"])]
    models += [(*pair.split("=", 1), []) for pair in options.converted]
    for name, model, attention in models:
        both = vectors(options.favor, model, attention, texts + queries)
        documents, asked = both[: len(texts)], both[len(texts) :]
        order = np.argsort(-(asked @ documents.T), axis=1)
        rank = np.argmax(order == np.array(truth)[:, None], axis=1)
        nearest = order[:, :NEAREST]
        if exact_documents is None or exact_nearest is None:
            exact_documents, exact_nearest = documents, nearest
        shared = [
            len(set(a) & set(b)) / NEAREST for a, b in zip(nearest, exact_nearest, strict=True)
        ]
        likeness = (documents * exact_documents).sum(1)
        recall = (rank < NEAREST).mean()
        # Twice the standard error of a share of so many queries.
        off = 2 * np.sqrt(recall * (1 - recall) / len(queries))
        print(
            f"| {name} | {100 * recall:.1f} ± {100 * off:.1f} | {(1 / (rank + 1)).mean():.3f} | "
            f"{100 * np.mean(shared):.1f} % | {likeness.mean():.4f} (least {likeness.min():.3f}) |",
            flush=True,
        )


main()
