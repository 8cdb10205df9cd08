# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # Kernel methods on more samples than a kernel matrix can hold
#
# A density of 50 000 samples, learned in pieces by two workers.

# %%
import pickle

import numpy as np

from favor_sharp.sklearn import FavorSampler, KernelDensityEstimator, KernelRegressor

rng = np.random.default_rng(0)


def sample(count):
    centres = rng.integers(0, 2, (count, 1)) * 2.0 - 1.0
    return 0.5 * rng.standard_normal((count, 2)) + centres


# %%
begun = KernelDensityEstimator(gamma=4.0, n_components=1024, random_state=0).fit_map(sample(5000))
workers = [pickle.loads(pickle.dumps(begun)) for _ in range(2)]
for worker in workers:
    for _ in range(5):
        worker.partial_fit(sample(5000))
whole = workers[0].merge(workers[1])
print(f"samples: {whole.totals_[0]:.0f}")

# %% [markdown]
# The density is high at the two centres and low between and beyond them.

# %%
places = np.array([[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0], [3.0, 3.0]])
for place, log in zip(places, whole.score_samples(places), strict=True):
    print(place, f"{np.exp(log):.4f}")
density = np.exp(whole.score_samples(places))
assert density[:2].min() > density[2] > density[3]

# %% [markdown]
# A mean of the targets, weighted by the kernel, and a linear model on features.

# %%
x = rng.uniform(-3, 3, (2000, 1))
y = np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(2000)
regressor = KernelRegressor(gamma=20.0, n_components=512, random_state=0).fit(x, y)
features = FavorSampler(gamma=2.0, n_components=100, family="trig_pair", random_state=0)
weights = np.linalg.lstsq(features.fit_transform(x), y, rcond=None)[0]
grid = np.linspace(-2.5, 2.5, 100)[:, None]
for name, found in (
    ("mean", regressor.predict(grid)),
    ("linear", features.transform(grid) @ weights),
):
    print(name, f"{np.abs(found - np.sin(2 * grid[:, 0])).mean():.3f}")
assert np.abs(regressor.predict(grid) - np.sin(2 * grid[:, 0])).mean() < 0.2
