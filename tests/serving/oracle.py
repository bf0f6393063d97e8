"""The expected answers of a package, worked out from its bytes with json, safetensors, numpy and
torch.

Written against docs/format.md alone: nothing of embershard takes part.
"""

import json
import math
import warnings
from pathlib import Path

import numpy as np
import torch
import xxhash
from safetensors.numpy import load_file

from tests.serving.asking import Asked, id_bits


class Oracle:
    def __init__(self, package: Path) -> None:
        self._package = package
        self._manifest = json.loads((package / "manifest.json").read_text())
        self._tables = {table["name"]: self._read(table) for table in self._manifest["tables"]}
        self._vocabularies: dict[str, dict[int, int]] = {}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r".*torch\.jit")
            self._program = torch.jit.load(str(package / "programs/dense.pt"))

    def answer(self, request: Asked) -> dict[str, np.ndarray]:
        """Outputs by name: float32 ``(num_examples, ...)`` or ``(1, ...)``."""
        inputs = []
        for scope, rows in (("request", 1), ("example", request.num_examples)):
            columns, vectors = [np.zeros((rows, 0))], [np.zeros((rows, 0))]
            sequences: list[np.ndarray] = []
            for item in self._manifest["inputs"]:
                if item["scope"] != scope:
                    continue
                if item["kind"] == "dense":
                    values = request.dense.get(item["name"], [item["default"]] * rows)
                    columns.append(np.array(values, np.float32).reshape(rows, 1))
                else:
                    vectors += self._pooled(item, request, rows)
                    sequences += self._sequences(item, request, rows)
            inputs.append(
                [
                    torch.from_numpy(np.hstack(item).astype(np.float32))
                    for item in (columns, vectors)
                ]
                + [torch.from_numpy(sequence) for sequence in sequences]
            )
        with torch.no_grad():
            outputs = self._program(*inputs, torch.zeros(request.num_examples, dtype=torch.int64))
        return {name: output.numpy() for name, output in outputs.items()}

    def _pooled(self, item: dict, request: Asked, rows: int) -> list[np.ndarray]:
        """One matrix for each table that the input is looked up in."""
        lists = request.sparse.get(item["name"], [[]] * rows)
        weights = request.weights.get(item["name"], [[1.0] * len(ids) for ids in lists])
        results = []
        for lookup in item["lookups"]:
            if lookup["output"] != "pooled":
                continue
            table = self._tables[lookup["table"]]
            pooled = np.zeros((rows, table.shape[1]))
            for bag, (ids, factors) in enumerate(zip(lists, weights, strict=True)):
                kept = self._kept(item, list(zip(ids, factors, strict=True)))
                for value, factor in kept:
                    row = self._row(item["ids"], id_bits(value))
                    if row is not None:
                        pooled[bag] += np.float32(factor) * table[row].astype(np.float64)
                if lookup["pooling"] == "mean" and kept:
                    pooled[bag] /= len(kept)
            results.append(pooled)
        return results

    def _sequences(self, item: dict, request: Asked, rows: int) -> list[np.ndarray]:
        """For each table without pooling that the input is looked up in: values, offsets."""
        lists = [self._kept(item, ids) for ids in request.sparse.get(item["name"], [[]] * rows)]
        offsets = np.cumsum([0, *map(len, lists)])
        results = []
        for lookup in item["lookups"]:
            if lookup["output"] != "sequence":
                continue
            table = self._tables[lookup["table"]]
            values = np.zeros((offsets[-1], table.shape[1]), np.float32)
            for place, value in enumerate(value for ids in lists for value in ids):
                row = self._row(item["ids"], id_bits(value))
                if row is not None:
                    values[place] = table[row]
            results += [values, offsets]
        return results

    @staticmethod
    def _kept(item: dict, ids: list) -> list:
        most = item["max_ids"]
        if not most or len(ids) <= most:
            return ids
        return {"first": ids[:most], "last": ids[-most:]}[item["keep"]]

    def _row(self, ids: dict, value: int) -> int | None:
        """Row of an id; None stands for a zero vector."""
        if ids["kind"] == "hash":
            data = value.to_bytes(8, "little", signed=True)
            return xxhash.xxh3_64_intdigest(data, seed=ids["seed"]) % ids["rows"]
        if ids["kind"] == "vocab":
            row = self._vocabulary(ids["file"]).get(value)
        else:
            known = ids["rows"] - (ids["unknown"] == "oov")
            row = value if 0 <= value < known else None
        if row is None and ids["unknown"] == "oov":
            return ids["oov_row"]
        assert row is not None or ids["unknown"] == "zero"
        return row

    def _vocabulary(self, file: str) -> dict[int, int]:
        if file not in self._vocabularies:
            arrays = load_file(self._package / file)
            self._vocabularies[file] = dict(
                zip(arrays["keys"].tolist(), arrays["rows"].tolist(), strict=True)
            )
        return self._vocabularies[file]

    @staticmethod
    def _row_bytes(weights: str, columns: int) -> int:
        return {
            "int8": 4 + columns,
            "int4": 4 + columns // 2,
            "fp16": 2 * columns,
            "fp32": 4 * columns,
        }[weights]

    def _read(self, table: dict) -> np.ndarray:
        """A table's values, float32 ``(rows, dim)``."""
        chunks = [load_file(self._package / chunk)["rows"] for chunk in table["chunks"]]
        rows = np.concatenate(chunks)
        assert rows.shape == (table["rows"], table["row_bytes"])
        assert rows.shape[1] == self._row_bytes(table["weights"], -(-table["dim"] // 4) * 4)
        if table["weights"] in ("fp16", "fp32"):
            stored = rows.copy().view(np.float16 if table["weights"] == "fp16" else np.float32)
            return stored[:, : table["dim"]].astype(np.float32)
        header = rows[:, :4].copy().view(np.float16).astype(np.float32)
        codes = rows[:, 4:]
        if table["weights"] == "int4":
            codes = np.stack([codes % 16, codes // 16], axis=2).reshape(len(rows), -1)
        values = header[:, :1] * codes[:, : table["dim"]] + header[:, 1:]
        assert math.isfinite(values.sum())
        return values.astype(np.float32)
