"""The runs of one bench: what the last one measured, and why there are no more."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from embershard.bench.load_options import LoadOptions, PooledRequest
from embershard.bench.rate_search import StopRuns
from embershard.bench.result import Progress, RunResult
from embershard.bench.run import RunInterrupt, run_load
from embershard.bench.target import OtherServerError, Target
from embershard.client import ServedModel
from embershard.errors import DeadlineError, EmbershardError, UnavailableError
from embershard.formatting import duration_text


@dataclass(slots=True, kw_only=True)
class BenchRuns:
    """Sends one pool to one target, once or in a search."""

    target: Target
    pool: Sequence[PooledRequest]
    server_processes: Sequence[int]
    keep_answers: bool
    progress: Callable[[str, Progress], None] | None

    ask: Callable[[], ServedModel]
    """GetModel, as `ask_model`."""

    results: list[RunResult] = field(default_factory=list)
    """Of all runs; one that was interrupted is the last, if it has measured anything."""

    interrupt: KeyboardInterrupt | None = None
    """What ended the runs early."""

    lost: str = ""
    """Why the server is taken to be gone. Empty: it is not."""

    begin: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Since the first of them."""
        return time.monotonic() - self.begin

    def run(self, name: str, load: LoadOptions) -> RunResult:
        """One run. `StopRuns`: it was interrupted."""
        progress = self.progress
        try:
            result = run_load(
                self.target,
                self.pool,
                load,
                server_processes=self.server_processes,
                keep_answers=self.keep_answers,
                progress=(lambda now: progress(name, now)) if progress else None,
            )
        except KeyboardInterrupt as interrupt:
            if isinstance(interrupt, RunInterrupt) and interrupt.result.requests:
                self.results.append(interrupt.result)
            raise self._stopped(interrupt) from interrupt
        self.results.append(result)
        return result

    def trial(self, name: str, load: LoadOptions) -> RunResult:
        """One run of a search. `StopRuns`: nothing was answered and the server is gone, too."""
        result = self.run(name, load)
        if not result.ok:
            try:
                self.ask()
            except OtherServerError:
                pass
            except EmbershardError as error:
                self.lost = str(error)
                raise StopRuns("the server does not answer") from error
            except KeyboardInterrupt as interrupt:
                raise self._stopped(interrupt) from interrupt
        return result

    def default_changed(self, before: ServedModel, *, compared: bool) -> list[str]:
        """Asks the server once more after the runs, whose ``lost`` says if it does not answer.
        Returns warnings: if ``compared``, whether other versions may have answered than the one
        that the bench began with."""
        try:
            now = self.ask()
        except OtherServerError:
            return []
        except (UnavailableError, DeadlineError) as error:
            self.lost = str(error)
            return []
        except KeyboardInterrupt as interrupt:
            self.interrupt = interrupt
            return []
        except EmbershardError as error:
            return [f"the default version at the end is not known: {error}"] if compared else []
        if now.version == before.version or not compared:
            return []
        return [
            f"the default version changed from {before.version} to {now.version} during the bench: "
            "both answered"
        ]

    def _stopped(self, interrupt: KeyboardInterrupt) -> StopRuns:
        self.interrupt = interrupt
        return StopRuns(f"interrupted after {duration_text(self.seconds)}")
