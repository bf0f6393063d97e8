"""Finds the operation that makes a module unfit for serving, and advises what to write instead.

| fault | consequence |
|---|---|
| an operation computes across the rows of a batch | scores depend on the other examples |
| an operation returns NaN or infinity for an empty list | a server fails requests of new users |
"""

import dataclasses
import operator
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx, nn

from embershard.export.dense_program import LookedUp
from embershard.export.embeddings import Layout
from embershard.export.trace import line_of, target_name, trace
from embershard.jagged import JaggedTensor

OVER_ROWS = frozenset(
    {"amax", "amin", "log_softmax", "max", "mean", "min", "norm", "softmax", "std", "sum", "var"}
)

Recording: TypeAlias = dict[fx.Node, Tensor]


def record_values(module: nn.Module, graph: fx.Graph, arguments: Sequence[Any]) -> Recording:
    """Run a trace of ``module``, and return the tensor of each node."""
    recorder = _Recorder(module, graph)
    recorder.run(*arguments)
    return recorder.values


def first_crossing(
    together: Recording, alone: Sequence[Recording], close: Callable[[Tensor, Tensor], bool]
) -> fx.Node | None:
    """The first node whose value for a batch differs from its values for parts of the batch."""
    for node, value in together.items():
        parts = [recording[node] for recording in alone]
        is_constant = all(torch.equal(part, value) for part in parts)
        if not is_constant and not _equals_parts(value, parts, close):
            return node
    return None


def random_constant(module: nn.Module, traced: fx.Graph) -> fx.Node | None:
    """The first node with a random number or tensor, such as ``torch.randn(16)``, that tracing
    turned into a constant. Another trace has another constant."""
    pairs: Iterator[tuple[fx.Node, fx.Node]] = zip(traced.nodes, trace(module).nodes, strict=False)
    for node, other in pairs:
        if node.op == other.op == "get_attr":
            tensor, again = (attrgetter(str(constant.target))(module) for constant in (node, other))
            if not torch.equal(tensor, again):
                return node
        elif _literals(node) != _literals(other):
            return node
    return None


def _literals(node: fx.Node) -> Any:
    return fx.map_arg((node.args, node.kwargs), lambda _: None)


def crossing_remedy(node: fx.Node) -> str:
    """Advice for a node of `first_crossing`, ``; write ...``, or ""."""
    name = target_name(node)
    transposed = name == "t" or (node.target is getattr and node.args[1] == "T")
    if transposed or name in ("matmul", "mm"):
        return "; write (user * item).sum(-1) for one product per example"
    dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
    if name in ("softmax", "log_softmax") and dim not in (0, None):
        return (
            "; this softmax includes padding; write masked_fill(~mask, -1e9) before it, and "
            "multiply the softmax by the mask"
        )
    if name in OVER_ROWS and dim in (0, None):
        return f"; write {name} over dim=-1, or nn.BatchNorm1d for statistics of the training data"
    if _is_padded_to_longest(node):
        return (
            "; to_padded_dense() without a width pads to the longest list of a batch; write "
            "to_padded_dense(max_ids), or mask the padding"
        )
    return ""


def _is_padded_to_longest(node: fx.Node) -> bool:
    """True if a value depends on ``to_padded_dense()`` without a width."""
    seen, waiting = {node}, [node]
    while waiting:
        source = waiting.pop()
        if source.op == "call_method" and source.target == "to_padded_dense":
            width = source.args[1] if len(source.args) > 1 else source.kwargs.get("desired_length")
            if width is None:
                return True
        waiting += [before for before in source.all_input_nodes if before not in seen]
        seen.update(source.all_input_nodes)
    return False


class _Recorder(fx.Interpreter):
    def __init__(self, module: nn.Module, graph: fx.Graph) -> None:
        super().__init__(module, graph=graph)
        self.values: Recording = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, Tensor):
            self.values[n] = value
        return value


def _equals_parts(
    value: Tensor, parts: Sequence[Tensor], close: Callable[[Tensor, Tensor], bool]
) -> bool:
    """True if ``value``, computed for a batch, is close to ``parts`` put one below the other.
    Padding to the longest list is not compared. An example may have any number of rows, since
    reshaping may have changed it."""
    if value.ndim < 1 or any(part.ndim != value.ndim for part in parts):
        return False
    if len({part.shape[1:] for part in parts} | {value.shape[1:]}) == 1:
        return close(value, torch.cat(list(parts)))
    return _equals_padded_parts(value, parts, close)


def _equals_padded_parts(
    value: Tensor, parts: Sequence[Tensor], close: Callable[[Tensor, Tensor], bool]
) -> bool:
    """`_equals_parts` for lists that are padded to the longest list of a batch, without comparing
    the padding."""
    rows = sum(len(part) for part in parts)
    rest = {part.shape[2:] for part in parts} | {value.shape[2:]}
    if value.ndim < 2 or len(rest) > 1 or len(value) != rows:
        return False
    if value.shape[1] != max(part.shape[1] for part in parts):
        return False
    cut = torch.split(value, [len(part) for part in parts])
    return all(close(rows[:, : part.shape[1]], part) for rows, part in zip(cut, parts, strict=True))


ALONE_MAX = 16
"""Limit on the inputs whose lists are emptied one input at a time, which takes time."""

ATTENTION = (
    nn.MultiheadAttention,
    nn.Transformer,
    nn.TransformerDecoder,
    nn.TransformerDecoderLayer,
    nn.TransformerEncoder,
    nn.TransformerEncoderLayer,
)

CLAMP = "a divisor that is never 0, such as lengths.clamp(min=1)"
ATTEND = (
    "torch.nan_to_num(...) around its result, or put a learned or zero vector in front that the "
    "mask never hides"
)
SOFTMAX = "masked_fill(~mask, -1e9) in place of -inf, and multiply the softmax by the mask"
LOG = "x.clamp(min=1e-6) as its argument"
OTHERWISE = "torch.nan_to_num(...) around its result, or torch.where on lengths() > 0"

WITHOUT_NESTED_TENSORS = (
    "nn.TransformerEncoder(..., enable_nested_tensor=False) and torch.nan_to_num(...) around its "
    "result"
)

INSTEAD = {
    "div": CLAMP,
    "log": LOG,
    "log2": LOG,
    "log10": LOG,
    "log_softmax": SOFTMAX,
    "multi_head_attention_forward": ATTEND,
    "scaled_dot_product_attention": ATTEND,
    "softmax": SOFTMAX,
    "truediv": CLAMP,
}


def empty_input_groups(layout: Layout) -> Iterator[tuple[str, ...]]:
    """Yield groups of inputs whose lists to empty together: single inputs, those with sequences
    first, and then all inputs."""
    lookups = sorted(layout.every(), key=lambda lookup: lookup.lookup.output == "pooled")
    names = list(dict.fromkeys(lookup.input.name for lookup in lookups))
    for name in names[:ALONE_MAX]:
        yield (name,)
    if len(names) > 1:
        yield tuple(names)


def with_empty_lists(
    looked_up: LookedUp, layout: Layout, names: tuple[str, ...], empty: Tensor
) -> LookedUp:
    """The lookups after the lists of the inputs ``names`` were emptied for the examples ``empty``,
    bool ``(B,)``."""
    pooled, sequences = dict(looked_up.pooled), dict(looked_up.sequences)
    for table_lookup in layout.every():
        if table_lookup.input.name not in names:
            continue
        key = table_lookup.path, table_lookup.key
        if table_lookup.lookup.output == "sequence":
            sequences[key] = _empty_lists(sequences[key], empty)
        else:
            pooled[key] = pooled[key].masked_fill(empty.unsqueeze(1), 0)
    return dataclasses.replace(looked_up, pooled=pooled, sequences=sequences)


def _empty_lists(lists: JaggedTensor, empty: Tensor) -> JaggedTensor:
    lengths = lists.lengths()
    kept = torch.repeat_interleave(~empty, lengths)
    return JaggedTensor(lists.values()[kept], lengths=lengths.masked_fill(empty, 0))


def finite_rows(output: Tensor) -> Tensor:
    return output.isfinite().flatten(1).all(1) if output.ndim > 1 else output.isfinite()


def empty_lists_message(
    module: nn.Module, full: Recording, emptied: Recording, names: tuple[str, ...], output: str
) -> str:
    """The error message for an output that is not finite if the lists of the inputs ``names`` are
    empty. ``full`` and ``emptied`` are recordings of a batch before and after that."""
    node = first_not_finite(full, emptied)
    where = f"{line_of(node)}: " if node else ""
    instead = _finite_remedy(node, module) if node else OTHERWISE
    inputs = ", ".join(repr(name) for name in names)
    lists = f"input {inputs}" if len(names) == 1 else f"inputs {inputs}"
    return (
        f"{where}output {output!r}: expected finite values if the lists of {lists} are empty, "
        f"got NaN or infinity; a server fails such requests; write {instead}"
    )


OUT_OF_RANGE = ("index out of range in self", "Class values must be")
"""Parts of torch's messages for a tensor that is an invalid index."""


def failure_remedy(error: Exception) -> str:
    """Advice for a module that fails with ``error``, or ""."""
    # nn.TransformerEncoder fails if all lists of a batch are empty.
    if "to_padded_tensor" in str(error):
        return f"; lists may be empty; write {WITHOUT_NESTED_TENSORS}"
    # A maximum fails if all lists of a batch are empty.
    if "have non-zero size" in str(error):
        return (
            "; without a width a batch of empty lists has width 0; write to_padded_dense(max_ids)"
        )
    if "more than 1 value per channel" in str(error):
        return (
            "; it normalizes by the statistics of the batch; write track_running_stats=True to use "
            "those of the training data"
        )
    if any(part in str(error) for part in OUT_OF_RANGE):
        return (
            "; an index that is computed from dense inputs may be out of range; write "
            "index.clamp(0, rows - 1), or index.remainder(rows)"
        )
    return ""


def nested_tensor_remedy(module: nn.Module) -> str:
    """Advice for nn.TransformerEncoder, which may shorten padding to the longest list, or ""."""
    encoders = [part for part in module.modules() if isinstance(part, nn.TransformerEncoder)]
    if not any(encoder.use_nested_tensor for encoder in encoders):
        return ""
    return (
        "; nested tensors shorten padding to the longest list of the batch; write "
        f"{WITHOUT_NESTED_TENSORS}"
    )


def first_not_finite(full: Recording, emptied: Recording) -> fx.Node | None:
    """The first node with NaN, or else the first with infinity, in ``emptied`` but not in
    ``full``."""
    for is_fault in (torch.isnan, torch.isinf):
        for node, value in emptied.items():
            before = full.get(node)
            known = before is not None and bool(is_fault(before).any())
            if not known and bool(is_fault(value).any()):
                return node
    return None


def _finite_remedy(node: fx.Node, module: nn.Module) -> str:
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        return _finite_remedy(node.args[0], module)  # Attention returns a tuple.
    if node.op == "call_module":
        layer = module.get_submodule(str(node.target))
        if isinstance(layer, ATTENTION):
            return ATTEND
        return SOFTMAX if isinstance(layer, nn.Softmax | nn.LogSoftmax) else OTHERWISE
    return INSTEAD.get(target_name(node), OTHERWISE)
