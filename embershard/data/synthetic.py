"""Click logs made by a known teacher, so that the best reachable AUC is known too.

Ids follow Zipf's law: rank k of V comes up in proportion to 1 / k ** exponent. Each sparse input's
teacher holds one number per id; a list contributes their mean. With dense inputs x and weights w:

    logit = bias + w . x + sum over inputs of mean(teacher[ids])
    click ~ Bernoulli(sigmoid(logit))

The examples of a request share its request-scoped inputs.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torchmetrics.functional.classification import binary_auroc

from embershard.data.base import Dataset, Examples, JaggedColumn, TableHint
from embershard.errors import InputError
from embershard.package.id_maps import Identity
from embershard.package.samples import offsets_of
from embershard.package.schema import DenseInput, Schema, Scope, SparseInput

EXAMPLES_MIN: Final = 10
"""With fewer, a split would be empty."""

EXAMPLES_MAX: Final = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedInput:
    """One sparse input of the log."""

    name: str
    scope: Scope
    ids: int
    """Size of the vocabulary; ids are 0 .. ids - 1, the most frequent first."""

    max_length: int = 1
    """Lists have 0 .. max_length ids; all lengths are equally likely. 1: exactly one id."""


INPUTS = (
    PlantedInput(name="user", scope="request", ids=20_000),
    PlantedInput(name="history", scope="request", ids=5_000, max_length=8),
    PlantedInput(name="item", scope="example", ids=5_000),
    PlantedInput(name="tags", scope="example", ids=200, max_length=4),
)


CRITEO_DENSE = 13
CRITEO_IDS_MAX = 100_000
CRITEO_IDS = (
    *(45_833_188, 36_746, 17_245, 7_413, 20_243, 3, 7_114, 1_441, 62, 29_275_261, 1_572_176),
    *(345_138, 10, 2_209, 11_267, 128, 4, 974, 14, 48_937_457, 11_316_796, 40_094_537, 452_104),
    *(12_606, 104, 35),
)
"""Distinct ids of each input of the Criteo terabyte click log."""

CRITEO_INPUTS = tuple(
    PlantedInput(name=f"cat_{number}", scope="example", ids=min(ids, CRITEO_IDS_MAX))
    for number, ids in enumerate(CRITEO_IDS)
)
"""The inputs of that log, with at most 100,000 ids each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticConfig:
    examples: int = 1_000_000
    """Examples of all three splits together, at least 10. The splits have 80, 10 and 10 %."""

    seed: int = 0
    """Equal settings and seeds give equal logs."""

    inputs: tuple[PlantedInput, ...] = INPUTS
    request_dense: int = 2
    """Dense inputs of the request scope, standard normal."""

    example_dense: int = 2
    """Dense inputs of the example scope, standard normal."""

    examples_per_request: int = 4
    """The last request of the log may have fewer."""

    zipf_exponent: float = 1.05
    """0 makes all ids equally likely; real logs are near 1."""

    def __post_init__(self) -> None:
        if not EXAMPLES_MIN <= self.examples <= EXAMPLES_MAX:
            raise InputError(
                f"examples: expected {EXAMPLES_MIN} .. {EXAMPLES_MAX}, got {self.examples}"
            )
        if self.examples_per_request < 1:
            raise InputError(
                f"examples_per_request: expected at least 1, got {self.examples_per_request}"
            )
        for planted in self.inputs:
            if planted.ids < 1 or planted.max_length < 1:
                raise InputError(
                    f"input {planted.name!r}: expected ids and max_length of at least 1, "
                    f"got {planted.ids} and {planted.max_length}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedClickLog:
    """A data set with the probabilities its labels were drawn from."""

    dataset: Dataset[Examples]
    test_probability: NDArray[np.float64]
    """``[N]``: the teacher's own probability of a click for each test example."""

    best_auc: float
    """AUC of `test_probability` against the sampled test labels. No ranking has a higher expected
    AUC; a trained model can pass it only by the luck of this sample."""


def planted_click_log(config: SyntheticConfig) -> PlantedClickLog:
    """Make a click log; a million examples take seconds. Raises InputError if the test split has
    labels of one kind only (too few examples)."""
    rng = np.random.default_rng(config.seed)
    schema = _schema(config)
    request = np.arange(config.examples, dtype=np.int64) // config.examples_per_request
    dense = _dense(config, request, rng)
    logit = dense @ rng.normal(0.0, 0.4, dense.shape[1])
    sparse = {}
    for planted in config.inputs:
        at = request if planted.scope == "request" else np.arange(config.examples)
        column = _column(planted, int(at[-1]) + 1, config.zipf_exponent, rng)
        teacher = rng.normal(0.0, 0.7, planted.ids)
        logit += _means(column, teacher)[at]
        sparse[planted.name] = column.take(at)
    probability = 1.0 / (1.0 + np.exp(-logit))
    labels = (rng.random(config.examples) < probability).astype(np.float32)
    examples = Examples(schema=schema, dense=dense, sparse=sparse, labels=labels, request=request)
    return _cut(examples, probability, config)


def _cut(
    examples: Examples, probability: NDArray[np.float64], config: SyntheticConfig
) -> PlantedClickLog:
    train_end, valid_end = config.examples * 8 // 10, config.examples * 9 // 10
    test = examples.take(np.arange(valid_end, config.examples))
    return PlantedClickLog(
        dataset=Dataset(
            name="synthetic",
            schema=examples.schema,
            train=examples.take(np.arange(train_end)),
            valid=examples.take(np.arange(train_end, valid_end)),
            test=test,
            tables=tuple(
                TableHint(
                    name=planted.name,
                    features=(planted.name,),
                    pooling="mean" if planted.max_length > 1 else "sum",
                )
                for planted in config.inputs
            ),
        ),
        test_probability=probability[valid_end:],
        best_auc=_auc(probability[valid_end:], test.labels),
    )


def _auc(probability: NDArray[np.float64], labels: NDArray[np.float32]) -> float:
    clicks = int(labels.sum())
    if not 0 < clicks < len(labels):
        raise InputError(
            f"test split: expected both kinds of labels, got {clicks} clicks of {len(labels)}; "
            "make more examples"
        )
    area: float = binary_auroc(torch.tensor(probability), torch.tensor(labels).long()).item()
    return area


def _schema(config: SyntheticConfig) -> Schema:
    return Schema(
        dense=[
            *(DenseInput(f"request_{at}", scope="request") for at in range(config.request_dense)),
            *(DenseInput(f"example_{at}", scope="example") for at in range(config.example_dense)),
        ],
        sparse=[
            SparseInput(
                planted.name,
                scope=planted.scope,
                ids=Identity(planted.ids),
                max_ids=planted.max_length,
                keep="last",
            )
            for planted in config.inputs
        ],
    )


def _dense(
    config: SyntheticConfig, request: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float32]:
    """Standard normal, ``[N, request_dense + example_dense]``."""
    shared = rng.standard_normal((int(request[-1]) + 1, config.request_dense), np.float32)
    individual = rng.standard_normal((config.examples, config.example_dense), np.float32)
    return np.concatenate([shared[request], individual], axis=1)


def _column(
    planted: PlantedInput, lists: int, exponent: float, rng: np.random.Generator
) -> JaggedColumn:
    if planted.max_length == 1:
        lengths = np.ones(lists, np.int64)
    else:
        lengths = rng.integers(0, planted.max_length, lists, endpoint=True)
    offsets = offsets_of(lengths)
    weights = np.arange(1, planted.ids + 1, dtype=np.float64) ** -exponent
    cumulative = np.cumsum(weights)
    draws = rng.random(int(offsets[-1])) * cumulative[-1]
    ids = np.searchsorted(cumulative, draws, side="right")
    return JaggedColumn(np.minimum(ids, planted.ids - 1), offsets)


def _means(column: JaggedColumn, teacher: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of ``teacher`` over each list; 0 for an empty one."""
    sums = np.concatenate([[0.0], np.cumsum(teacher[column.values])])
    totals = sums[column.offsets[1:]] - sums[column.offsets[:-1]]
    means: NDArray[np.float64] = totals / np.maximum(column.lengths, 1)
    return means
