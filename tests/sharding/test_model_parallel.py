"""A model of several collections and a dense part."""

import pytest
import torch

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.sharding import row_wise, table_wise
from tests.cases import cases
from tests.sharding.cases import (
    exchanges_of_arguments,
    gradient_after_failed_backward,
    gradient_of_unfrozen,
    gradient_that_rank_0_alone_has,
    gradients_of_two_types,
    plan_of,
    train_both_kinds,
    train_model,
)
from tests.sharding.error_cases import bad_batch_in_step, bad_device
from tests.sharding.reference import make_case


def plans_of(case):
    return [plan_of(case, generator) for generator in (table_wise(rank=0), row_wise())]


CASE = make_case(2, sizes=[5, 3], steps=3)
PLANS = plans_of(CASE)


def same_argument_on_rank_0(rank, step, features, others):
    return (features, features if (rank, step) == (0, 0) else others), {}


def by_name_on_rank_1(rank, step, features, others):
    return ((features,), {"others": others}) if rank else ((features, others), {})


def others_in_the_first_step(rank, step, features, others):
    return (features, None if step else others), {}


@cases(
    ("device", "message"),
    {
        "cuda": ("cuda", "device: expected cpu, as torch sees no CUDA device, got cuda"),
        "other": ("meta", "device: expected cpu or cuda, got meta"),
        "unknown": ("gpu", "device: expected cpu or cuda, got 'gpu'"),
    },
)
@pytest.mark.parametrize("is_of_env", [False, True])
def test_a_device_that_a_rank_lacks_is_one_message_on_all(workers, device, message, is_of_env):
    expected = f"rank 1: DistributedModelParallel: {message}"
    assert workers.run(2, bad_device, device, is_of_env) == [expected, expected]


def test_collections_exchange_their_inputs_in_two_collectives(workers):
    for steps in workers.run(2, train_model, CASE, PLANS):
        # In the first step each collection exchanges alone. This shows what it looks up.
        assert [exchanges for _, _, exchanges, _ in steps] == [4, 2, 2]
        for first, second, *_ in steps:
            torch.testing.assert_close(first, second)  # Same tables, other plans.


def test_a_rank_alone_exchanges_nothing_and_keeps_its_gradients(workers):
    case = make_case(1, sizes=[5], steps=2)
    plan = plan_of(case, row_wise(), world_size=1)
    (steps,) = workers.run(1, train_model, case, [plan, plan])
    for _, _, exchanges, (own, scale, unused) in steps:
        assert exchanges == 0
        torch.testing.assert_close(scale, own)
        assert unused is None


def test_pooled_and_sequence_inputs_are_exchanged_together(workers):
    case = make_case(2, is_sequence=True, sizes=[5, 3], steps=3)
    for steps in workers.run(2, train_both_kinds, case, plans_of(case)):
        assert [exchanges for exchanges, *_ in steps] == [4, 2, 2]
        for _, pooled, sums in steps:  # Same tables, same gradients.
            torch.testing.assert_close(pooled, sums)


def test_dense_gradients_are_means_over_the_ranks(workers):
    results = workers.run(2, train_model, CASE, PLANS)
    for of_ranks in zip(*results, strict=True):
        gradients = [rank[-1] for rank in of_ranks]
        expected = torch.stack([own for own, *_ in gradients]).mean(0)
        for _, averaged, unused in gradients:
            torch.testing.assert_close(averaged, expected)
            assert unused is None


def test_a_rank_without_dense_gradients_averages_with_others(workers):
    (own, averaged), (_, other) = workers.run(2, gradient_that_rank_0_alone_has, CASE, PLANS)
    torch.testing.assert_close(averaged, own.reshape(1) / 2)
    assert torch.equal(other, averaged)


def test_gradients_of_parameters_unfrozen_later_are_averaged(workers):
    results = workers.run(2, gradient_of_unfrozen, CASE, PLANS)
    expected = torch.stack([own for own, _ in results]).mean(0)
    assert not torch.equal(results[0][0], results[1][0])
    for _, averaged in results:
        torch.testing.assert_close(averaged, expected)


def test_averaged_gradients_have_the_types_of_their_parameters(workers):
    for half, double in workers.run(2, gradients_of_two_types, CASE, PLANS[0]):
        torch.testing.assert_close(half, torch.full((2,), 0.5, dtype=torch.bfloat16))
        torch.testing.assert_close(double, torch.full((2,), 0.5, dtype=torch.float64))


def test_gradients_are_averaged_after_a_failed_backward_pass(workers):
    results = workers.run(2, gradient_after_failed_backward, CASE, PLANS)
    expected = torch.stack([own for own, _ in results]).mean(0)
    for _, averaged in results:
        torch.testing.assert_close(averaged, expected)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(by_name_on_rank_1, [4, 2, 2], id="by-name-on-one-rank"),
        # Rank 0 cannot tell which argument is looked up, so each collection exchanges alone.
        pytest.param(same_argument_on_rank_0, [4, 4, 4], id="ambiguous-on-one-rank"),
    ],
)
def test_ranks_exchange_together_what_all_of_them_observed(workers, arguments, expected):
    results = workers.run(2, exchanges_of_arguments, CASE, PLANS, arguments)
    assert results == [expected, expected]


def refusal_of_arguments(env, case, plans, arguments):
    with pytest.raises(InputError) as raised:
        exchanges_of_arguments(env, case, plans, arguments)
    return str(raised.value)


def test_an_argument_that_is_left_out_is_one_message_on_all(workers):
    results = workers.run(2, refusal_of_arguments, CASE, PLANS, others_in_the_first_step)
    assert results == ["rank 0: features: expected a KeyedJaggedTensor, got NoneType"] * 2


@pytest.mark.parametrize("bad_step", range(3))
@cases(
    ("batch", "message"),
    {
        "row-outside": (
            KeyedJaggedTensor(
                ["u", "v", "i", "v2"], torch.tensor([1, 50, 0, 0]), lengths=torch.ones(4).long()
            ),
            "rank 1: feature 'v', table 'users': row 50 at value 0 is not in 0..49, nor -1 for a "
            "zero vector",
        ),
        "no-batch": (None, "rank 1: features: expected a KeyedJaggedTensor, got NoneType"),
    },
)
def test_a_bad_batch_in_any_step_is_one_message_on_all(workers, batch, message, bad_step):
    results = workers.run(2, bad_batch_in_step, CASE, PLANS, batch, bad_step)
    assert results == [message, message]
