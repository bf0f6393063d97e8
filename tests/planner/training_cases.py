"""Models, costs and planners for the tests of training plans."""

from torch import nn

from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.planner import EmbeddingShardingPlanner, Topology
from embershard.planner.cost import Table
from embershard.planner.machine import Kernel, Link, Machine, MissCost, RowCost
from embershard.sharding import EmbeddingBagCollectionSharder

ZERO = RowCost(start=0, id=0, id_byte=0, bag=0, bag_byte=0)
MISSES = (MissCost(row=1e-6, row_byte=1e-9),)
LOOKUP = RowCost(start=0, id=0, id_byte=0, bag=1e-8, bag_byte=0, misses=MISSES)
UPDATE = RowCost(start=0, id=1e-6, id_byte=1e-9, bag=1e-8, bag_byte=0)
EXCHANGE = RowCost(start=0, id=2e-8, id_byte=0, bag=0, bag_byte=3e-10)
LINK = Link(latency_seconds=1e-4, bytes_per_second=1e9)


def machine_of(kernel=None):
    kernel = kernel or Kernel(forward=LOOKUP, backward=UPDATE)
    return Machine(
        processor="test",
        versions={},
        caches=(1.0,),
        kernels={"rowwise_adagrad": kernel, "adagrad": kernel, "sgd": kernel},
        host=LINK,
        network=LINK,
    )


def model_of(*sizes):
    tables = [
        EmbeddingBagConfig(
            name=f"t{at}", num_embeddings=rows, embedding_dim=dim, feature_names=[f"f{at}"]
        )
        for at, (rows, dim) in enumerate(sizes)
    ]
    return nn.ModuleDict({"sparse": EmbeddingBagCollection(tables, device="meta")})


def sharders(optimizer="rowwise_adagrad"):
    return [EmbeddingBagCollectionSharder(fused_params={"optimizer": optimizer})]


def planner_of(world_size, *, batch_size=64, constraints=None, **settings):
    topology = Topology(world_size, machine=machine_of(), **settings)
    return EmbeddingShardingPlanner(
        topology, batch_size, constraints=constraints, storage_reservation=0.0
    )


def kernel_table(**kwargs):
    kernel = machine_of().kernels["sgd"]
    return Table(
        **{
            "name": "t",
            "rows": 100,
            "dim": 8,
            "ids": 50.0,
            "bags": 10.0,
            "kernel": kernel,
            "missed": (1.0,),
        }
        | kwargs
    )


class Clock:
    """A clock that stands still for a number of readings and is far ahead after them."""

    def __init__(self, readings_max):
        self.readings, self._readings_max = 0, readings_max

    def __call__(self):
        self.readings += 1
        return 0.0 if self.readings <= self._readings_max else 1e12
