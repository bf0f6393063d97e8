"""The forward pass of a batch of impressions, or of requests with their candidates."""

from collections.abc import Iterator

from torch import Tensor, nn

from embershard.data.splits import Batch
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
    to_examples,
)
from embershard.modules.request_rows import has_marks, once_per_request
from embershard.package.schema import Schema
from embershard.sharding.collection import ShardedCollection
from embershard.sharding.types import tables_of

COLLECTIONS: tuple[type[nn.Module], ...] = (
    EmbeddingBagCollection,
    EmbeddingCollection,
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
    ShardedCollection,
)


def logits_of(
    module: nn.Module,
    batch: Batch,
    schema: Schema,
    kinds: tuple[type[nn.Module], ...] = COLLECTIONS,
) -> Tensor:
    """Logits of a batch, float32 ``(B, T)``. A model that calls ``to_examples``, or looks up
    sequences, computes the user side of a batch of requests once per request. In other models,
    collections of ``kinds`` repeat a request's vectors for each of its examples."""
    request_of = _request_of_example(batch, schema)
    collections = [] if request_of is None else list(_collections(module, kinds))
    if request_of is None or not (has_marks(module) or any(map(_has_sequences, collections))):
        logits: Tensor = module(batch.dense, batch.sparse)
        return logits
    columns = [place for place, item in enumerate(schema.dense) if item.scope == "request"]
    with once_per_request(collections, batch.dense, columns, request_of) as dense:
        # A model that reads only request inputs returns a row for each request.
        return to_examples(module(dense, batch.sparse))


def _request_of_example(batch: Batch, schema: Schema) -> Tensor | None:
    """The request of each example, int64 ``(B,)``; None if each example is its own request."""
    names = schema.sparse_names("request")
    if not names or not batch.sparse.variable_stride_per_key():
        return None
    keys, inverse = batch.sparse.inverse_indices()
    requests = batch.sparse.stride_per_key()[batch.sparse.keys().index(names[0])]
    return inverse[keys.index(names[0])] if requests < len(batch.dense) else None


def _has_sequences(collection: nn.Module) -> bool:
    return not all(isinstance(table, EmbeddingBagConfig) for table in tables_of(collection))


def _collections(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> Iterator[nn.Module]:
    """The collections in a module, without those inside another collection."""
    if isinstance(module, kinds):
        yield module
        return
    for child in module.children():
        yield from _collections(child, kinds)
