"""The report of an export, in report/report.json."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embershard.package.manifest import TableSpec
from embershard.package.samples import SampleRequest

REPORT_FILE = "report/report.json"

FEW_REORDERED = 0.001
"""Share of pairs. AUC within a request changes by at most the share of pairs that change order."""


def report_json(
    tables: Sequence[TableSpec],
    samples: Sequence[SampleRequest],
    exact: Sequence[SampleRequest] | None,
) -> bytes:
    """The bytes of report.json, without times and paths, so that exports of a module are equal.
    ``exact``: the samples, scored by a dense program in float32. None: the package has one."""
    stored = sum(table.table_bytes for table in tables)
    fp32 = sum(table.fp32_bytes for table in tables)
    report = {
        "tables": [
            {
                "name": table.name,
                "rows": table.rows,
                "dim": table.dim,
                "weights": table.weights,
                "bytes": table.table_bytes,
                "bytes_fp32": table.fp32_bytes,
                "mse": table.mse,
                "max_error": table.max_error,
            }
            for table in tables
        ],
        "bytes": stored,
        "bytes_fp32": fp32,
        "samples": len(samples),
        "dense": {
            "dtype": "float32" if exact is None else "bfloat16",
            "outputs": {} if exact is None else _differences(samples, exact),
        },
    }
    return (json.dumps(report, indent=1) + "\n").encode()


def dense_report(package: Path) -> str:
    """How bfloat16 changes the samples' outputs: a line with newline for each output. Empty for a
    package in float32."""
    dense = json.loads((package / REPORT_FILE).read_bytes())["dense"]
    lines = []
    for name, change in dense["outputs"].items():
        order = (
            f"; {change['pairs_reordered']:,} of {change['pairs']:,} pairs in a request change "
            "order"
            if change["pairs"]
            else ""
        )
        if change["pairs_reordered"] > FEW_REORDERED * change["pairs"]:
            order += f": AUC may fall by more than {FEW_REORDERED}, compare it before serving"
        lines.append(
            f"bf16       {name}: differs from fp32 by {change['mean_difference']:.1e}, at most "
            f"{change['max_difference']:.1e}{order}\n"
        )
    return "".join(lines)


def _differences(
    samples: Sequence[SampleRequest], exact: Sequence[SampleRequest]
) -> dict[str, dict[str, Any]]:
    """For each output, its differences from float32, and the number of pairs that change order."""
    changes = {}
    for name in samples[0].outputs:
        pairs = [
            (sample.outputs[name], other.outputs[name])
            for sample, other in zip(samples, exact, strict=True)
        ]
        differences = np.concatenate([np.abs(scores - other).ravel() for scores, other in pairs])
        ordered = [_count_reordered(scores, other) for scores, other in pairs if scores.ndim == 1]
        changes[name] = {
            "mean_difference": float(differences.mean(dtype=np.float64)),
            "max_difference": float(differences.max()),
            "pairs": sum(count for _, count in ordered),
            "pairs_reordered": sum(reordered for reordered, _ in ordered),
        }
    return changes


def _count_reordered(scores: NDArray[np.float32], exact: NDArray[np.float32]) -> tuple[int, int]:
    """Pairs of examples with distinct exact scores that ``scores`` reorders, and all such pairs."""
    reordered = count = 0
    for place in range(1, len(exact)):
        expected = np.sign(exact[place] - exact[:place])
        order = np.sign(scores[place] - scores[:place])
        distinct = expected != 0
        count += int(distinct.sum())
        reordered += int((order != expected)[distinct].sum())
    return reordered, count
