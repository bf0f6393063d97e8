"""Planted logs are deterministic, have Zipf ids and scopes, and labels that follow the teacher."""

import numpy as np
import pytest

from embershard.data import (
    PlantedInput,
    SyntheticConfig,
    client_requests,
    planted_click_log,
)
from embershard.errors import InputError
from tests.cases import cases, refused
from tests.oracles import share_of_ordered_pairs


def lengths_and_values(dataset, name):
    """Lengths and values of a sparse input, over all splits."""
    columns = [split.sparse[name] for split in (dataset.train, dataset.valid, dataset.test)]
    return np.concatenate([c.lengths for c in columns]), np.concatenate([c.values for c in columns])


@pytest.fixture(scope="module")
def log():
    return planted_click_log(SyntheticConfig(examples=100_000, seed=1))


def test_a_seed_decides_everything(log):
    again = planted_click_log(SyntheticConfig(examples=100_000, seed=1))
    other = planted_click_log(SyntheticConfig(examples=100_000, seed=2))

    assert np.array_equal(again.dataset.train.labels, log.dataset.train.labels)
    assert np.array_equal(again.dataset.train.dense, log.dataset.train.dense)
    for name in log.dataset.train.sparse:
        column, other_column = (
            lengths_and_values(data, name) for data in (log.dataset, again.dataset)
        )
        for array, other_array in zip(column, other_column, strict=True):
            assert np.array_equal(array, other_array)
    assert again.best_auc == log.best_auc
    assert not np.array_equal(other.dataset.train.labels, log.dataset.train.labels)


def test_splits_are_80_10_10(log):
    dataset = log.dataset
    assert (len(dataset.train), len(dataset.valid), len(dataset.test)) == (80_000, 10_000, 10_000)


def test_the_examples_of_a_request_share_request_scoped_inputs(log):
    requests = list(client_requests(log.dataset.test))  # Refuses any difference.

    assert {len(request.positions) for request in requests} == {4}
    assert requests[0].sparse["user"].lengths.tolist() == [1]
    assert requests[0].sparse["item"].lengths.tolist() == [1, 1, 1, 1]


def test_lengths_are_jagged_from_empty_to_the_longest(log):
    lengths, _ = lengths_and_values(log.dataset, "history")

    assert np.bincount(lengths[::4]) / len(lengths[::4]) == pytest.approx([1 / 9] * 9, abs=0.01)
    assert (lengths_and_values(log.dataset, "item")[0] == 1).all()


def test_ids_follow_zipfs_law(log):
    _, values = lengths_and_values(log.dataset, "item")
    weights = np.arange(1, 5001) ** -1.05
    counts = np.bincount(values, minlength=5000)

    expected = weights / weights.sum()
    assert counts[:5] / len(values) == pytest.approx(expected[:5], rel=0.1)
    assert counts[100:].sum() / len(values) == pytest.approx(expected[100:].sum(), rel=0.05)


def test_labels_are_clicks_with_the_teachers_probability(log):
    probability, labels = log.test_probability, log.dataset.test.labels

    for low in (0.1, 0.3, 0.5, 0.7):
        bucket = (probability >= low) & (probability < low + 0.2)
        share, expected = labels[bucket].mean(), probability[bucket].mean()
        assert share == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(bucket.sum()))


def test_the_best_auc_is_the_teachers_on_the_test_labels(log):
    expected = share_of_ordered_pairs(log.test_probability, log.dataset.test.labels)
    assert log.best_auc == pytest.approx(expected, abs=1e-6)
    assert 0.7 < log.best_auc < 0.9


def test_too_few_examples_for_both_kinds_of_labels_are_refused():
    with refused(InputError, "test split", "click"):
        planted_click_log(SyntheticConfig(examples=10))


def test_the_probability_is_the_sigmoid_of_the_planted_sum():
    """Equal ids contribute equally, so a least-squares fit of the logit has no residual."""
    inputs = (
        PlantedInput(name="a", scope="request", ids=5),
        PlantedInput(name="b", scope="example", ids=6, max_length=3),
    )
    log = planted_click_log(SyntheticConfig(examples=4000, seed=0, inputs=inputs))
    test = log.dataset.test
    design = [test.dense.astype(np.float64)]
    for name, ids in (("a", 5), ("b", 6)):
        lengths, values = test.sparse[name].lengths, test.sparse[name].values
        bag = np.zeros((len(test), ids))
        np.add.at(bag, (np.repeat(np.arange(len(test)), lengths), values), 1.0)
        design.append(bag / np.maximum(lengths, 1)[:, None])
    logit = np.log(log.test_probability / (1 - log.test_probability))

    matrix = np.concatenate(design, axis=1)
    solution, *_ = np.linalg.lstsq(matrix, logit, rcond=None)

    assert matrix @ solution == pytest.approx(logit, abs=1e-5)


@pytest.mark.slow
def test_a_million_examples():
    log = planted_click_log(SyntheticConfig())

    assert len(log.dataset.train) == 800_000
    assert 0.7 < log.best_auc < 0.9


@cases(
    ("settings", "parts"),
    {
        "examples": ({"examples": 9}, ["examples", "got 9"]),
        "too-many": ({"examples": 1 << 63}, ["examples", "got 9223372036854775808"]),
        "requests": (
            {"examples": 10, "examples_per_request": 0},
            ["examples_per_request:", "got 0"],
        ),
        "ids": (
            {"examples": 10, "inputs": (PlantedInput(name="a", scope="request", ids=0),)},
            ["input 'a'", "got 0 and 1"],
        ),
    },
)
def test_impossible_settings_are_refused(settings, parts):
    with refused(InputError, *parts):
        SyntheticConfig(**settings)
