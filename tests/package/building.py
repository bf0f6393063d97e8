"""Writes a small package for tests with `PackageWriter`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from embershard.package import (
    PackageContents,
    PackageWriter,
    RowFormat,
    SampleRequest,
    Vocabulary,
    default_limits,
    place_tables,
)
from embershard.package.manifest import OutputSpec, Producer, ProgramSpec, TableSpec
from embershard.package.manifest_inputs import Lookup, SparseInputSpec, VocabIds

ROWS = np.arange(3000 * 8, dtype=np.uint32).astype(np.uint8).reshape(3000, 8)
"""The 3000 rows of table "user": int8 with dim 4, so 8 bytes each."""


def sample(examples: int = 2) -> SampleRequest:
    return SampleRequest(
        num_examples=examples,
        request_dense=np.zeros(0, np.float32),
        example_dense=np.zeros((examples, 0), np.float32),
        lengths=np.ones(examples, np.int32),
        values=np.full(examples, 17, np.int64),
        weights=np.zeros(0, np.float32),
        outputs={"score": np.full(examples, 0.5, np.float32)},
    )


def fill(
    writer: PackageWriter,
    batches: list[np.ndarray],
    *,
    version: int = 1,
    ids: Sequence[int] | Sequence[str] | None = None,
) -> PackageContents:
    """Writes every file of the package, and returns the contents to publish."""
    rows = sum(len(batch) for batch in batches)
    table = writer.write_table("user", RowFormat("int8", 4), iter(batches), rows=rows)
    value = np.arange(table.rows)[::-1] if ids is None else ids
    vocabulary = writer.add_vocabulary("user.safetensors", Vocabulary(value))
    writer.add_plan(place_tables([table], ["cpu:0", "cpu:1"]))
    writer.add_file("programs/dense.pt", b"no program: these tests read none")
    writer.add_samples([sample()])
    user = SparseInputSpec(
        kind="sparse",
        name="user",
        scope="example",
        weighted=False,
        max_ids=0,
        keep="reject",
        ids=VocabIds(
            kind="vocab", rows=table.rows, file=vocabulary, unknown="reject", oov_row=None
        ),
        lookups=(Lookup(table="user", output="pooled", pooling="sum"),),
    )
    return PackageContents(
        model="small",
        version=version,
        producer=Producer(embershard="0", torch="0", fbgemm_gpu="0"),
        inputs=[user],
        outputs=[OutputSpec(name="score", scope="example", shape=())],
        tables=[table.with_error(mse=1e-6, max_error=2e-3)],
        programs=[
            ProgramSpec(kind="torchscript", target="cpu", dtype="float32", file="programs/dense.pt")
        ],
        plans=["default"],
        limits=default_limits(),
    )


def publish(out: Path, batches: list[np.ndarray] | None = None, **options: int) -> Path:
    """Writes the package at ``out``."""
    with PackageWriter(out, **options) as writer:
        return writer.publish(fill(writer, [ROWS] if batches is None else batches))


def table_spec(name: str, rows: int, dim: int = 8) -> TableSpec:
    """The entry of an int8 table in a manifest."""
    return TableSpec(
        name=name,
        rows=rows,
        dim=dim,
        weights="int8",
        row_bytes=dim + 4,
        rows_per_chunk=1024,
        chunks=("a",),
        mse=0.0,
        max_error=0.0,
    )
