"""A sample of rows has the types of the files, however pages are encoded."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embershard.data.parquet_sample import sample_rows
from embershard.errors import DataError
from tests.cases import refused
from tests.data.small_parquet import table, write


def test_strings_of_dictionaries_are_strings_in_a_sample(tmp_path):
    columns = {
        "word": pa.array(["a", None] * 5),
        "tags": pa.array([["a", "b"], None, [], ["c", None], ["b"]] * 2),
        "tags_of_candidates": pa.array([[["a"], []], []] * 5),
    }
    whole = table(10, **columns)
    folder = write(tmp_path / "files", whole, whole, row_group_size=4)
    sample, rows = sample_rows([str(folder)], 100)
    assert rows == 20
    assert sample.schema.types == whole.schema.types
    assert sample.to_pylist() == 2 * whole.to_pylist()


@pytest.mark.parametrize(
    ("second", "received"), [(["a"], "string"), ([[1.0]], "list<"), ([{"v": 1.0}], "struct<")]
)
def test_files_with_columns_of_other_types_are_refused(tmp_path, second, received):
    pq.write_table(pa.table({"price": pa.array([1.5])}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"price": pa.array(second)}), tmp_path / "1.parquet")
    parts = ["1.parquet: column 'price':", "double", "0.parquet", f"got {received}"]
    with refused(DataError, *parts):
        sample_rows([str(tmp_path)], 100)


def test_files_with_integers_of_other_widths_make_one_sample(tmp_path):
    for place, width in enumerate((pa.int32(), pa.int64())):
        pq.write_table(pa.table({"id": pa.array([place], width)}), tmp_path / f"{place}.parquet")
    assert sample_rows([str(tmp_path)], 100)[0]["id"].to_pylist() == [0, 1]
