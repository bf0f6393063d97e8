"""The ids that requests look up in each table."""

import numpy as np
import pytest

from embershard.errors import InputError
from embershard.package import Package
from embershard.planner.lookup_load import load_of, row_classes
from tests.cases import refused
from tests.hostile.draft import GOLDEN


def golden_load(package):
    manifest = package.manifest
    return load_of(manifest.tables, manifest.sparse, package.samples(), source="samples")


def test_ids_are_counted_by_table_and_lists_by_scope():
    package = Package.open(GOLDEN)
    samples, load = package.samples(), golden_load(package)
    names = [table.name for table in package.manifest.tables]
    users, items, tags = (names.index(name) for name in ("users", "items", "tags"))
    for place, sample in enumerate(samples):
        # A request has a list of users and a list of tags, of which three ids count. Each example
        # has a list of items.
        assert load.ids[place, users] == sample.lengths[0]
        assert load.ids[place, tags] == min(3, sample.lengths[1])
        assert load.ids[place, items] == sample.lengths[2:].sum()
        assert load.bags[place, [users, tags, items]].tolist() == [1, 1, sample.num_examples]
    assert load.examples.tolist() == [sample.num_examples for sample in samples]


def test_no_request_is_refused():
    with refused(InputError, "nothing", "got none"):
        load_of([], [], [], source="nothing")


def test_rows_seen_once_stand_for_all_that_were_not_seen():
    # 7 is seen four times, 8 and 9 twice, two others once: shares of 0.4, 0.4 and 0.2.
    ids = np.array([7, 7, 7, 7, 8, 8, 9, 9, 1, 2])
    rates, rows = row_classes(ids, 100)
    assert rows.tolist() == [2, 1, 97]
    assert (rates * rows).tolist() == pytest.approx([0.4, 0.4, 0.2])


def test_rows_all_seen_more_than_once_leave_no_class_of_others():
    rates, rows = row_classes(np.array([7, 7, 8, 8]), 2)
    assert (rates.tolist(), rows.tolist()) == ([0.5], [2])


def test_a_table_without_lookups_is_one_class():
    rates, rows = row_classes(np.zeros(0, np.int64), 50)
    assert (rates.tolist(), rows.tolist()) == ([1 / 50], [50])


def test_a_batch_has_its_examples_of_larger_requests():
    load = golden_load(Package.open(GOLDEN))
    batches = load.batches(1)
    assert batches.examples == pytest.approx(1)
    assert load.batches(10**9).examples == pytest.approx(10**9, rel=1e-4)
    again = load.batches(1)
    assert (batches.ids == again.ids).all()
