"""A kernel classifier learned by several processes: each sums over its own rows, and states are merged.

pip install favor-sharp[sklearn] dask
python examples/dask_workers.py
"""

import dask.bag
import numpy as np
from sklearn.datasets import load_digits

from favor_sharp.sklearn import KernelClassifier, merge_states

PARTS, CLASSES = 4, range(10)


def rows(part: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a part; in earnest they would come from a file of its own."""
    X, y = load_digits(return_X_y=True)
    return X[part::PARTS] / 16, y[part::PARTS]


def main() -> None:
    # One map for all, fitted to a sample.
    begun = KernelClassifier(gamma=0.2, n_components=1024, random_state=0).fit_map(rows(0)[0])

    # Workers send bytes, whose size depends on features and classes, not on rows.
    def learn(part: int) -> bytes:
        return begun.fit_partial(*rows(part), classes=CLASSES)

    parts = dask.bag.from_sequence(range(PARTS), npartitions=PARTS)
    state = parts.map(learn).fold(merge_states).compute(scheduler="processes")
    model = begun.merge(state)

    alone = KernelClassifier(gamma=0.2, n_components=1024, random_state=0).fit_map(rows(0)[0])
    for part in range(PARTS):
        alone.partial_fit(*rows(part), classes=CLASSES)
    X, y = load_digits(return_X_y=True)
    X = X / 16
    apart = np.abs(model.predict_proba(X) - alone.predict_proba(X)).max()
    print(f"{model.totals_.sum():.0f} rows, {len(state)} bytes, accuracy {model.score(X, y):.3f}")
    print(f"one process gives the same to {apart:.0e}")
    assert model.totals_.sum() == len(X) and apart < 1e-9


if __name__ == "__main__":
    main()
