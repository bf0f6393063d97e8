"""What TorchScript refuses, in the words of the author's forward: the line, why, what to write."""

from __future__ import annotations

import re
from collections.abc import Callable

from torch import fx, nn

from embershard.errors import ExportError
from embershard.export.tracing import line_of

INSTEAD = {
    "CrossMapLRN2d": "nn.LocalResponseNorm, which computes the same",
    "numpy": "torch operations in place of numpy",
    "tolist": "torch operations in place of lists of numbers",
    "item": "torch operations in place of numbers",
}
"""By layer, function or method: what to write in its place."""

OTHERWISE = "other torch operations, or a layer whose forward torch.jit.script accepts"


def refusal(
    error: Exception, module: fx.GraphModule, compiles: Callable[[fx.Graph], bool]
) -> ExportError:
    """The error to raise for a module that TorchScript refuses with ``error``. ``compiles``:
    whether it accepts the first part of the module's graph."""
    node = _first_refused(module.graph, compiles)
    return ExportError(
        f"{line_of(node)}: cannot be compiled to TorchScript: {_reason(error, node)}; "
        f"write {INSTEAD.get(_name(node, module), OTHERWISE)}"
    )


def _first_refused(graph: fx.Graph, compiles: Callable[[fx.Graph], bool]) -> fx.Node:
    """The node without which the graph before it compiles: found by halving."""
    nodes: list[fx.Node] = list(graph.nodes)
    accepted, refused = 0, len(nodes) - 1
    while accepted + 1 < refused:
        middle = (accepted + refused) // 2
        if compiles(_first_part(graph, middle)):
            accepted = middle
        else:
            refused = middle
    return nodes[refused]


def _first_part(graph: fx.Graph, last: int) -> fx.Graph:
    """Nodes 0 to ``last``; its output is none of them."""
    part = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes)[: last + 1]:
        copies[node] = part.node_copy(node, lambda source: copies[source])
    part.output(None)
    return part


def _name(node: fx.Node, root: nn.Module) -> str:
    if node.op == "call_module":
        return type(root.get_submodule(str(node.target))).__name__
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _reason(error: Exception, node: fx.Node) -> str:
    """One line of what is often a page, and the line of a layer's forward that it points at."""
    text = str(error).strip()
    if text.startswith("Arguments for call are not valid"):
        return f"TorchScript has no {node._pretty_print_target(node.target)} of these arguments"
    lines = [line.strip().rstrip(".:") for line in text.splitlines()]
    if len(lines) > 1 and " -> " in lines[0]:  # A signature; the line below says what is wrong.
        del lines[0]
    reason = lines[0] if text else type(error).__name__
    marked = re.search(r"^ *(.*)\n.*~+ <--- HERE", text, re.MULTILINE)
    return f"{reason} (at {marked[1]})" if marked and node.op == "call_module" else reason
