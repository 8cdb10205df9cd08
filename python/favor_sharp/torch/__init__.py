"""PyTorch: feature attention with gradients, as a function and as a module.

The Rust engine computes CPU tensors without copies; other devices use plain torch operations.
"""

from ._attention import favor_attention, fit_maps
from ._maps import pack, unpack
from ._module import FavorAttention

__all__ = ["FavorAttention", "favor_attention", "fit_maps", "pack", "unpack"]
