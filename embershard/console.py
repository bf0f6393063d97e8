"""Progress bars for people: on a terminal they move, elsewhere only the last line is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:  # `embershard verify` shows a bar, too, and needs no torch.
    from embershard.export import ExportProgress
    from embershard.training import TrainingProgress

__all__ = ["export_bar", "training_bar", "verify_bar"]


@contextmanager
def training_bar(title: str) -> Iterator[Callable[[TrainingProgress], None]]:
    """Step, loss, validation AUC, examples/s and time left of a run, on standard error."""
    with _bar("training", title) as (progress, task):

        def show(now: TrainingProgress) -> None:
            auc = f"auc {now.best_auc:.4f}  " if now.best_auc is not None else ""
            progress.update(
                task,
                total=now.steps_max,
                completed=now.step,
                detail=f"loss {now.loss:.4f}  {auc}{now.examples_per_second:,.0f} examples/s",
            )

        yield show


@contextmanager
def export_bar(title: str) -> Iterator[Callable[[ExportProgress], None]]:
    """Rows written, on standard error."""
    with _bar("exporting", title) as (progress, task):

        def show(now: ExportProgress) -> None:
            progress.update(
                task, total=now.rows_total, completed=now.rows_done, detail=f"table {now.table}"
            )

        yield show


@contextmanager
def verify_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Bytes read, on standard error."""
    with _bar("verifying", title) as (progress, task):

        def show(done_bytes: int, total_bytes: int) -> None:
            megabytes = f"{done_bytes / 1e6:,.1f} of {total_bytes / 1e6:,.1f} MB"
            progress.update(task, total=total_bytes, completed=done_bytes, detail=megabytes)

        yield show


@contextmanager
def _bar(verb: str, title: str) -> Iterator[tuple[Progress, TaskID]]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield progress, progress.add_task(f"{verb:9} {title}", total=None, detail="")
