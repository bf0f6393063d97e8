"""LowRankCrossNet: against numbers and layers by hand, and what is refused."""

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.modules import LowRankCrossNet
from tests.cases import cases


def test_one_layer_of_two_features_by_hand():
    net = LowRankCrossNet(2, 1, low_rank=1)
    net.load_state_dict(
        {
            "W_kernels.0": torch.tensor([[2.0], [3.0]]),
            "V_kernels.0": torch.tensor([[1.0, -1.0]]),
            "bias.0": torch.tensor([0.5, 1.0]),
        }
    )
    # V x = 4 - 1 = 3; W (V x) + b = (6.5, 10); x * that + x = (26 + 4, 10 + 1).
    assert net(torch.tensor([[4.0, 1.0]])).tolist() == [[30.0, 11.0]]


@pytest.mark.parametrize(("layers", "rank"), [(1, 1), (3, 2), (2, 7)])
def test_output_is_that_of_full_matrices_by_hand(layers, rank):
    torch.manual_seed(0)
    net = LowRankCrossNet(6, layers, low_rank=rank)
    for bias in net.bias:
        torch.nn.init.normal_(bias)
    x = torch.randn(5, 6)

    expected = []
    for row in x:
        crossed = row
        for w, v, b in zip(net.W_kernels, net.V_kernels, net.bias, strict=True):
            crossed = row * ((w @ v) @ crossed + b) + crossed
        expected.append(crossed)

    assert_close(net(x), torch.stack(expected))


def test_a_new_net_has_no_bias_and_kernels_that_differ():
    torch.manual_seed(0)
    net = LowRankCrossNet(6, 2, low_rank=3)
    assert all((bias == 0).all() for bias in net.bias)
    assert not torch.equal(net.W_kernels[0], net.W_kernels[1])


@cases(
    "sizes",
    {
        "no-features": (0, 1, 1),
        "no-layers": (2, 0, 1),
        "no-rank": (2, 1, 0),
    },
)
def test_sizes_under_one_are_refused(sizes):
    with pytest.raises(InputError, match=f"at least 1, got {sizes[0]}, {sizes[1]} and {sizes[2]}"):
        LowRankCrossNet(*sizes)
