"""Writes the public surface as text into tests/surface.

python -m scripts.write_surface

    names.txt    exported names of each package: ``package.Name``
    metrics.txt  metrics of servers and of `embershard fetch --watch`: name, kind, labels

A test compares the files with the code, so that a commit shows each change of the surface. The
surface of commands is docs/cli.md, that of messages proto/embershard.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path

from embershard.fetch.watch_status import WatchStatus
from embershard.serving.metric import example_metrics, from_native

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "surface"


def names() -> Iterator[str]:
    for init in sorted((ROOT / "embershard").rglob("__init__.py")):
        parts = init.parent.relative_to(ROOT).parts
        if "_proto" not in parts and "predictor" not in parts:
            package = ".".join(parts)
            yield from (f"{package}.{name}" for name in importlib.import_module(package).__all__)


def metrics() -> Iterator[str]:
    """Yield ``name kind {labels}`` for all metrics."""
    watch = WatchStatus(interval_seconds=30)
    watch.want({"": 1}, "ranker")
    watch.serve([])
    yield from dict.fromkeys(
        f"{metric.name} {metric.kind} {{{', '.join(metric.labels)}}}"
        for metric in [*example_metrics(), *from_native(watch.rows())]
    )


SURFACE = {
    "names.txt": names,
    "metrics.txt": metrics,
}

if __name__ == "__main__":
    for file_name, lines in SURFACE.items():
        (FOLDER / file_name).write_text("".join(f"{line}\n" for line in lines()))
