"""Synthetic sets of tables for the planner, seeded.

The set of 856 tables is drawn from the published reuse table of a production batch
(facebookresearch/dlrm_datasets, 2021, 65,536 examples): 887 million lookups, a mean of 15.8 ids a
bag, and by reuse of a row the share of the lookups and of the rows that are looked up.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from embershard.commands import Parser
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package.rectangles import Shard
from embershard.planner import read_machine
from embershard.planner.default_machine import default_machine
from embershard.sharding import EmbeddingModuleShardingPlan, ParameterSharding, ShardingPlan

MEAN_POOLING = 15.8
EXAMPLES = 65_536
DIMS = (32, 64, 96, 128, 192, 256)
REUSE = np.array([2.0**power for power in range(17)])
LOOKUP_SHARE = np.array(
    [
        *(0.069, 0.044, 0.068, 0.101, 0.121, 0.104, 0.073, 0.058, 0.052, 0.050, 0.049, 0.048),
        *(0.048, 0.043, 0.031, 0.023, 0.019),
    ]
)
HOT_REUSE = 64
"""Rows that are looked up so often in a batch lie in the cache."""


class DrawnTable(NamedTuple):
    """A table, its mean ids a bag, and the share of lookups whose row lies in the cache."""

    name: str
    rows: int
    dim: int
    pooling: float
    cached_share: float


def reuse_tables(seed: int = 0, count: int = 856) -> list[DrawnTable]:
    """Tables whose lookups together have the published shares by reuse."""
    generator = np.random.default_rng(seed)
    pooling = generator.lognormal(0.0, 1.6, count)
    pooling *= MEAN_POOLING / pooling.mean()
    shares = LOOKUP_SHARE / LOOKUP_SHARE.sum()
    found = list[DrawnTable]()
    for at in range(count):
        mixture = generator.dirichlet(shares * 12 + 0.02)
        lookups = pooling[at] * EXAMPLES
        unique = lookups * float((mixture / REUSE).sum())
        # A batch touches a part of a table's rows.
        rows = int(max(100, unique * generator.uniform(1, 8)))
        found.append(
            DrawnTable(
                name=f"table_{at:04}",
                rows=rows,
                dim=int(generator.choice(DIMS)),
                pooling=float(pooling[at]),
                cached_share=float(mixture[REUSE >= HOT_REUSE].sum()),
            )
        )
    return found


def skewed_tables(seed: int, count: int) -> list[DrawnTable]:
    """A few tables of very different sizes, as in a small model."""
    generator = np.random.default_rng(seed)
    return [
        DrawnTable(
            name=f"table_{at:04}",
            rows=int(10 ** generator.uniform(2, 6)),
            dim=int(generator.choice(DIMS)),
            pooling=float(generator.lognormal(1.0, 1.2)),
            cached_share=float(generator.uniform(0, 1)),
        )
        for at in range(count)
    ]


class SkewedTable(NamedTuple):
    """A table whose rows are looked up by a Zipf distribution, the hot ones anywhere in it."""

    name: str
    rows: int
    dim: int
    pooling: float
    exponent: float
    seed: int

    def shares(self) -> NDArray[np.float64]:
        """Of the lookups, of each row."""
        order = np.random.default_rng(self.seed).permutation(self.rows)
        weights = np.asarray((order + 1.0) ** -self.exponent, np.float64)
        return np.asarray(weights / weights.sum())

    def draw(self, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Rows of so many lookups."""
        below = np.cumsum(self.shares())
        return np.minimum(np.searchsorted(below, generator.random(count)), self.rows - 1)


def skewed_model(seed: int) -> list[SkewedTable]:
    """20 to 60 tables of very different sizes, small enough to train here."""
    generator = np.random.default_rng(seed)
    return [
        SkewedTable(
            name=f"table_{at:04}",
            rows=int(10 ** generator.uniform(2, 5.5)),
            dim=int(generator.choice(DIMS)),
            pooling=min(float(generator.lognormal(1.0, 1.2)), 50.0),
            exponent=float(generator.uniform(0.4, 1.2)),
            seed=1000 * seed + at,
        )
        for at in range(int(generator.integers(20, 61)))
    ]


Rectangles: TypeAlias = Mapping[str, Sequence[Sequence[int]]]
"""Of each table, of each shard: first row, end, first column, end, rank."""


def shards_of(rectangles: Rectangles) -> list[Shard]:
    """As a plan keeps them."""
    return [
        Shard(table=name, rows=(first, end), columns=(left, right), devices=(rank,))
        for name, of_table in sorted(rectangles.items())
        for first, end, left, right, rank in of_table
    ]


def sharding_plan(rectangles: Rectangles, path: str) -> ShardingPlan:
    """Of a collection at ``path``."""
    found = {
        name: ParameterSharding(
            sharding_type="column_wise",  # A name: what counts are the rectangles.
            compute_kernel="fused",
            sharding_spec=tuple(shards_of({name: shards})),
        )
        for name, shards in rectangles.items()
    }
    return ShardingPlan({path: EmbeddingModuleShardingPlan(found)})


def collection_of(
    tables: Sequence[DrawnTable | SkewedTable], device: str = "meta"
) -> EmbeddingBagCollection:
    """One feature a table, of its name."""
    configs = [
        EmbeddingBagConfig(
            name=each.name,
            num_embeddings=each.rows,
            embedding_dim=each.dim,
            feature_names=[each.name],
        )
        for each in tables
    ]
    return EmbeddingBagCollection(configs, device=device)


def parser_of(module: str, description: str | None) -> argparse.ArgumentParser:
    """With ``--machine``, whose costs price plans."""
    parser = Parser(prog=f"python -m benchmarks.{module}", description=description)
    parser.add_argument(
        "--machine",
        type=read_machine,
        default=default_machine(),
        metavar="FILE",
        help="a calibration; default: the one that ships",
    )
    return parser
