"""Workloads have the sizes of their sources, requests that match the schema, and seeds."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from benchmarks.workloads import WORKLOADS
from embershard.models import DLRM_DCN


def ids_a_row(loaded, scope):
    return sum(feature.ids for feature in loaded.sparse if feature.scope == scope)


@pytest.mark.parametrize(
    ("name", "tables", "rows", "request_ids", "example_ids"),
    [
        pytest.param("ranking", 60, 59 * 100_000 + 1_000_000, 320, 40, id="ranking"),
        pytest.param("small", 26, 2_600_000, 0, 26, id="small"),
        # Tables of over 1000 rows have a hundredth of their rows, rounded down: five of 40 M rows,
        # and twelve that become 41,826 rows together. The other nine are unchanged.
        pytest.param("dlrm_v2_100", 26, 5 * 400_000 + 41_826 + 1_369, 0, 214, id="dlrm-v2"),
        pytest.param("rm2_10", 32, 1_600_000, 0, 3840, id="rm2"),
    ],
)
def test_sizes_are_those_of_the_sources(name, tables, rows, request_ids, example_ids):
    loaded = WORKLOADS[name]
    assert len(loaded.tables()) == tables
    assert sum(table.num_embeddings for table in loaded.tables()) == rows
    assert (ids_a_row(loaded, "request"), ids_a_row(loaded, "example")) == (
        request_ids,
        example_ids,
    )


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("examples", [None, 3])
def test_requests_have_the_sizes_that_the_schema_asks_for(name, examples):
    loaded = WORKLOADS[name]
    request = loaded.request(np.random.default_rng(0), examples)
    schema, count = loaded.schema(), examples or loaded.examples

    assert request.num_examples == count
    assert request.request_dense.shape == (len(schema.dense_names("request")),)
    assert request.example_dense.shape == (count, len(schema.dense_names("example")))
    at = 0
    for item, feature in zip(schema.sparse, loaded.sparse, strict=True):
        assert item.name == feature.name
        lists = count if item.scope == "example" else 1
        assert request.lengths[at : at + lists].tolist() == [feature.ids] * lists
        at += lists
    assert at == len(request.lengths)
    assert request.lengths.sum() == len(request.values)


def test_ids_reach_the_ends_of_their_tables_and_not_beyond():
    loaded = WORKLOADS["dlrm_v2_100"]
    request = loaded.request(np.random.default_rng(0), 2000)
    ends = np.cumsum([2000 * feature.ids for feature in loaded.sparse])[:-1]
    by_input = dict(
        zip(
            [feature.name for feature in loaded.sparse], np.split(request.values, ends), strict=True
        )
    )
    assert sorted(set(by_input["cat_5"].tolist())) == [0, 1, 2]
    assert by_input["cat_20"].max() < 400_000
    assert by_input["cat_20"].max() > 399_000  # The largest of 200,000 ids.


def test_equal_seeds_draw_equal_requests():
    first, second = (WORKLOADS["ranking"].request(np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(first.values, second.values)
    assert np.array_equal(first.example_dense, second.example_dense)


def test_equal_seeds_build_equal_models_without_torchs_generator():
    loaded = WORKLOADS["rm2_10"]
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)

    first, second = loaded.model(seed=4), loaded.model(seed=4)

    assert_close(torch.rand(3), expected, rtol=0, atol=0)
    state = second.state_dict()
    for key, value in first.state_dict().items():
        assert torch.equal(value, state[key])


def test_dlrm_v2_crosses_three_times_at_rank_512():
    loaded = WORKLOADS["dlrm_v2_100"]
    # One small table saves time; the cross network does not depend on rows.
    model = dataclasses.replace(loaded, sparse=loaded.sparse[5:6]).model()
    assert isinstance(model, DLRM_DCN)
    assert [tuple(w.shape) for w in model.inter_arch.crossnet.W_kernels] == [(256, 512)] * 3
