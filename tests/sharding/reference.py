"""Sharded training as one process would do it: whole tables, plain torch, float64."""

from dataclasses import dataclass, field

import torch

LEARNING_RATE, EPS = 0.1, 1e-6


@dataclass
class Case:
    """What is trained, and on what. The same on every rank and in the reference."""

    tables: list  # (name, rows, dim, features, "SUM" or "MEAN")
    batches: list  # of each step, of each rank: {feature: (ids, lengths, weights)}
    optimizer: str = "sgd"
    is_weighted: bool = False
    is_sequence: bool = False  # every id keeps its vector
    weights: dict = field(default_factory=dict)  # name -> float32 (rows, dim)


def make_case(
    world_size,
    *,
    pooling="SUM",
    is_weighted=False,
    is_sequence=False,
    optimizer="sgd",
    sizes,
    seed=0,
    steps=5,
):
    """Three tables, one feature in two of them, empty bags, repeated ids, and -1."""
    generator = torch.Generator().manual_seed(seed)

    def whole(low, high, *shape):
        return torch.randint(low, high, shape, generator=generator)

    tables = [
        ("users", 50, 8, ["u", "v"], pooling),
        ("items", 7, 8 if is_sequence else 16, ["i"], "SUM"),
        ("words", 23, 8, ["v2", "u"], pooling),
    ]
    features = {"u": 23, "v": 50, "i": 7, "v2": 23}
    batches = []
    for _ in range(steps):
        ranks = []
        for rank in range(world_size):
            batch = {}
            for name, rows in features.items():
                lengths = whole(0, 5, sizes[rank])
                ids = whole(-1, rows, int(lengths.sum()))
                batch[name] = (ids, lengths, torch.rand(len(ids), generator=generator))
            ranks.append(batch)
        batches.append(ranks)
    weights = {name: torch.randn(rows, dim, generator=generator) for name, rows, dim, *_ in tables}
    return Case(tables, batches, optimizer, is_weighted, is_sequence, weights)


def loss_of(output, step):
    """Of one rank; sums, so that an empty batch has none. Not linear, so that order matters."""
    columns = torch.arange(output.shape[1], dtype=output.dtype, device=output.device)
    return (output * torch.cos(columns + step)).sum() + (output**2).sum() / 2


def run_reference(case, column_ranges, *, rectangles=None, ema=None, rates=None, clip=None):
    """Outputs of each step and rank; and weights and state of each table in the end.

    Args:
        column_ranges: name -> ranges; row-wise state is kept for each.
        rectangles: name -> (rows, columns), likewise, in place of ``column_ranges``.
        ema: of ema_rowwise_adagrad: its settings.
        rates: of each step. None: LEARNING_RATE.
        clip: bound of each value of the gradient of a bag's sum. None: no bound.
    """
    weights = {name: weight.double().clone() for name, weight in case.weights.items()}
    state = {}
    outputs = []
    for step, ranks in enumerate(case.batches):
        if ema and step + 1 >= ema["ema_start"] and (step + 1) % ema["ema_interval"] == 0:
            for weight in weights.values():
                first, second = weight.chunk(2, dim=1)
                second += ema["ema_coefficient"] * (first - second)
        rate = LEARNING_RATE if rates is None else rates[step]
        leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
        if case.is_sequence:
            pooled = [_gather(case, leaves, batch) for batch in ranks]
        else:
            # The loss is divided by the ranks, so what is clipped is, too.
            pooled = [pool(case, leaves, batch, clip) for batch in ranks]
        outputs.append([vectors.detach() for vectors in pooled])
        # Tables that no example reads get a gradient of 0, not none.
        unread = sum(leaf.sum() * 0 for leaf in leaves.values())
        (sum(loss_of(vectors, step) for vectors in pooled) / len(ranks) + unread).backward()
        for name, leaf in leaves.items():
            parts = rectangles or {
                name: [((0, len(leaf)), column_range) for column_range in column_ranges[name]]
            }
            for rows, columns in parts[name]:
                at = slice(*rows), slice(*columns)
                key = (name, *rows, *columns) if rectangles else (name, *columns)
                state[key] = _step(
                    case.optimizer, weights[name][at], leaf.grad[at], state.get(key), rate
                )
    return outputs, weights, state


def pool(case, tables, batch, clip=None):
    columns = []
    for name, _, dim, features, pooling in case.tables:
        for feature in features:
            ids, lengths, weights = batch[feature]
            rows = []
            for bag, of in zip(
                ids.split(lengths.tolist()), weights.split(lengths.tolist()), strict=True
            ):
                vector = torch.zeros(dim, dtype=torch.float64)
                for at, row in enumerate(bag.tolist()):
                    if row >= 0:
                        factor = of[at].double() if case.is_weighted else 1
                        vector = vector + tables[name][row] * factor
                if clip is not None and vector.requires_grad:
                    vector.register_hook(lambda gradient: gradient.clamp(-clip, clip))
                rows.append(vector / max(len(bag), 1) if pooling == "MEAN" else vector)
            columns.append(torch.stack(rows) if rows else torch.zeros(0, dim, dtype=torch.float64))
    return torch.cat(columns, dim=1)


def _gather(case, tables, batch):
    """The vectors of all ids, feature after feature."""
    results = []
    for name, _, _, features, _ in case.tables:
        for feature in features:
            ids, *_ = batch[feature]
            results.append(tables[name][ids.clamp(min=0)] * (ids >= 0).unsqueeze(1))
    return torch.cat(results)


def _step(optimizer, weight, gradient, state, rate):
    """Writes to ``weight``; returns the new state."""
    if optimizer == "sgd":
        weight -= rate * gradient
        return None
    squares = gradient**2
    if optimizer != "adagrad":
        squares = squares.mean(dim=1, keepdim=True)
    state = squares if state is None else state + squares
    weight -= rate * gradient / (state.sqrt() + EPS)
    return state


def make_variable(case, seed=0):
    """Each step's batches as the examples of each key that differ, and which of them each is; the
    case's own batches become what these stand for."""
    generator = torch.Generator().manual_seed(seed)
    variable = []
    for ranks in case.batches:
        variable.append([])
        for batch in ranks:
            kept = {}
            for at, (name, (ids, lengths, weights)) in enumerate(list(batch.items())):
                count = max(len(lengths) - at, min(len(lengths), 1))
                total = int(lengths[:count].sum())
                inverse = torch.randint(max(count, 1), (len(lengths),), generator=generator)
                kept[name] = (ids[:total], lengths[:count], weights[:total], inverse)
                bags = ids.split(lengths.tolist()), weights.split(lengths.tolist())
                expanded = [[of[i] for i in inverse.tolist()] for of in bags]
                batch[name] = (
                    torch.cat([ids[:0], *expanded[0]]),
                    lengths[inverse],
                    torch.cat([weights[:0], *expanded[1]]),
                )
            variable[-1].append(kept)
    return variable
