"""Five steps of sharded training of sequences equal those of one process with whole tables."""

import pytest

from tests.sharding.cases import train
from tests.sharding.reference import make_case
from tests.sharding.test_embeddingbag import KINDS, SIZES, check_equal, plan_of


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad", "adagrad"])
@pytest.mark.parametrize("kind", KINDS)
def test_five_steps_of_sequences_equal_unsharded_training(workers, kind, optimizer, world_size):
    if kind in ("data_parallel", "mixed") and optimizer == "rowwise_adagrad":
        pytest.skip("torch has no row-wise Adagrad for replicas")
    case = make_case(world_size, is_sequence=True, optimizer=optimizer, sizes=SIZES[world_size])
    plan = plan_of(case, kind, world_size)
    check_equal(case, plan, workers.run(world_size, train, case, plan))
