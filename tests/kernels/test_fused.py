"""Fused tables: steps of the optimizers against oracles by hand, state, and refusals."""

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.kernels import FusedOptimizer, FusedTables
from tests.cases import cases, refused

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.needs_gpu)]
SHAPES = [(6, 4), (5, 8)]

# Two lookups in table 0 and one in table 1, for 2 examples. Row 3 of table 0 comes three times.
ROWS = [3, 3, 1, 0, 3, 4, 2, 2]
OFFSETS = [0, 2, 3, 4, 5, 8, 8]
WEIGHTS = [1.0, 0.5, 1.0, 2.0, 1.0, 1.0, -1.0, 1.0]


def build(optimizer, device="cpu", **settings):
    tables = FusedTables(
        SHAPES,
        [0, 0, 1],
        optimizer=FusedOptimizer(name=optimizer, **settings),
        device=torch.device(device),
    )
    generator = torch.Generator().manual_seed(0)
    for weight in tables.weights:
        weight.copy_(torch.randn(weight.shape, generator=generator))
    return tables


def step(tables, upstream):
    """Runs forward and backward with ``upstream`` as the gradient of the output."""
    device = tables.weights[0].device
    pooled = tables.lookup(
        torch.tensor(ROWS, device=device),
        torch.tensor(OFFSETS, device=device),
        torch.tensor(WEIGHTS, device=device),
    )
    pooled.backward(upstream.to(device))
    return pooled.detach().cpu()


def bags_by_hand():
    """Yields (table, example, first column, row, weight) of every id."""
    lookups = [(0, 0, 4), (0, 4, 4), (1, 8, 8)]  # table, first column, dim
    for bag in range(6):
        table, column, _ = lookups[bag // 2]
        for i in range(OFFSETS[bag], OFFSETS[bag + 1]):
            yield table, bag % 2, column, ROWS[i], WEIGHTS[i]


def gradients_by_hand(upstream):
    gradients = [torch.zeros(shape) for shape in SHAPES]
    for table, example, column, row, weight in bags_by_hand():
        dim = SHAPES[table][1]
        gradients[table][row] += weight * upstream[example, column : column + dim]
    return gradients


def random_upstream(seed):
    return torch.randn(2, 16, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("device", DEVICES)
def test_lookup_sums_weighted_rows(device):
    tables = build("sgd", device)
    expected = torch.zeros(2, 16)
    for table, example, column, row, weight in bags_by_hand():
        dim = SHAPES[table][1]
        expected[example, column : column + dim] += weight * tables.weights[table][row].cpu()

    assert_close(step(tables, random_upstream(1)), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_sgd_subtracts_the_summed_gradient_of_a_row(device):
    tables = build("sgd", device, learning_rate=0.1)
    before = [weight.cpu().clone() for weight in tables.weights]

    step(tables, random_upstream(1))

    for weight, old, gradient in zip(
        tables.weights, before, gradients_by_hand(random_upstream(1)), strict=True
    ):
        assert_close(weight.cpu(), old - 0.1 * gradient)
    assert tables.states == [{}, {}]


@pytest.mark.parametrize("device", DEVICES)
def test_rowwise_adagrad_divides_by_the_root_of_mean_squares(device):
    learning_rate, eps = 0.05, 1e-3
    tables = build("rowwise_adagrad", device, learning_rate=learning_rate, eps=eps)
    weights = [weight.cpu().clone() for weight in tables.weights]
    momentum = [torch.zeros(rows) for rows, _ in SHAPES]

    for seed in (1, 2, 3):
        step(tables, random_upstream(seed))
        for table, gradient in enumerate(gradients_by_hand(random_upstream(seed))):
            for row in range(len(gradient)):
                momentum[table][row] += gradient[row].square().mean()
                scale = learning_rate / (momentum[table][row].sqrt() + eps)
                weights[table][row] -= scale * gradient[row]

    for table in range(2):
        assert_close(tables.weights[table].cpu(), weights[table])
        assert_close(tables.states[table]["momentum1"].cpu(), momentum[table])


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad"])
def test_rows_of_weight_zero_stay_as_they_are(optimizer):
    tables = build(optimizer)
    before = tables.weights[0].clone()

    pooled = tables.lookup(
        torch.tensor([2, 5]), torch.tensor([0, 1, 1, 2, 2, 2, 2]), torch.tensor([0.0, 1.0])
    )
    pooled.sum().backward()

    assert torch.equal(tables.weights[0][:5], before[:5])
    assert not torch.equal(tables.weights[0][5], before[5])


def test_learning_rate_can_change_between_steps():
    tables = build("sgd", learning_rate=0.1)
    step(tables, random_upstream(1))
    before = tables.weights[0].clone()

    tables.set_learning_rate(0.3)
    step(tables, random_upstream(1))

    assert_close(tables.weights[0], before - 0.3 * gradients_by_hand(random_upstream(1))[0])


def test_no_values_at_all_give_zero_vectors_and_change_nothing():
    tables = build("rowwise_adagrad")
    before = tables.weights[1].clone()

    pooled = tables.lookup(
        torch.zeros(0, dtype=torch.int64), torch.zeros(7, dtype=torch.int64), torch.zeros(0)
    )
    pooled.sum().backward()

    assert torch.equal(pooled, torch.zeros(2, 16))
    assert torch.equal(tables.weights[1], before)


@cases(
    ("settings", "parts"),
    {
        "lion": ({"name": "lion"}, ["'lion'"]),
        "step": ({"learning_rate": -0.1}, ["learning_rate", "got -0.1"]),
        "nan": ({"learning_rate": float("nan")}, ["learning_rate", "got nan"]),
        "no-eps": ({"eps": 0.0}, ["eps", "got 0.0"]),
        "clip": ({"max_gradient": 0.0}, ["max_gradient", "got 0.0"]),
        "beta1": ({"beta1": 1.0}, ["beta1", "got 1.0"]),
        "interval": ({"ema_interval": 0}, ["ema_interval", "got 0"]),
        "decay": ({"weight_decay_mode": "l1"}, ["got 'l1'"]),
    },
)
def test_optimizers_that_cannot_be_used_are_refused(settings, parts):
    with refused(InputError, *parts):
        FusedOptimizer(**settings)


def test_a_learning_rate_that_is_no_step_is_refused():
    with refused(InputError, "learning_rate", "got -1"):
        build("sgd").set_learning_rate(-1.0)
