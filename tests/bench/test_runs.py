"""The runs of a bench, against a server that a test plays."""

from embershard.bench.load_options import LoadOptions
from embershard.bench.runs import BenchRuns
from embershard.bench.slo import Objective
from embershard.client.prediction import served_model
from tests.bench.fake_predictor import described
from tests.bench.outcomes import Server


def test_the_run_at_the_highest_rate_that_held_is_chosen():
    names = []
    runs = BenchRuns(
        load=LoadOptions(rate=800, duration_seconds=10),
        objective=Objective(99, 0.010),
        send=Server(900).run,
        ask=lambda: served_model(described()),
        progress=names.append,
    )
    runs.run_all(None)
    assert runs.chosen.options.rate == max(trial.rate for trial, _ in runs.trials if trial.held)
    assert runs.last.options.rate != runs.chosen.options.rate
    assert names[:2] == ["run at 800/s, 10 s", "run at 1,600/s, 10 s"]
