"""Modules that torch.compile made: export takes what they were made from."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

# Nothing is compiled before it is imported, which takes seconds.
COMPILER = "torch._dynamo"


def uncompiled(module: nn.Module) -> nn.Module:
    """What ``torch.compile(module)`` was made from; any other module itself."""
    if COMPILER in sys.modules and isinstance(
        module, sys.modules[COMPILER].eval_frame.OptimizedModule
    ):
        original: nn.Module = module._orig_mod
        return original
    return module


def uncompiled_name(name: str) -> str:
    """Of a weight in the state dict of a compiled module: its name in what that was made from."""
    return name.replace("_orig_mod.", "")


@contextmanager
def run_uncompiled() -> Iterator[None]:
    """Run modules and functions that torch.compile made, at any depth, as they were before."""
    if COMPILER not in sys.modules:
        yield
        return
    traceable = sys.modules[COMPILER].config.patch(error_on_nested_fx_trace=False)
    with torch.compiler.set_stance("force_eager"), traceable:
        yield
