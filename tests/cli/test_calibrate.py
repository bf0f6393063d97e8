"""`embershard calibrate`, with costs that were measured before."""

from embershard import planner
from embershard.cli import main
from embershard.planner import read_machine
from tests.planner.training_cases import machine_of


def test_the_time_that_a_calibration_took_is_printed_and_kept(tmp_path, monkeypatch, capsys):
    machine = machine_of().model_copy(
        update={"calibration_seconds": 97.4, "repeat_error": 0.07, "fit_error": 0.12}
    )
    monkeypatch.setattr(planner, "calibrate", lambda **_: machine)
    out = tmp_path / "machine.json"
    assert main(["calibrate", "--out", str(out)]) == 0
    assert read_machine(out) == machine
    assert capsys.readouterr().out == (
        f"{out}: test, in 97 s; two measurements differ by 7%, costs from a measurement by 12%\n"
    )
