"""`embershard bench` of a Triton, which cannot be asked what it serves; and what Triton loads."""

import json
from pathlib import Path

import pytest

from embershard.bench.subject import packaged_model
from embershard.bench.target import ask_model, find_target
from embershard.cli import main
from embershard.serving import Server, ServerOptions
from tests.cases import cases

pytestmark = pytest.mark.needs_triton

QUICK = ("--timeout", "20", "--warmup", "0", "--pool", "50", "--in-flight", "2", "--requests", "40")


def bench(address, *arguments):
    return main(["bench", "--target", address, *QUICK, *arguments])


def test_it_is_asked_by_what_a_package_says(served, package, tmp_path):
    out = tmp_path / "out.json"
    request = ("--protocol", "oip", "--package", str(package), "--examples", "1..20")
    assert bench(served.grpc, *request, "--json", str(out)) == 0
    report = json.loads(out.read_text())
    assert (report["by_code"], report["model"], report["version"]) == ({"OK": 40}, "ranker", 1)
    assert report["server_cpu_seconds"] is not None  # 40 requests may take less than a tick.


@cases(
    ("arguments", "words"),
    {
        "in-ours": ((), "expected a server with embershard's protocol"),
        "without-a-package": (
            ("--protocol", "oip"),
            "expected an embershard server, or --protocol oip or torchrec with --package PATH",
        ),
    },
)
def test_without_that_it_is_told_what_is_missing(served, capsys, arguments, words):
    assert bench(served.grpc, *arguments) != 0
    assert words in capsys.readouterr().err


def test_a_package_says_what_a_server_would(package, movielens_package):
    for folder in (package, movielens_package):
        with Server(folder.parent.parent, options=ServerOptions(port=0, threads=1)) as server:
            told = ask_model(find_target(server.address), "", timeout_seconds=60)
        said = packaged_model(folder, "")
        assert said.max_message_bytes == 1 << 31
        assert (
            said.name,
            said.version,
            said.fingerprint,
            said.inputs,
            said.outputs,
            said.max_examples,
            said.max_ids,
        ) == (
            told.name,
            told.version,
            told.fingerprint,
            told.inputs,
            told.outputs,
            told.max_examples,
            told.max_ids,
        )


def test_triton_closes_batches_by_our_rule(served):
    """Its batcher has the library that decides by examples and ids."""
    mapped = Path(f"/proc/{served.process.pid}/maps").read_text()
    assert "/embershard/batchstrategy.so" in mapped
