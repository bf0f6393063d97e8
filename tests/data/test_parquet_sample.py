"""A sample of rows has the types of the files, however pages are encoded."""

import pyarrow as pa

from embershard.data.parquet_sample import sample_rows
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
