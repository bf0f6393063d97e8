"""The work of building a layout."""

import pytest

from embershard.modules import EmbeddingBagConfig
from embershard.package.rectangles import Shard
from embershard.sharding import grid_shard, row_wise
from embershard.sharding.layout import build_layout
from embershard.sharding.plan import Ranks
from tests.cases import cases

RANKS_OF_HOST = 4
TABLES = [
    EmbeddingBagConfig(name=name, num_embeddings=256, embedding_dim=64, feature_names=[name])
    for name in ("users", "items", "words")
]


def reads_of_shards(helper, world_size):
    """Number of reads of shards' fields while the layout of all tables is built."""
    plan = {table.name: helper(table, Ranks(world_size, RANKS_OF_HOST)) for table in TABLES}
    reads = []

    def read(shard, name):
        reads.append(name)
        return object.__getattribute__(shard, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shard, "__getattribute__", read)
        build_layout(TABLES, plan, {}, world_size)
    return len(reads)


@cases(
    "helper_of",
    {
        "row_wise": lambda _: row_wise(),
        "grid_shard": lambda world_size: grid_shard(range(world_size // RANKS_OF_HOST)),
    },
)
def test_a_layout_of_four_times_the_ranks_is_four_times_the_work(helper_of):
    few, many = (reads_of_shards(helper_of(ranks), ranks) for ranks in (8, 32))
    assert many == 4 * few
