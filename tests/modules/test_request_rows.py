"""The user side of a model runs once for each request, with the same results."""

import pytest
import torch
from torch import nn

import embershard as es
from embershard.modules.request_rows import has_marks, once_per_request

REQUEST_OF = torch.tensor([0, 0, 0, 1, 1])
TABLES = [
    es.EmbeddingBagConfig(name=name, num_embeddings=6, embedding_dim=4, feature_names=[name])
    for name in ("user", "item")
]
SEQUENCE = es.EmbeddingConfig(
    name="history", num_embeddings=6, embedding_dim=4, feature_names=["history"]
)


class Ranker(nn.Module):
    def __init__(self, marked):
        super().__init__()
        self.bags = es.EmbeddingBagCollection(TABLES)
        self.sequences = es.EmbeddingCollection([SEQUENCE])
        self.user_tower, self.over = nn.Linear(1 + 4 + 4, 3), nn.Linear(1 + 3 + 4, 1)
        self.marked, self.user_rows = marked, None

    def forward(self, dense, sparse):
        pooled = self.bags(sparse)
        history = self.sequences(sparse)["history"]
        mean = history.to_padded_dense(3).sum(1) / history.lengths().clamp(min=1).unsqueeze(1)
        user = self.user_tower(torch.cat([dense[:, :1], pooled["user"], mean], dim=1)).relu()
        self.user_rows = len(user)
        user = es.to_examples(user) if self.marked else user
        return self.over(torch.cat([dense[:, 1:], user, pooled["item"]], dim=1))


def requests():
    """Two requests, with three and with two candidates."""
    inverse = torch.stack([REQUEST_OF, torch.arange(5), REQUEST_OF])
    return es.KeyedJaggedTensor(
        ["user", "item", "history"],
        torch.arange(9) % 6,
        lengths=torch.tensor([1, 1, 1, 0, 1, 1, 1, 3, 0]),
        stride_per_key_per_rank=[[2], [5], [2]],
        inverse_indices=(["user", "item", "history"], inverse),
    )


def impressions():
    """The same five examples, each with its own lists."""
    return es.KeyedJaggedTensor(
        ["user", "item", "history"],
        torch.tensor([0, 0, 0, 1, 1, 2, 3, 4, 5, *(0, 1, 2) * 3]),
        lengths=torch.tensor([1] * 5 + [1, 0, 1, 1, 1] + [3, 3, 3, 0, 0]),
    )


@pytest.mark.parametrize("marked", [True, False])
def test_the_user_side_runs_once_per_request(marked):
    torch.manual_seed(0)
    model = Ranker(marked)
    dense = torch.rand(5, 2)
    dense[:, 0] = REQUEST_OF
    expected = model(dense, impressions())
    assert model.user_rows == 5
    expected.square().sum().backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()

    with once_per_request([model.bags, model.sequences], dense, [0], REQUEST_OF) as marks:
        logits = model(marks, requests())

    assert model.user_rows == 2
    assert type(logits) is torch.Tensor
    torch.testing.assert_close(logits, expected)
    logits.square().sum().backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, gradients[name])


def test_columns_of_both_scopes_have_a_row_for_each_example():
    dense = torch.rand(5, 3)
    dense[:, [0, 2]] = dense[:, [0, 2]][[0, 0, 0, 3, 3]]
    with once_per_request([], dense, [0, 2], REQUEST_OF) as marks:
        assert [len(marks[:, columns]) for columns in ([0, 2], [2], 0, slice(2, 3))] == [2] * 4
        for columns in ([0, 1], 1, slice(None)):
            assert torch.equal(marks[:, columns], dense[:, columns])
        assert torch.equal(marks[:, 0] + marks[:, 1], dense[:, 0] + dense[:, 1])
        assert torch.equal(torch.cat([marks, marks[:, :1]], 1), torch.cat([dense, dense[:, :1]], 1))


def test_marks_are_found_in_submodules():
    class Marked(nn.Module):
        def forward(self, x):
            return es.to_examples(x)

    assert has_marks(nn.Sequential(nn.Linear(1, 1), Marked()))
    assert not has_marks(nn.Sequential(nn.Linear(1, 1), nn.ReLU()))
