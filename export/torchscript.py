"""The one place that calls torch.jit: dense programs to TorchScript and back."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from embershard.errors import ExportError

__all__ = ["compile_program", "save_program"]


def compile_program(root: nn.Module, graph: fx.Graph) -> Any:
    """TorchScript of a dense program.

    Args:
        root: holds the parameters and submodules that ``graph`` names.
        graph: of (request_inputs, example_inputs, request_of_example).

    Returns:
        A script module; ``forward(list of tensors, list of tensors, int64 [B])`` gives a dict
        from output name to tensor.

    Raises:
        ExportError: TorchScript cannot express an operation; it is named.
    """
    module = fx.GraphModule(root, graph, class_name="DenseProgram").eval()
    module.graph.eliminate_dead_code()
    module.recompile()
    try:
        with _known_warnings_ignored():
            return torch.jit.script(module)
    except Exception as error:
        raise ExportError(f"the dense program does not compile to TorchScript: {error}") from error


def save_program(program: Any, path: Path) -> None:
    """Write a program of `compile_program` as one file."""
    with _known_warnings_ignored():
        program.save(str(path))


@contextmanager
def _known_warnings_ignored() -> Iterator[None]:
    # torch 2.13 warns that TorchScript will not be developed further. It is what a C++ host
    # without a compiler loads.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*torch\.jit", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message=r".*torch\.jit", category=FutureWarning)
        # It reads the source of fx.GraphModule, whose annotations it does not need here.
        warnings.filterwarnings("ignore", message=r".*instance-level annotations on empty")
        yield
