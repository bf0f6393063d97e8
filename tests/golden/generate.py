"""Writes the golden package: python tests/golden/generate.py.

It was written once per format version and is kept: every later reader must read it. Its
rows follow formulas (below), so that tests know every value without a quantizer.

    table   rows   stored as        value of row r, column c
    users      5   int8, dim 4      (16 r + c) / 128 - 1             the last row is oov
    items    600   int4, dim 8      ((r + c) % 16) / 2 - 1           two chunks
    tags       7   fp16, dim 4      r + c / 4
"""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray

from embershard.ids import hash_string
from embershard.package import (
    PackageContents,
    PackageWriter,
    RowFormat,
    SampleRequest,
    Vocabulary,
    default_limits,
    place_tables,
)
from embershard.package.id_maps import Hash
from embershard.package.manifest import OutputSpec, Producer, ProgramSpec
from embershard.package.manifest_inputs import (
    DenseInputSpec,
    HashIds,
    IdentityIds,
    Lookup,
    SparseInputSpec,
    VocabIds,
)

FOLDER = Path(__file__).parent / "format_0" / "tiny" / "1"
USERS = ["ada", "bob", "cyd", "dan"]


# score = sigmoid(dense + mean of all pooled columns); profile = two columns of the request's.
# As a string, so that the program holds no path of the machine that made it.
PROGRAM = """
def forward(self, request_inputs: List[Tensor], example_inputs: List[Tensor],
            request_of_example: Tensor) -> Dict[str, Tensor]:
    request = request_inputs[0].sum(dim=1) + request_inputs[1].mean(dim=1)
    example = example_inputs[0].sum(dim=1) + example_inputs[1].mean(dim=1)
    score = torch.sigmoid(request[request_of_example] + example)
    return {"score": score, "profile": request_inputs[1][:, :2]}
"""


def code_rows(rows: int, codes: NDArray[np.int64], *, scale: float) -> NDArray[np.uint8]:
    """Rows of scale, bias -1 and codes."""
    header = np.tile(np.array([scale, -1.0], "<f2").view(np.uint8), (rows, 1))
    return np.hstack([header, codes.astype(np.uint8)])


def table_rows() -> dict[str, NDArray[np.uint8]]:
    users = 16 * np.arange(5)[:, None] + np.arange(4)
    items = (np.arange(600)[:, None] + np.arange(8)) % 16
    tags = np.arange(7)[:, None] + np.arange(4) / 4
    return {
        "users": code_rows(5, users, scale=1 / 128),
        "items": code_rows(600, items[:, 0::2] + 16 * items[:, 1::2], scale=0.5),
        "tags": tags.astype("<f2").view(np.uint8),
    }


def lookup(values: NDArray[np.float64], rows: list[int], *, mean: bool) -> NDArray[np.float64]:
    total = values[rows].sum(axis=0) if rows else np.zeros(values.shape[1])
    return total / len(rows) if mean and rows else total


def samples(program: torch.jit.ScriptModule) -> list[SampleRequest]:
    """Two requests; the second has empty lists and a user that nobody knows."""
    users = (16 * np.arange(5)[:, None] + np.arange(4)) / 128 - 1
    items = ((np.arange(600)[:, None] + np.arange(8)) % 16) / 2 - 1
    tags = np.arange(7)[:, None] + np.arange(4) / 4
    made = []
    for user, tag_ids, weights, item_lists in (
        ("cyd", [7, -1, 2**62], [0.5, 2.0, -1.0], [[0], [599, 1], [512, 511, 3]]),
        ("eve", [], [], [[], [17]]),
    ):
        user_row = USERS.index(user) if user in USERS else 4
        tag_rows = Hash(buckets=7, seed=3).rows_of(np.array(tag_ids, np.int64))
        weighted = (np.array(weights)[:, None] * tags[tag_rows]).sum(axis=0)
        n = len(item_lists)
        request_dense = np.array([0.125], np.float32)
        example_dense = np.linspace(-0.5, 0.5, n, dtype=np.float32)[:, None]
        request = np.concatenate([users[user_row], weighted])
        example = np.stack([lookup(items, rows, mean=True) for rows in item_lists])
        outputs = program(
            [torch.from_numpy(request_dense)[None], torch.from_numpy(request)[None].float()],
            [torch.from_numpy(example_dense), torch.from_numpy(example).float()],
            torch.zeros(n, dtype=torch.int64),
        )
        logits = 0.125 + request.mean() + example_dense[:, 0] + example.mean(axis=1)
        np.testing.assert_allclose(outputs["score"], 1 / (1 + np.exp(-logits)), atol=1e-6)
        made.append(
            SampleRequest(
                num_examples=n,
                request_dense=request_dense,
                example_dense=example_dense,
                lengths=np.array([1, len(tag_ids), *map(len, item_lists)], np.int32),
                values=np.array(
                    [hash_string(user), *tag_ids, *itertools.chain(*item_lists)], np.int64
                ),
                weights=np.array(weights, np.float32),
                outputs={name: value.numpy() for name, value in outputs.items()},
            )
        )
    return made


def contents(tables: dict[str, object], vocabulary: str) -> PackageContents:
    return PackageContents(
        model="tiny",
        version=1,
        producer=Producer(embershard="0.1.0", torch="2.13.0", fbgemm_gpu="1.8.0"),
        inputs=[
            DenseInputSpec(kind="dense", name="age", scope="request", default=None),
            DenseInputSpec(kind="dense", name="price", scope="example", default=0.25),
            SparseInputSpec(
                kind="sparse",
                name="user",
                scope="request",
                weighted=False,
                max_ids=0,
                keep="reject",
                ids=VocabIds(kind="vocab", rows=5, file=vocabulary, unknown="oov", oov_row=4),
                lookups=(Lookup(table="users", output="pooled", pooling="sum"),),
            ),
            SparseInputSpec(
                kind="sparse",
                name="tags",
                scope="request",
                weighted=True,
                max_ids=3,
                keep="last",
                ids=HashIds(kind="hash", rows=7, seed=3),
                lookups=(Lookup(table="tags", output="pooled", pooling="sum"),),
            ),
            SparseInputSpec(
                kind="sparse",
                name="item",
                scope="example",
                weighted=False,
                max_ids=0,
                keep="reject",
                ids=IdentityIds(kind="identity", rows=600, unknown="reject", oov_row=None),
                lookups=(Lookup(table="items", output="pooled", pooling="mean"),),
            ),
        ],
        outputs=[
            OutputSpec(name="score", scope="example", shape=()),
            OutputSpec(name="profile", scope="request", shape=(2,)),
        ],
        tables=list(tables.values()),
        programs=[
            ProgramSpec(kind="torchscript", target="cpu", dtype="float32", file="programs/dense.pt")
        ],
        plans=["default", "halves"],
        limits=default_limits(max_examples=64, max_ids=1000),
    )


def program_bytes(program):
    """Returns what torch writes to a file of that name, which it repeats inside."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "dense.pt"
        torch.jit.save(program, str(file))
        return file.read_bytes()


def main() -> None:
    program = torch.jit.ScriptModule()
    program.define(PROGRAM)
    formats = {
        "users": RowFormat("int8", 4),
        "items": RowFormat("int4", 8),
        "tags": RowFormat("fp16", 4),
    }
    with PackageWriter(FOLDER, chunk_bytes_max=4096) as writer:
        tables = {
            name: writer.write_table(name, formats[name], [rows], rows=len(rows))
            for name, rows in table_rows().items()
        }
        vocabulary = writer.add_vocabulary("user.safetensors", Vocabulary(USERS))
        whole = place_tables(list(tables.values()), ["cpu:0"])
        writer.add_plan(whole)
        writer.add_plan(halves(whole))
        writer.add_file("programs/dense.pt", program_bytes(program))
        writer.add_samples(samples(program))
        writer.publish(contents(tables, vocabulary))
    print(FOLDER, hashlib.sha256((FOLDER / "manifest.json").read_bytes()).hexdigest())


def halves(whole):
    """Items over two devices by rows and columns, tags on both."""
    users, items, tags = whole.shards
    return whole.model_copy(
        update={
            "name": "halves",
            "devices": ("cpu:0", "cpu:1"),
            "shards": (
                users,
                items.model_copy(update={"rows": (0, 300), "columns": (0, 4)}),
                items.model_copy(update={"rows": (0, 300), "columns": (4, 8), "devices": (1,)}),
                items.model_copy(update={"rows": (300, 600), "devices": (1,)}),
                tags.model_copy(update={"devices": (0, 1)}),
            ),
        }
    )


if __name__ == "__main__":
    main()
