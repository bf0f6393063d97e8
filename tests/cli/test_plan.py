"""`embershard plan`: plans by rule and by measured costs, their report, and a server's figures."""

import shutil
import socket
import threading

import pytest

from embershard.cli import main
from embershard.client import Client
from embershard.package import Package, parse_devices, write_samples
from embershard.planner.machine import default_machine
from embershard.serving import Server, ServerOptions
from embershard.serving.metrics import MetricsPort
from tests.bench.recordings import call, write_recording
from tests.cases import cases
from tests.serving.asking import named, packed, random_request


@pytest.fixture
def own(repository, tmp_path):
    """A copy of the package."""
    return shutil.copytree(repository / "ranker" / "1", tmp_path / "ranker" / "1")


def test_plan_adds_a_plan_that_inspect_shows(own, capsys):
    arguments = ["--devices", "4xcpu", "--strategy", "column", "--name", "wide", "--default"]
    assert main(["plan", str(own), *arguments]) == 0
    said = f"{own}: plan wide: 8 shards on 4 devices, the default\n"
    first, *devices = capsys.readouterr().out.splitlines(keepends=True)
    assert first == said
    assert [line.split()[0] for line in devices] == ["cpu:0", "cpu:1", "cpu:2", "cpu:3"]
    assert sum(float(line.split()[3].rstrip("%")) for line in devices) == pytest.approx(
        100, abs=0.2
    )
    assert main(["inspect", str(own)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert any(line.startswith("wide (default) cpu:0, cpu:1, cpu:2, cpu:3 8 ") for line in lines), (
        lines
    )


OF_SAMPLES = (
    "warning: the load is that of the package's 3 samples, which are random unless the export was "
    "given samples; pass --requests or --samples\n"
)


@cases(
    ("devices", "costs_of"),
    {
        "cpu": ("2xcpu", None),
        "cuda": ("2xcuda:80GB", "'NVIDIA H100 80GB HBM3'"),
        "torch-cpu": ("1xtorch-cpu", "torch-cpu"),
    },
)
def test_plan_warns_of_costs_that_are_not_measured(own, capsys, devices, costs_of):
    assert main(["plan", str(own), "--devices", devices, "--name", "new", "--default"]) == 0
    printed = capsys.readouterr()
    assert not printed.err
    warning = f"warning: costs of a server's lookups on {costs_of} are not measured\n"
    assert (warning + OF_SAMPLES in printed.out) == (costs_of is not None)
    assert OF_SAMPLES in printed.out
    assert Package.open(own).plan().devices == tuple(parse_devices(devices.partition(":")[0]))


def test_plan_refuses_a_name_that_is_taken(repository, capsys):
    package = repository / "ranker" / "1"
    assert main(["plan", str(package), "--devices", "2xcpu", "--name", "default"]) == 1
    words = "InputError: expected a plan with a new name, got 'default', which the package has "
    assert words in capsys.readouterr().err


def test_plan_refuses_an_empty_name(repository, capsys):
    package = repository / "ranker" / "1"
    assert main(["plan", str(package), "--devices", "2xcpu", "--name", ""]) == 1
    assert "plan: expected letters, digits, _ . -, not first a dot" in capsys.readouterr().err


def test_auto_adds_a_plan_for_the_fleet_and_reports_it(own, tmp_path, capsys):
    page = tmp_path / "plan.html"
    arguments = ["--devices", "4xcpu", "--report", str(page), "--explain", "items"]
    assert main(["plan", str(own), *arguments]) == 0
    said = capsys.readouterr().out
    plan = Package.open(own).plan("4xcpu")
    assert plan.devices == ("cpu:0", "cpu:1", "cpu:2", "cpu:3")
    assert f"{own}: plan 4xcpu: {len(plan.shards)} shards on 4 devices\n" in said
    assert "load of the package's samples, 3 requests" in said
    assert "\nlimit: " in said
    assert "\nitems: " in said
    assert "| other cut |" in said
    assert page.read_text().count("<svg") == 2


def test_a_dry_run_leaves_the_package_as_it_is(own, capsys):
    before = (own / "manifest.json").read_bytes()
    assert main(["plan", str(own), "--devices", "3xcpu", "--dry-run"]) == 0
    assert "not added" in capsys.readouterr().out
    assert (own / "manifest.json").read_bytes() == before


def test_comparing_with_a_port_that_answers_no_http_is_told(own, capsys):
    def answer(listener):
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"\x00\x00\x12\x04 no HTTP\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert main(["plan", str(own), "--compare", address]) == 1
        thread.join(60)
    assert capsys.readouterr().err == (
        "embershard plan: InputError: --compare: expected a server's --metrics-port, got "
        f"{address}, which does not speak HTTP\n"
    )


def test_the_load_is_that_of_a_file_of_samples(own, tmp_path, capsys):
    file = tmp_path / "more.safetensors"
    samples = Package.open(own).samples()
    write_samples(file, [*samples, *samples])
    arguments = ["--devices", "2xcpu", "--name", "more", "--samples", str(file)]
    assert main(["plan", str(own), *arguments]) == 0
    printed = capsys.readouterr()
    assert f"load of {file}, {2 * len(samples)} requests" in printed.out
    assert printed.err == ""


def recording_of(own, path, **fields):
    manifest = Package.open(own).manifest
    schema = int(manifest.fingerprint, 16)
    calls = [
        call(named(random_request(3, seed=1)).SerializeToString(), 1),
        call(b"", 2, code=3),
        call(packed(random_request(5, seed=2), schema).SerializeToString(), 3),
    ]
    return write_recording(path, calls, **{"schema": schema, **fields})


def test_the_load_is_that_of_recorded_requests(own, tmp_path, capsys):
    file = recording_of(own, tmp_path / "recording")
    arguments = ["--devices", "2xcpu", "--name", "recorded", "--requests", str(file)]
    assert main(["plan", str(own), *arguments]) == 0
    assert f"load of {file}, 2 requests" in capsys.readouterr().out


def test_a_recording_of_another_schema_is_refused(own, tmp_path, capsys):
    file = recording_of(own, tmp_path / "recording", schema=0xABC)
    assert main(["plan", str(own), "--devices", "2xcpu", "--requests", str(file)]) == 1
    words = ", got 0000000000000abc of ranker 7\n"
    assert capsys.readouterr().err.endswith(words)


def test_samples_of_another_model_are_refused(own, tmp_path, capsys):
    other = tmp_path / "other.safetensors"
    samples = Package.open("tests/golden/format_0/tiny/1").samples()
    write_samples(other, samples)
    assert main(["plan", str(own), "--devices", "2xcpu", "--samples", str(other)]) == 1
    assert f"PackageError: {other}: 0/" in capsys.readouterr().err


def test_a_machine_of_another_processor_is_warned_about(own, tmp_path, capsys):
    file = tmp_path / "machine.json"
    default_machine().model_copy(update={"processor": "Z80"}).save(file)
    arguments = ["--devices", "2xcpu", "--name", "z80", "--machine", str(file)]
    assert main(["plan", str(own), *arguments]) == 0
    words = f"warning: {file}: costs of 'Z80', this machine has "
    assert words in capsys.readouterr().out


@cases(
    ("arguments", "words"),
    {
        "no-devices": ([], "plan: expected --devices, or --compare, got neither"),
        "rule-of-a-batch": (
            ["--devices", "2xcpu", "--strategy", "row", "--batch-examples", "8"],
            "--batch-examples: expected --strategy auto, got --strategy row",
        ),
        "compare-no-server": (
            ["--compare", "localhost:1"],
            "--compare: expected metrics at localhost:1, got [Errno 111] Connection refused",
        ),
        "gpu": (["--devices", "8xcuda"], "8xcuda: memory: expected bytes of one"),
        "gpu-without-room": (
            ["--devices", "1xcuda:1GB"],
            "1xcuda: memory: expected more than the 1,00",
        ),
        "batch": (
            ["--devices", "2xcpu", "--batch-examples", "0"],
            "batch_examples: expected 1 .. 1000000, got 0",
        ),
        "huge-batch": (
            ["--devices", "2xcpu", "--batch-examples", "1" + "0" * 23],
            "batch_examples: expected 1 .. 1000000, got 1000000",
        ),
        "strategy": (
            ["--devices", "2xcpu", "--strategy", "rows"],
            "strategy: expected one of table, row, column, replicate, auto, got 'rows'",
        ),
        "short": (
            ["--devices", "2xcpu:1B"],
            " short: tables and buffers need at least ",
        ),
        "rule-over-the-memory": (
            ["--devices", "2xcpu:1B", "--strategy", "table"],
            "expected at most 1 bytes of tables, got ",
        ),
        "rule-explained": (
            ["--devices", "2xcpu", "--strategy", "row", "--explain", "users"],
            "--explain: expected --strategy auto, got --strategy row",
        ),
        "report": (
            ["--devices", "2xcpu", "--report", "nowhere/plan.html"],
            "--report: expected a file in an existing folder, got nowhere/plan.html",
        ),
        "compare": (["--compare", "nowhere"], "expected a file, or HOST:PORT of a server's"),
        "compare-other-text": (["--compare", "README.md"], "README.md: expected "),
    },
)
def test_bad_input_is_one_message_and_changes_nothing(own, capsys, arguments, words):
    before = (own / "manifest.json").read_bytes()
    assert main(["plan", str(own), *arguments]) == 1
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
    assert (own / "manifest.json").read_bytes() == before


def test_a_servers_lookup_time_stands_beside_the_estimate(own, capsys):
    options = ServerOptions(port=0, threads=2, slots=1, plan="2xcpu")
    request = random_request(30, 5)
    inputs = {"dense": request.dense, "sparse": request.sparse, "weights": request.weights}
    with (
        Server(own.parent.parent, options=options) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        for _ in range(5):
            client.predict(**inputs, num_examples=30)
        with MetricsPort() as port:
            port.show(server)
            address = port.url
            assert main(["plan", str(own), "--name", "2xcpu", "--compare", address]) == 0
            said = capsys.readouterr().out
            assert main(["plan", str(own), "--name", "default", "--compare", address]) == 1
    assert "plan 2xcpu: 5 batches of 30.0 examples" in said
    rows = [line.split("|")[1:-1] for line in said.splitlines() if line.startswith("| cpu:")]
    assert [name.strip() for name, *_ in rows] == ["cpu:0", "cpu:1"]
    assert all(float(row[1]) > 0 for row in rows)
    measured, estimated, ratio = (float(cell) for cell in rows[0][1:])
    assert ratio == pytest.approx(measured / estimated, abs=0.2 / estimated + 0.01)
    assert "expected lookups on cpu:0, the devices of plan default" in capsys.readouterr().err
