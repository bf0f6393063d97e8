"""`embershard compile`, from a package to scores."""

import json
import re

import numpy as np
import pytest

from embershard.cli import main
from embershard.client import Client
from embershard.errors import NotFoundError, PackageError
from embershard.package import Package, verify_package
from embershard.serving import Server, ServerOptions
from tests.cases import cases
from tests.serving.asking import named, outputs_of, random_request
from tests.serving.messages import MessagePredictor
from tests.serving.models import seal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # Compiling counts to a first test.

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def compiled(repository, tmp_path_factory):
    """The ranker as version 2, compiled: the one time in this file."""
    out = tmp_path_factory.mktemp("compiled") / "ranker" / "2"
    assert main(["compile", str(repository / "ranker" / "1"), "--out", str(out)]) == 0
    return out


def answers(predictor, asked):
    found = predictor.answers([named(each).SerializeToString() for each in asked])
    return [outputs_of(each) for each in found]


def scores(predictor, count):
    sizes = (1, count, 3)
    return answers(predictor, [random_request(size, seed) for seed, size in enumerate(sizes)])


def edited(compiled, tmp_path, edit):
    """The compiled package with another manifest."""
    out = tmp_path / "ranker" / "2"
    for file in (*Package.open(compiled).manifest.files, "manifest.json", "manifest.sha256"):
        (out / file).parent.mkdir(parents=True, exist_ok=True)
        (out / file).write_bytes((compiled / file).read_bytes())
    document = json.loads((out / "manifest.json").read_text())
    edit(document["programs"][1])
    seal(out, document)
    return out


def test_the_package_is_good_in_every_byte_and_holds_both_programs(compiled, repository):
    found = verify_package(compiled).manifest
    (program,) = found.compiled
    assert (program.dtype, program.file) == ("float32", f"programs/dense.{program.target}.pt2")
    assert found.torchscript.file == "programs/dense.pt"
    tables = "tables/items/00000.safetensors"
    assert (compiled / tables).samefile(repository / "ranker" / "1" / tables)


@pytest.mark.parametrize("count", [1, 2, 300])
def test_its_scores_are_those_of_torchscript(compiled, count):
    one = scores(MessagePredictor(compiled, threads=1), count)
    other = scores(MessagePredictor(compiled, dense_program="cpu", threads=1), count)
    for found, expected in zip(one, other, strict=True):
        assert found.keys() == expected.keys()
        for name in found:
            assert np.abs(found[name] - expected[name]).max() <= TOLERANCE, name


def test_threads_change_no_score(compiled):
    one, other = (
        scores(MessagePredictor(compiled, threads=count, slots=1), 700) for count in (1, 4)
    )
    for found, expected in zip(one, other, strict=True):
        for name in found:
            assert np.abs(found[name] - expected[name]).max() <= TOLERANCE, name


def test_a_server_serves_it(compiled):
    options = ServerOptions(port=0, threads=1)
    with Server(compiled.parent.parent, options=options) as server:
        assert [each.version for each in server.packages] == [2]
        asked = random_request(5, 1)
        with Client(server.address, timeout_seconds=60) as client:
            found = client.predict(
                dense=asked.dense, sparse=asked.sparse, weights=asked.weights, num_examples=5
            )
    (expected,) = answers(MessagePredictor(compiled, dense_program="cpu", threads=1), [asked])
    assert np.abs(found["score"] - expected["score"]).max() <= TOLERANCE


def test_an_unknown_target_is_refused_with_those_there_are(compiled):
    (program,) = Package.open(compiled).manifest.compiled
    words = f"dense_program: expected one of cpu, cpu-fp32, {program.target}, got 'cuda'"
    with pytest.raises(NotFoundError, match=re.escape(words)):
        MessagePredictor(compiled, dense_program="cuda")


@cases(
    ("edit", "words"),
    {
        "torch": ({"torch": "1.0.0"}, "torch: expected version 1.0.0, which compiled it, got"),
        "processor": (
            {"instructions": ["amx_from_the_future"]},
            "instructions: expected a processor with amx_from_the_future, got one without",
        ),
    },
)
def test_torchscript_runs_instead_of_a_program_of_another_machine(compiled, tmp_path, edit, words):
    package = edited(compiled, tmp_path, lambda program: program.update(edit))
    ran = MessagePredictor(package).program
    assert ran.target == "cpu"
    assert ran.why.startswith(f"no other fits; {Package.open(package).manifest.compiled[0].file}: ")
    assert words in ran.why
    with pytest.raises(PackageError, match=words):
        MessagePredictor(package, dense_program=Package.open(package).manifest.compiled[0].target)


def test_the_faster_of_both_programs_runs(compiled):
    (program,) = Package.open(compiled).manifest.compiled
    ran = MessagePredictor(compiled).program
    others = {program.target: "cpu", "cpu": program.target}
    number = r"[0-9.e+-]+ ms"
    words = rf"samples take {number}, with {others[ran.target]} {number}"
    assert re.fullmatch(words, ran.why)
    assert MessagePredictor(compiled, dense_program=program.target).program.target == program.target


def test_a_package_that_is_there_is_not_replaced(compiled, repository, capsys):
    package = str(repository / "ranker" / "1")
    assert main(["compile", package, "--out", str(compiled)]) == 1
    assert "expected no such version yet" in capsys.readouterr().err
