"""The sample requests of a package, and the outputs that they must have."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embershard.data.base import Examples, JaggedColumn
from embershard.data.row_batches import keep_ids, to_rows
from embershard.errors import ExportError, InputError
from embershard.export.dense_program import Batch, DenseProgram, LookedUp
from embershard.export.embeddings import Layout
from embershard.export.tables import stored_rows
from embershard.jagged import JaggedTensor
from embershard.package.id_maps import Hash, Identity, Vocabulary
from embershard.package.manifest import Limits
from embershard.package.row_format import WeightType
from embershard.package.samples import SampleLists, SampleRequest, offsets_of, request_problems
from embershard.package.schema import Schema, Scope, SparseInput


def check_requests(samples: Sequence[SampleRequest], schema: Schema, limits: Limits) -> None:
    """Refuse samples that contradict the schema, the limits or themselves. Ids and the lengths of
    single lists are not checked."""
    for number, sample in enumerate(samples):
        if not sample.num_examples:
            raise ExportError(
                f"samples: {number}: num_examples: expected at least 1, got 0; "
                "add an example, even if only request-scoped outputs matter"
            )
        problems = request_problems(sample, schema.dense, schema.sparse, limits)
        for part, expected, got in itertools.chain(problems, _infinite(sample)):
            raise ExportError(f"samples: {number}: {part}: expected {expected}, got {got}")


def _infinite(sample: SampleRequest) -> Iterator[tuple[str, str, object]]:
    for part in ("request_dense", "example_dense", "weights"):
        values: NDArray[np.float32] = getattr(sample, part)
        if not np.isfinite(values).all():
            yield part, "finite values", values[~np.isfinite(values)][0]


EXAMPLES = (1, 3, 32)
IDS_MAX = 5
UNKNOWN_SHARE = 0.1


def random_samples(
    schema: Schema, layout: Layout, *, limits: Limits, seed: int
) -> list[SampleRequest]:
    """Random requests that no id map rejects, for a model without real ones."""
    random = np.random.default_rng(seed)
    samples = []
    for count in EXAMPLES:
        examples = min(count, limits.max_examples)
        lists = sum(examples if item.scope == "example" else 1 for item in schema.sparse)
        ids_max = min(IDS_MAX, limits.max_ids // max(lists, 1))
        samples.append(_random_sample(schema, layout, examples, ids_max, random))
    return samples


def score_samples(
    samples: Sequence[SampleRequest],
    program: DenseProgram,
    weights: Mapping[str, WeightType],
    *,
    random: bool = False,
) -> list[SampleRequest]:
    """Compute the outputs of samples from the stored rows and the dense program. This uses none of
    the serving code, so that the outputs can check a server. ``random``: the samples are those
    of `random_samples`; an error about an output that is not finite says so. Raises InputError if
    the id map rejects an id, or a list is too long; ExportError if an output is not finite."""
    return [_score(sample, program, weights, random=random) for sample in samples]


MERGED_EXAMPLES = 1024
"""Number of examples at which a group of samples is complete, if it has at least 2 samples."""


def sample_groups(
    samples: Sequence[SampleRequest], schema: Schema, layout: Layout
) -> Iterator[tuple[str, list[Batch]]]:
    """Yield groups of samples to compare alone and as one batch: a name of the group, and each
    sample as a batch with vectors of the unquantized tables. `InputError`: as `score_samples`."""
    weights: dict[str, WeightType] = dict.fromkeys(layout.tables, "fp32")
    group: list[Batch] = []
    for number, sample in enumerate(samples):
        try:
            group.append(_as_batch(sample, schema, layout, weights))
        except InputError as problem:
            raise InputError(f"samples: {number}: {problem}") from problem
        examples = sum(len(batch.dense) for batch in group)
        is_complete = len(group) > 1 and examples >= MERGED_EXAMPLES
        if is_complete or number + 1 == len(samples):
            yield f"samples {number + 1 - len(group)} to {number}", group
            group = []


def _random_sample(
    schema: Schema, layout: Layout, examples: int, ids: int, random: np.random.Generator
) -> SampleRequest:
    lists = []
    for item in schema.sparse:
        bags = examples if item.scope == "example" else 1
        ids_max = min(ids, item.max_ids) if item.max_ids else ids
        counts = random.integers(0, ids_max + 1, bags)
        total = int(counts.sum())
        values = _random_ids(item, layout, total, random)
        weights = random.random(total, dtype=np.float32) if item.weighted else None
        lists.append(SampleLists(counts, values, weights))
    return SampleRequest.of_lists(
        _random_dense(schema, "request", 1, random)[0],
        _random_dense(schema, "example", examples, random),
        lists,
    )


def _random_dense(
    schema: Schema, scope: Scope, rows: int, random: np.random.Generator
) -> NDArray[np.float32]:
    """Random dense values, none negative before transforms, since Log1p may not be finite."""
    inputs = [item for item in schema.dense if item.scope == scope]
    drawn = random.standard_normal((rows, len(inputs)), dtype=np.float32)
    has_transforms = np.array([bool(item.transforms) for item in inputs], bool)
    return np.where(has_transforms, np.abs(drawn), drawn)


def _random_ids(
    item: SparseInput, layout: Layout, count: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Random known ids, and a few unknown ones if the map does not reject them."""
    anything = random.integers(-(1 << 63), 1 << 63, count, dtype=np.int64)
    match item.ids:
        case Hash():
            return anything
        case Vocabulary():
            known = random.choice(item.ids.keys, count)
        case Identity():
            known = random.integers(0, item.ids.rows, count, dtype=np.int64)
        case None:
            return random.integers(0, layout.rows(item), count, dtype=np.int64)
    if item.ids.unknown == "reject":
        return known
    return np.where(random.random(count) < UNKNOWN_SHARE, anything, known)


def _score(
    sample: SampleRequest,
    program: DenseProgram,
    weights: Mapping[str, WeightType],
    *,
    random: bool,
) -> SampleRequest:
    batch = _as_batch(sample, program.schema, program.layout, weights)
    outputs = program.run(batch.dense, batch.looked_up, batch.request_of_example)
    for name, output in outputs.items():
        if not output.isfinite().all():
            got = output[~output.isfinite()][0].item()
            if random:
                raise ExportError(
                    f"{program.not_finite_line}output {name!r}: expected finite values for random "
                    f"requests, whose dense inputs may be negative, got {got}; write "
                    "export_model(..., samples=[...]) with real requests, or clamp the operation's "
                    "operand"
                )
            raise ExportError(
                f"output {name!r}: expected finite values for every sample, got {got}"
            )
    return dataclasses.replace(
        sample, outputs={name: output.numpy() for name, output in outputs.items()}
    )


def _as_batch(
    sample: SampleRequest, schema: Schema, layout: Layout, weights: Mapping[str, WeightType]
) -> Batch:
    examples, factors = _as_examples(sample, schema)
    mapped = to_rows(examples)
    tables = layout.tables
    pooled, sequences = {}, {}
    for item in layout.pooled:
        name, table = item.input.name, item.lookup.table
        column = mapped.rows[name]
        vectors = _read(table, tables[table], column.values, weights[table])
        if name in factors:
            vectors *= factors[name][:, None]
        pooled[item.path, item.key] = _pool(vectors, column, mean=item.lookup.pooling == "mean")
    for item in layout.sequences:
        column = mapped.rows[item.input.name]
        table = item.lookup.table
        vectors = _read(table, tables[table], column.values, weights[table])
        sequences[item.path, item.key] = JaggedTensor(
            torch.from_numpy(vectors), lengths=torch.from_numpy(column.lengths)
        )
    return Batch(
        mapped.dense,
        LookedUp(pooled=pooled, sequences=sequences),
        torch.zeros(sample.num_examples, dtype=torch.int64),
    )


def _as_examples(
    sample: SampleRequest, schema: Schema
) -> tuple[Examples, dict[str, NDArray[np.float32]]]:
    """A request as examples with copies of the request-scoped inputs, and the weights of the ids
    that max_ids does not cut, by input."""
    count = sample.num_examples
    dense = np.empty((count, len(schema.dense)), np.float32)
    for scope, values in (("request", sample.request_dense), ("example", sample.example_dense)):
        dense[:, [item.scope == scope for item in schema.dense]] = values
    sparse, factors = {}, {}
    for item, lists in zip(schema.sparse, sample.lists(schema.sparse), strict=True):
        offsets = offsets_of(lists.lengths)
        repeated = np.arange(count) if item.scope == "example" else np.zeros(count, np.int64)
        sparse[item.name] = JaggedColumn(lists.values, offsets).take(repeated)
        if lists.weights is not None:
            places = JaggedColumn(np.arange(len(lists.values)), offsets).take(repeated)
            factors[item.name] = lists.weights[keep_ids(item, places).values]
    # Examples have no weights, which are in the factors. The program applies the transforms.
    raw = [dataclasses.replace(item, transforms=()) for item in schema.dense]
    unweighted = [dataclasses.replace(item, weighted=False) for item in schema.sparse]
    examples = Examples(
        schema=Schema(dense=raw, sparse=unweighted),
        dense=dense,
        sparse=sparse,
        labels=np.zeros(count, np.float32),
        request=np.zeros(count, np.int64),
    )
    return examples, factors


def _read(
    table: str, weight: Tensor, rows: NDArray[np.int64], kind: WeightType
) -> NDArray[np.float32]:
    """Stored vectors of a table's rows, float32 ``(n, dim)``. Row -1 is a zero vector."""
    known = rows >= 0
    vectors = np.zeros((len(rows), weight.shape[1]), np.float32)
    if known.any():
        vectors[known] = stored_rows(table, weight, torch.from_numpy(rows[known]), kind)
    return vectors


def _pool(vectors: NDArray[np.float32], column: JaggedColumn, *, mean: bool) -> Tensor:
    """Sum or mean of each list's vectors, float32 ``(lists, dim)``."""
    pooled = np.zeros((len(column.lengths), vectors.shape[1]), np.float32)
    np.add.at(pooled, np.repeat(np.arange(len(pooled)), column.lengths), vectors)
    if mean:
        pooled /= np.maximum(column.lengths, 1)[:, None].astype(np.float32)
    return torch.from_numpy(pooled)
