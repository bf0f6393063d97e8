"""Lines of Criteo's click logs become inputs, labels and splits."""

import gzip
import math

import pytest

from embershard.data import DataConfig, criteo, load_dataset
from embershard.errors import DataError, InputError
from embershard.ids import hash_string
from tests.cases import cases, refused
from tests.data.small_parquet import lists_of


def line(label, integers, ids):
    cells = [str(label), *(["5"] * 13), *(["68fd1e64"] * 26)]
    cells[1 : 1 + len(integers)] = integers
    cells[14 : 14 + len(ids)] = ids
    return "\t".join(cells)


def lines(first, rows):
    """Lines that have their numbers in ``int_0``."""
    return [line(row % 2, [str(row)], []) for row in range(first, first + rows)]


def write(path, rows):
    text = "".join(f"{row}\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def load(path, tmp_path, progress=None, **settings):
    config = DataConfig(name="criteo", path=path, **settings)
    return load_dataset(config, cache=tmp_path / "cache", progress=progress)


def one_batch(split):
    (batch,) = split.batches(batch_size=1000)
    return batch


def line_numbers(split):
    return [round(math.expm1(value)) for value in one_batch(split).dense[:, 0].tolist()]


def test_a_line_has_13_integers_26_ids_and_a_label(tmp_path):
    rows = [line(1, ["-3", "", "7"], ["a", "", "b"]), line(0, ["0", "2", "8"], ["b", "a", "b"])]
    data = load(write(tmp_path / "day", rows), tmp_path, valid=0.0, test=0.0)
    batch = one_batch(data.train)
    assert data.name == "criteo"
    assert (len(data.schema.dense), len(data.schema.sparse)) == (13, 26)
    assert batch.labels.tolist() == [1, 0]
    assert batch.dense[0, :3].tolist() == pytest.approx([0, 0, math.log(8)])
    assert batch.dense[1, :3].tolist() == pytest.approx([0, math.log(3), math.log(9)])
    assert [len(ids) for ids in lists_of(batch, "cat_1")] == [0, 1]
    known = data.schema.sparse[0].ids
    assert sorted(known.keys.tolist()) == sorted([hash_string("a"), hash_string("b")])


def test_the_last_lines_are_the_test_split(tmp_path):
    data = load(write(tmp_path / "day", lines(0, 20)), tmp_path, valid=0.2, test=0.1)
    assert line_numbers(data.train) == list(range(14))
    assert line_numbers(data.valid) == [14, 15, 16, 17]
    assert line_numbers(data.test) == [18, 19]


def test_files_of_a_folder_are_read_in_the_order_of_their_days(tmp_path):
    folder = tmp_path / "days"
    folder.mkdir()
    write(folder / "day_10", lines(6, 3))
    write(folder / "day_2.gz", lines(3, 3))
    write(folder / "day_0", lines(0, 3))
    (folder / ".hidden").write_text("not lines")
    data = load(folder, tmp_path, valid=0.0, test=0.0)
    assert line_numbers(data.train) == list(range(9))


def test_ids_are_hashed_or_left_out_if_rare(tmp_path):
    ids = ["a", "a", "b"] * 4
    rows = [line(row % 2, [], [name]) for row, name in enumerate(ids[:10])]
    file = write(tmp_path / "day", rows)
    assert load(file, tmp_path, buckets=64).schema.sparse[0].ids.num_rows == 64
    common = load(file, tmp_path, min_count=4, valid=0.0, test=0.0).schema.sparse[0].ids
    assert common.keys.tolist() == [hash_string("a")]


def test_lines_are_converted_once(tmp_path):
    file = write(tmp_path / "day", lines(0, 20))
    steps = []
    load(file, tmp_path, progress=lambda step, done, total: steps.append((step, done, total)))
    converting = [counts for counts in steps if counts[0] == "converting bytes"]
    assert converting[-1][1:] == (file.stat().st_size, file.stat().st_size)
    steps.clear()
    load(file, tmp_path, progress=lambda *counts: steps.append(counts))
    assert steps == []


@cases(
    ("wrong", "words"),
    {
        "39-columns": ("0\t" + "\t".join(["1"] * 38), ["Row #8", "39"]),
        "no-number": (line(0, ["many"], []), ["Row #8", "many"]),
        "label": (line("yes", [], []), ["Row #8", "yes"]),
    },
)
def test_a_wrong_line_is_refused_with_its_number(tmp_path, monkeypatch, wrong, words):
    monkeypatch.setattr(criteo, "BLOCK_BYTES", 600)  # Puts the wrong line into a later block.
    file = write(tmp_path / "day", [*lines(0, 7), wrong])
    with pytest.raises(DataError) as raised:
        load(file, tmp_path)
    assert all(word in str(raised.value) for word in [str(file), *words])
    assert not list((tmp_path / "cache/criteo").glob("*/"))


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    file = write(tmp_path / "day.gz", lines(0, 500))
    file.write_bytes(file.read_bytes()[:-100])
    with refused(DataError, "day.gz"):
        load(file, tmp_path)
    assert not list((tmp_path / "cache/criteo").glob("*/"))


def test_a_label_other_than_0_and_1_is_refused(tmp_path):
    file = write(tmp_path / "day", [*lines(0, 9), line(2, [], [])])
    with refused(DataError, "row 9"):
        load(file, tmp_path)


def test_criteo_needs_a_path_with_files(tmp_path):
    with refused(InputError, "criteo"):
        load_dataset(DataConfig(name="criteo"), cache=tmp_path)
    with refused(DataError, "nowhere"):
        load(tmp_path / "nowhere", tmp_path)
    (tmp_path / "empty").mkdir()
    with refused(DataError, "empty"):
        load(tmp_path / "empty", tmp_path)
