"""The search for the highest rate at which an objective holds."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from embershard.bench.load_options import LoadOptions
from embershard.bench.result import RunResult
from embershard.bench.slo import Objective
from embershard.formatting import rate_text

RUNS_OF_JUDGEMENT: Final = 3
"""At most. If their answers leave it open, the rate fails."""

PROBES_IN_FLIGHT: Final = (32, 1)
"""Of the closed loops that find where to start: the next one if the server refuses so many."""

PROBE_OK_SHARE: Final = 0.9
"""Of a closed loop's requests; with fewer it has sent too many at once."""

START_SHARE: Final = 0.5
"""Of the closed loop's rate."""

TRIAL_WARMUP_SECONDS: Final = 0.5

ANSWERS_TO_SPARE: Final = 1.2
"""Arrivals are random: a run may have fewer than its rate promises."""


TOOL_LATE: Final = ": the tool itself was late"


class StopRuns(Exception):  # noqa: N818 - not an error: a run says so.
    """There are no more runs, for the reason that it gives."""


class Measured(NamedTuple):
    """What a run of a search found."""

    requests: int

    late: int
    """Of these, late or failed."""

    seconds: float
    """What the objective's percentile was; infinite where that request failed."""

    tool_late: bool = False
    """Whether the tool's own delay alone may have made them late."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A run at a rate."""

    rate: float

    held: bool
    """By its own answers alone, however few."""

    whole: bool = False
    """For a whole run rather than a short one."""

    seconds: float = math.inf
    """What the objective's percentile was; infinite where that request failed."""

    requests: int = 0

    late: int = 0
    """Of these, or failed."""

    judged: bool = True
    """False: it missed the objective while the tool itself was late, which says nothing of the
    server."""


@dataclass(slots=True, kw_only=True)
class RateSearch:
    """Bisects rates. No clock, no server.

    A rate is judged by `Objective.judge` over at most three runs. A run that misses while the tool
    itself is late is not judged, and the rate counts as missed: the tool cannot measure it.

    Short trials find a rate: down by half until one holds, up by half until one fails, then by
    geometric bisection. Once a rate has held, a rate fails only after two failed judgements: on a
    shared machine a trial may fail for a reason that is not the server's. A short trial may also
    hold by luck: whole runs confirm the rate found, or a lower one.
    """

    objective: Objective

    run: Callable[[float, bool], Measured]
    """Runs a rate, for a short trial or (True) a whole run."""

    max_trials: int = 16
    """Short ones."""

    max_whole_rates: int = 4

    tolerance: float = 0.05
    """Between the rate found and one that was given up. The second whole rate is as much lower than
    the first, and the next ones by twice the step before."""

    least: float = 1.0
    """Ends when nothing this low holds."""

    trials: list[Trial] = field(default_factory=list)

    best: float | None = None
    """The highest rate that held for short trials. None: none has."""

    confirmed: float | None = None
    """The rate that held over all answers of whole runs. None: none has."""

    ended: str = ""
    """Why it is over, in words."""

    def search(self, start: float) -> None:
        """Search from the first rate tried, per second, above 0."""
        self._find(start)
        self.ended = self.ended or f"{len(self.trials)} trials, the most that are made"
        if self.best is not None:
            self._confirm(self.best)

    def _find(self, rate: float) -> None:
        limit = math.inf
        while (held := self._holds(rate)) is not None:
            if held:
                self.best = rate
            else:
                limit = rate
            if self.best is None:
                if rate <= self.least:
                    why = _tool_late_text(self.trials) or self._why_no_lower
                    self.ended = f"nothing held down to {rate_text(rate)}/s{why}"
                    return
                rate, limit = rate / 2, math.inf
            elif limit == math.inf:
                rate *= 1.5
            elif limit / self.best > 1 + self.tolerance:
                rate = math.sqrt(self.best * limit)
            else:
                why = TOOL_LATE if self._tool_late_at(limit) else ""
                self.ended = f"{rate_text(limit)}/s was given up{why}"
                return

    def _confirm(self, rate: float) -> None:
        for step in range(self.max_whole_rates):
            if self._judge(rate, whole=True):
                self.confirmed = rate
                return
            rate /= 1 + self.tolerance * 2**step
        rates = self.max_whole_rates
        most = f"whole runs held at none of {rates} rates, the most that are tried"
        self.ended = f"{most}{_tool_late_text([each for each in self.trials if each.whole])}"

    def _holds(self, rate: float) -> bool | None:
        """By one judgement, or the better one of two. None: no trials are left."""
        held = self._judge(rate)
        return self._judge(rate) if held is False and self.best is not None else held

    def _judge(self, rate: float, *, whole: bool = False) -> bool | None:
        requests = late = 0
        for _ in range(RUNS_OF_JUDGEMENT):
            if not whole and len(self.trials) >= self.max_trials:
                return None
            more, more_late, seconds, tool_late = self.run(rate, whole)
            held = more > 0 and more_late <= self.objective.allowed(more)
            judged = held or not tool_late
            self.trials.append(Trial(rate, held, whole, seconds, more, more_late, judged))
            if not judged:
                return False
            requests, late = requests + more, late + more_late
            verdict = self.objective.judge(requests, late)
            if verdict is not None:
                return verdict
        return False

    @property
    def _why_no_lower(self) -> str:
        if self.least <= 1:
            return ""
        return (
            f", below which runs have too few answers to judge by ({self.objective.answers_min}): "
            "make them longer (--duration)"
        )

    def _tool_late_at(self, rate: float) -> bool:
        return any(each.rate == rate and not each.judged for each in self.trials)


def _tool_late_text(trials: Sequence[Trial]) -> str:
    """If the server missed the objective in none of them by itself."""
    return "" if any(each.judged and not each.held for each in trials) else TOOL_LATE


def find_rate(
    objective: Objective,
    load: LoadOptions,
    run: Callable[[str, LoadOptions], RunResult],
    *,
    trial_seconds: float,
    max_trials: int = 16,
    max_whole_rates: int = 4,
) -> tuple[RateSearch, list[RunResult]]:
    """Short runs until the rate is found, then whole ones; see ``RateSearch``. Returns the search,
    and the result of each of its trials. ``StopRuns`` of a run ends it.

    Runs are at most two of closed loops, then ``max_trials`` short ones and three at each of
    ``max_whole_rates``, none longer than the load's duration with its warm-up. The load is that of
    whole runs; its rate, if it has one, is where the search starts. A short run takes
    ``trial_seconds``, more if its answers would be too few to judge by. ``run`` sends a load, whose
    name it is told.
    """
    answers = ANSWERS_TO_SPARE * objective.answers_min
    results: list[RunResult] = []

    def short(
        seconds: float, *, rate: float | None = None, in_flight: int | None = None
    ) -> LoadOptions:
        return replace(
            load,
            rate=rate,
            in_flight=in_flight,
            duration_seconds=min(max(seconds, trial_seconds), load.duration_seconds),
            warmup_seconds=min(TRIAL_WARMUP_SECONDS, load.warmup_seconds),
        )

    def closed_rate() -> float:
        rate = 0.0
        for in_flight in PROBES_IN_FLIGHT:
            calls = max(in_flight, load.threads)
            probe = run(f"probe, {calls} in flight", short(0.0, in_flight=calls))
            rate = max(rate, probe.ok_per_second)
            if probe.ok > PROBE_OK_SHARE * probe.requests:
                break
        return rate

    def measure(rate: float, whole: bool) -> Measured:
        name = (
            f"run, {rate_text(rate)}/s"
            if whole
            else f"trial {len(search.trials) + 1}, {rate_text(rate)}/s"
        )
        sends = (
            replace(load, rate=rate, in_flight=None) if whole else short(answers / rate, rate=rate)
        )
        result = run(name, sends)
        results.append(result)
        late, seconds = objective.late(result), objective.seconds(result)
        return Measured(result.requests, late, seconds, objective.tool_late(result))

    search = RateSearch(
        objective=objective,
        run=measure,
        max_trials=max_trials,
        max_whole_rates=max_whole_rates,
        least=max(1.0, answers / (RUNS_OF_JUDGEMENT * load.duration_seconds)),
    )
    try:
        start = START_SHARE * closed_rate() if load.rate is None else load.rate
        search.search(max(start, search.least))
    except StopRuns as stop:
        search.ended = str(stop)
    return search, results
