"""The writer writes chunks as rows arrive, publishes a version once, and leaves nothing else."""

import hashlib
import json
import os
import shutil
import subprocess
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load

from embershard.errors import InputError, PackageError
from embershard.package import Package, PackageWriter, RowFormat, verify_package
from tests.cases import cases, refused
from tests.package.building import ROWS, fill, publish


@given(
    rows=st.integers(1, 2100),
    cuts=st.lists(st.integers(0, 2100), max_size=6),
    chunk_bytes=st.sampled_from([4096, 8192, 1 << 30]),
)
def test_chunks_hold_the_rows_whatever_the_batches(tmp_path_factory, rows, cuts, chunk_bytes):
    folder = tmp_path_factory.mktemp("table")
    batches = np.split(ROWS[:rows], sorted(min(cut, rows) for cut in cuts))

    with PackageWriter(folder / "m" / "1", chunk_bytes_max=chunk_bytes) as writer:
        table = writer.write_table("user", RowFormat("int8", 4), iter(batches), rows=rows)
        chunks = [load(writer.path(chunk).read_bytes())["rows"] for chunk in table.chunks]

    assert table.rows == rows
    np.testing.assert_array_equal(np.concatenate(chunks), ROWS[:rows])
    assert all(len(chunk) == table.rows_per_chunk for chunk in chunks[:-1])
    assert table.rows_per_chunk * 8 % 4096 == 0
    if chunk_bytes < 1 << 30:
        assert table.rows_per_chunk * 8 <= chunk_bytes
    else:
        assert len(chunks) == 1


def test_rows_begin_on_a_page(tmp_path):
    package = publish(tmp_path / "m" / "1", chunk_bytes_max=8192)

    data = (package / "tables/user/00002.safetensors").read_bytes()

    # The 3000 rows of 8 bytes are in chunks of 1024, 1024 and 952 rows.
    assert data[4096:] == ROWS[2048:].tobytes()


def test_a_table_that_fits_one_chunk_says_the_fewest_whole_pages(tmp_path):
    package = Package.open(publish(tmp_path / "m" / "1"))
    assert package.manifest.tables[0].rows_per_chunk == 3072  # That is 6 pages of 512 rows.


def test_a_published_package_verifies_and_lists_all_digests(tmp_path):
    package = publish(tmp_path / "m" / "1")

    verify_package(package)

    files = json.loads((package / "manifest.json").read_bytes())["files"]
    results = {
        path.relative_to(package).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in package.rglob("*")
        if path.is_file() and not path.name.startswith("manifest.")
    }
    assert {file: spec["sha256"] for file, spec in files.items()} == results


def test_no_rows_are_read_again_to_hash_them(tmp_path):
    before = bytes_read()
    package = publish(tmp_path / "m" / "1", [ROWS] * 100)
    read = bytes_read() - before
    assert (package / "tables/user/00000.safetensors").stat().st_size > 100 * ROWS.nbytes
    assert read < ROWS.nbytes


def bytes_read():
    """Bytes that this process has read from files."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"])


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="no sha256sum here")
def test_sha256sum_checks_the_manifest(tmp_path):
    package = publish(tmp_path / "m" / "1")
    subprocess.run(["sha256sum", "--check", "--strict", "manifest.sha256"], cwd=package, check=True)


def test_others_may_read_the_published_folder(tmp_path):
    package = publish(tmp_path / "m" / "1")
    assert package.stat().st_mode & 0o777 == 0o755


def test_versions_are_immutable(tmp_path):
    publish(tmp_path / "m" / "1")
    with refused(InputError, "versions are immutable"):
        PackageWriter(tmp_path / "m" / "1")


def test_of_two_writers_of_one_version_the_second_is_refused(tmp_path):
    out = tmp_path / "m" / "1"
    with PackageWriter(out) as slow:
        contents = fill(slow, [ROWS])
        publish(out, [ROWS[:5]])
        with refused(InputError, "versions are immutable"):
            slow.publish(contents)

    assert Package.open(out).manifest.tables[0].rows == 5
    assert os.listdir(tmp_path / "m") == ["1"]


@pytest.mark.parametrize("raised", [False, True])
def test_what_is_not_published_is_removed(tmp_path, raised):
    stopped = pytest.raises(RuntimeError, match="stop") if raised else nullcontext()
    with stopped, PackageWriter(tmp_path / "m" / "1") as writer:
        fill(writer, [ROWS])
        if raised:
            raise RuntimeError("stop")
    assert os.listdir(tmp_path / "m") == []


def test_a_full_disk_is_an_input_error_that_names_the_package(tmp_path, file_limit):
    out = tmp_path / "repository" / "model" / "1"
    with (
        refused(InputError, "/repository/model/1", "File too large"),
        file_limit(8000),
        PackageWriter(out) as writer,
    ):
        fill(writer, [ROWS])
    assert list(out.parent.iterdir()) == []


def test_contents_that_contradict_the_files_are_not_published(tmp_path):
    out = tmp_path / "m" / "1"
    with PackageWriter(out) as writer:
        contents = fill(writer, [ROWS])
        writer.path("samples.safetensors").unlink()
        with refused(PackageError, "samples.safetensors: missing file"):
            writer.publish(contents)
    assert not out.exists()


@cases(
    ("batches", "rows", "parts"),
    {
        "no-rows": ([], 0, ["table user", "got none"]),
        "no-batch": ([], 3000, ["table user", "3000 rows, got 0"]),
        "too-few": ([ROWS, ROWS[:5]], 3006, ["3006 rows, got 3005"]),
        "too-few-of-a-chunk": ([ROWS[:1024]], 1025, ["1025 rows, got 1024"]),
        "too-many": ([ROWS, ROWS[:5]], 3004, ["3004 rows, got at least 3005"]),
        "too-many-by-a-batch": ([ROWS, ROWS[:5]], 3000, ["3000 rows, got at least 3005"]),
        "width": ([ROWS[:, :7]], 3000, ["uint8 [n, 8], got uint8 [3000, 7]"]),
        "dtype": ([ROWS.view(np.int8)], 3000, ["uint8 [n, 8], got int8"]),
    },
)
def test_batches_refused(tmp_path, batches, rows, parts):
    with (
        PackageWriter(tmp_path / "m" / "1", chunk_bytes_max=8192) as writer,
        refused(InputError, *parts),
    ):
        writer.write_table("user", RowFormat("int8", 4), batches, rows=rows)


@pytest.mark.parametrize("name", ["../user", "a/b", "", ".user", "user\n"])
def test_table_names_that_are_paths_are_refused(tmp_path, name):
    with PackageWriter(tmp_path / "m" / "1") as writer, refused(InputError, "table", repr(name)):
        writer.write_table(name, RowFormat("int8", 4), [ROWS], rows=3000)


@pytest.mark.parametrize("file", ["../x", "/x", "report/../../x", ""])
def test_paths_that_leave_the_package_are_refused(tmp_path, file):
    with PackageWriter(tmp_path / "m" / "1") as writer, refused(InputError, "file", file):
        writer.add_file(file, b"")


@pytest.mark.parametrize("error", [float("nan"), float("inf"), -1.0])
def test_errors_that_are_no_measure_are_refused(tmp_path, error):
    with PackageWriter(tmp_path / "m" / "1") as writer:
        table = writer.write_table("user", RowFormat("int8", 4), [ROWS], rows=3000)
        with refused(InputError, "table user: mse", error):
            table.with_error(mse=error, max_error=0.0)


def test_a_file_is_written_once(tmp_path):
    with PackageWriter(tmp_path / "m" / "1") as writer:
        writer.add_file("report/report.json", b"{}")
        with refused(InputError, "report/report.json"):
            writer.add_file("report/report.json", b"{}")


def test_a_report_beside_the_rest_is_listed(tmp_path):
    with PackageWriter(tmp_path / "m" / "1") as writer:
        contents = fill(writer, [ROWS])
        writer.add_file("report/report.json", b"{}")
        out = writer.publish(contents)
    assert Package.open(out).manifest.files["report/report.json"].bytes == 2


def test_batches_are_not_kept(tmp_path):
    """When a batch is requested, at most the one before it is alive."""
    import weakref

    alive = []

    def batches():
        for _ in range(20):
            batch = ROWS.copy()
            alive.append(weakref.ref(batch))
            yield batch
            del batch
            assert sum(ref() is not None for ref in alive) <= 1

    with PackageWriter(tmp_path / "m" / "1", chunk_bytes_max=4096) as writer:
        table = writer.write_table("user", RowFormat("int8", 4), batches(), rows=60_000)

    assert table.rows == 60_000
    assert Path(table.chunks[-1]).name == "00117.safetensors"  # The last of 60,000 / 512 chunks.
