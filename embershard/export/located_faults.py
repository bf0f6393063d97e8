"""Finds the operation at fault: one by which an example's output depends on its neighbours, or
gives NaN or infinity because a list of a sparse input is empty.

Any list of a request may be empty: a new user has no history. A server fails such a request.
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
from embershard.export.tracing import line_of, target_name, trace
from embershard.jagged import JaggedTensor

OVER_ROWS = frozenset(
    {"amax", "amin", "log_softmax", "max", "mean", "min", "norm", "softmax", "std", "sum", "var"}
)

Recording: TypeAlias = dict[fx.Node, Tensor]


def recorded(module: nn.Module, graph: fx.Graph, arguments: Sequence[Any]) -> Recording:
    """Run a trace of ``module``: every tensor on the way, by node."""
    recorder = _Recorder(module, graph)
    recorder.run(*arguments)
    return recorder.values


def first_crossing(
    together: Recording, alone: Sequence[Recording], close: Callable[[Tensor, Tensor], bool]
) -> fx.Node | None:
    """The first node whose value for a batch is not that of its examples, one after another."""
    for node, value in together.items():
        parts = [each[node] for each in alone]
        is_constant = all(torch.equal(part, value) for part in parts)  # As a parameter is.
        if not is_constant and not _by_rows(value, parts, close):
            return node
    return None


def random_constant(module: nn.Module, traced: fx.Graph) -> fx.Node | None:
    """The node that takes a number or tensor that forward draws by itself, such as
    ``torch.randn(16)``: another trace has another one."""
    pairs: Iterator[tuple[fx.Node, fx.Node]] = zip(traced.nodes, trace(module).nodes, strict=False)
    for node, other in pairs:
        if node.op == other.op == "get_attr":
            tensor, again = (attrgetter(str(read.target))(module) for read in (node, other))
            if not torch.equal(tensor, again):
                return node
        elif _literals(node) != _literals(other):
            return node
    return None


def _literals(node: fx.Node) -> Any:
    return fx.map_arg((node.args, node.kwargs), lambda _: None)


def crossing_remedy(node: fx.Node) -> str:
    """What to write in place of a node of `first_crossing`, ``; write ...``, or nothing."""
    name = target_name(node)
    transposed = name == "t" or (node.target is getattr and node.args[1] == "T")
    if transposed or name in ("matmul", "mm"):
        return "; write (user * item).sum(-1) for one product per example"
    dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
    if name in ("softmax", "log_softmax") and dim not in (0, None):
        return (
            "; padding counts in this softmax; write masked_fill(~mask, -1e9) before it, and "
            "multiply the softmax by the mask"
        )
    if name in OVER_ROWS and dim in (0, None):
        return f"; write {name} over dim=-1, or nn.BatchNorm1d for statistics of the training data"
    if _padded_to_the_longest(node):
        return (
            "; to_padded_dense() without a width pads to the longest list of a batch; write "
            "to_padded_dense(max_ids), or mask the padding"
        )
    return ""


def _padded_to_the_longest(node: fx.Node) -> bool:
    """Whether a value follows from ``to_padded_dense()`` without a width."""
    seen, waiting = {node}, [node]
    while waiting:
        each = waiting.pop()
        if each.op == "call_method" and each.target == "to_padded_dense":
            given = each.args[1] if len(each.args) > 1 else each.kwargs.get("desired_length")
            if given is None:
                return True
        waiting += [source for source in each.all_input_nodes if source not in seen]
        seen.update(each.all_input_nodes)
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


def _by_rows(
    value: Tensor, parts: Sequence[Tensor], close: Callable[[Tensor, Tensor], bool]
) -> bool:
    """Any number of rows an example: its own, those of its reshaped vectors."""
    if value.ndim < 1 or any(part.ndim != value.ndim for part in parts):
        return False
    if len({part.shape[1:] for part in parts} | {value.shape[1:]}) == 1:
        return close(value, torch.cat(list(parts)))
    return _padded(value, parts, close)


def _padded(
    value: Tensor, parts: Sequence[Tensor], close: Callable[[Tensor, Tensor], bool]
) -> bool:
    """The same where lists were padded to the longest of a batch: what pads hold does not count."""
    rows = sum(len(part) for part in parts)
    rest = {part.shape[2:] for part in parts} | {value.shape[2:]}
    if value.ndim < 2 or len(rest) > 1 or len(value) != rows:
        return False
    if value.shape[1] != max(part.shape[1] for part in parts):
        return False
    cut = torch.split(value, [len(part) for part in parts])
    return all(close(own[:, : part.shape[1]], part) for own, part in zip(cut, parts, strict=True))


# Inputs that are emptied alone. Further ones are emptied together with all others.
MOST_ALONE = 16

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
    "torch.nan_to_num(...) around its result, or put a learned or zero vector first that the mask "
    "never hides"
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
"""By function or method: what to write in its place."""


def empty_input_groups(layout: Layout) -> Iterator[tuple[str, ...]]:
    """Inputs whose lists are emptied together: each alone, sequences first, then all."""
    lookups = sorted(layout.every(), key=lambda each: each.lookup.output == "pooled")
    every = list(dict.fromkeys(each.input.name for each in lookups))
    for name in every[:MOST_ALONE]:
        yield (name,)
    if len(every) > 1:
        yield tuple(every)


def with_empty_lists(
    looked_up: LookedUp, layout: Layout, names: tuple[str, ...], empty: Tensor
) -> LookedUp:
    """The same lookups, the lists of inputs ``names`` empty for some examples, bool ``(B,)``."""
    pooled, sequences = dict(looked_up.pooled), dict(looked_up.sequences)
    for each in layout.every():
        if each.input.name not in names:
            continue
        key = each.path, each.key
        if each.lookup.output == "sequence":
            sequences[key] = _emptied(sequences[key], empty)
        else:
            pooled[key] = pooled[key].masked_fill(empty.unsqueeze(1), 0)
    return dataclasses.replace(looked_up, pooled=pooled, sequences=sequences)


def _emptied(lists: JaggedTensor, empty: Tensor) -> JaggedTensor:
    lengths = lists.lengths()
    kept = torch.repeat_interleave(~empty, lengths)
    return JaggedTensor(lists.values()[kept], lengths=lengths.masked_fill(empty, 0))


def finite_rows(output: Tensor) -> Tensor:
    """Bool: the rows without NaN or infinity."""
    return output.isfinite().flatten(1).all(1) if output.ndim > 1 else output.isfinite()


def explain(
    module: nn.Module, full: Recording, emptied: Recording, names: tuple[str, ...], output: str
) -> str:
    """The message of a refusal. ``full``: every tensor of a run without empty lists; ``emptied``:
    of the same run with empty lists of ``names``; ``output``: what is not finite then."""
    node = first_not_finite(full, emptied)
    where = f"{line_of(node)}: " if node else ""
    instead = _instead(node, module) if node else OTHERWISE
    inputs = ", ".join(repr(name) for name in names)
    lists = f"input {inputs}" if len(names) == 1 else f"inputs {inputs}"
    return (
        f"{where}output {output!r}: expected finite values if the lists of {lists} are empty, "
        f"got NaN or infinity; a server fails such requests; write {instead}"
    )


OUT_OF_RANGE = ("index out of range in self", "Class values must be")
"""In what torch says of an index that is a tensor."""


def failure_remedy(error: Exception) -> str:
    """What to write if the module fails: nn.TransformerEncoder or a maximum because all lists of a
    batch are empty, a norm because it has no running statistics, or an index because dense inputs
    are any numbers."""
    if "to_padded_tensor" in str(error):
        return f"; lists may be empty; write {WITHOUT_NESTED_TENSORS}"
    if "have non-zero size" in str(error):
        return (
            "; without a width a batch of empty lists has width 0; write to_padded_dense(max_ids)"
        )
    if "more than 1 value per channel" in str(error):
        return (
            "; it normalizes by the statistics of the batch; write track_running_stats=True, for "
            "those of the training data"
        )
    if any(part in str(error) for part in OUT_OF_RANGE):
        return (
            "; an index that is computed from dense inputs may be any number; write "
            "index.clamp(0, rows - 1), or index.remainder(rows)"
        )
    return ""


def nested_tensor_remedy(module: nn.Module) -> str:
    """What to write if nn.TransformerEncoder may cut padding to the longest list of a batch."""
    encoders = [each for each in module.modules() if isinstance(each, nn.TransformerEncoder)]
    if not any(each.use_nested_tensor for each in encoders):
        return ""
    return f"; nested tensors cut padding to the batch; write {WITHOUT_NESTED_TENSORS}"


def first_not_finite(full: Recording, emptied: Recording) -> fx.Node | None:
    """The first operation that gives NaN, else infinity, with empty lists alone."""
    for found in (torch.isnan, torch.isinf):
        for node, value in emptied.items():
            before = full.get(node)
            known = before is not None and bool(found(before).any())
            if not known and bool(found(value).any()):
                return node
    return None


def _instead(node: fx.Node, module: nn.Module) -> str:
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        return _instead(node.args[0], module)  # The first item of what attention gives.
    if node.op == "call_module":
        layer = module.get_submodule(str(node.target))
        if isinstance(layer, ATTENTION):
            return ATTEND
        return SOFTMAX if isinstance(layer, nn.Softmax | nn.LogSoftmax) else OTHERWISE
    return INSTEAD.get(target_name(node), OTHERWISE)
