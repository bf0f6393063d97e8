"""The result that sharded training must have: whole tables, plain torch, float64."""

from dataclasses import dataclass, field

import torch

LEARNING_RATE, EPS = 0.1, 1e-6


@dataclass
class Case:
    """A model's tables, and the batches that all ranks and the reference train on."""

    tables: list  # (name, rows, dim, features, "SUM" or "MEAN")
    batches: list  # by step, then rank: {feature: (ids, lengths, weights)}
    optimizer: str = "sgd"
    is_weighted: bool = False
    is_sequence: bool = False  # vectors are not pooled
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
    """A case of three tables. One feature is in two of them; bags may be empty; ids repeat and may
    be -1."""
    generator = torch.Generator().manual_seed(seed)

    def integers(low, high, *shape):
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
                lengths = integers(0, 5, sizes[rank])
                ids = integers(-1, rows, int(lengths.sum()))
                batch[name] = (ids, lengths, torch.rand(len(ids), generator=generator))
            ranks.append(batch)
        batches.append(ranks)
    weights = {name: torch.randn(rows, dim, generator=generator) for name, rows, dim, *_ in tables}
    return Case(tables, batches, optimizer, is_weighted, is_sequence, weights)


def loss_of(output, step):
    """Loss of one rank: a sum, since an empty batch has no mean. It is not linear, so that
    gradients depend on earlier steps."""
    columns = torch.arange(output.shape[1], dtype=output.dtype, device=output.device)
    return (output * torch.cos(columns + step)).sum() + (output**2).sum() / 2


def run_reference(case, column_ranges, *, rectangles=None, ema=None, rates=None, clip=None):
    """Outputs of each step and rank, and final weights and state of each table.

    Args:
        column_ranges: name -> ranges. Each range has its own row-wise state.
        rectangles: name -> (rows, columns), in place of ``column_ranges``. Each has its own state.
        ema: settings of ema_rowwise_adagrad.
        rates: learning rate of each step. None: LEARNING_RATE.
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
            # The loss is divided by the number of ranks, and so are the clipped gradients.
            pooled = [pool(case, leaves, batch, clip) for batch in ranks]
        outputs.append([vectors.detach() for vectors in pooled])
        # Tables that no example reads get a gradient of 0 instead of None.
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
            for bag, bag_weights in zip(
                ids.split(lengths.tolist()), weights.split(lengths.tolist()), strict=True
            ):
                vector = torch.zeros(dim, dtype=torch.float64)
                for at, row in enumerate(bag.tolist()):
                    if row >= 0:
                        factor = bag_weights[at].double() if case.is_weighted else 1
                        vector = vector + tables[name][row] * factor
                if clip is not None and vector.requires_grad:
                    vector.register_hook(lambda gradient: gradient.clamp(-clip, clip))
                rows.append(vector / max(len(bag), 1) if pooling == "MEAN" else vector)
            columns.append(torch.stack(rows) if rows else torch.zeros(0, dim, dtype=torch.float64))
    return torch.cat(columns, dim=1)


def _gather(case, tables, batch):
    """Vectors of all ids, feature after feature."""
    results = []
    for name, _, _, features, _ in case.tables:
        for feature in features:
            ids, *_ = batch[feature]
            results.append(tables[name][ids.clamp(min=0)] * (ids >= 0).unsqueeze(1))
    return torch.cat(results)


def _step(optimizer, weight, gradient, state, rate):
    """Updates ``weight`` and returns the new state."""
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
    """Gives each key its own number of examples. The batches of ``case`` are replaced by batches
    in which every key has all examples again.

    Returns:
        Batches by step, then rank: {feature: (ids, lengths, weights, inverse indices)}.
    """
    generator = torch.Generator().manual_seed(seed)
    variable = []
    for ranks in case.batches:
        variable.append([])
        for batch in ranks:
            varied = {}
            for at, (name, (ids, lengths, weights)) in enumerate(list(batch.items())):
                count = max(len(lengths) - at, min(len(lengths), 1))
                total = int(lengths[:count].sum())
                inverse = torch.randint(max(count, 1), (len(lengths),), generator=generator)
                varied[name] = (ids[:total], lengths[:count], weights[:total], inverse)
                bags = ids.split(lengths.tolist()), weights.split(lengths.tolist())
                expanded = [[lists[i] for i in inverse.tolist()] for lists in bags]
                batch[name] = (
                    torch.cat([ids[:0], *expanded[0]]),
                    lengths[inverse],
                    torch.cat([weights[:0], *expanded[1]]),
                )
            variable[-1].append(varied)
    return variable
