"""Pipelines do what a plain loop does, and end on every rank alike."""

import pytest
import torch
from torch import nn

from embershard.errors import InputError
from embershard.sharding import (
    TrainPipelineBase,
    row_wise,
    table_wise,
)
from tests.cases import cases
from tests.sharding.cases import plan_of
from tests.sharding.pipeline_cases import (
    ComputedInput,
    Model,
    Scores,
    Triple,
    evaluate,
    exchanges_begun,
    progress_with_fault,
    refused_output,
    train_detached,
    train_in_turns,
    train_two_epochs,
)
from tests.sharding.reference import make_case

CASE = make_case(2, sizes=[5, 3], steps=5)
PLANS = [plan_of(CASE, generator) for generator in (table_wise(rank=0), row_wise())]
ENDED = "rank 1: data: expected a batch, as rank 0 has one, got the end"
OUTSIDE = (
    "feature 'u', table 'users': row 1000000 at value 0 is not in 0..49, nor -1 for a zero vector"
)


@pytest.mark.parametrize("kind", [Model, ComputedInput])
@pytest.mark.parametrize("name", ["base", "sparse"])
def test_a_pipeline_equals_the_plain_loop_bit_for_bit(workers, name, kind):
    plain = workers.run(2, train_two_epochs, CASE, PLANS, "plain", kind)
    piped = workers.run(2, train_two_epochs, CASE, PLANS, name, kind)
    for (outputs, state), (piped_outputs, piped_state) in zip(plain, piped, strict=True):
        assert len(piped_outputs) == 3 * len(CASE.batches)
        for a, b in zip([*outputs, *state], [*piped_outputs, *piped_state], strict=True):
            assert torch.equal(a, b)


def test_ids_of_one_and_sizes_of_two_batches_are_sent_ahead(workers):
    # Exchanges that have begun before each batch is computed:
    #   batch 0: one, which announces a batch. Each of its two collections adds two afterwards.
    #   batch 1: five more: sizes and data of batches 1 and 2, and sizes of batch 3.
    #   later:   data of the next batch, and sizes of the one after it.
    # The end of the data is exchanged like the sizes of a batch. It has no data.
    for begun in workers.run(2, exchanges_begun, CASE, PLANS):
        assert begun == [1, 10, 12, 14, 15]


@cases(
    ("fault", "message", "later"),
    {
        "bad": ("bad", f"rank 1: {OUTSIDE}", ""),
        "raises": ("raises", "rank 1: disk is gone", ENDED),  # A generator that raised has ended.
        "ends": ("ends", ENDED, ENDED),
    },
)
@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("name", ["base", "sparse"])
def test_a_fault_of_one_ranks_data_is_an_error_on_every_rank(
    workers, name, at, fault, message, later
):
    expected = [""] * at + [message] + [later] * (4 - at)
    results = workers.run(2, progress_with_fault, CASE, PLANS, name, fault, at)
    assert results == [expected, expected]


@cases(
    ("execute_all_batches", "expected"),
    {
        "all": (True, [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]]),
        "one-is-kept": (False, [[0, 1, 2, 3], [0, 1, 2, 3, 4, 0, 1, 2, 3]]),
    },
)
def test_the_batch_before_the_end_is_done_or_kept(workers, execute_all_batches, expected):
    results = workers.run(2, train_in_turns, CASE, PLANS, execute_all_batches)
    assert results == [expected, expected]


def test_a_detached_model_is_called_between_two_steps(workers):
    expected, actual = (
        workers.run(2, train_detached, CASE, PLANS, is_detached) for is_detached in (False, True)
    )
    for outputs, result in zip(expected, actual, strict=True):
        assert len(outputs) == len(CASE.batches)
        assert all(map(torch.equal, outputs, result))


@cases(
    ("kind", "returned"),
    {
        "scores": (Scores, ["a Tensor of shape [5]", "a Tensor of shape [3]"]),
        "three": (Triple, ["a list of 3", "a list of 3"]),
    },
)
@pytest.mark.parametrize("name", ["base", "sparse", "eval"])
def test_a_model_that_returns_no_loss_and_output_is_refused(workers, name, kind, returned):
    messages = workers.run(2, refused_output, CASE, PLANS, name, kind)
    assert messages == [
        f"the model returned {description}; expected (loss, output)" for description in returned
    ]


@pytest.mark.parametrize("name", ["base", "sparse"])
def test_steps_in_eval_mode_change_no_weights_state_or_counts(workers, name):
    for requires_grad, before, after in workers.run(2, evaluate, CASE, PLANS, name):
        assert requires_grad == [False] * len(CASE.batches)
        for a, b in zip(before, after, strict=True):
            assert torch.equal(a, b)


def test_a_model_without_sharded_tables_is_refused():
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(InputError, match="expected one DistributedModelParallel in it, got 0"):
        TrainPipelineBase(model, optimizer, torch.device("cpu"))
