"""Position weights train with sharded tables as with whole ones."""

import pytest
import torch

from embershard.modules import (
    EmbeddingBagConfig,
    FeatureProcessedEmbeddingBagCollection,
    FeatureProcessor,
)
from embershard.sharding.sharders import FeatureProcessedEmbeddingBagCollectionSharder
from tests.sharding.cases import collection_of
from tests.sharding.processor_cases import (
    MAX_LENGTHS,
    RATE,
    bad_batch,
    initial_positions,
    train,
    train_pipelined,
)
from tests.sharding.reference import loss_of, make_case, pool
from tests.sharding.test_embeddingbag import KINDS, SIZES, check_close, plan_of

STEPS = 5


def case_of(world_size):
    """A case in which 2 of 3 tables pool by mean."""
    return make_case(
        world_size, pooling="MEAN", is_weighted=True, sizes=SIZES[world_size], steps=STEPS
    )


def run_reference(case):
    """Trains by SGD in float64. Returns outputs of each step and rank, and the final tables and
    position weights."""
    tables = {name: weight.double() for name, weight in case.weights.items()}
    positions = {
        name: initial_position.double() for name, initial_position in initial_positions().items()
    }
    outputs = []
    for step, ranks in enumerate(case.batches):
        leaves = [
            {name: value.clone().requires_grad_() for name, value in values.items()}
            for values in (tables, positions)
        ]
        pooled = []
        for batch in ranks:
            weighted = {
                feature: (ids, lengths, leaves[1][feature][_positions(lengths)])
                for feature, (ids, lengths, _) in batch.items()
            }
            pooled.append(pool(case, leaves[0], weighted))
        outputs.append([vectors.detach() for vectors in pooled])
        (sum(loss_of(vectors, step) for vectors in pooled) / len(ranks)).backward()
        for values, value_leaves in zip((tables, positions), leaves, strict=True):
            for name, leaf in value_leaves.items():
                values[name] = values[name] - RATE * leaf.grad
    return outputs, tables, positions


def _positions(lengths):
    return torch.tensor([at for length in lengths.tolist() for at in range(length)]).long()


@pytest.mark.parametrize(
    ("kind", "world_size", "is_dict"),
    # Dictionaries of modules take turns with one module for all features.
    [
        (kind, world_size, (row + column) % 2 == 1)
        for row, kind in enumerate(KINDS)
        for column, world_size in enumerate((1, 2, 4))
    ],
)
def test_training_position_weights_equals_unsharded_training(workers, kind, world_size, is_dict):
    case = case_of(world_size)
    outputs, tables, positions = run_reference(case)
    results = workers.run(world_size, train, case, plan_of(case, kind, world_size), is_dict)
    for rank, (rank_outputs, shards, replicas, weights) in enumerate(results):
        for step, expected in enumerate(outputs):
            check_close(rank_outputs[step], expected[rank])
        for name, weight in replicas.items():
            check_close(weight, tables[name])
        for shard, weight, _ in shards:
            rows, columns = slice(*shard.rows), slice(*shard.columns)
            check_close(weight, tables[shard.table][rows, columns])
        assert weights.keys() == positions.keys()
        for feature, weight in weights.items():
            check_close(weight, positions[feature])


def test_a_pipelined_step_uses_the_position_weights_of_its_step(workers):
    case = case_of(2)
    for plain, pipelined in workers.run(2, train_pipelined, case, plan_of(case, "row_wise", 2)):
        for expected, actual in zip(plain, pipelined, strict=True):
            assert torch.equal(actual, expected)


@pytest.mark.parametrize("kind", ["row_wise", "data_parallel"])
def test_a_bag_longer_than_its_weights_is_one_message_on_all(workers, kind):
    case = case_of(2)
    message = (
        f"rank 1: feature 'i': expected at most {MAX_LENGTHS['i']} ids a bag, as many as position "
        "weights; got 7 in example 1"
    )
    assert workers.run(2, bad_batch, case, plan_of(case, kind, 2)) == [message, message]


class Ones(FeatureProcessor):
    def forward(self, features):
        return features


def test_sharding_of_other_processors_is_refused():
    case = case_of(1)
    features = {name for *_, names, _ in case.tables for name in names}
    module = FeatureProcessedEmbeddingBagCollection(
        collection_of(case), {feature: Ones() for feature in features}
    )
    assert isinstance(module.embedding_bag_configs()[0], EmbeddingBagConfig)
    with pytest.raises(ValueError, match="feature_processors: feature 'u': expected position"):
        FeatureProcessedEmbeddingBagCollectionSharder().optimizers(
            module, {}, where="here", device="cpu"
        )
