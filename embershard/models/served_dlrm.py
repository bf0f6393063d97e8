"""The served DLRM: products of two vectors of the request scope are computed once per request.

    vectors   request scope U [R, u, D]        example scope V [B, v, D]
    products  U . U  [R, u * (u - 1) / 2]      V . V  [B, v * (v - 1) / 2]      V . U  [B, v * u]
    first     its columns for U . U, [R, n],   its columns for the others, [B, n]
    layer     then each example gets its request's, and the two are added

The weights are those of DLRM: the columns of its first layer stand in another order, and in two
matrices.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, product

import torch
from torch import Tensor, nn

from embershard.jagged import KeyedJaggedTensor
from embershard.models.base import Loss, outputs_of
from embershard.models.dlrm_parts import DenseArch, OverArch, SparseArch
from embershard.modules import to_examples
from embershard.package.schema import Schema


def splits_by_scope(sparse_arch: SparseArch, schema: Schema) -> bool:
    """True if a ServedDLRM saves work: at least two vectors have the request scope, and one has
    not."""
    request, example = _by_scope(sparse_arch.sparse_feature_names, schema)
    return len(request) > 1 and len(example) > 0


class ServedDLRM(nn.Module):
    """The outputs of a DLRM whose inputs have scopes. The parts of the trained DLRM are shared,
    except the first layer of ``over_arch``, which is copied. REQUIRES: `splits_by_scope`."""

    pairs_of_request: Tensor
    pairs_of_example: Tensor

    def __init__(
        self,
        dense_arch: DenseArch,
        sparse_arch: SparseArch,
        over_arch: OverArch,
        schema: Schema,
        tasks: Mapping[str, Loss],
    ) -> None:
        super().__init__()
        self.tasks = tasks
        self.dense_arch = dense_arch
        self.embeddings = sparse_arch.embedding_bag_collection
        self.dim = sparse_arch.D
        self.features = sparse_arch.sparse_feature_names
        self.request, self.example = _by_scope(self.features, schema)
        first, *above = over_arch.layers
        columns = _columns(self.dim, self.request, self.example)
        self.of_request, self.of_example = (
            _select_inputs(first.linear, places, bias=bias)
            for places, bias in zip(columns, (False, True), strict=True)
        )
        self.above = nn.Sequential(first.activation, *above, over_arch.last)
        for name, members in (("request", self.request), ("example", self.example)):
            pairs = _pairs(len(members)).to(first.linear.weight.device)
            self.register_buffer(f"pairs_of_{name}", pairs, persistent=False)

    def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> Tensor | dict[str, Tensor]:
        """float32 ``(B,)`` for each task; see `Score`."""
        pooled = self.embeddings(sparse)
        vectors = [self.dense_arch(dense), *(pooled[name] for name in self.features)]
        user = self._stacked(vectors, self.request)
        item = self._stacked(vectors, self.example)
        of_request = _products(user, user).index_select(1, self.pairs_of_request)
        of_example = [
            _products(item, item).index_select(1, self.pairs_of_example),
            _products(item, to_examples(user)),
        ]
        if 0 in self.request:
            of_request = torch.cat([vectors[0], of_request], dim=1)
        else:
            of_example.insert(0, vectors[0])
        shared = to_examples(self.of_request(of_request))
        logits = self.above(self.of_example(torch.cat(of_example, dim=1)) + shared)
        return outputs_of(logits, self.tasks)

    def _stacked(self, vectors: Sequence[Tensor], members: Sequence[int]) -> Tensor:
        """``(rows, members, D)``."""
        side_by_side = torch.cat([vectors[place] for place in members], dim=1)
        return side_by_side.reshape(-1, len(members), self.dim)


def _by_scope(features: Sequence[str], schema: Schema) -> tuple[list[int], list[int]]:
    """Places of a DLRM's vectors of the request scope, and of the example scope. Place 0 is the
    dense vector. It has the request scope if all dense inputs have."""
    of_request = set(schema.sparse_names("request"))
    request = [] if schema.dense_names("example") else [0]
    request += [place for place, name in enumerate(features, 1) if name in of_request]
    return request, [place for place in range(len(features) + 1) if place not in request]


def _columns(
    dim: int, request: Sequence[int], example: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Inputs of DLRM's first layer above the interactions: those of requests, those of examples."""
    pairs = combinations(range(len(request) + len(example)), 2)
    column = {pair: place for place, pair in enumerate(pairs, dim)}
    of_request = [column[pair] for pair in combinations(request, 2)]
    of_example = [column[pair] for pair in combinations(example, 2)]
    of_example += [column[min(pair), max(pair)] for pair in product(example, request)]
    dense = list(range(dim))
    if 0 in request:
        return dense + of_request, of_example
    return of_request, dense + of_example


def _pairs(members: int) -> Tensor:
    """Places of the products of two different vectors in a flat matrix of all products; int64."""
    first, second = torch.triu_indices(members, members, offset=1)
    pairs: Tensor = first * members + second
    return pairs


def _products(left: Tensor, right: Tensor) -> Tensor:
    """``(rows, l, D)`` and ``(rows, r, D)`` to ``(rows, l * r)``."""
    return torch.bmm(left, right.transpose(1, 2)).flatten(1)


def _select_inputs(layer: nn.Linear, columns: Sequence[int], *, bias: bool) -> nn.Linear:
    """A copy of a layer with some of its inputs, in this order."""
    copy = nn.Linear(len(columns), layer.out_features, bias=bias, device="meta")
    copy.weight = nn.Parameter(layer.weight.detach()[:, columns], requires_grad=False)
    if bias:
        copy.bias = layer.bias
    return copy
