"""Criteo's click logs: lines of a label, 13 integers and 26 hexadecimal ids, with tabs between.

label    int_0 .. int_12    cat_0 .. cat_25    row
──────   ────────────────   ────────────────   ──────────────────────────────
0 or 1   integers or null   strings or null    number of the line, all files
                                               together
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from embershard.data.base import Progress
from embershard.data.converted import converted_folder, write_rows
from embershard.data.parquet_files import SourceFile, file_state
from embershard.errors import DataError

DENSE: Final = tuple(f"int_{number}" for number in range(13))
SPARSE: Final = tuple(f"cat_{number}" for number in range(26))
COLUMNS: Final[Mapping[str, pa.DataType]] = {
    "label": pa.int8(),
    **dict.fromkeys(DENSE, pa.int64()),
    **dict.fromkeys(SPARSE, pa.string()),
}
SCHEMA: Final = pa.schema([*COLUMNS.items(), ("row", pa.int64())])
BLOCK_BYTES: Final = 4 << 20
"""Text that is parsed at once. pyarrow reads up to 32 blocks ahead."""

INT_MAX: Final = float(1 << 31)


def criteo_sections(
    path: Path, ids: Mapping[str, Any], cache: Path, progress: Progress | None
) -> dict[str, Any]:
    """Sections of the `ParquetConfig` that reads the lines, without the shares of the splits. Dense
    inputs become log(1 + max(value, 0)), as in DLRM's benchmark. ``path`` is a file, or a folder of
    files in the order of their numbers; those with ``.gz`` are compressed by gzip. ``ids`` has the
    keys of each sparse input's section. ``progress`` counts bytes. Raises DataError if there is no
    file, or a line is not in this format."""
    sources = _sources(path)
    folder = converted_folder("criteo", sources, cache, lambda out: _write(sources, out, progress))
    dense = {"null": 0.0, "transforms": [{"clip": [0.0, INT_MAX]}, "log1p"]}
    return {
        "files": [str(folder)],
        "split": {"by": "time", "column": "row"},
        "dense": dict.fromkeys(DENSE, dense),
        "sparse": dict.fromkeys(SPARSE, ids),
    }


def _sources(path: Path) -> list[SourceFile]:
    """The files of ``path``, with ``day_2`` before ``day_10``."""

    def numbers_by_value(file: Path) -> list[tuple[int, str]]:
        parts = re.split(r"(\d+)", file.name)
        return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]

    files = [path]
    if path.is_dir():
        visible = (file for file in path.iterdir() if file.is_file() and file.name[0] != ".")
        files = sorted(visible, key=numbers_by_value)
    if not files:
        raise DataError(f"{path}: expected files of Criteo's lines, found none")
    return [file_state(str(file)) for file in files]


def _write(sources: Sequence[SourceFile], folder: Path, progress: Progress | None) -> None:
    total = sum(source.size_bytes for source in sources)
    row = bytes_before = 0

    def numbered_batches(path: str) -> Iterator[pa.RecordBatch]:
        nonlocal row
        try:
            with Path(path).open("rb") as stream:
                for batch in _record_batches(stream, is_gzip=path.endswith(".gz")):
                    rows = pa.array(np.arange(row, row + len(batch)))
                    row += len(batch)
                    if progress is not None:
                        progress("converting bytes", bytes_before + stream.tell(), total)
                    yield batch.append_column("row", rows)
        except (OSError, pa.ArrowException) as error:
            expected = "a label, 13 integers and 26 ids in each line, with tabs between"
            raise DataError(f"{path}: expected {expected}, got: {error}") from error

    for number, source in enumerate(sources):
        write_rows(folder / f"{number:05}.parquet", SCHEMA, numbered_batches(source.path))
        bytes_before += source.size_bytes


def _record_batches(stream: BinaryIO, *, is_gzip: bool) -> csv.CSVStreamingReader:
    return csv.open_csv(
        pa.CompressedInputStream(stream, "gzip") if is_gzip else stream,
        read_options=csv.ReadOptions(
            column_names=list(COLUMNS),
            block_size=BLOCK_BYTES,
            use_threads=False,  # Errors have the number of the line only then.
        ),
        parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=csv.ConvertOptions(
            column_types=COLUMNS, null_values=[""], strings_can_be_null=True
        ),
    )
