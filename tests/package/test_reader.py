"""The golden package of format 0 reads as it was written, and rows come from the right chunks."""

import hashlib
import os
import subprocess

import numpy as np
import pytest

from embershard.errors import InputError, NotFoundError, PackageError
from embershard.package import Hash, Identity, Package, Vocabulary, hash_string, verify_package
from tests.cases import cases, refused
from tests.hostile.draft import GOLDEN, NARROW, Draft
from tests.package.building import ROWS, publish


@pytest.fixture(scope="module")
def golden():
    return Package.open(GOLDEN)


@cases(
    ("package", "digest"),
    {
        "tiny": (GOLDEN, "a3676e8375eafe5b0a434c0f3001e47160b4f7756a24afdd12bce453101373be"),
        "padded": (NARROW, "dd4dbd0e5162f0b80f21a6e8764d4a5c63e465c55565d378a1b68d0d8f66e51d"),
    },
)
def test_the_golden_package_is_the_one_that_was_published(package, digest):
    assert hashlib.sha256((package / "manifest.json").read_bytes()).hexdigest() == digest


def test_the_golden_package_verifies():
    steps = []
    verify_package(GOLDEN, progress=lambda done, total: steps.append((done, total)))

    sizes = sum(spec.bytes for spec in Package.open(GOLDEN).manifest.files.values())
    assert steps[-1] == (sizes, sizes)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)


@cases(
    ("package", "table", "rows", "value"),
    {
        "int8": (GOLDEN, "users", 5, lambda r, c: (16 * r + c) / 128 - 1),
        "int4-in-two-chunks": (GOLDEN, "items", 600, lambda r, c: ((r + c) % 16) / 2 - 1),
        "fp16": (GOLDEN, "tags", 7, lambda r, c: r + c / 4),
        "fp32-of-1": (NARROW, "biases", 9, lambda r, c: r / 4 - 1 + 0 * c),
        "int8-of-3": (NARROW, "users", 5, lambda r, c: (16 * r + c) / 128 - 1),
        "int4-of-6": (NARROW, "items", 600, lambda r, c: ((r + c) % 16) / 2 - 1),
        "fp16-of-5": (NARROW, "tags", 7, lambda r, c: r + c / 4),
    },
)
def test_golden_rows_have_the_values_that_were_written(package, table, rows, value):
    package = Package.open(package)
    spec = package.manifest.table(table)
    assert spec.rows == rows

    stored = package.read_rows(table, np.arange(rows))

    expected = [[value(row, column) for column in range(spec.dim)] for row in range(rows)]
    np.testing.assert_array_equal(spec.row_format.dequantize_rows(stored), expected)


def test_a_folder_that_is_not_there_is_refused_by_its_path(tmp_path):
    with refused(PackageError, "nowhere: missing folder"):
        Package.open(tmp_path / "nowhere")


def test_empty_folders_may_lie_deeper_than_a_path_is_long(tmp_path):
    package = Draft(tmp_path / "deep").folder
    folder = os.open(package, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("folder", dir_fd=folder)
        parent, folder = folder, os.open("folder", os.O_RDONLY, dir_fd=folder)
        os.close(parent)
    os.close(folder)
    try:
        verify_package(package)
    finally:
        # shutil.rmtree cannot remove folders this deep.
        subprocess.run(["rm", "-r", package / "folder"], check=True)


def test_golden_schema(golden):
    schema = golden.schema()
    assert schema.dense_names("request") == ["age"]
    assert schema.dense_names("example") == ["price"]
    assert [feature.default for feature in schema.dense] == [None, 0.25]
    assert schema.sparse_names() == ["user", "tags", "item"]
    user, tags, item = schema.sparse
    assert user.ids == Vocabulary(["ada", "bob", "cyd", "dan"], unknown="oov")
    assert user.ids.rows_of(np.array([hash_string("cyd"), 5])).tolist() == [2, 4]
    assert (tags.ids, tags.weighted, tags.max_ids, tags.keep) == (Hash(7, seed=3), True, 3, "last")
    assert item.ids == Identity(600)


def test_golden_samples(golden):
    first, second = golden.samples()
    assert (first.num_examples, second.num_examples) == (3, 2)
    assert first.lengths.tolist() == [1, 3, 1, 2, 3]
    assert first.values[0] == hash_string("cyd")
    assert second.lengths.tolist() == [1, 0, 0, 1]
    # Column c of row 2 of users is (32 + c) / 128 - 1.
    np.testing.assert_array_equal(first.outputs["profile"], [[-0.75, -0.7421875]])


def test_golden_plans(golden):
    assert golden.plan().name == "default"
    assert golden.plan("halves").devices == ("cpu:0", "cpu:1")
    with refused(NotFoundError, "default, halves", "got 'thirds'"):
        golden.plan("thirds")


def test_rows_come_from_the_right_chunk_in_the_order_asked(tmp_path):
    package = Package.open(publish(tmp_path / "m" / "1", chunk_bytes_max=4096))
    rows = np.random.default_rng(0).integers(0, 3000, 500)

    np.testing.assert_array_equal(package.read_rows("user", rows), ROWS[rows])
    assert package.read_rows("user", rows[:0]).shape == (0, 8)


@pytest.mark.parametrize("row", [-1, 600])
def test_rows_that_are_not_there_are_refused(golden, row):
    with refused(InputError, "table items", "599", row):
        golden.read_rows("items", np.array([0, row]))


def test_tables_that_are_not_there_are_refused(golden):
    with refused(NotFoundError, "users, items, tags", "got 'user'"):
        golden.read_rows("user", np.array([0]))
