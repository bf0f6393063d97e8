"""Progress bars on standard error. If it is no terminal, only the last line is printed.

If the work fails, its bar is erased, so that only the error message remains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

if TYPE_CHECKING:  # Both import torch, which `embershard verify` does not need.
    from embershard.export import ExportProgress
    from embershard.training import TrainingProgress

BAR_COLUMNS = 24
"""Largest width. On a narrow terminal bars are shorter."""


@contextmanager
def training_bar(title: str) -> Iterator[Callable[[TrainingProgress], None]]:
    """Show step, loss, best validation AUC, examples/s and remaining time of a training run."""
    with _bar("training", title) as (progress, task):

        def show(now: TrainingProgress) -> None:
            auc = f"auc {now.best_auc:.3f} " if now.best_auc is not None else ""
            speed = f"{_short(now.examples_per_second)} ex/s"
            progress.update(
                task,
                total=now.step if now.stopped_early else now.steps_max,
                completed=now.step,
                share=f"{now.step}" if now.stopped_early else f"{now.step}/{now.steps_max}",
                detail=f"loss {now.loss:.3f} {auc}"
                + ("stopped early" if now.stopped_early else speed),
            )

        yield show


@contextmanager
def export_bar(title: str) -> Iterator[Callable[[ExportProgress], None]]:
    with _bar("exporting", title) as (progress, task):

        def show(now: ExportProgress) -> None:
            progress.update(
                task,
                total=now.rows_total,
                completed=now.rows_done,
                share=_percent(now.rows_done, now.rows_total),
                detail=f"table {now.table}",
            )

        yield show


@contextmanager
def bytes_bar(verb: str, title: str) -> Iterator[Callable[[int, int], None]]:
    """Show the number of bytes that were read or fetched."""
    with _bar(verb, title) as (progress, task):

        def show(done_bytes: int, total_bytes: int) -> None:
            megabytes = f"{done_bytes / 1e6:,.1f} of {total_bytes / 1e6:,.1f} MB"
            progress.update(
                task,
                total=total_bytes,
                completed=done_bytes,
                share=_percent(done_bytes, total_bytes),
                detail=megabytes,
            )

        yield show


@contextmanager
def rows_bar(verb: str, title: str) -> Iterator[Callable[[int, int], None]]:
    with _bar(verb, title) as (progress, task):

        def show(done: int, total: int) -> None:
            detail = f"{done:,} of {total:,} rows"
            progress.update(
                task, total=total, completed=done, share=_percent(done, total), detail=detail
            )

        yield show


@contextmanager
def data_bar() -> Iterator[Callable[[str, int, int], None]]:
    """No bar appears before the first report, because data that was prepared earlier sends none."""
    with ExitStack() as stack:
        bar: tuple[Progress, TaskID] | None = None

        def show(step: str, done: int, total: int) -> None:
            nonlocal bar
            bar = bar or stack.enter_context(_bar("preparing", "data"))
            progress, task = bar
            detail = f"{step} {_short(done)} of {_short(total)}"
            share = _percent(done, total)
            progress.update(task, total=total, completed=done, share=share, detail=detail)

        yield show


@contextmanager
def _bar(verb: str, title: str) -> Iterator[tuple[Progress, TaskID]]:
    columns = (
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[share]}", markup=False),
        BarColumn(bar_width=None, table_column=Column(max_width=BAR_COLUMNS)),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        try:
            yield progress, progress.add_task(f"{verb:9} {title}", total=None, share="", detail="")
        except BaseException:
            progress.live.transient = True  # Erases the bar when it stops.
            progress.live.stop()
            progress.disable = True  # Otherwise an empty line would be printed.
            raise


def _percent(done: int, total: int) -> str:
    return f"{100 * done // total if total else 100}%"


def _short(number: float) -> str:
    """Text such as 950, 41k, 1.2M or 36M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            digits = 1 if number < 9.95 * size and letter == "M" else 0
            return f"{number / size:.{digits}f}{letter}"
    return f"{number:.0f}"
