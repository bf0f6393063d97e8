"""Tables, load and costs for the tests of serving plans."""

import numpy as np

from embershard.planner.lookup_load import LookupLoad, row_classes
from embershard.planner.machine import Link, Machine, RowCost

LINK = Link(latency_seconds=0, bytes_per_second=1e9)


def cost_of(*, id=0.0, id_byte=0.0, bag=0.0, start=0.0):
    return RowCost(start=start, id=id, id_byte=id_byte, bag=bag, bag_byte=0)


def machine_of(cost):
    return Machine(
        processor="test",
        versions={},
        caches=(1e12,),
        kernels={},
        lookups={"int8": cost},
        host=LINK,
        network=LINK,
    )


def load_of_ids(tables, ids, *, bags=1.0, requests=4):
    """A load in which every request looks up ``ids`` ids of each table, in ``bags`` lists."""
    counts = np.tile(np.array(ids, float), (requests, 1))
    return LookupLoad(
        ids=counts,
        bags=np.full_like(counts, bags),
        examples=np.ones(requests),
        classes=[row_classes(np.zeros(0, np.int64), table.rows) for table in tables],
        source="a test",
    )
