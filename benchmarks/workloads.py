"""Untrained models and requests of the benchmarks, made from seeds.

    ============  =========================================================================
    ranking       1 user: 20 features, a history of 300 items; 200 candidates: 40 features;
                  13 dense; D64; DLRM
    small         26 tables of 100,000 rows, one id each; 13 dense; D64; DLRM; 1 example
    dlrm_v2_100   MLPerf's DLRM-v2, tables over 1000 rows divided by 100; D128; DLRM_DCN
    rm2_10        32 tables of 50,000 rows, 120 ids each; 256 dense; D64; DLRM
    lookup_d64    8 tables of 2,000,000 rows, 1 GiB in int8 together, 20 ids each; D64; lookup_d128
                  with half the rows; lookup_d64_cached and lookup_d128_cached with 4,096 rows
    ============  =========================================================================

Sources: dlrm_v2: mlcommons/inference, recommendation/dlrm_v2 (cardinalities, multi-hot sizes,
layers); RM2: harvard-acc/DeepRecSys, models/configs (rows divided by 10), where the first number
of a stack of layers is the width of its input. Ids are uniform, so that caches help least.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray

from embershard.models import DLRM, DLRM_DCN, LogitModel
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig, PoolingType
from embershard.package.id_maps import Identity
from embershard.package.samples import SampleLists, SampleRequest
from embershard.package.schema import DenseInput, Schema, Scope, SparseInput

ROW_BOUND = 0.125
"""Table values are uniform in -1/8 .. 1/8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadInput:
    """A sparse input whose lists all have the same length."""

    name: str
    table: str
    rows: int
    """Rows of the table. Ids are 0 .. rows - 1."""

    ids: int = 1

    scope: Scope = "example"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    name: str
    examples: int
    """Default number of examples of a request."""

    dim: int
    sparse: tuple[WorkloadInput, ...]
    """Inputs of the same table must have the same ``rows``."""

    request_dense: int = 0
    example_dense: int
    dense_layers: tuple[int, ...]
    over_layers: tuple[int, ...]
    cross: tuple[int, int] | None = None
    """Layers and rank of a cross network. None: dot products."""

    pooling: PoolingType = PoolingType.SUM

    def schema(self) -> Schema:
        return Schema(
            dense=[
                *(DenseInput(f"user_{at}", "request") for at in range(self.request_dense)),
                *(DenseInput(f"dense_{at}") for at in range(self.example_dense)),
            ],
            sparse=[
                SparseInput(item.name, item.scope, ids=Identity(item.rows)) for item in self.sparse
            ],
        )

    def tables(self) -> list[EmbeddingBagConfig]:
        """Tables in the order of their first input."""
        return [
            EmbeddingBagConfig(
                name=table,
                num_embeddings=rows,
                embedding_dim=self.dim,
                feature_names=[item.name for item in self.sparse if item.table == table],
                pooling=self.pooling,
                weight_init_min=-ROW_BOUND,
                weight_init_max=ROW_BOUND,
            )
            for table, rows in dict.fromkeys((item.table, item.rows) for item in self.sparse)
        ]

    def model(self, *, seed: int = 0) -> LogitModel:
        """Make it with fp32 tables. The seed decides the weights. torch's generator stays as is."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            embeddings = EmbeddingBagCollection(self.tables())
            dense = self.request_dense + self.example_dense
            if self.cross is None:
                return DLRM(embeddings, dense, self.dense_layers, self.over_layers)
            layers, rank = self.cross
            return DLRM_DCN(embeddings, dense, self.dense_layers, self.over_layers, layers, rank)

    def request(self, random: np.random.Generator, examples: int | None = None) -> SampleRequest:
        """Draw one request without outputs. Dense values are standard normal, ids uniform."""
        count = self.examples if examples is None else examples
        bags = [count if item.scope == "example" else 1 for item in self.sparse]
        lists = [
            SampleLists(np.full(bag, item.ids), random.integers(0, item.rows, bag * item.ids), None)
            for item, bag in zip(self.sparse, bags, strict=True)
        ]
        return SampleRequest.of_lists(
            random.standard_normal(self.request_dense, np.float32),
            random.standard_normal((count, self.example_dense), np.float32),
            lists,
        )

    def without_scope(self) -> Workload:
        """This workload with the same model and weights, but all inputs in example scope."""
        return replace(
            self,
            name=f"{self.name}_request_scope_off",
            sparse=tuple(replace(item, scope="example") for item in self.sparse),
            request_dense=0,
            example_dense=self.request_dense + self.example_dense,
        )

    def request_without_scope(self, request: SampleRequest) -> SampleRequest:
        """Repeat the request-scope inputs of a request for each example."""
        count, start = request.num_examples, 0
        values = list[NDArray[np.int64]]()
        for item in self.sparse:
            repeats = 1 if item.scope == "example" else count
            end = start + item.ids * count // repeats
            values.append(np.tile(request.values[start:end], repeats))
            start = end
        user = np.tile(request.request_dense, (count, 1))
        return replace(
            request,
            request_dense=request.request_dense[:0],
            example_dense=np.concatenate([user, request.example_dense], axis=1),
            lengths=np.repeat([item.ids for item in self.sparse], count).astype(np.int32),
            values=np.concatenate(values),
        )


def _inputs(
    prefix: str, tables: Iterable[tuple[int, int]], scope: Scope = "example"
) -> tuple[WorkloadInput, ...]:
    """``tables`` are pairs of rows and ids per list."""
    return tuple(
        WorkloadInput(
            name=f"{prefix}_{at}", table=f"{prefix}_{at}", rows=rows, ids=ids, scope=scope
        )
        for at, (rows, ids) in enumerate(tables)
    )


def _lookup(name: str, dim: int, rows: int) -> Workload:
    return Workload(
        name=name,
        examples=1,
        dim=dim,
        sparse=_inputs("f", [(rows, 20)] * 8),
        example_dense=1,
        dense_layers=(dim,),
        over_layers=(8, 1),
    )


# fmt: off
DLRM_V2_ROWS = (
    40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282,
    10, 2_209, 11_938, 155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108,
    36,
)
DLRM_V2_IDS = (
    3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1,
)
# fmt: on

RANKING = Workload(
    name="ranking",
    examples=200,
    dim=64,
    sparse=(
        *_inputs("of_user", [(100_000, 1)] * 20, "request"),
        WorkloadInput(name="history", table="item", rows=1_000_000, ids=300, scope="request"),
        WorkloadInput(name="item", table="item", rows=1_000_000),
        *_inputs("of_item", [(100_000, 1)] * 39),
    ),
    request_dense=4,
    example_dense=9,
    dense_layers=(512, 256, 64),
    over_layers=(512, 512, 256, 1),
    pooling=PoolingType.MEAN,
)

SMALL = Workload(
    name="small",
    examples=1,
    dim=64,
    sparse=_inputs("f", [(100_000, 1)] * 26),
    example_dense=13,
    dense_layers=(512, 256, 64),
    over_layers=(512, 512, 256, 1),
)

DLRM_V2_100 = Workload(
    name="dlrm_v2_100",
    examples=200,
    dim=128,
    sparse=_inputs(
        "cat",
        [
            (rows // 100 if rows > 1000 else rows, ids)
            for rows, ids in zip(DLRM_V2_ROWS, DLRM_V2_IDS, strict=True)
        ],
    ),
    example_dense=13,
    dense_layers=(512, 256, 128),
    over_layers=(1024, 1024, 512, 256, 1),
    cross=(3, 512),
)

RM2_10 = Workload(
    name="rm2_10",
    examples=16,
    dim=64,
    sparse=_inputs("f", [(50_000, 120)] * 32),
    example_dense=256,
    dense_layers=(128, 64),
    over_layers=(128, 64, 1),
)

WORKLOADS = MappingProxyType(
    {
        workload.name: workload
        for workload in (
            RANKING,
            SMALL,
            DLRM_V2_100,
            RM2_10,
            _lookup("lookup_d64", 64, 2_000_000),
            _lookup("lookup_d128", 128, 1_000_000),
            _lookup("lookup_d64_cached", 64, 4096),
            _lookup("lookup_d128_cached", 128, 4096),
        )
    }
)
