"""Compares each built-in model with a DLRM, on synthetic data with the structure it is made for.

    python -m benchmarks.planted_teachers                             every model, 4 seeds
    python -m benchmarks.planted_teachers --models sasrec --seeds 2

Every seed draws a new teacher, which is the function that labels the examples, and new initial
weights. Both models have the same table width, upper layers, optimizers and batches. Each is
evaluated after its best epoch on the validation split. The table shows the loss on the test split,
relative to the best constant and averaged over tasks, and the gain with its standard error over
seeds.

two_tower is compared with popularity, the order of items by training frequency. The loss is the
share of test rows whose item is not among the first 10.
"""

import argparse
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from embershard.data import Examples, JaggedColumn, batches, to_rows
from embershard.jagged import KeyedJaggedTensor
from embershard.kernels import FusedOptimizer
from embershard.models import MODEL_CONFIGS, TwoTower, build_model
from embershard.models.base import Loss
from embershard.modules import EmbeddingBagConfig, PoolingType
from embershard.package import DenseInput, Identity, Schema, SparseInput

DIM, BATCH, EPOCHS = 8, 256, 8
TRAIN, HELD_OUT = 20_000, 5_000
OVER = (64, 32, 1)
TOP = 10
Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


@dataclass
class Planted:
    ids: Mapping[str, Ids]
    """Ids by input: ``[N]``, or ``[N, L]`` for an input with lists."""

    rows: Mapping[str, int]
    """Number of different ids by input."""

    logits: Floats
    """``[N]`` or ``[N, T]``. For an mse task, the expected label."""

    dense: Floats
    """``[N, n]``."""

    losses: Mapping[str, Loss] = field(default_factory=lambda: {"score": "bce"})


def _scaled(values: Floats, spread: float) -> Floats:
    scaled: Floats = spread * (values - values.mean(0)) / values.std(0)
    return scaled


def _sum_of_weights(rng: np.random.Generator, fields: Iterable[Ids], width: int) -> Floats:
    """Sum random vectors of the ids of all fields: ``[N, width]``."""
    weights = [rng.normal(size=(rows.max() + 1, width))[rows] for rows in fields]
    total: Floats = np.sum(weights, axis=0)
    return total


def _fields(rng: np.random.Generator, count: int, fields: int, ids: int) -> dict[str, Ids]:
    return {f"f{place}": rng.integers(0, ids, count) for place in range(fields)}


def factors(rng: np.random.Generator, count: int) -> Planted:
    """For DeepFM: a weight of each id, and the product of the vectors of each pair of fields."""
    ids = _fields(rng, count, 16, 20)
    vectors = np.stack([rng.normal(size=(20, 4))[rows] for rows in ids.values()])
    first_order = _sum_of_weights(rng, ids.values(), 1)[:, 0]
    pairs = vectors.sum(0) ** 2 - (vectors**2).sum(0)
    logits = _scaled(first_order, 1.5) + _scaled(pairs.sum(1), 1.5)
    return Planted(ids, dict.fromkeys(ids, 20), logits, rng.normal(size=(count, 2)))


def field_pairs(rng: np.random.Generator, count: int) -> Planted:
    """For DLRM_DCN: the same product, but each pair of fields has separate vectors."""
    ids = _fields(rng, count, 5, 20)
    total = np.zeros(count)
    for left, right in combinations(ids.values(), 2):
        u, v = rng.normal(size=(2, 20, 2))
        total += (u[left] * v[right]).sum(1)
    return Planted(ids, dict.fromkeys(ids, 20), _scaled(total, 2.5), rng.normal(size=(count, 2)))


def gates(rng: np.random.Generator, count: int) -> Planted:
    """For MaskNet: a sum over three fields selects the column of the other fields' vectors."""
    ids = _fields(rng, count, 7, 20)
    first, others = list(ids.values())[:3], list(ids.values())[3:]
    total = _scaled(_sum_of_weights(rng, first, 1)[:, 0], 1.0)
    column = np.digitize(total, [-0.67, 0.0, 0.67])  # Quarters.
    vectors = _sum_of_weights(rng, others, 4)
    logits = np.take_along_axis(vectors, column[:, None], axis=1)[:, 0]
    return Planted(ids, dict.fromkeys(ids, 20), _scaled(logits, 2.5), rng.normal(size=(count, 2)))


def conflict(rng: np.random.Generator, count: int) -> Planted:
    """For PLE: a click and a noisy amount, different nonlinear functions of the same sums."""
    ids = _fields(rng, count, 4, 50)
    dense = rng.normal(size=(count, 6))
    sums = dense @ rng.normal(size=(6, 2)) + _sum_of_weights(rng, ids.values(), 2)
    sums = _scaled(sums, 1.0)
    click = 2.5 * np.sin(3 * sums[:, 0]) + sums[:, 1]
    amount = 3 * np.abs(sums[:, 0] - sums[:, 1]) + np.cos(3 * sums[:, 1])
    logits = np.stack([click, amount], axis=1)
    return Planted(ids, dict.fromkeys(ids, 50), logits, dense, {"click": "bce", "amount": "mse"})


def interests(rng: np.random.Generator, count: int) -> Planted:
    """For DIN: only those items of the history count that are in the candidate's group."""
    groups, items, length = 40, 400, 12
    item = rng.integers(0, items, count)
    history = rng.integers(0, items, (count, length))
    akin = (item[:, None] + groups * rng.integers(0, items // groups, history.shape)) % items
    history = np.where(rng.random(history.shape) < 0.1, akin, history)
    quality = rng.normal(size=items)
    same = (history - item[:, None]) % groups == 0
    logits = (same * (1.0 + quality[history])).sum(1)
    ids = {"history": history, "item": item}
    return Planted(
        ids, dict.fromkeys(ids, items), _scaled(logits, 2.5), rng.normal(size=(count, 2))
    )


def order(rng: np.random.Generator, count: int) -> Planted:
    """For SASRec: the candidate's group should be the group of the last or second last item."""
    groups, items, length = 10, 100, 10
    history = rng.integers(0, items, (count, length))
    item = rng.integers(0, items, count)
    group = rng.integers(0, groups, items)
    same = group[history] == group[item][:, None]
    logits = 2.0 * same[:, -1] + same[:, -2] + 0.3 * rng.normal(size=items)[item]
    ids = {"history": history, "item": item}
    return Planted(
        ids, dict.fromkeys(ids, items), _scaled(logits, 2.5), rng.normal(size=(count, 2))
    )


def clans(rng: np.random.Generator, count: int) -> Planted:
    """For DMT: each group of fields has a number, a product of sums. Numbers are multiplied."""
    ids = _fields(rng, count, 12, 20)
    fields = list(ids.values())
    numbers = []
    for first in range(0, 12, 3):
        sums = _scaled(_sum_of_weights(rng, fields[first : first + 3], 2), 1.0)
        numbers.append(_scaled(sums[:, 0] * sums[:, 1], 1.0))
    total = numbers[0] * numbers[1] + numbers[2] * numbers[3] + sum(numbers)
    return Planted(ids, dict.fromkeys(ids, 20), _scaled(total, 2.5), rng.normal(size=(count, 2)))


def tastes(rng: np.random.Generator, count: int) -> Planted:
    """For TwoTower: users choose items with a probability proportional to the popularity times
    ``exp(user's vector * item's vector)``."""
    users, items = 500, 1000
    vectors = rng.normal(size=(users, 4)) @ rng.normal(size=(4, items))
    popularity = 1 / rng.permutation(np.arange(10, 10 + items))
    chances = popularity * np.exp(vectors)
    limits = (chances / chances.sum(1, keepdims=True)).cumsum(1)
    user = rng.integers(0, users, count)
    item = np.array([np.searchsorted(limits[row], rng.random()) for row in user])
    ids = {"user": user, "item": item.clip(max=items - 1)}
    labels = np.full(count, np.inf)  # Every row is a choice.
    return Planted(ids, {"user": users, "item": items}, labels, np.zeros((count, 0)))


TEACHERS: Mapping[str, Callable[[np.random.Generator, int], Planted]] = {
    "deepfm": factors,
    "dlrm_dcn": field_pairs,
    "masknet": gates,
    "ple": conflict,
    "din": interests,
    "sasrec": order,
    "dmt": clans,
    "two_tower": tastes,
}


DLRM: Mapping[str, Any] = {"dense_layers": (32, DIM), "over_layers": OVER}
SECTIONS: Mapping[str, Mapping[str, Any]] = {
    "dlrm_dcn": DLRM,
    "dmt": {**DLRM, "tower_count": 4},
    "ple": {},
    "two_tower": {"loss": "in_batch"},
}


def _splits(planted: Planted, rng: np.random.Generator) -> tuple[Schema, list[Any]]:
    """Returns the schema, and training, validation and test rows, with drawn labels."""
    logits = planted.logits.reshape(len(planted.dense), -1)
    labels = np.empty(logits.shape, np.float32)
    for column, loss in enumerate(planted.losses.values()):
        clicks = rng.random(len(logits)) < 1 / (1 + np.exp(-logits[:, column]))
        noisy = logits[:, column] + rng.normal(0, 3, len(logits))
        labels[:, column] = clicks if loss == "bce" else noisy
    schema = Schema(
        dense=[DenseInput(f"x{place}") for place in range(planted.dense.shape[1])],
        sparse=[
            SparseInput(
                name,
                scope="request" if name == "user" else "example",
                ids=Identity(planted.rows[name]),
                max_ids=ids[0].size,
            )
            for name, ids in planted.ids.items()
        ],
    )
    examples = Examples(
        schema=schema,
        dense=planted.dense.astype(np.float32),
        sparse={
            name: JaggedColumn(ids.ravel(), np.arange(len(ids) + 1) * ids[0].size)
            for name, ids in planted.ids.items()
        },
        labels=labels,
        request=np.arange(len(logits)),
    )
    cuts = (0, TRAIN, TRAIN + HELD_OUT, TRAIN + 2 * HELD_OUT)
    return schema, [to_rows(examples.take(np.arange(first, end))) for first, end in pairwise(cuts)]


def _losses(logits: Tensor, labels: Tensor, kinds: Mapping[str, Loss]) -> list[Tensor]:
    pairs = zip(logits.unbind(1), labels.reshape(logits.shape).unbind(1), strict=True)
    return [
        nn.functional.binary_cross_entropy_with_logits(logit, label)
        if kind == "bce"
        else nn.functional.mse_loss(logit, label)
        for (logit, label), kind in zip(pairs, kinds.values(), strict=True)
    ]


def _held_out(model: nn.Module, rows: Any, kinds: Mapping[str, Loss]) -> float:
    """Relative to the loss of each task's best constant, averaged over tasks."""
    with torch.no_grad():
        [batch] = batches(rows, batch_size=len(rows))
        losses = _losses(model(batch.dense, batch.sparse), batch.labels, kinds)
        means = batch.labels.reshape(len(rows), -1).mean(0)
        constants = [
            mean.logit() if kind == "bce" else mean
            for mean, kind in zip(means, kinds.values(), strict=True)
        ]
        floor = _losses(torch.stack(constants).expand(len(rows), -1), batch.labels, kinds)
    return statistics.mean(float(a / b) for a, b in zip(losses, floor, strict=True))


def _missed(model: nn.Module, rows: Any, kinds: Mapping[str, Loss]) -> float:
    """Share of rows whose item is not among the ``TOP`` items that the model ranks highest."""
    assert isinstance(model, TwoTower)
    assert model.in_batch is not None
    count = len(model.in_batch.counts)
    every = KeyedJaggedTensor(
        ["user", "item"],
        torch.cat([torch.zeros(count, dtype=torch.int64), torch.arange(count)]),
        lengths=torch.ones(2 * count, dtype=torch.int64),
    )
    with torch.no_grad():
        [batch] = batches(rows, batch_size=len(rows))
        _, items = model.vectors(torch.zeros(count, 0), every)
        users, _ = model.vectors(batch.dense, batch.sparse)
        best = (users @ items.T).topk(TOP).indices
    return _share_missed(best, batch.sparse["item"].values())


def _share_missed(best: Tensor, chosen: Tensor) -> float:
    return 1 - (best == chosen.unsqueeze(1)).any(1).float().mean().item()


def _popular(planted: Planted) -> float:
    """`_missed` for a model that always ranks the most frequent training items highest."""
    chosen = torch.from_numpy(planted.ids["item"])
    best = torch.bincount(chosen[:TRAIN]).topk(TOP).indices
    return _share_missed(best, chosen[-HELD_OUT:])


def _train(name: str, section: Mapping[str, Any], planted: Planted, seed: int) -> float:
    schema, (train, valid, test) = _splits(planted, np.random.default_rng([seed, 1]))
    tables = [
        EmbeddingBagConfig(
            name=feature,
            num_embeddings=planted.rows[feature],
            embedding_dim=DIM,
            feature_names=[feature],
            pooling=PoolingType.MEAN if ids.ndim > 1 else PoolingType.SUM,
        )
        for feature, ids in planted.ids.items()
    ]
    fused = FusedOptimizer(name="rowwise_adagrad", learning_rate=0.05)
    config = MODEL_CONFIGS[name].model_validate({"name": name, "embedding_dim": DIM, **section})
    torch.manual_seed(seed)
    arguments = config.arguments(tables, schema=schema, fused=fused, tasks=planted.losses)
    model = build_model(name, arguments)
    dense = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(dense, lr=2e-3)
    held_out = _missed if name == "two_tower" else _held_out
    best, at_best = float("inf"), float("inf")
    for epoch in range(EPOCHS):
        for batch in batches(train, batch_size=BATCH, shuffle_seed=seed * 100 + epoch):
            logits = model(batch.dense, batch.sparse)
            if name == "two_tower":
                loss = -logits.mean()
            else:
                loss = torch.stack(_losses(logits, batch.labels, planted.losses)).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if (now := held_out(model, valid, planted.losses)) < best:
            best, at_best = now, held_out(model, test, planted.losses)
    return at_best


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=TEACHERS, default=list(TEACHERS))
    parser.add_argument("--seeds", type=int, default=4)
    args = parser.parse_args(arguments)
    print("| model | loss of the other | loss | gain | standard error | gain in standard errors |")
    print("|---|---|---|---|---|---|")
    for name in args.models:
        pairs = []
        for seed in range(args.seeds):
            planted = TEACHERS[name](np.random.default_rng([seed, 0]), TRAIN + 2 * HELD_OUT)
            section = SECTIONS.get(name, {"over_layers": OVER})
            if name == "two_tower":
                other = _popular(planted)
            else:
                other = _train("dlrm", DLRM, planted, seed)
            pairs.append((other, _train(name, section, planted, seed)))
        gains = [other - own for other, own in pairs]
        error = statistics.stdev(gains) / len(gains) ** 0.5
        other, own = (statistics.mean(side) for side in zip(*pairs, strict=True))
        gain = statistics.mean(gains)
        row = [f"{value:.4f}" for value in (other, own, gain, error)]
        print(f"| {name} | {' | '.join(row)} | {gain / error:.1f} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
