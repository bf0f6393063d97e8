"""`embershard predict`: a request in a file, an answer in JSON, refusals in one line."""

import io
import json

import pytest

from embershard.cli import main
from embershard.client import Client
from embershard.serving import Server, ServerOptions
from tests.cases import cases
from tests.cli.running import ROOT

REQUEST = {
    "dense": {"age": 1.0, "price": [1.0, 2.0]},
    "sparse": {"user": ["u1"], "item": [[100], [7]], "tags": [[1], []]},
    "weights": {"tags": [[0.5], []]},
}


@pytest.fixture
def request_file(tmp_path):
    """Writes a request."""

    def written(content):
        path = tmp_path / "request.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return written


def predict(capsys, *arguments):
    """Exit code, standard output and standard error."""
    code = main(["predict", "--timeout", "60", *arguments])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_request_from_a_file(address, request_file, capsys):
    code, out, err = predict(capsys, address, request_file(REQUEST))
    assert (code, err) == (0, "")
    answer = json.loads(out)
    with Client(address, timeout_seconds=60) as client:
        expected = client.predict(**REQUEST)
    assert answer == {
        "model": "ranker",
        "version": 1,
        "outputs": {name: values.tolist() for name, values in expected.items()},
        "unknown_ids": {"item": 1},
    }


def test_a_request_from_standard_input(address, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({**REQUEST, "outputs": ["score"]})))
    code, out, _ = predict(capsys, address, "-")
    assert code == 0
    assert list(json.loads(out)["outputs"]) == ["score"]


def test_a_version_is_asked_for_by_number_or_by_label(repository, tmp_path, request_file, capsys):
    model = tmp_path / "ranker"
    model.mkdir()
    (model / "1").symlink_to(repository / "ranker" / "1")
    (model / "labels.json").write_text(json.dumps({"canary": 1}))
    path = request_file(REQUEST)
    with Server(tmp_path, version=1, options=ServerOptions(port=0, threads=1)) as server:
        for which in (["--label", "canary"], ["--version", "1"], ["--model-version", "1"]):
            code, out, err = predict(capsys, server.address, path, *which)
            assert (code, err, json.loads(out)["version"]) == (0, "", 1)
        code, out, err = predict(capsys, server.address, path, "--label", "stable")
    assert (code, out) == (1, "")
    assert "NotFoundError: label 'stable' is not defined here" in err


def test_without_a_request_it_says_what_the_model_takes(address, capsys):
    code, out, _ = predict(capsys, address, "--model", "ranker", "--version", "1")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "ranker 1   at most 4096 examples a request"
    assert "  dense   example  likes   default -1.25" in lines
    assert "  sparse  request  history   at most 5 ids" in lines
    assert "  sparse  example  tags   weighted   knows ids 0 .. 7" in lines
    assert "  sparse  example  category   at most 3 ids   knows ids 0 .. 5" in lines
    assert "  output  example  parts x 2" in lines


def test_inputs_that_hash_take_any_id(capsys):
    golden = ROOT / "tests" / "golden" / "format_0"
    with Server(golden, options=ServerOptions(port=0, threads=1)) as server:
        code, out, _ = predict(capsys, server.address)
    assert code == 0
    assert "  sparse  request  tags   weighted   at most 3 ids   any id, 7 buckets" in out


@cases(
    ("content", "words"),
    {
        "syntax": ("{", "InputError: {path}: expected JSON, got: Expecting property"),
        "deep": ("[" * 200_000, "InputError: {path}: expected JSON, got too many nested levels"),
        "digits": ("9" * 5000, "InputError: {path}: expected JSON, got a number with too many"),
        "outputs": ({**REQUEST, "outputs": 5}, "InputError: outputs: expected a list of names"),
        "a-list": ("[]", "InputError: {path}: expected a JSON object, got []"),
        "key": ('{"dens": 1}', "{path}: key 'dens': expected one of dense, sparse, weights"),
        "feature": (
            {"dense": REQUEST["dense"], "sparse": {"itm": [[1]]}},
            "RequestError: feature 'itm': not a sparse input of model 'ranker'",
        ),
        "unknown-id": (
            {"dense": REQUEST["dense"], "sparse": {"category": [[6], []]}},
            "RequestError: feature 'category': id 6 at example 0, position 0 is not in 0..5",
        ),
        "output": (
            {**REQUEST, "outputs": ["scor"]},
            "NotFoundError: output 'scor' is not there, expected one of 'score', ",
        ),
    },
)
def test_a_request_that_cannot_be_answered(address, request_file, capsys, content, words):
    path = request_file(content)
    code, out, err = predict(capsys, address, path)
    assert (code, out) == (1, "")
    assert err.startswith("embershard predict: ")
    assert words.replace("{path}", path) in err
    assert err.count("\n") == 1


def test_a_model_that_is_not_served(address, capsys):
    code, _, err = predict(capsys, address, "--model", "other")
    assert code == 1
    assert "NotFoundError: model 'other' is not served here, expected 'ranker' version 1" in err


def test_a_file_that_is_not_there(address, tmp_path, capsys):
    code, _, err = predict(capsys, address, str(tmp_path / "none.json"))
    assert code == 1
    assert "InputError" in err
    assert "none.json: expected a JSON file, got a path that does not exist\n" in err


def test_no_server(capsys):
    code = main(["predict", "--timeout", "0.2", "127.0.0.1:1"])
    err = capsys.readouterr().err
    assert code == 1
    assert err.startswith("embershard predict: UnavailableError: 127.0.0.1:1: UNAVAILABLE: ")
