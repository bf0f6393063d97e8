"""What a forward may ask of its sparse input and of what embedding modules give."""

import operator
from collections.abc import Iterable, Mapping
from typing import Any, cast

from torch import fx

from embershard.export.embeddings import EmbeddingModule, Layout, gives_sequences
from embershard.export.inputs import (
    Feature,
    Features,
    Found,
    Pooled,
    ProgramInputs,
    Regrouped,
    Sequence,
    Sequences,
    Value,
)
from embershard.export.tracing import refusal
from embershard.package.schema import SparseInput

# Of a KeyedTensor: gives its vectors by key again.
BY_KEY = "to_dict"

OF_SPARSE = (
    "expected only embedding modules to use forward's sparse input, beside sparse['<key>']"
    ".lengths(); ids do not reach the dense program: write dense.shape[0] for the number of "
    "examples, sequences['<key>'] of an EmbeddingCollection for the vectors of a list"
)

PAD_FIRST = (
    "write x = {sequence}.to_padded_dense(width), apply the operation to x, and multiply by the "
    "mask (torch.arange(width) < {sequence}.lengths().unsqueeze(1)).unsqueeze(-1)"
)
"""In place of operations on the values of a sequence."""

SAME_FEATURES = frozenset({"permute", "split"})
"""Methods of the sparse input that choose some of its features."""


class LookupValues:
    """Gives the values of nodes whose source is ``sparse``, forward's sparse input, or the output
    of one of ``modules``, the embedding modules by path."""

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

    def looked_up(self, node: fx.Node) -> Pooled | Sequences:
        """A call of an embedding module."""
        if node.all_input_nodes != [self._sparse]:
            raise refusal(node, "expected an embedding module to take forward's sparse input")
        path = str(node.target)
        keys = tuple(self._modules[path].embedding_names())
        return (Sequences if gives_sequences(self._modules[path]) else Pooled)(path, keys)

    def asked(self, node: fx.Node, found: Found) -> Found:
        """What a node asks of the first value that it takes."""
        match found:
            case Pooled():
                return self._of_pooled(node, found)
            case Sequences():
                return Sequence(found.path, _key_asked(node, found.keys))
            case Sequence():
                return self._of_sequence(node, found)
            case Regrouped():
                return found.groups[operator.index(cast("int", node.args[1]))]
            case Features():
                return self._of_sparse(node, found)
            case Feature():
                return self._of_feature(node, found)
            case Value():
                raise AssertionError("what is asked of tensors is an operation")

    def regrouped(self, node: fx.Node, pooled: Iterable[Found | None]) -> Regrouped:
        """``KeyedTensor.regroup(pooled, groups)``."""
        pooled = list(pooled)
        columns = {
            key: self._layout.lookup(each.path, key).columns
            for each in pooled
            if isinstance(each, Pooled)
            for key in each.keys
        }
        if not all(isinstance(each, Pooled) for each in pooled):
            raise refusal(
                node,
                "expected regroup to take KeyedTensors of embedding modules; write "
                "torch.cat([pooled['<key>'], ...], dim=1)",
            )
        groups: Any = node.args[1]
        for key in (key for group in groups for key in group if key not in columns):
            raise refusal(node, f"expected one of {', '.join(columns)}, got {key!r}")
        return Regrouped(
            tuple(self._inputs.take("pooled", [columns[key] for key in group]) for group in groups)
        )

    def _of_pooled(self, node: fx.Node, pooled: Pooled) -> Value | Pooled:
        """What is asked of a KeyedTensor: one vector, all vectors, or the same as a dict."""
        if node.target is operator.getitem:
            return self._vectors(pooled, (_key_asked(node, pooled.keys),))
        if node.op == "call_method" and node.target == "values":
            return self._vectors(pooled, pooled.keys)
        if node.op == "call_method" and node.target == BY_KEY:
            return pooled
        raise refusal(node, "expected pooled['<key>'], pooled.values() or pooled.to_dict()")

    def _vectors(self, pooled: Pooled, keys: tuple[str, ...]) -> Value:
        return self._inputs.take(
            "pooled", [self._layout.lookup(pooled.path, key).columns for key in keys]
        )

    def _of_sequence(self, node: fx.Node, sequence: Sequence) -> Value:
        """What is asked of a JaggedTensor: it padded, or its lengths."""
        found = self._layout.lookup(sequence.path, sequence.key)
        place = found.columns
        if node.op == "call_method" and node.target == "lengths":
            return self._inputs.lengths(place)
        if node.op != "call_method" or node.target != "to_padded_dense":
            raise refusal(
                node,
                "expected <sequence>.to_padded_dense() or .lengths(); "
                + PAD_FIRST.format(sequence=f"sequences[{sequence.key!r}]"),
            )
        given: Any = dict(zip(("desired_length", "padding_value"), node.args[1:], strict=False))
        given |= node.kwargs
        width, padding = given.get("desired_length"), given.get("padding_value", 0.0)
        if type(width) not in (int, type(None)) or type(padding) not in (int, float):
            raise refusal(node, "expected a desired_length and a padding_value that are known")
        if width is None:
            _check_bounded(node, found.input)
        return self._inputs.padded(place, width, float(padding))

    def _of_sparse(self, node: fx.Node, features: Features) -> Feature | Features:
        """What is asked of forward's sparse input: one feature of it."""
        if node.target is operator.getitem:
            return Feature(_key_asked(node, features.keys))
        if node.op == "call_method" and node.target == BY_KEY:
            return features
        if node.op == "call_method" and node.target in SAME_FEATURES:
            raise refusal(
                node,
                "expected embedding modules to take forward's sparse input itself, got its "
                f"{node.target}(); write self.<collection>(sparse): a collection takes the "
                "features of its own keys",
            )
        raise refusal(node, OF_SPARSE)

    def _of_feature(self, node: fx.Node, feature: Feature) -> Value:
        """The lengths of its lists, which a dense program has of sequences alone."""
        if node.op != "call_method" or node.target != "lengths":
            raise refusal(node, OF_SPARSE)
        for each in self._layout.sequences:
            if each.input.name == feature.key:
                return self._inputs.lengths(each.columns)
        raise refusal(
            node,
            f"expected the lengths of an input that an EmbeddingCollection looks up, got "
            f"{feature.key!r}, of which the dense program has pooled vectors alone; look it up in "
            "an EmbeddingCollection as well, or write a dense input that holds the length",
        )


def _key_asked(node: fx.Node, keys: tuple[str, ...]) -> str:
    if node.target is not operator.getitem:
        raise refusal(node, "expected sequences['<key>']")
    if node.args[1] not in keys:
        raise refusal(node, f"expected one of {', '.join(keys)}, got {node.args[1]!r}")
    return str(node.args[1])


def _check_bounded(node: fx.Node, item: SparseInput) -> None:
    """Padded to the longest list of a batch, one long list makes all others as wide."""
    if not item.max_ids:
        raise refusal(
            node,
            f"feature {item.name!r}: expected a limit to its lists, which a server pads to the "
            "longest of a batch, got max_ids=0; give SparseInput max_ids, or to_padded_dense "
            "a width",
        )
