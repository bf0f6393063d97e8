"""`embershard bench` of a Triton, which cannot be asked what it serves; and what Triton loads."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from embershard.bench.subject import packaged_model
from embershard.bench.target import ask_model, find_target
from embershard.cli import main
from tests.cases import cases

pytestmark = pytest.mark.needs_triton

QUICK = ("--timeout", "20", "--warmup", "0", "--pool", "50", "--in-flight", "2", "--requests", "40")


def bench(address, *arguments):
    return main(["bench", "--target", address, *QUICK, *arguments])


def test_it_is_asked_by_what_a_package_says(served, package, tmp_path):
    out = tmp_path / "out.json"
    arguments = ("--protocol", "oip", "--package", str(package), "--examples", "1..20")
    assert bench(served.grpc, *arguments, "--json", str(out)) == 0
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


def test_a_package_describes_its_model_as_a_server_does(package, server):
    described = ask_model(find_target(server.address), "", timeout_seconds=60)
    expected = replace(described, max_message_bytes=1 << 31)
    assert packaged_model(package, "") == expected


def test_triton_closes_batches_by_our_rule(served):
    """Its batcher has the library that decides by examples and ids."""
    mapped = Path(f"/proc/{served.process.pid}/maps").read_text()
    assert "/embershard/batchstrategy.so" in mapped
