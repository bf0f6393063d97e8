"""The description of splits, as training will read them."""

import math

import numpy as np
import pytest

from embershard.data import Examples, JaggedColumn, to_rows
from embershard.data.description import DataDescription, describe_splits
from embershard.data.row_batches import RowExamples
from embershard.package.id_maps import Vocabulary
from embershard.package.schema import DenseInput, Schema, SparseInput

SCHEMA = Schema(
    dense=[DenseInput("price")],
    sparse=[SparseInput("item", ids=Vocabulary([10, 11, 12], unknown="oov"))],
)


def split(price: list[float], items: list[list[int]], labels: list[list[float]]) -> RowExamples:
    return to_rows(
        Examples(
            schema=SCHEMA,
            dense=np.array(price, np.float32)[:, None],
            sparse={"item": JaggedColumn.of_lists(items)},
            labels=np.array(labels, np.float32),
            request=np.arange(len(price)),
        )
    )


def described(rows: int = 100, **splits: RowExamples) -> DataDescription:
    return describe_splits("log", SCHEMA, splits, ["click", "buy"], rows=rows)


TRAIN = split(
    [1.0, 2.0, 3.0, 6.0], [[10], [10, 11], [], [12]], [[1, 0], [0, 0], [1, math.nan], [0, 1]]
)


NOTHING = to_rows(TRAIN.examples.take(np.empty(0, np.int64)))


def test_each_figure_is_that_of_the_rows() -> None:
    train = described(train=TRAIN).splits["train"]

    assert (train.rows, train.read) == (4, 4)
    assert (train.tasks["click"].mean, train.tasks["click"].counted) == (0.5, 4)
    assert (train.tasks["buy"].mean, train.tasks["buy"].counted) == (pytest.approx(1 / 3), 3)
    price = train.dense["price"]
    assert (price.mean, price.minimum, price.maximum) == (3.0, 1.0, 6.0)
    assert price.deviation == pytest.approx(math.sqrt(3.5))
    item = train.sparse["item"]
    assert (item.ids_per_row, item.longest, item.empty, item.unknown) == (1.0, 2, 0.25, 0.0)
    assert (price.drift, item.drift) == (0.0, 0.0)


def test_ids_outside_the_vocabulary_count_as_unknown() -> None:
    test = split([1.0, 2.0], [[99], [10, 98, 97]], [[0, 0], [1, 0]])

    assert described(train=TRAIN, test=test).splits["test"].sparse["item"].unknown == 0.75


def test_drift_is_the_population_stability_index() -> None:
    train = split([0.0] * 6, [[10]] * 4 + [[11]] * 2, [[0, 0]] * 6)
    test = split([0.0] * 6, [[10]] * 2 + [[12]] * 4, [[0, 0]] * 6)
    # The buckets are 10, 11 and all other ids. Each count is raised by 0.5, and the sum is 7.5.
    p, q = np.array([4.5, 2.5, 0.5]) / 7.5, np.array([2.5, 0.5, 4.5]) / 7.5

    description = described(train=train, test=test)

    drift = description.splits["test"].sparse["item"].drift
    assert drift == pytest.approx(float(((q - p) * np.log(q / p)).sum()))
    assert description.moved() == [f"item (test {drift:.2f})"]


def test_at_most_the_rows_asked_for_are_read() -> None:
    count = 20_000
    many = split([1.0] * count, [[10]] * count, [[0, 1]] * count)

    train = described(rows=10, train=many).splits["train"]

    assert train.rows == count
    assert 10 <= train.read < count


def test_a_split_without_rows_has_no_figures() -> None:
    description = described(train=TRAIN, valid=NOTHING, test=TRAIN)

    assert list(description.splits) == ["train", "test"]
    text = description.to_text()
    assert "log: train 4, test 4 rows" in text
    assert "without rows: valid\n" in text


def test_text_names_every_input_and_task() -> None:
    text = described(train=TRAIN, valid=TRAIN, test=TRAIN).to_text()

    assert "log: train 4, valid 4, test 4 rows" in text
    assert "| click | 0.5 of 4 | 0.5 of 4 | 0.5 of 4 |" in text
    assert "| item | 4 | 1 | 2 | 25.0% | 0.0% | 0.0% | 0.0% | 0.000 | 0.000 |" in text
    assert "| dense input, after transforms | mean | deviation | range | drift, valid |" in text
    assert "no input moved much" in text


def test_text_shows_the_share_of_nulls_that_files_tell() -> None:
    splits = {"train": TRAIN, "valid": TRAIN, "test": TRAIN}
    description = describe_splits("log", SCHEMA, splits, ["click", "buy"], rows=100,
                                  null_shares={"price": 0.125})  # fmt: skip

    assert "| price | 3 | 1.871 | 1 .. 6 | 12.5% | 0.000 | 0.000 |" in description.to_text()
