"""The tables that row ``planner`` plans, drawn from the published reuse table of a production batch
(facebookresearch/dlrm_datasets, 2021, 65,536 examples): 887 million lookups, a mean of 15.8 ids a
bag, and by reuse of a row the share of the lookups and of the rows that are looked up.
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
"""Rows that are looked up so often in a batch lie in the cache."""


class DrawnTable(NamedTuple):
    """A table, its mean ids a bag, and the share of lookups whose row lies in the cache."""

    name: str
    rows: int
    dim: int
    pooling: float
    cached_share: float


def reuse_tables(count: int = 856) -> list[DrawnTable]:
    """Tables whose lookups together have the published shares by reuse. Equal calls draw the same
    tables."""
    generator = np.random.default_rng(0)
    pooling = generator.lognormal(0.0, 1.6, count)
    pooling *= MEAN_POOLING / pooling.mean()
    shares = LOOKUP_SHARE / LOOKUP_SHARE.sum()
    tables = list[DrawnTable]()
    for at in range(count):
        mixture = generator.dirichlet(shares * 12 + 0.02)
        lookups = pooling[at] * EXAMPLES
        unique = lookups * float((mixture / REUSE).sum())
        # A batch touches a part of a table's rows.
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
