"""The operations that a forward may apply to its sparse input and to results of lookups."""

import operator
from collections.abc import Iterable, Mapping
from typing import Any, cast

from torch import fx

from embershard.export.embeddings import EmbeddingModule, Layout, returns_sequences
from embershard.export.inputs import (
    Feature,
    Features,
    NodeValue,
    Pooled,
    ProgramInputs,
    Regrouped,
    Sequence,
    Sequences,
    Value,
)
from embershard.export.trace import refusal
from embershard.package.schema import SparseInput

BY_KEY = "to_dict"
"""Method of a KeyedTensor that returns the same vectors by key."""

SPARSE_USE = (
    "expected forward to use its sparse input only in calls of embedding modules and in "
    "sparse['<key>'].lengths(), since the dense program gets no ids; write dense.shape[0] for the "
    "number of examples, and sequences['<key>'] of an EmbeddingCollection for the vectors of a list"
)

PAD_FIRST = (
    "write x = {sequence}.to_padded_dense(width), apply the operation to x, and multiply by the "
    "mask (torch.arange(width) < {sequence}.lengths().unsqueeze(1)).unsqueeze(-1)"
)
FEATURE_METHODS = frozenset({"permute", "split"})
"""Methods of the sparse input that select features."""


class LookupValues:
    """Finds the values of nodes that use forward's sparse input, or results of lookups."""

    def __init__(
        self,
        inputs: ProgramInputs,
        layout: Layout,
        modules: Mapping[str, EmbeddingModule],
        sparse: fx.Node,
    ) -> None:
        self._inputs = inputs
        self._layout = layout
        self._modules = modules
        self._sparse = sparse

    def module_call(self, node: fx.Node) -> Pooled | Sequences:
        if node.all_input_nodes != [self._sparse]:
            raise refusal(
                node,
                "expected an embedding module to get forward's sparse input, got another argument",
            )
        path = str(node.target)
        keys = tuple(self._modules[path].embedding_names())
        return (Sequences if returns_sequences(self._modules[path]) else Pooled)(path, keys)

    def use(self, node: fx.Node, source: NodeValue) -> NodeValue:
        """The value of a node whose first operand is ``source``."""
        match source:
            case Pooled():
                return self._use_pooled(node, source)
            case Sequences():
                return Sequence(source.path, _key_of(node, source.keys))
            case Sequence():
                return self._use_sequence(node, source)
            case Regrouped():
                return source.groups[operator.index(cast("int", node.args[1]))]
            case Features():
                return self._use_sparse(node, source)
            case Feature():
                return self._use_feature(node, source)
            case Value():
                raise AssertionError("an operation on a tensor is not for LookupValues")

    def regroup(self, node: fx.Node, sources: Iterable[NodeValue | None]) -> Regrouped:
        sources = list(sources)
        columns = {
            key: self._layout.lookup(source.path, key).columns
            for source in sources
            if isinstance(source, Pooled)
            for key in source.keys
        }
        if not all(isinstance(source, Pooled) for source in sources):
            raise refusal(
                node,
                "expected regroup to get KeyedTensors of embedding modules, got other arguments; "
                "write torch.cat([pooled['<key>'], ...], dim=1)",
            )
        groups: Any = node.args[1]
        for key in (key for group in groups for key in group if key not in columns):
            raise refusal(node, f"expected one of {', '.join(columns)}, got {key!r}")
        return Regrouped(
            tuple(self._inputs.take("pooled", [columns[key] for key in group]) for group in groups)
        )

    def _use_pooled(self, node: fx.Node, pooled: Pooled) -> Value | Pooled:
        if node.target is operator.getitem:
            return self._vectors(pooled, (_key_of(node, pooled.keys),))
        if node.op == "call_method" and node.target == "values":
            return self._vectors(pooled, pooled.keys)
        if node.op == "call_method" and node.target == BY_KEY:
            return pooled
        raise refusal(
            node,
            "expected pooled['<key>'], pooled.values() or pooled.to_dict() of the KeyedTensor "
            "pooled, got another operation",
        )

    def _vectors(self, pooled: Pooled, keys: tuple[str, ...]) -> Value:
        return self._inputs.take(
            "pooled", [self._layout.lookup(pooled.path, key).columns for key in keys]
        )

    def _use_sequence(self, node: fx.Node, sequence: Sequence) -> Value:
        lookup = self._layout.lookup(sequence.path, sequence.key)
        place = lookup.columns
        if node.op == "call_method" and node.target == "lengths":
            return self._inputs.lengths(place)
        if node.op != "call_method" or node.target != "to_padded_dense":
            raise refusal(
                node,
                "expected <sequence>.to_padded_dense() or .lengths(), got another operation; "
                + PAD_FIRST.format(sequence=f"sequences[{sequence.key!r}]"),
            )
        arguments: Any = dict(zip(("desired_length", "padding_value"), node.args[1:], strict=False))
        arguments |= node.kwargs
        width, padding = arguments.get("desired_length"), arguments.get("padding_value", 0.0)
        if type(width) not in (int, type(None)) or type(padding) not in (int, float):
            raise refusal(
                node,
                "expected numbers as desired_length and padding_value, got values that are only "
                "known when forward runs",
            )
        if width is None:
            _check_bounded(node, lookup.input)
        return self._inputs.padded(place, width, float(padding))

    def _use_sparse(self, node: fx.Node, features: Features) -> Feature | Features:
        if node.target is operator.getitem:
            return Feature(_key_of(node, features.keys))
        if node.op == "call_method" and node.target == BY_KEY:
            return features
        if node.op == "call_method" and node.target in FEATURE_METHODS:
            raise refusal(
                node,
                "expected embedding modules to get forward's sparse input itself, got its "
                f"{node.target}(); write self.<collection>(sparse), since a collection selects "
                "its own features",
            )
        raise refusal(node, SPARSE_USE)

    def _use_feature(self, node: fx.Node, feature: Feature) -> Value:
        if node.op != "call_method" or node.target != "lengths":
            raise refusal(node, SPARSE_USE)
        for lookup in self._layout.sequences:
            if lookup.input.name == feature.key:
                return self._inputs.lengths(lookup.columns)
        raise refusal(
            node,
            f"expected the lengths of an input that an EmbeddingCollection looks up, got "
            f"{feature.key!r}, for which the dense program has only pooled vectors; look it up in "
            "an EmbeddingCollection as well, or add a dense input with the length",
        )


def _key_of(node: fx.Node, keys: tuple[str, ...]) -> str:
    if node.target is not operator.getitem:
        raise refusal(node, "expected sequences['<key>'], got another operation")
    if node.args[1] not in keys:
        raise refusal(node, f"expected one of {', '.join(keys)}, got {node.args[1]!r}")
    return str(node.args[1])


def _check_bounded(node: fx.Node, item: SparseInput) -> None:
    """Refuse padding to the longest list of a batch if a single long list could use any amount of
    memory."""
    if not item.max_ids:
        raise refusal(
            node,
            f"feature {item.name!r}: expected a limit on its lists, which a server pads to the "
            "longest list of a batch, got max_ids=0; write SparseInput(..., max_ids=N), or "
            "to_padded_dense(N)",
        )
