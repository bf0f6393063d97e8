"""Cross networks against numbers and layers by hand, their state dicts, and refused sizes."""

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.modules import CrossNet, LowRankCrossNet, LowRankMixtureCrossNet, VectorCrossNet
from tests.cases import cases, refused


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


def with_random_biases(net):
    """Gives the net random biases instead of zeros."""
    for bias in net.bias:
        torch.nn.init.normal_(bias)
    return net


@pytest.mark.parametrize(("layers", "rank"), [(1, 1), (3, 2), (2, 7)])
def test_output_is_that_of_full_matrices_by_hand(layers, rank):
    torch.manual_seed(0)
    net = with_random_biases(LowRankCrossNet(6, layers, low_rank=rank))
    x = torch.randn(5, 6)

    expected = []
    for row in x:
        crossed = row
        for w, v, b in zip(net.W_kernels, net.V_kernels, net.bias, strict=True):
            crossed = row * ((w @ v) @ crossed + b) + crossed
        expected.append(crossed)

    assert_close(net(x), torch.stack(expected))


def test_a_full_matrix_crosses_each_layer():
    torch.manual_seed(0)
    net = with_random_biases(CrossNet(6, 3))
    x = torch.randn(5, 6)

    expected = []
    for row in x:
        crossed = row
        for kernel, bias in zip(net.kernels, net.bias, strict=True):
            crossed = row * (kernel @ crossed + bias[:, 0]) + crossed
        expected.append(crossed)

    assert_close(net(x), torch.stack(expected))


def test_a_vector_crosses_each_layer_and_bias_is_added():
    torch.manual_seed(0)
    net = with_random_biases(VectorCrossNet(6, 3))
    x = torch.randn(5, 6)

    expected = []
    for row in x:
        crossed = row
        for kernel, bias in zip(net.kernels, net.bias, strict=True):
            crossed = row * torch.dot(kernel[:, 0], crossed) + bias[:, 0] + crossed
        expected.append(crossed)

    assert_close(net(x), torch.stack(expected))


@pytest.mark.parametrize("experts", [1, 3])
def test_experts_are_mixed_by_a_softmax_over_gates(experts):
    torch.manual_seed(0)
    net = with_random_biases(
        LowRankMixtureCrossNet(6, 2, experts, low_rank=4, activation=torch.tanh)
    )
    x = torch.randn(5, 6)

    expected = []
    for row in x:
        crossed = row
        for layer in range(2):
            u, v, c = net.U_kernels[layer], net.V_kernels[layer], net.C_kernels[layer]
            outputs = [
                row * (u[k] @ torch.tanh(c[k] @ torch.tanh(v[k] @ crossed)) + net.bias[layer][:, 0])
                for k in range(experts)
            ]
            gates = [1.0]
            if experts > 1:
                raw = torch.cat([gate.weight[0] @ crossed[:, None] for gate in net.gates])
                gates = raw.exp() / raw.exp().sum()
            crossed = sum(g * y for g, y in zip(gates, outputs, strict=True)) + crossed
        expected.append(crossed)

    assert_close(net(x), torch.stack(expected))


@cases(
    ("net", "shapes"),
    {
        "full": (CrossNet(6, 1), {"kernels.0": (6, 6), "bias.0": (6, 1)}),
        "vector": (VectorCrossNet(6, 1), {"kernels.0": (6, 1), "bias.0": (6, 1)}),
        "low-rank": (
            LowRankCrossNet(6, 1, 2),
            {"W_kernels.0": (6, 2), "V_kernels.0": (2, 6), "bias.0": (6,)},
        ),
        "mixture": (
            LowRankMixtureCrossNet(6, 1, 2, 4),
            {
                "U_kernels.0": (2, 6, 4),
                "V_kernels.0": (2, 4, 6),
                "bias.0": (6, 1),
                "gates.0.weight": (1, 6),
                "gates.1.weight": (1, 6),
                "C_kernels.0": (2, 4, 4),
            },
        ),
    },
)
def test_state_dicts_have_torchrecs_keys_and_shapes(net, shapes):
    assert {key: tuple(value.shape) for key, value in net.state_dict().items()} == shapes


def test_a_new_net_has_no_bias_and_kernels_that_differ():
    torch.manual_seed(0)
    net = LowRankCrossNet(6, 2, low_rank=3)
    assert all((bias == 0).all() for bias in net.bias)
    assert not torch.equal(net.W_kernels[0], net.W_kernels[1])


@cases(
    ("net", "sizes", "message"),
    {
        "no-features": (LowRankCrossNet, (0, 1, 1), "got 0, 1 and 1"),
        "no-layers": (CrossNet, (2, 0), "got 2 and 0"),
        "no-rank": (LowRankCrossNet, (2, 1, 0), "got 2, 1 and 0"),
        "no-vectors": (VectorCrossNet, (0, 1), "VectorCrossNet"),
        "no-experts": (LowRankMixtureCrossNet, (2, 1, 0), "got 2, 1, 0 and 1"),
    },
)
def test_sizes_under_one_are_refused(net, sizes, message):
    with refused(InputError, message):
        net(*sizes)
