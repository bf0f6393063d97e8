"""A request without examples has outputs in request scope only, such as a user's vector."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from embershard.cli import main
from embershard.errors import RequestError
from embershard.explain import explain_request, explanation_json, explanation_tables
from tests.cases import refused
from tests.serving.asking import Asked
from tests.serving.attending import SCHEMA, export_attending
from tests.serving.oracle import Oracle

USER = {
    "dense": {"age": 0.5},
    "sparse": {"user": [7], "history": [[100, 101, 139, 5]]},
    "num_examples": 0,
    "outputs": ["history_mean"],
}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return export_attending(tmp_path_factory.mktemp("attending"), weights="int8")


@pytest.fixture(scope="module")
def explanation(package):
    return explain_request(package, **USER)


def history_mean(package, history):
    """The expected output, which the oracle computes for one example without ids."""
    request = Asked(
        num_examples=1,
        dense={"age": [0.5], "price": [0.0]},
        sparse={"user": [[7]], "history": [history], "item": [[]], "words": [[]]},
        schema=SCHEMA,
    )
    return Oracle(package).answer(request)["history_mean"]


def test_its_vector_and_what_each_input_does_to_it(package, explanation):
    assert explanation.request.sample.num_examples == 0
    expected = history_mean(package, [100, 101, 139, 5])
    np.testing.assert_allclose(explanation.scores["history_mean"], expected, rtol=0, atol=1e-6)
    changes = {change.input: change.change["history_mean"] for change in explanation.left_out}
    np.testing.assert_allclose(changes["history"], -expected, rtol=0, atol=1e-6)
    for name in ("age", "price", "user", "item", "words"):
        np.testing.assert_array_equal(changes[name], np.zeros_like(expected))
    assert explanation.sparse[1].fates.tolist() == ["known", "known", "known", "zero"]
    assert [len(lists.lengths) for _, lists in explanation.request.sparse()] == [1, 1, 0, 0]


def test_outputs_of_examples_are_refused_in_the_servers_words(package):
    with refused(RequestError, "num_examples: expected 1..4096, got 0"):
        explain_request(package, **{**USER, "outputs": ["score"]})


def test_as_json_it_has_no_example(explanation):
    document = explanation_json(explanation)
    assert (document["num_examples"], document["examples"]) == (0, [])
    lists = {feature["name"]: feature["lists"] for feature in document["sparse"]}
    assert lists["item"] == []
    assert [item["example"] for item in lists["history"]] == [None]


def test_as_a_table_it_has_the_outputs_of_the_request(explanation):
    text = io.StringIO()
    Console(file=text, width=200).print(explanation_tables(explanation))
    assert "0 examples" in text.getvalue().splitlines()[0]
    assert any(
        line.split()[:3] == ["history", "no", "ids"] for line in text.getvalue().splitlines()
    )


def test_the_command_says_that_there_is_no_example_to_show(package, tmp_path, capsys):
    file = tmp_path / "request.json"
    file.write_text(json.dumps(USER))
    assert main(["explain", str(package), str(file)]) == 0
    assert capsys.readouterr().out.startswith("attending 1")
    assert main(["explain", str(package), str(file), "--example", "0"]) == 1
    assert "InputError: --example: expected none" in capsys.readouterr().err
