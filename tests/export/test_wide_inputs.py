"""An export compares the program with the module for large dense inputs and for samples, too."""

import dataclasses
import logging

import numpy as np
import torch
from torch import nn

from embershard.errors import ExportError
from embershard.export import export_model
from embershard.export.dense_program import DenseProgram
from embershard.export.program_builder import build_program
from tests.cases import cases, refused
from tests.export.expanding import Forward
from tests.export.models import REQUEST, SCHEMA, collection
from tests.export.test_refusal_remedies import refusal_of
from tests.export.test_sequences import sequences


def module(forward, **submodules):
    return Forward(forward, embeddings=collection(), **submodules)


def over(limit, sign=1):
    """A module that mixes examples if a price is over a limit."""

    def forward(m, d, s):
        x = m.embeddings(s)["item"].sum(1)
        return torch.where(sign * d[:, 1] > limit, x - x.mean(), x)

    return module(forward)


@cases(
    ("limit", "sign", "scale"),
    {"50": (50, 1, "100"), "below-50": (50, -1, "100"), "1000": (1000, 1, "10000")},
)
def test_rows_mixed_only_at_realistic_values_are_refused(limit, sign, scale):
    message = refusal_of(over(limit, sign))
    assert (
        "x - x.mean(), x): output 'score', 3 requests, 7 examples, dense inputs of abo" in message
    )
    assert f"dense inputs of about {scale}: expected the output of an example to d" in message


@cases(
    "forward",
    {
        "overflows": lambda m, d, s: {
            "rate": torch.exp(d[:, 1]) * m.embeddings(s)["item"].sum(1),
            "ratio": torch.exp(d[:, 1]) / torch.exp(d[:, 2]),
        },
        "rounds": lambda m, d, s: torch.sigmoid(
            m.wide(torch.cat([d, m.embeddings(s)["item"]], 1)).sum(1)
        ),
        "has-a-condition": lambda m, d, s: torch.where(
            d[:, 1:] > 50, m.embeddings(s)["item"][:, :2], d[:, 1:].log()
        ),
        "random-features": lambda m, d, s: torch.sin(
            10 * m.wide(torch.cat([d, m.embeddings(s)["item"]], 1))
        ),
        "periodic": lambda m, d, s: torch.sin(d) + m.embeddings(s)["item"][:, :3],
    },
)
def test_large_values_that_overflow_or_round_are_no_difference(forward):
    torch.manual_seed(0)
    build_program(module(forward, wide=nn.Linear(7, 500)), SCHEMA, seed=0)


def sample(price, count=2):
    """REQUEST with another price."""
    dense = np.array([[price, 1.0]] * count, np.float32)
    return dataclasses.replace(REQUEST, example_dense=dense)


def between(m, d, s):
    """Mixes examples if a price is in a range that no random number falls into."""
    x = m.embeddings(s)["item"].sum(1)
    return torch.where((d[:, 1] - 123456).abs() < 1, x - x.mean(), x)


def test_rows_mixed_for_given_samples_are_refused_before_writing(tmp_path):
    out = tmp_path / "m/1"
    other = dataclasses.replace(
        sample(123456.0), lengths=np.array([1, 1, 1, 0], np.int32), values=np.array([1, 3, 5])
    )
    with refused(ExportError, "x - x.mean(), x): output 'score', samples 0 to 1:"):
        export_model(module(between), SCHEMA, out, samples=[sample(123456.0), other])
    assert not out.exists()


def test_samples_whose_rows_are_not_mixed_are_exported(tmp_path):
    export_model(module(between), SCHEMA, tmp_path / "m/1", samples=[sample(50.0), sample(1.0)])


def test_groups_of_samples_with_lists_are_compared(monkeypatch):
    monkeypatch.setattr("embershard.export.samples.MERGED_EXAMPLES", 3)

    def forward(m, d, s):
        x = m.sequences(s)["history"].to_padded_dense(3).sum((1, 2)) + m.embeddings(s)["item"].sum(
            1
        )
        return torch.where((d[:, 1] - 123456).abs() < 1, x - x.mean(), x)

    ranker = module(forward, sequences=sequences())
    plain, mixed = sample(2.0), sample(123456.0)
    build_program(ranker, SCHEMA, samples=[plain] * 5, seed=0)
    empty = dataclasses.replace(
        mixed, lengths=np.array([1, 0, 1, 0], np.int32), values=np.array([1, 3])
    )
    with refused(ExportError, "output 'score', samples 4 to 5:"):
        build_program(ranker, SCHEMA, samples=[*[plain] * 4, mixed, empty, plain], seed=0)


def test_a_sample_against_the_schema_is_refused_before_a_run(tmp_path):
    wrong = dataclasses.replace(REQUEST, request_dense=np.zeros(5, np.float32))
    with refused(ExportError, "samples: 0: request_dense:"):
        export_model(module(over), SCHEMA, tmp_path / "m/1", samples=[wrong])


def hours(m, d, s):
    return m.hours(d[:, 1].abs().long()) + m.embeddings(s)["item"]


def test_a_dense_index_that_may_exceed_its_range_is_a_warning(caplog):
    build_program(module(hours, hours=nn.Embedding(24, 4)), SCHEMA, seed=0)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    message = record.getMessage()
    assert message.startswith("dense inputs of about 100: ")
    assert "test_wide_inputs.py:" in message
    assert "return m.hours(d[:, 1].abs().long()) + m.embeddings(s)" in message
    assert "index out of range in self" in message
    assert "write index.clamp(0, rows - 1), or index.remainder(rows)" in message


def test_an_index_out_of_range_for_small_numbers_is_refused():
    ranker = module(
        lambda m, d, s: m.hours(d[:, 1].long() - 2) + m.embeddings(s)["item"],
        hours=nn.Embedding(24, 4),
    )
    assert "index out of range in self; an index that is comp" in refusal_of(ranker)


@cases(
    "forward",
    {
        "clamped": lambda m, d, s: m.hours(d[:, 1].long().clamp(0, 23)) + m.embeddings(s)["item"],
        "modulo": lambda m, d, s: m.hours(d[:, 1].long().remainder(24)) + m.embeddings(s)["item"],
    },
)
def test_an_index_that_stays_in_range_has_no_warning(forward, caplog):
    build_program(module(forward, hours=nn.Embedding(24, 4)), SCHEMA, seed=0)
    assert not caplog.records


def test_a_modules_own_check_of_large_values_is_no_error(caplog):
    def forward(m, d, s):
        assert bool((d[:, 1] < 60).all())
        return m.embeddings(s)["item"] * d[:, 1:2]

    build_program(module(forward), SCHEMA, seed=0)
    assert not caplog.records


def test_a_program_that_differs_at_large_values_alone_is_refused(monkeypatch):
    run = DenseProgram.run

    def wrong(self, dense, *rest):
        outputs = run(self, dense, *rest)
        return {name: output + 7 * (dense[:, 1] > 50).float() for name, output in outputs.items()}

    monkeypatch.setattr(DenseProgram, "run", wrong)
    message = refusal_of(module(lambda m, d, s: m.embeddings(s)["item"].sum(1)))
    assert "dense inputs of about 100: expected the module's output for the same exam" in message


def test_random_numbers_used_for_large_values_only_are_refused():
    def forward(m, d, s):
        x = m.embeddings(s)["item"].sum(1)
        return torch.where(d[:, 1] > 50, x + torch.rand_like(x), x)

    assert "expected equal outputs for equal inputs, got others in a second run" in refusal_of(
        module(forward)
    )


@cases(
    ("forward", "words"),
    {
        "dimension": (lambda m, d, s: m.embeddings(s)["item"].sum(2), "Dimension out of range"),
        "column": (lambda m, d, s: m.embeddings(s)["item"][:, 9], "index 9 is out of bounds"),
    },
)
def test_a_constant_index_has_no_advice_about_dense_inputs(forward, words):
    message = refusal_of(module(forward))
    assert words in message
    assert "dense inputs" not in message
