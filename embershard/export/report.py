"""What an export did: report/report.json."""

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
"""Share of pairs: AUC within a request cannot change by more than the share that change order."""


def report_json(
    tables: Sequence[TableSpec],
    samples: Sequence[SampleRequest],
    exact: Sequence[SampleRequest] | None,
) -> bytes:
    """The bytes of report.json. Neither times nor paths: two exports of a module are alike.
    ``samples``: as they were scored. ``exact``: the same, scored by a dense program in float32;
    None: it is one."""
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
            "outputs": {} if exact is None else _costs(samples, exact),
        },
    }
    return (json.dumps(report, indent=1) + "\n").encode()


def dense_report(package: Path) -> str:
    """What a package's dense program in bfloat16 does to its samples' outputs: a line for each,
    with its newline. Empty in float32."""
    dense = json.loads((package / REPORT_FILE).read_bytes())["dense"]
    lines = []
    for name, cost in dense["outputs"].items():
        order = (
            f"; {cost['pairs_reordered']:,} of {cost['pairs']:,} pairs in a request change order"
            if cost["pairs"]
            else ""
        )
        if cost["pairs_reordered"] > FEW_REORDERED * cost["pairs"]:
            order += f": AUC may fall by more than {FEW_REORDERED}, compare it before serving"
        lines.append(
            f"bf16       {name}: differs from fp32 by {cost['mean_difference']:.1e}, at most "
            f"{cost['max_difference']:.1e}{order}\n"
        )
    return "".join(lines)


def _costs(
    samples: Sequence[SampleRequest], exact: Sequence[SampleRequest]
) -> dict[str, dict[str, Any]]:
    """By output: how far it lies from float32, and how many pairs that turns around."""
    found = {}
    for name in samples[0].outputs:
        pairs = [
            (each.outputs[name], other.outputs[name])
            for each, other in zip(samples, exact, strict=True)
        ]
        differences = np.concatenate([np.abs(one - other).ravel() for one, other in pairs])
        ordered = [_reordered(one, other) for one, other in pairs if one.ndim == 1]
        found[name] = {
            "mean_difference": float(differences.mean(dtype=np.float64)),
            "max_difference": float(differences.max()),
            "pairs": sum(count for _, count in ordered),
            "pairs_reordered": sum(turned for turned, _ in ordered),
        }
    return found


def _reordered(got: NDArray[np.float32], exact: NDArray[np.float32]) -> tuple[int, int]:
    """Of one request's examples: pairs with distinct exact values that ``got`` does not order like
    them, and all such pairs."""
    turned = count = 0
    for place in range(1, len(exact)):
        expected = np.sign(exact[place] - exact[:place])
        order = np.sign(got[place] - got[:place])
        distinct = expected != 0
        count += int(distinct.sum())
        turned += int((order != expected)[distinct].sum())
    return turned, count
