"""Makes the dense program of a package from a module, and checks it against it."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from embershard.errors import ExportError
from embershard.export.bfloat16 import round_layers
from embershard.export.compiled_modules import run_uncompiled
from embershard.export.dense_program import DenseProgram
from embershard.export.embeddings import EMBEDDING_MODULES, EmbeddingModule, half_tables, lay_out
from embershard.export.scopes import split
from embershard.export.torchscript import compile_program
from embershard.export.tracing import trace
from embershard.export.trials import check_program
from embershard.modules import FeatureProcessedEmbeddingBagCollection
from embershard.package.manifest import DenseDtype
from embershard.package.schema import Schema


def build_program(
    module: nn.Module, schema: Schema, *, dtype: DenseDtype = "float32", seed: int
) -> DenseProgram:
    """Split a module ``forward(dense, sparse)`` at its lookups, compile the rest, and check on
    random inputs that they agree. The module is left as it was. The program that is compared takes
    float32; ``dtype`` is what linear layers of the returned one take.

    Raises:
        ExportError: the module does not lie on cpu, cannot be traced, split or compiled, or the
            program's outputs differ from the module's.
    """
    _check_device(module)
    _check_modules(module)
    with _left_as_it_was(module), run_uncompiled(), torch.no_grad():
        module.eval()
        traced = trace(module)
        modules = _embedding_modules(module, {str(n.target) for n in traced.nodes})
        layout = lay_out(modules, schema)
        scoped = split(traced, schema, layout, modules)
        program = DenseProgram(
            script=compile_program(module, scoped.graph),
            graph=scoped.graph,
            schema=schema,
            layout=layout,
            outputs=(),
        )
        outputs = check_program(module, traced, program, modules, scoped.output_scopes, seed=seed)
        exact = dataclasses.replace(program, outputs=outputs)
        return exact if dtype == "float32" else _in_bfloat16(exact, module)


def _in_bfloat16(exact: DenseProgram, module: nn.Module) -> DenseProgram:
    holder, graph = round_layers(module, exact.graph)
    script = compile_program(holder, graph)
    return dataclasses.replace(exact, script=script, graph=graph, float32=exact)


def _embedding_modules(module: nn.Module, called: set[str]) -> dict[str, EmbeddingModule]:
    found = {
        path: each
        for path, each in module.named_modules()
        if path in called and isinstance(each, EMBEDDING_MODULES)
    }
    if not found:
        raise ExportError(
            f"{type(module).__name__}: expected an EmbeddingBagCollection or an "
            "EmbeddingCollection in forward, got none"
        )
    return found


def _check_device(module: nn.Module) -> None:
    for name, tensor in module.state_dict().items():
        if isinstance(tensor, Tensor) and tensor.device.type != "cpu":
            raise ExportError(
                f"{type(module).__name__}: {name}: expected a module on cpu, "
                f"got a tensor on {tensor.device}"
            )


def _check_modules(module: nn.Module) -> None:
    for path, each in module.named_modules():
        if isinstance(each, nn.DataParallel | nn.parallel.DistributedDataParallel):
            kind = type(each).__name__
            raise ExportError(
                f"{path or 'module'}: expected a module without nn.{kind}, got one in it; "
                f"write {path or 'module'}.module"
            )
        if isinstance(each, FeatureProcessedEmbeddingBagCollection):
            raise ExportError(
                f"{path or 'module'}: expected embedding collections without feature processors, "
                "got a FeatureProcessedEmbeddingBagCollection: packages hold no position weights"
            )
    halved = [f"{path}.{name}".lstrip(".") for path, name in half_tables(module)]
    for name, parameter in module.named_parameters():
        if name not in halved and parameter.dtype in (torch.bfloat16, torch.float16):
            raise ExportError(
                f"{name}: expected float32 parameters, got {parameter.dtype}; write module.float() "
                "before the export, and export_model(..., dense_dtype='bf16') for bfloat16 layers"
            )


@contextmanager
def _left_as_it_was(module: nn.Module) -> Iterator[None]:
    """Put back the mode of each submodule, and take away what tracing adds (its constants)."""
    training = {each: each.training for each in module.modules()}
    attributes = set(vars(module))
    try:
        yield
    finally:
        for each, mode in training.items():
            each.training = mode
        for added in set(vars(module)) - attributes:
            delattr(module, added)
