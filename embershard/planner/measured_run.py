"""``MeasuredRun``: what lookups and updates of a training run cost each rank, beside its plan.

A run with ``sharding.plan = "auto"`` leaves it in its checkpoint folder.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from embershard.errors import InputError, PackageError
from embershard.package.manifest_inputs import Part
from embershard.package.validation import parse_model
from embershard.planner.machine import Kernel, Machine, Positive, Seconds

Floats: TypeAlias = NDArray[np.float64]
FORMAT_VERSION = 0
FILE = "sharding.json"
TABLES_SHOWN = 10


class LookupSeconds(Part):
    """Of lookups and updates, a step: CPU seconds."""

    lookup: Seconds
    update: Seconds


class RankSeconds(LookupSeconds):
    """Of one rank."""

    step: Seconds = 0.0
    """Measured: of all that the rank does. Estimated: of its shards, messages included. 0: not
    known."""


class StepSeconds(Part):
    """Of the busiest rank, a step: CPU seconds of all that it does."""

    estimated: Positive
    measured: Seconds


class TableSeconds(Part):
    """Of a table, on all ranks together."""

    estimated: LookupSeconds
    measured: LookupSeconds

    @property
    def seconds(self) -> float:
        """Measured, of both."""
        return self.measured.lookup + self.measured.update


class MeasuredRun(Part):
    """Estimate and measurement of each rank."""

    format_version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)] = FORMAT_VERSION
    optimizer: str
    """Of the tables."""

    steps: Annotated[int, Field(ge=1)]
    """That were measured."""

    estimated: tuple[RankSeconds, ...]
    measured: tuple[RankSeconds, ...]
    step: StepSeconds
    tables: dict[str, TableSeconds] = Field(default_factory=dict)
    """By ``<path>.<table>``, each measured alone in some of the steps. Empty: not measured."""

    @property
    def lookup_factor(self) -> float:
        """Measured seconds of lookups over estimated ones, of all ranks together."""
        return _factor([e.lookup for e in self.estimated], [m.lookup for m in self.measured])

    @property
    def update_factor(self) -> float:
        """Likewise of updates."""
        return _factor([e.update for e in self.estimated], [m.update for m in self.measured])

    def to_text(self) -> str:
        """As a table of ranks."""
        lines = [
            f"CPU ms of a step, mean of {self.steps} steps; measured / estimated: lookups "
            f"{self.lookup_factor:.2f}, updates {self.update_factor:.2f}",
            "",
            *_rows(
                "rank", zip(range(len(self.measured)), self.measured, self.estimated, strict=True)
            ),
        ]
        heaviest = sorted(self.tables.items(), key=lambda each: -each[1].seconds)[:TABLES_SHOWN]
        if heaviest:
            shown = f"table ({len(heaviest)} heaviest of {len(self.tables):,})"
            tables = ((name, each.measured, each.estimated) for name, each in heaviest)
            lines += ["", *_rows(shown, tables)]
        lines += [
            "",
            f"the whole step of the busiest rank: {self.step.measured * 1e3:.3f} CPU ms, "
            f"estimate {self.step.estimated * 1e3:.3f}: measured / estimated "
            f"{self.step.measured / self.step.estimated:.2f}",
        ]
        return "\n".join(lines) + "\n"

    def save(self, folder: Path) -> None:
        """Write it into a run's checkpoint folder."""
        text = self.model_dump_json(indent=1) + "\n"
        (folder / FILE).write_text(text, encoding="utf-8")


def _rows(head: str, rows: Iterable[tuple[object, LookupSeconds, LookupSeconds]]) -> Iterator[str]:
    """Of names, measured and estimated seconds."""
    yield f"| {head} | lookups | estimate | updates | estimate |"
    yield "|---|---|---|---|---|"
    for name, found, said in rows:
        seconds = found.lookup, said.lookup, found.update, said.update
        yield f"| {name} | {' | '.join(f'{each * 1e3:.3f}' for each in seconds)} |"


def measured_tables(
    estimated: Mapping[str, Floats], ranks: Sequence[Mapping[str, Floats]]
) -> dict[str, TableSeconds]:
    """Tables by name, of their seconds of lookups and of updates.

    Args:
        estimated: of all ranks together.
        ranks: as each measured them.
    """
    measured = dict[str, Floats]()
    for found in ranks:
        for name, seconds in found.items():
            measured[name] = measured.get(name, 0.0) + seconds
    return {
        name: TableSeconds(
            estimated=_lookup_seconds(estimated[name]), measured=_lookup_seconds(measured[name])
        )
        for name in sorted(measured)
        if name in estimated
    }


def _lookup_seconds(seconds: Floats) -> LookupSeconds:
    return LookupSeconds(lookup=float(seconds[0]), update=float(seconds[1]))


def rank_seconds(seconds: Floats) -> RankSeconds:
    """Of lookups, of updates, and of the step if it is known."""
    lookup, update, *step = map(float, seconds)
    return RankSeconds(lookup=lookup, update=update, step=step[0] if step else 0.0)


def compare(run: str | Path) -> MeasuredRun:
    """Read what a run measured.

    Args:
        run: its checkpoint folder.

    Raises:
        InputError: there is none, or it cannot be read; with file and field.
    """
    path = Path(run) / FILE
    try:
        found, _ = parse_model(MeasuredRun, path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(
            f"{path}: expected the measurements of a run with sharding.plan = 'auto', got "
            f"{error.strerror}"
        ) from error
    except PackageError as error:
        raise InputError(str(error)) from error
    if len(found.estimated) != len(found.measured):
        raise InputError(
            f"{path}: measured: expected {len(found.estimated)} ranks, got {len(found.measured)}"
        )
    return found


def recalibrate(run: str | Path, machine: Machine) -> Machine:
    """The machine with the costs of the run's optimizer scaled to what the run measured.

    Args:
        run: its checkpoint folder.
        machine: by whose costs the run was planned.

    Raises:
        InputError: as ``compare``; or the machine has no costs of the run's optimizer.
    """
    found = compare(run)
    kernel = machine.kernel(found.optimizer)
    scaled = Kernel(
        forward=kernel.forward.scaled(found.lookup_factor),
        backward=kernel.backward.scaled(found.update_factor),
    )
    return machine.model_copy(update={"kernels": {**machine.kernels, found.optimizer: scaled}})


def _factor(estimated: list[float], measured: list[float]) -> float:
    total = float(np.sum(estimated))
    return float(np.sum(measured)) / total if total else 1.0
