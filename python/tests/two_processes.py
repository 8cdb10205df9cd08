"""One of two processes that train together; run by a test."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from favor_sharp.torch import FavorAttention


def differ(tensor: torch.Tensor) -> bool:
    both = [torch.empty_like(tensor) for _ in range(2)]
    dist.all_gather(both, tensor.contiguous())
    return not torch.equal(*both)


def train(rank: int) -> None:
    torch.manual_seed(rank)
    # Different weights and draws at first: the first process decides.
    net = DistributedDataParallel(
        FavorAttention(16, 2, features=32, seed=9 + rank, redraw=2, batch_first=True)
    )
    optimiser = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(5):
        x = torch.randn(4, 20, 16)
        optimiser.zero_grad()
        net(x, x, x)[0].square().mean().backward()
        optimiser.step()
    for name, parameter in net.named_parameters():
        assert not differ(parameter.data), name
        assert not differ(parameter.grad), name
    # Buffers are handed round at the beginning of a call, and this one does not change them.
    x = torch.ones(1, 4, 16)
    out = net(x, x, x)[0]
    for name, buffer in net.named_buffers():
        assert not differ(buffer), name
    assert not differ(out.data)


torch.set_num_threads(1)
dist.init_process_group(
    "gloo", init_method=f"file://{sys.argv[2]}", rank=int(sys.argv[1]), world_size=2
)
# The wrapped model holds the group and dies with this call; if it lives when the
# interpreter ends, the group's threads outlive it and PyTorch aborts.
train(int(sys.argv[1]))
dist.destroy_process_group()
