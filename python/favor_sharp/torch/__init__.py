"""PyTorch: attention by features with gradients, as a function and as a module.

On CPU tensors the Rust engine computes, without copies; on other devices plain torch operations do.
"""

from ._attention import favor_attention, fit_maps
from ._maps import pack, unpack
from ._module import FavorAttention

__all__ = ["FavorAttention", "favor_attention", "fit_maps", "pack", "unpack"]
