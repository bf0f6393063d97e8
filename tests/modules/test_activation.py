"""SwishLayerNorm against its formula."""

import pytest
import torch
from torch.testing import assert_close

from embershard.modules import SwishLayerNorm


@pytest.mark.parametrize(("dims", "shape"), [(5, (3, 5)), ([2, 5], (3, 2, 5))])
def test_input_is_gated_by_the_sigmoid_of_its_layer_norm(dims, shape):
    torch.manual_seed(0)
    layer = SwishLayerNorm(dims)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    weight, bias = layer.state_dict()["norm.0.weight"], layer.state_dict()["norm.0.bias"]
    x = torch.randn(shape)

    expected = []
    for row in x:
        spread = (row - row.mean()).square().mean() + 1e-5
        normal = (row - row.mean()) / spread.sqrt() * weight + bias
        expected.append(row / (1 + (-normal).exp()))

    assert_close(layer(x), torch.stack(expected))
