"""Random features for the softmax and Gaussian kernels.

NumPy arrays in and out. The adapters live in ``favor_sharp.sklearn``, ``favor_sharp.torch`` and
``favor_sharp.hf``, each behind an extra of the same name.

>>> import numpy as np, favor_sharp as fs
>>> rng = np.random.default_rng(0)
>>> q, k, v = (rng.standard_normal((2, 4, 300, 16), dtype=np.float32) for _ in range(3))
>>> maps = fs.fit_maps(q, k, features=128)
>>> fs.attention(q, k, v, maps).shape
(2, 4, 300, 16)
"""

from ._exact import exact_attention, exact_attention_backward
from ._inspect import Inspection, inspect, inspect_maps
from ._learn import learn_maps
from ._native import (
    BFLOAT16,
    COUPLINGS,
    FAMILIES,
    FAMILY_TITLES,
    HEADS,
    AdaptiveMaps,
    Choice,
    DecodeState,
    FeatureMap,
    HeadModel,
    HeadReport,
    KeySums,
    LearnedHead,
    Moments,
    __version__,
    attention,
    attention_backward,
    break_even,
    choose_heads,
    exact_is_no_slower,
    exact_kernel_product,
    fit_maps,
    kernel_product,
    log_kernel,
    maps_from_bytes,
    maps_to_bytes,
    predicted_error,
)

__all__ = [
    "BFLOAT16",
    "COUPLINGS",
    "FAMILIES",
    "FAMILY_TITLES",
    "HEADS",
    "AdaptiveMaps",
    "Choice",
    "DecodeState",
    "FeatureMap",
    "HeadModel",
    "HeadReport",
    "Inspection",
    "KeySums",
    "LearnedHead",
    "Moments",
    "__version__",
    "attention",
    "attention_backward",
    "break_even",
    "choose_heads",
    "exact_attention",
    "exact_attention_backward",
    "exact_is_no_slower",
    "exact_kernel_product",
    "fit_maps",
    "inspect",
    "inspect_maps",
    "kernel_product",
    "learn_maps",
    "log_kernel",
    "maps_from_bytes",
    "maps_to_bytes",
    "predicted_error",
]
