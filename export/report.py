"""What an export did: report/report.json."""

from __future__ import annotations

import json
from collections.abc import Sequence

from embershard.package.manifest import TableSpec

__all__ = ["report_json"]


def report_json(tables: Sequence[TableSpec], *, samples: int) -> bytes:
    """The bytes of report.json. No time and no path: two exports of a module are alike.

    Args:
        tables: as the manifest has them.
        samples: how many requests were scored.
    """
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
        "samples": samples,
    }
    return (json.dumps(report, indent=1) + "\n").encode()
