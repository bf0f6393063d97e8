"""`embershard bench` as people run it, against the fake and against the real server."""

import io
import json
import re

import grpc
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.cli import main
from embershard.serving import Server, ServerOptions
from tests.bench.fake_predictor import answers, fake_predictor
from tests.cases import cases
from tests.repository.sources import ROOT

GOLDEN = ROOT / "tests" / "golden" / "format_0"
QUICK = ("--timeout", "20", "--warmup", "0", "--pool", "50")


def bench(server, *arguments):
    return main(["bench", "--target", server.address, *QUICK, *arguments])


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bench_prints_a_table_and_writes_its_report(capsys, monkeypatch, tmp_path):
    err = Terminal()
    monkeypatch.setattr("sys.stderr", err)
    with fake_predictor() as fake:
        code = bench(
            fake,
            *("--in-flight", "2", "--requests", "40", "--examples", "3"),
            *("--json", str(tmp_path / "out.json")),
        )
    out = capsys.readouterr().out
    assert code == 0
    assert out.startswith("model      ranker 7 at ipv4:127.0.0.1:")
    assert "errors     none of 40" in out
    assert "ids known from the server" in out
    assert err.getvalue() == "\r\x1b[Krun, 10 s\r\x1b[K"
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["requests"] == 40
    assert document["by_code"] == {"OK": 40}


def test_without_a_rate_one_request_follows_the_other(capsys):
    with fake_predictor() as fake:
        assert bench(fake, "--requests", "5") == 0
    assert "closed loop, 1 in flight" in capsys.readouterr().out


def asked_versions(fake):
    """Version and label of every request, each pair once."""
    requests = [pb.PredictRequest.FromString(request) for request in fake.requests]
    return {(request.version, request.label) for request in requests}


@pytest.mark.parametrize("streams", [(), ("--streams", "1")], ids=["calls", "streams"])
def test_a_bench_follows_the_default_version_through_a_swap(capsys, streams):
    """Version 7 is let go for version 8 after twenty requests."""

    def answer(number, context):
        version = 7 if number < 20 else 8
        fake.model.version = version
        request = pb.PredictRequest.FromString(fake.requests[number]).version
        if request not in (0, version):
            context.abort(grpc.StatusCode.NOT_FOUND, f"version {request} is not served here")
        return pb.PredictResponse(model="ranker", version=version)

    with fake_predictor(answer) as fake:
        assert bench(fake, "--in-flight", "1", "--requests", "60", *streams) == 0
    out = capsys.readouterr().out
    assert asked_versions(fake) == {(0, "")}
    assert "errors     none of 60" in out
    assert "note       the default version changed from 7 to 8 during the bench" in out


@cases(
    ("flags", "named"),
    {
        "version": (("--version", "8"), (8, "")),
        "label": (("--label", "canary"), (0, "canary")),
    },
)
def test_a_bench_measures_the_version_or_label_that_is_given(capsys, flags, named):
    with fake_predictor() as fake:
        assert bench(fake, "--requests", "20", *flags) == 0
    assert asked_versions(fake) == {named}
    assert {(description.version, description.label) for description in fake.descriptions} == {
        named
    }
    shown = {"--version": "ranker 8 at", "--label": "ranker 7 (canary) at"}[flags[0]]
    assert f"model      {shown} ipv4:" in capsys.readouterr().out


@cases(
    ("flags", "message"),
    {
        "both": (
            ("--version", "8", "--label", "canary"),
            "expected a version or a label, not both, got version 8 and label 'canary'",
        ),
        "negative": (("--version", "-1"), "version: expected 0.."),
        "torchrec": (
            ("--label", "canary", "--protocol", "torchrec"),
            "expected no version or label with protocol 'torchrec', whose requests cannot name",
        ),
    },
)
def test_a_version_that_cannot_be_measured_is_refused(capsys, flags, message):
    with fake_predictor() as fake:
        assert bench(fake, "--requests", "20", *flags) == 1
    assert message in capsys.readouterr().err
    assert fake.requests == []


def test_a_replay_takes_no_version(capsys, tmp_path):
    for flags in (("--version", "8"), ("--label", "canary")):
        replay = ("--replay", str(tmp_path / "calls"))
        assert main(["bench", "--target", "127.0.0.1:1", *replay, *flags]) == 1
        words = f"{flags[0]}: expected none with --replay, which sends a recording"
        assert words in capsys.readouterr().err


@cases(
    ("name", "reason"),
    {
        "no-folder": ("no/out.json", "No such file or directory"),
        "a-folder": ("", "Is a directory"),
    },
)
def test_a_file_that_cannot_be_written_is_said_before_the_load(capsys, tmp_path, name, reason):
    path = tmp_path / name
    with fake_predictor() as fake:
        assert bench(fake, "--requests", "5", "--json", str(path)) == 1
        assert fake.descriptions == []
    message = f"InputError: --json: {path}: cannot be written: {reason}\n"
    assert capsys.readouterr().err.endswith(message)


def test_a_report_on_standard_output_has_it_to_itself(capsys):
    with fake_predictor() as fake:
        assert bench(fake, "--requests", "5", "--json", "-") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["requests"] == 5
    assert err.startswith("model ")


def test_an_objective_is_searched_and_held(capsys):
    """A minute is more than the server takes, and the search goes up until its last run."""
    with fake_predictor() as fake:
        code = bench(
            fake,
            *("--slo", "p50<60s", "--rate", "300", "--duration", "0.1", "--timeout", "100"),
            *("--requests", "50"),
        )
    out = capsys.readouterr().out
    assert code == 0
    runs = re.findall(r"^ +(\S+)/s +0 late of \d+, .*, held$", out, re.MULTILINE)
    assert runs[:3] == ["300", "600", "1,200"]
    assert re.search(rf"^objective  p50<60s held at \S+/s sent \(asked {runs[-1]}/s\)$", out, re.M)


def test_an_objective_that_never_holds_ends_with_3_and_a_report(capsys, tmp_path):
    path = tmp_path / "out.json"
    with fake_predictor() as fake:
        code = bench(
            fake,
            *("--slo", "p50<0.001us", "--rate", "100", "--duration", "0.5"),
            *("--json", str(path)),
        )
    out = capsys.readouterr().out
    assert code == 3
    assert "objective  p50<0.001us not met: no run held\n" in out
    assert re.search(r"^ +100/s +\d+ late of \d+, .* missed", out, re.MULTILINE)
    document = json.loads(path.read_text())
    assert document["objective_met"] is False
    assert {trial["rate"] for trial in document["trials"]} >= {100, 50}


@cases(
    ("arguments", "message"),
    {
        "remote": (["--target", "192.0.2.1:9"], "expected a loopback address"),
        "slo-and-in-flight": (
            ["--target", "127.0.0.1:1", "--slo", "p99<1ms", "--in-flight", "1"],
            "either --slo or --in-flight",
        ),
    },
)
def test_what_makes_no_sense_is_refused(capsys, arguments, message):
    assert main(["bench", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_a_rate_that_is_no_number_is_named_without_our_own_names(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--target", "127.0.0.1:1", "--rate", "abc"])
    assert ended.value.code == 2
    message = "argument --rate: expected a number or recorded, got 'abc'; see"
    assert message in capsys.readouterr().err


def test_requests_that_the_server_refuses_are_an_error_at_once(capsys):
    def answer(number, context):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "feature 'item': id 3 is not known")

    with fake_predictor(answer) as fake:
        assert bench(fake) == 1
        assert len(fake.requests) == 1
    assert "RequestError: feature 'item': id 3 is not known" in capsys.readouterr().err


def test_unknown_ids_are_noted(capsys):
    def answer(number, context):
        message = answers(number, context)
        message.unknown_ids.add(feature="item", count=2)
        return message

    with fake_predictor(answer) as fake:
        assert bench(fake, "--requests", "3") == 0
    note = "note       feature 'item': 16 ids of the first 8 requests are unknown to the model"
    assert note in capsys.readouterr().out


def test_the_real_server_knows_every_id_of_its_package(capsys):
    with Server(GOLDEN, options=ServerOptions(port=0, threads=1)) as server:
        package = str(GOLDEN / "tiny" / "1")
        sizes = ("--in-flight", "4", "--requests", "300", "--examples", "1..8")
        code = bench(server, *sizes, "--package", package)
    out = capsys.readouterr().out
    assert code == 0
    assert "errors     none of 300" in out
    assert "unknown to the model" not in out
