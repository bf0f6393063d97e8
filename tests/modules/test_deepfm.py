"""DeepFM and FactorizationMachine as layers, against sums by hand."""

from itertools import combinations

import torch
from torch.testing import assert_close

from embershard.modules import DeepFM, FactorizationMachine

EMBEDDINGS = [torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([[5.0]])]
NUMBERS = [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_factorization_machine_sums_products_of_all_pairs():
    expected = sum(left * right for left, right in combinations(NUMBERS, 2))
    assert FactorizationMachine()(EMBEDDINGS).tolist() == [[expected]]


def test_deepfm_passes_embeddings_side_by_side_to_its_module():
    torch.manual_seed(0)
    layer = DeepFM(dense_module=torch.nn.Linear(5, 3))
    module = layer.dense_module

    assert list(layer.state_dict()) == ["dense_module.weight", "dense_module.bias"]
    assert_close(layer(EMBEDDINGS)[0], module.weight @ torch.tensor(NUMBERS) + module.bias)
