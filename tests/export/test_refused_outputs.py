"""Outputs that no package can hold are refused."""

from dataclasses import dataclass

import torch
from torch import nn

from tests.cases import cases
from tests.export.models import collection
from tests.export.test_refused_modules import refusal_of


@cases(
    ("forward", "reason"),
    {
        "a-number": (lambda m, d, s: m.embeddings(s)["item"].sum(), "expected a row for each"),
        "summed": (lambda m, d, s: m.embeddings(s)["item"].sum(0), "expected a row for each"),
        "two-rows-each": (
            lambda m, d, s: m.embeddings(s)["item"].reshape(-1, 2),
            "got shape (14, 2)",
        ),
        "no-columns": (lambda m, d, s: m.embeddings(s)["item"][:, :0], "got shape (7, 0)"),
        "double": (
            lambda m, d, s: m.embeddings(s)["item"].double(),
            "got torch.float64; write .float()",
        ),
        "bool": (lambda m, d, s: m.embeddings(s)["item"] > 0, "got torch.bool"),
        "no-number": (lambda m, d, s: (m.embeddings(s)["item"] * 0).log().log(), "finite values"),
    },
)
def test_an_output_that_is_no_row_of_float32_is_refused(forward, reason):
    message = refusal_of(forward)
    assert "output 'score'" in message
    assert reason in message


@dataclass
class Scores:
    user: torch.Tensor
    item: torch.Tensor


def forget(m, d, s):
    m.embeddings(s)


def forget_all(m, d, s):
    m.embeddings(s)
    return {}


@cases(
    ("forward", "reason"),
    {
        "two": (
            lambda m, d, s: (d, m.embeddings(s)["user"]),
            "got a tuple of 2 values; write return {",
        ),
        "list": (lambda m, d, s: {"a": [m.embeddings(s)["user"]]}, "a tensor, or"),
        "no-loss": (
            lambda m, d, s: {"score": m.embeddings(s)["user"], "loss": None},
            "got {'score': getitem, 'loss': None}; leave 'loss' out of the dict",
        ),
        "nested": (
            lambda m, d, s: {"vectors": {"user": m.embeddings(s)["user"]}},
            "write one dict: {'vectors_user': user}",
        ),
        "dataclass": (
            lambda m, d, s: Scores(m.embeddings(s)["user"], m.embeddings(s)["item"]),
            "got the dataclass Scores; write return {'user': user, 'item': item}",
        ),
        "number": (lambda m, d, s: {3: m.embeddings(s)["user"]}, "a dict from name"),
        "none": (forget, "a tensor, or a dict"),
        "empty": (forget_all, "at least one output"),
        "name": (lambda m, d, s: {"a\n": m.embeddings(s)["user"]}, "no control characters"),
        "constant": (
            lambda m, d, s: {"a": m.embeddings(s)["user"], "b": m.embeddings.bias * 1},
            "output 'b': expected a tensor that depends on an input",
        ),
        "size": (
            lambda m, d, s: m.embeddings(s)["user"].shape[0],
            "output 'score': expected a tensor",
        ),
        "keyed": (lambda m, d, s: m.embeddings(s), "expected a tensor, got a KeyedTensor"),
    },
)
def test_an_output_of_another_form_is_refused(forward, reason):
    embeddings = collection()
    embeddings.bias = nn.Parameter(torch.ones(1))
    assert reason in refusal_of(forward, embeddings=embeddings)
