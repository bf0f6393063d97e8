"""Tables for the row ``planner``, drawn from the published statistics of a production batch
(facebookresearch/dlrm_datasets, 2021, 65,536 examples): 887 million lookups, 15.8 ids per bag on
average, and the share of lookups by how often their row is reused in the batch.
"""

from typing import NamedTuple

import numpy as np

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
"""Number of lookups in a batch from which on a row is assumed to be in the cache."""


class DrawnTable(NamedTuple):
    """A table, its mean number of ids per bag, and the share of lookups from the cache."""

    name: str
    rows: int
    dim: int
    pooling: float
    cached_share: float


def reuse_tables(count: int = 856) -> list[DrawnTable]:
    """Draw tables whose lookups together have the published shares. Always the same tables."""
    generator = np.random.default_rng(0)
    pooling = generator.lognormal(0.0, 1.6, count)
    pooling *= MEAN_POOLING / pooling.mean()
    shares = LOOKUP_SHARE / LOOKUP_SHARE.sum()
    tables = list[DrawnTable]()
    for at in range(count):
        mixture = generator.dirichlet(shares * 12 + 0.02)
        lookups = pooling[at] * EXAMPLES
        unique = lookups * float((mixture / REUSE).sum())
        # A batch looks up only a part of a table's rows.
        rows = int(max(100, unique * generator.uniform(1, 8)))
        tables.append(
            DrawnTable(
                name=f"table_{at:04}",
                rows=rows,
                dim=int(generator.choice(DIMS)),
                pooling=float(pooling[at]),
                cached_share=float(mixture[REUSE >= HOT_REUSE].sum()),
            )
        )
    return tables
