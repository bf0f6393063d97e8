"""Writes the golden package of padded rows: python tests/golden/generate_narrow.py.

It was written once and is kept, as that of generate.py: every later reader must read it.

    table    rows   stored as        value of row r, column c
    biases      9   fp32, dim 1      r / 4 - 1
    users       5   int8, dim 3      (16 r + c) / 128 - 1
    items     600   int4, dim 6      ((r + c) % 16) / 2 - 1           two chunks
    tags        7   fp16, dim 5      r + c / 4
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from embershard.package import (
    PackageContents,
    PackageWriter,
    RowFormat,
    SampleRequest,
    default_limits,
    place_tables,
)
from embershard.package.manifest import OutputSpec, Producer, ProgramSpec
from embershard.package.manifest_inputs import IdentityIds, Lookup, SparseInputSpec
from tests.golden.generate import code_rows, program_bytes

FOLDER = Path(__file__).parent / "format_0_narrow" / "narrow" / "1"

# score = sigmoid(mean of all pooled columns + the sum of a sequence's); vectors = all columns.
# As a string, so that the program holds no path of the machine that made it.
PROGRAM = """
def forward(self, request_inputs: List[Tensor], example_inputs: List[Tensor],
            request_of_example: Tensor) -> Dict[str, Tensor]:
    request = request_inputs[1][request_of_example]
    columns = torch.cat([request, example_inputs[1]], dim=1)
    listed = request_inputs[2].sum()
    return {"score": torch.sigmoid(columns.mean(dim=1) + listed), "vectors": columns}
"""

FORMATS = {
    "biases": RowFormat("fp32", 1),
    "users": RowFormat("int8", 3),
    "items": RowFormat("int4", 6),
    "tags": RowFormat("fp16", 5),
}
ROWS = {"biases": 9, "users": 5, "items": 600, "tags": 7}
LOOKUPS = {  # Of each input: scope, table, whether its ids have weights, and how it is looked up.
    "user": ("request", "users", False, "sum"),
    "tags": ("request", "tags", True, "sum"),
    "liked": ("request", "biases", False, None),
    "item": ("example", "items", False, "mean"),
    "bias": ("example", "biases", False, "sum"),
}
IDS = {
    "user": [[2]],
    "tags": [[6, 0]],
    "liked": [[8, 0]],
    "item": [[0], [599, 1]],
    "bias": [[3], []],
}
WEIGHTS = [0.5, -2.0]


def values_of(table: str) -> NDArray[np.float64]:
    rows, dim = ROWS[table], FORMATS[table].dim
    r, c = np.arange(rows)[:, None], np.arange(dim)
    return {
        "biases": r / 4 - 1 + 0 * c,
        "users": (16 * r + c) / 128 - 1,
        "items": ((r + c) % 16) / 2 - 1,
        "tags": r + c / 4,
    }[table]


def table_rows() -> dict[str, NDArray[np.uint8]]:
    padded = {
        name: np.pad(values_of(name), ((0, 0), (0, spec.stored_dim - spec.dim)), mode="edge")
        for name, spec in FORMATS.items()
    }
    users = ((padded["users"] + 1) * 128).astype(np.int64)
    items = ((padded["items"] + 1) * 2).astype(np.int64)
    return {
        "biases": padded["biases"].astype("<f4").view(np.uint8),
        "users": code_rows(5, users, scale=1 / 128),
        "items": code_rows(600, items[:, 0::2] + 16 * items[:, 1::2], scale=0.5),
        "tags": padded["tags"].astype("<f2").view(np.uint8),
    }


def vectors() -> NDArray[np.float32]:
    """Pooled columns of the sample's two examples: user, tags, item, bias."""
    user = values_of("users")[2]
    tags = np.array(WEIGHTS) @ values_of("tags")[[6, 0]]
    items, biases = values_of("items"), values_of("biases")
    item = np.stack([items[0], items[[599, 1]].mean(axis=0)])
    bias = np.stack([biases[3], np.zeros(1)])
    request = np.tile(np.concatenate([user, tags]), (2, 1))
    return np.hstack([request, item, bias]).astype(np.float32)


def sample() -> SampleRequest:
    columns = vectors()
    listed = values_of("biases")[[8, 0]].sum()
    score = 1 / (1 + np.exp(-(columns.mean(axis=1) + listed)))
    lists = [value for lists in IDS.values() for value in lists]
    return SampleRequest(
        num_examples=2,
        request_dense=np.zeros(0, np.float32),
        example_dense=np.zeros((2, 0), np.float32),
        lengths=np.array([len(ids) for ids in lists], np.int32),
        values=np.array([row_id for ids in lists for row_id in ids], np.int64),
        weights=np.array(WEIGHTS, np.float32),
        outputs={"score": score.astype(np.float32), "vectors": columns},
    )


def input_spec(name: str) -> SparseInputSpec:
    scope, table, weighted, pooling = LOOKUPS[name]
    return SparseInputSpec(
        kind="sparse",
        name=name,
        scope=scope,
        weighted=weighted,
        max_ids=0,
        keep="reject",
        ids=IdentityIds(kind="identity", rows=ROWS[table], unknown="reject", oov_row=None),
        lookups=(Lookup(table=table, output="pooled" if pooling else "sequence", pooling=pooling),),
    )


def main() -> None:
    program = torch.jit.ScriptModule()
    program.define(PROGRAM)
    with PackageWriter(FOLDER, chunk_bytes_max=4096) as writer:
        tables = [
            writer.write_table(name, FORMATS[name], [rows], rows=len(rows))
            for name, rows in table_rows().items()
        ]
        whole = place_tables(tables, ["cpu:0"])
        writer.add_plan(whole)
        biases, users, items, tags = whole.shards
        first = items.model_copy(update={"columns": (0, 4)})
        last = items.model_copy(update={"columns": (4, 6), "devices": (1,)})
        shards = (biases, users, first, last, tags)
        update = {"name": "columns", "devices": ("cpu:0", "cpu:1"), "shards": shards}
        writer.add_plan(whole.model_copy(update=update))
        writer.add_file("programs/dense.pt", program_bytes(program))
        writer.add_samples([sample()])
        writer.publish(
            PackageContents(
                model="narrow",
                version=1,
                producer=Producer(embershard="0.1.0", torch="2.13.0", fbgemm_gpu="1.8.0"),
                inputs=[input_spec(name) for name in LOOKUPS],
                outputs=[
                    OutputSpec(name="score", scope="example", shape=()),
                    OutputSpec(name="vectors", scope="example", shape=(15,)),
                ],
                tables=tables,
                programs=[
                    ProgramSpec(
                        kind="torchscript",
                        target="cpu",
                        dtype="float32",
                        file="programs/dense.pt",
                    )
                ],
                plans=["default", "columns"],
                limits=default_limits(max_examples=64, max_ids=1000),
            )
        )
    print(FOLDER, hashlib.sha256((FOLDER / "manifest.json").read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
