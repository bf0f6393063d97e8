"""From a module to a graph whose leaves are its embedding modules."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch
from torch import fx, nn

import embershard.jagged
from embershard.errors import ExportError
from embershard.export.embeddings import EMBEDDING_MODULES
from embershard.modules import to_examples

__all__ = ["author_line", "line_of", "trace"]

# Frames of these are not the author's.
LIBRARIES = (
    str(Path(torch.__file__).parent),
    str(Path(__file__).parent),
    str(Path(embershard.jagged.__file__).parent),
    to_examples.__code__.co_filename,
    "<",
)


class _Tracer(fx.Tracer):
    record_stack_traces = True

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, EMBEDDING_MODULES) or super().is_leaf_module(m, module_qualified_name)


def trace(module: nn.Module) -> fx.Graph:
    """Trace ``forward(dense, sparse)``.

    Returns:
        The graph; its first placeholder is dense, its second sparse.

    Raises:
        ExportError: torch.fx cannot follow the module (the line is named), or forward does not
            take two arguments.
    """
    name = type(module).__name__
    try:
        graph = _Tracer().trace(module)
    except Exception as error:  # The author's code may raise anything.
        raise ExportError(f"{author_line(error)}{name}: cannot be traced: {error}") from error
    arguments = [node.target for node in graph.nodes if node.op == "placeholder"]
    if len(arguments) != 2:
        taken = ", ".join(str(argument) for argument in arguments)
        raise ExportError(f"{name}: expected forward(dense, sparse), got forward({taken})")
    return graph


def line_of(node: fx.Node) -> str:
    """Where the author wrote a node: ``file:line: code``, or the node where that is unknown."""
    lines = [line.strip() for line in (node.stack_trace or "").splitlines() if line.strip()]
    for place, line in reversed(list(enumerate(lines))):
        if not line.startswith('File "'):
            continue
        file, number = line.split('"')[1], line.split("line ")[1].split(",")[0]
        if not file.startswith(LIBRARIES):
            code = lines[place + 1] if place + 1 < len(lines) else ""
            return f"{file}:{number}: {code}"
    return node.format_node() or node.name


def author_line(error: BaseException) -> str:
    """Where in the author's code an error came up, ``file:line: code: ``, or nothing."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(LIBRARIES):
            return f"{frame.filename}:{frame.lineno}: {frame.line}: "
    return ""
