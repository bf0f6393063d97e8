"""The runs of one bench, and their measurements until the end or an interrupt."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from embershard.bench.load_options import LoadOptions
from embershard.bench.result import RunResult
from embershard.bench.run import RunInterrupt
from embershard.bench.slo import Objective, Trial, bisect_rates, end_of_search
from embershard.bench.target import OtherServerError
from embershard.client import ServedModel
from embershard.errors import DeadlineError, EmbershardError, UnavailableError
from embershard.formatting import duration_text, rate_text


@dataclass(slots=True, kw_only=True)
class BenchRuns:
    """Runs a load once, or in a search if there is an objective."""

    load: LoadOptions
    objective: Objective | None

    send: Callable[[LoadOptions], RunResult]

    ask: Callable[[], ServedModel]

    progress: Callable[[str], None] | None
    last: RunResult | None = None
    trials: list[tuple[Trial, RunResult]] = field(default_factory=list)

    ended: str = ""
    """Why the search ended. Empty if there was no search."""

    lost: str = ""
    """The error of a server that stopped answering. Empty: it still answers."""

    warnings: list[str] = field(default_factory=list)
    interrupt: KeyboardInterrupt | None = None
    interrupted_seconds: float | None = None

    @property
    def chosen(self) -> RunResult:
        """The run at the highest rate that met the objective, or the last run if none did."""
        assert self.last is not None
        held = [result for trial, result in self.trials if trial.held]
        return max(held, key=lambda result: result.options.rate or 0.0, default=self.last)

    def run_all(self, watched: ServedModel | None) -> None:
        """Ctrl-C ends the runs, and is raised if nothing was measured. ``watched``: the model
        before the runs, to warn if its default version changed."""
        begin = time.monotonic()
        try:
            if self.objective is None:
                self._run(self.load)
            else:
                self._search(self.objective)
            if not self.lost:
                self._check_server(watched)
        except KeyboardInterrupt as interrupt:
            if isinstance(interrupt, RunInterrupt) and interrupt.result.requests:
                self.last = interrupt.result
            if self.last is None:
                raise
            self.interrupt = interrupt
            self.interrupted_seconds = time.monotonic() - begin
            if self.objective is not None:
                self.ended = f"interrupted after {duration_text(self.interrupted_seconds)}"

    def _search(self, objective: Objective) -> None:
        try:
            for trial, result in bisect_rates(objective, self.load, self._run):
                self.trials.append((trial, result))
            self.ended = end_of_search([trial for trial, _ in self.trials])
        except UnavailableError as error:
            self.lost, self.ended = str(error), "the server does not answer"

    def _run(self, load: LoadOptions) -> RunResult:
        # A search stops if a run had no OK answer and the server does not answer GetModel either.
        if self.progress is not None:
            rate = "" if load.rate is None else f" at {rate_text(load.rate)}/s"
            self.progress(f"run{rate}, {load.duration_seconds:g} s")
        self.last = self.send(load)
        if self.objective is not None and not self.last.ok:
            try:
                self.ask()
            except OtherServerError:
                pass
            except EmbershardError as error:
                raise UnavailableError(str(error)) from error
        return self.last

    def _check_server(self, watched: ServedModel | None) -> None:
        try:
            now = self.ask()
        except OtherServerError:
            return
        except (UnavailableError, DeadlineError) as error:
            self.lost = str(error)
            return
        except EmbershardError as error:
            self.warnings.append(f"the default version at the end is unknown: {error}")
            return
        if watched is not None and now.version != watched.version:
            self.warnings.append(
                f"the default version changed from {watched.version} to {now.version} during "
                "the bench: the figures mix both"
            )
