# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # How many features does attention need?
#
# Errors of attention by features on synthetic heads, from tame to sharp, beside what the closed forms had
# predicted.

# %%
import numpy as np

import favor_sharp as fs

rng = np.random.default_rng(0)
length, dim = 512, 32
base = [rng.standard_normal((length, dim)) for _ in range(3)]

# %% [markdown]
# Queries and keys of growing size: the logits grow with the square.

# %%
rows = []
for size in (0.5, 1.0, 1.5):
    q, k, v = size * base[0], size * base[1], 1 + base[2]
    exact = fs.exact_attention(q, k, v)
    for features in (64, 256, 1024):
        (map,) = fs.fit_maps(q, k, features=features)
        found = fs.attention(q, k, v, map)
        error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
        predicted = fs.predicted_error(map, q[::64], k, v)
        rows.append((size, features, error, predicted))

print("size  features  error  predicted")
for size, features, error, predicted in rows:
    print(f"{size:4.1f}  {features:8d}  {error:5.3f}  {predicted:9.3f}")

# %% [markdown]
# Tame heads need few features, and more features help; at the sharp end only `auto` knows better.

# %%
tame = [error for size, _, error, _ in rows if size == 0.5]
assert tame[0] > tame[1] > tame[2]
choices = [
    fs.choose_heads(
        s * base[0], s * base[1], 1 + base[2], fs.fit_maps(s * base[0], s * base[1], features=64)
    )[0]
    for s in (0.3, 3.0)
]
print(*choices, sep="\n")
assert [c.exact for c in choices] == [False, True]
