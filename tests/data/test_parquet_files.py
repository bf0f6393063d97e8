"""Facts from the footers of Parquet files."""

import pyarrow as pa
import pytest

from embershard.data.parquet_files import find_files, null_shares
from tests.data.small_parquet import table, write


def test_null_shares_are_over_the_rows_of_all_files(tmp_path):
    price = pa.array([None, 1.0, None, 2.0])
    lists = pa.array([[1], None, [2], []])
    folder = write(tmp_path / "log", table(4, price=price, tags=lists), table(6, tags=lists.take(
        pa.array([0, 1, 2, 3, 0, 0]))), row_group_size=3)  # fmt: skip
    files = find_files([str(folder)], "data.files")

    shares = null_shares(files, ["price", "item", "tags"])

    assert shares == {"price": pytest.approx(0.2), "item": 0.0}
