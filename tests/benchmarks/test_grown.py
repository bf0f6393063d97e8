"""Packages with more rows than they were exported with."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.grown import grow, with_rows_of
from embershard.data import workload
from embershard.export import export_model
from embershard.package import Package
from embershard.serving import LocalPredictor

ROW_BYTES = 68


@pytest.fixture(scope="module")
def tiny():
    small = workload("small")
    return replace(small, sparse=tuple(replace(each, rows=50) for each in small.sparse[:3]))


@pytest.fixture(scope="module")
def package(tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("packages") / "tiny" / "1"
    return export_model(tiny.model(), tiny.schema(), out)


def test_grown_tables_begin_with_the_old_rows_and_end_at_the_size_asked_for(package, tmp_path):
    grown = Package.open(
        grow(package, tmp_path / "tiny" / "1", table_bytes=3 * ROW_BYTES * 600_000)
    )

    old = Package.open(package)
    for table in grown.manifest.tables:
        assert table.rows == 600_000
        kept, last = np.arange(50), np.array([599_999])
        np.testing.assert_array_equal(
            grown.read_rows(table.name, kept), old.read_rows(table.name, kept)
        )
        values = table.row_format.dequantize_rows(grown.read_rows(table.name, last))
        assert np.abs(values).max() <= 0.125
        assert len(np.unique(values)) > 32


def test_a_grown_package_gives_its_samples_and_takes_ids_of_new_rows(tiny, package, tmp_path):
    out = grow(package, tmp_path / "tiny" / "1", table_bytes=3 * ROW_BYTES * 100_000)

    LocalPredictor(out, threads=1)  # Checks its samples.
    request = with_rows_of(tiny, out).request(np.random.default_rng(0), 100)
    assert 50 < request.values.max() < 100_000
