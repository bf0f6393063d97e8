"""`embershard explain`: a package's own request or one in a file, as tables or JSON."""

import io
import json
import subprocess
import sys

import numpy as np
import pytest

from embershard.cli import main
from embershard.client import Client
from embershard.explain import explain_request, explain_sample, explanation_json
from tests.cases import cases

REQUEST = {
    "dense": {"age": 1.0, "price": [1.0, 2.0, 3.0]},
    "sparse": {
        "user": ["u1", "nobody"],
        "item": [[100], [7], []],
        "history": [1, 2, 3, 100, 101, 102, 103, 104],
        "query": ["[bold]red"],
        "tags": [[1, 99], [], []],
    },
    "weights": {"tags": [[0.5, 2.0], [], []]},
}


@pytest.fixture
def request_file(tmp_path):
    path = tmp_path / "request.json"
    path.write_text(json.dumps(REQUEST))
    return path


def explain(capsys, *arguments):
    """Exit code, standard output and standard error."""
    code = main(["explain", *map(str, arguments)])
    told = capsys.readouterr()
    return code, told.out, told.err


def lines_of(text):
    """Its lines, blanks squeezed."""
    return [" ".join(line.split()) for line in text.splitlines()]


def test_without_a_request_the_first_sample_is_explained(package, capsys):
    code, out, err = explain(capsys, package, "--format", "json")
    assert (code, err) == (0, "")
    assert json.loads(out) == explanation_json(explain_sample(package, 0))


def test_only_of_a_sample_it_says_that_strings_are_numbers(package, request_file, capsys):
    words = "ids are shown as the package keeps them: a string as the number it hashes to"
    _, out, _ = explain(capsys, package)
    assert lines_of(out)[1] == words
    _, out, _ = explain(capsys, package, request_file)
    assert words not in lines_of(out)


def test_scores_are_those_that_predict_prints(package, address, request_file, capsys):
    _, out, _ = explain(capsys, package, request_file, "--format", "json")
    document = json.loads(out)
    with Client(address, timeout_seconds=60) as client:
        answer = client.predict(**REQUEST)
    assert list(document["outputs"]) == list(answer)
    for name, values in answer.items():
        assert np.array(document["outputs"][name]) == pytest.approx(values, abs=1e-6)
    unknown = {feature["name"]: feature["unknown_ids"] for feature in document["sparse"]}
    assert {name: count for name, count in unknown.items() if count} == answer.unknown_ids


def test_tables_say_what_every_id_became(package, request_file, capsys):
    code, out, err = explain(capsys, package, request_file)
    assert (code, err) == (0, "")
    lines = lines_of(out)
    assert lines[0] == "ranker 1 3 examples"
    sparse = lines[lines.index("sparse input map example id row table norm") :]
    explanation = explain_request(package, **REQUEST)
    lists = {
        feature["name"]: feature["lists"] for feature in explanation_json(explanation)["sparse"]
    }
    known, unknown = lists["user"][0]["ids"]
    assert f"user vocab 'u1' 1 users {known['norms'][0]:.4f}" in sparse
    assert f"'nobody' 42 (unknown) users {unknown['norms'][0]:.4f}" in sparse
    assert "1 7 zero (unknown) 0.0000" in sparse
    assert "... 3 more cut: last 5 kept" in sparse
    assert "... 1 more" in sparse
    (mean,) = lists["history"][0]["pooled_norms"]
    assert f"mean of 5 items {mean:.4f}" in sparse
    assert f"'[bold]red' {lists['query'][0]['ids'][0]['row']} queries " in "\n".join(sparse)
    assert "hour request 0.5 (its default: not given)" in lines
    changes = next(line for line in lines if line.startswith("age 0 "))
    change = explanation.left_out[0].change["score"]
    assert changes.split()[2:4] == [f"{value:+.4f}" for value in change[:2]]


def test_unknown_ids_that_are_not_shown_are_counted(package, tmp_path, capsys):
    dense = {"age": 1.0, "price": [1.0]}
    path = tmp_path / "request.json"
    path.write_text(
        json.dumps({"dense": dense, "sparse": {"item": [[100, 101, 102, 103, 7, 8, 9]]}})
    )
    _, out, _ = explain(capsys, package, path)
    assert "... 3 more 3 of them unknown" in lines_of(out)


def test_all_shows_every_id_and_example(package, request_file, capsys):
    _, short, _ = explain(capsys, package, request_file)
    _, out, _ = explain(capsys, package, request_file, "--all")
    assert "1 more example not shown" in lines_of(short)
    lines = lines_of(out)
    assert not [line for line in lines if "more" in line]
    assert "history vocab 1 cut: last 5 kept" in lines
    assert "2 mean of 0 items 0.0000" in lines


def test_one_example_is_shown_alone_where_asked(package, request_file, capsys):
    _, out, _ = explain(capsys, package, request_file, "--example", 1, "--format", "json")
    document = json.loads(out)
    whole = explanation_json(explain_request(package, **REQUEST))
    assert document["examples"] == [1]
    assert document["outputs"]["score"] == whole["outputs"]["score"][1:2]
    for one, every in zip(document["sparse"], whole["sparse"], strict=True):
        lists = every["lists"] if every["scope"] == "request" else every["lists"][1:2]
        assert one["lists"] == lists
    _, out, _ = explain(capsys, package, request_file, "--example", 1)
    assert "2 more examples not shown" in lines_of(out)


def test_a_request_is_read_from_standard_input(package, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({**REQUEST, "outputs": ["score"]})))
    code, out, _ = explain(capsys, package, "-", "--format", "json")
    assert code == 0
    assert list(json.loads(out)["outputs"]) == ["score"]


@cases(
    ("content", "words"),
    {
        "no-object": ("[]", "InputError: {path}: expected a JSON object, got []"),
        "rejected-id": (
            {"dense": REQUEST["dense"], "sparse": {"category": [[6], [], []]}},
            "RequestError: feature 'category': id 6 at example 0, position 0 is not in 0..5 "
            "(policy: reject)",
        ),
        "rejected-string": (
            {"dense": REQUEST["dense"], "sparse": {"category": [["six"], [], []]}},
            "it stands for the string 'six'",
        ),
        "output": (
            {"dense": REQUEST["dense"], "outputs": ["scor"]},
            "NotFoundError: output 'scor' is not there, expected one of 'score', ",
        ),
    },
)
def test_what_a_server_refuses_is_refused_in_the_same_words(
    package, address, tmp_path, capsys, content, words
):
    path = tmp_path / "bad.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    code, out, err = explain(capsys, package, path)
    assert (code, out) == (1, "")
    assert words.replace("{path}", str(path)) in err
    assert err.count("\n") == 1
    assert main(["predict", "--timeout", "60", address, str(path)]) == 1
    told = capsys.readouterr().err
    assert told.removeprefix("embershard predict") == err.removeprefix("embershard explain")


@cases(
    ("arguments", "words"),
    {
        "no-such-sample": (["--sample", "9"], "InputError: sample: expected 0 .. 2, got 9"),
        "negative-sample": (["--sample", "-1"], "InputError: sample: expected 0 .. 2, got -1"),
        "no-such-example": (["--example", "1"], "InputError: --example: expected 0 .. 0, got 1"),
    },
)
def test_options_that_name_nothing_are_refused(package, capsys, arguments, words):
    code, out, err = explain(capsys, package, *arguments)
    assert (code, out) == (1, "")
    assert err == f"embershard explain: {words}\n"


def test_a_folder_too_high_is_refused_by_name(repository, capsys):
    code, _, err = explain(capsys, repository)
    assert code == 1
    assert "expected a package (REPOSITORY/MODEL/VERSION), got a repository" in err


def test_a_request_and_a_sample_together_are_refused(package, request_file, capsys):
    code, _, err = explain(capsys, package, "--sample", 0, request_file)
    assert (code, err) == (
        1,
        "embershard explain: InputError: expected REQUEST.json or --sample, got both\n",
    )


def test_where_nobody_reads_on_it_ends_without_a_word(package):
    command = [sys.executable, "-m", "embershard", "explain", str(package)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=60) == 141


def test_in_a_process_of_its_own_python_loads_no_torch(package):
    code = (
        "import sys; from embershard.cli import main; code = main(['explain', sys.argv[1]]); "
        "sys.exit(code or ('torch' in sys.modules) * 7)"
    )
    command = [sys.executable, "-c", code, str(package)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
