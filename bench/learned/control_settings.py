"""The settings of the controls: the rate of Hedgehog's form, and the cut of Nyström's pseudoinverse.

python bench/learned/control_settings.py [--layer 3] [--steps 800]

Prints the errors of all heads of one layer, in %, on sequences of WikiText-2's validation part that are not learned
from. The scores of run.py are made on other texts.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from controls import Attend, Features, Keys, exact, nystrom, with_features
from kinds import Setting, hedgehog, relative
from subject import Subject
from texts import wikitext, windows
from torch import Tensor

import favor_sharp as fs

SETTINGS = [Setting(64, Keys(near=16)), Setting(32)]
RATES = (0.005, 0.02, 0.05, 0.1, 0.2, 0.4)
CUTS = (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3)
TRAIN, TEST, LENGTH = 360, 40, 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("FAVOR_DATA"))
    parser.add_argument("--layer", type=int, default=3)
    parser.add_argument("--steps", type=int, default=800)
    options = parser.parse_args()
    if options.data is None:
        raise SystemExit("set FAVOR_DATA to the folder that holds text")
    subject = Subject()
    texts = windows(subject.tokenizer, wikitext(options.data, "valid"), LENGTH, TRAIN + TEST)
    calls = next(found for n, (_, found) in enumerate(subject.calls(texts)) if n == options.layer)
    train = [None if x is None else x[:TRAIN].contiguous() for x in calls]
    q, k, v = (x[TRAIN:].contiguous() for x in calls[:3])
    target = exact(q, k, v, None)

    def error(attend: Attend) -> float:
        out: Tensor = attend(q, k, v, None)
        return 100 * float(relative(out, target).mean())

    for setting in SETTINGS:
        found = []
        for rate in RATES:
            form = hedgehog(setting, train, options.steps, 0, rate)
            found.append(error(with_features(Features(form), setting.keys)))
            print(f"{setting}, Hedgehog's form, rate {rate}: {found[-1]:.2f}", flush=True)
        print(f"{setting}: the best rate is {RATES[int(np.argmin(found))]}", flush=True)
        # The window of the same cost has as many keys on either side as there can be landmarks.
        made = fs.learn_maps(*(x.numpy() for x in train[:3]), **setting.arguments(), steps=1)
        landmarks = round(float(np.mean([head.report.window for head in made])))
        found = [error(nystrom(landmarks, cut)) for cut in CUTS]
        each = ", ".join(f"{cut}: {off:.2f}" for cut, off in zip(CUTS, found, strict=True))
        print(f"{setting}, {landmarks} landmarks, cut {each}", flush=True)
        print(f"{setting}: the best cut is {CUTS[int(np.argmin(found))]}", flush=True)


if __name__ == "__main__":
    main()
