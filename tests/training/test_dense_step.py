import torch
from torch import nn

from embershard.data.row_batches import to_rows
from embershard.models import build_model
from embershard.modules import EmbeddingCollection, EmbeddingConfig
from embershard.sharding import EmbeddingBagCollectionSharder, EmbeddingCollectionSharder
from embershard.training.auto_plan import dense_step_seconds
from embershard.training.initial_model import model_arguments
from tests.cases import cases
from tests.training.runs import config, dataset

SHARDERS = [EmbeddingBagCollectionSharder(), EmbeddingCollectionSharder()]


class Sequences(nn.Module):
    """Scores a batch by the sum over all vectors of its lists."""

    def __init__(self):
        super().__init__()
        table = EmbeddingConfig(
            name="history", num_embeddings=30, embedding_dim=4, feature_names=["history"]
        )
        self.tables = EmbeddingCollection([table], device=torch.device("meta"))
        self.layer = nn.Linear(4, 1)

    def forward(self, dense, sparse):
        vectors = self.tables(sparse)["history"]
        assert len(vectors.values()) == int(vectors.lengths().sum())
        return self.layer(vectors.values()).sum() + dense.sum(1, keepdim=True)


def pooled(run, data):
    return build_model(
        run.model.name, model_arguments(run.model, run.training, data) | {"fused": None}
    )


@cases("build", {"pooled": pooled, "sequences": lambda *_: Sequences()})
def test_a_step_is_measured_on_a_copy_of_the_model(tmp_path, build):
    run, data = config(tmp_path), dataset(400)
    model = build(run, data)
    before = {key: value.clone() for key, value in model.state_dict().items() if not value.is_meta}
    random = torch.get_rng_state()
    assert dense_step_seconds(run, model, SHARDERS, to_rows(data.train), 2) > 0
    assert torch.equal(torch.get_rng_state(), random)
    after = model.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())
    assert all(parameter.grad is None for parameter in model.parameters())
