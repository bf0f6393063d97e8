"""From a module to a graph whose leaves are its embedding modules."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch
from torch import fx, nn

from embershard.errors import ExportError
from embershard.export.embeddings import EMBEDDING_MODULES

__all__ = ["line_of", "trace"]

# Frames of these are not the author's.
LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


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
    except Exception as error:
        raise ExportError(f"{name}: {_author_line(error)}cannot be traced: {error}") from error
    arguments = [node.target for node in graph.nodes if node.op == "placeholder"]
    if len(arguments) != 2:
        raise ExportError(f"{name}: expected forward(dense, sparse), got forward{tuple(arguments)}")
    return graph


def line_of(node: fx.Node) -> str:
    """Where the author wrote a node: ``file:line: code``, or the node where that is unknown."""
    trace = node.stack_trace or ""
    frames = [line.strip() for line in trace.splitlines() if line.strip()]
    for place, line in reversed(list(enumerate(frames))):
        if line.startswith("File ") and not any(library in line for library in LIBRARIES):
            file, number = line.split('"')[1], line.split("line ")[1].split(",")[0]
            code = frames[place + 1] if place + 1 < len(frames) else ""
            return f"{file}:{number}: {code}"
    return node.format_node() or node.name


def _author_line(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if not frame.filename.startswith((*LIBRARIES, "<")):
            return f"{frame.filename}:{frame.lineno}: {frame.line}: "
    return ""
