"""Makes the dense program of a package from a module, and compares both."""

import copy
import dataclasses
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx, nn

from embershard.errors import ExportError
from embershard.export.check import check_program
from embershard.export.dense_program import DenseProgram
from embershard.export.embeddings import EMBEDDING_MODULES, EmbeddingModule, lay_out
from embershard.export.module_checks import (
    buffer_values,
    check_buffers,
    check_lookups,
    check_module,
    check_plain_lookups,
    warn_of_tables,
)
from embershard.export.plain_layers import plain_layers
from embershard.export.samples import sample_groups
from embershard.export.scopes import split
from embershard.export.torchscript import compile_program
from embershard.export.trace import run_uncompiled, trace
from embershard.package.manifest import DenseDtype
from embershard.package.samples import SampleRequest
from embershard.package.schema import Schema

ROUNDED_OUTPUTS_MIN = 8
"""Outputs from which on a linear layer is rounded to bfloat16."""


def to_bfloat16(values: Tensor) -> Tensor:
    return values.to(torch.bfloat16).to(torch.float32)


def round_layers(module: nn.Module, graph: fx.Graph) -> tuple[nn.Module, fx.Graph]:
    """Round the linear layers of a dense program to bfloat16.

    linear(x, weight, bias)  ->  rounded(linear(rounded(x), rounded(weight), bias))

    Products of two bfloat16 are exact in float32, so a processor without bfloat16 computes the
    same, only slower. A processor with bfloat16 recognizes the form (dense/torchscript_passes.h of
    the predictor). Layers with fewer than 8 outputs, such as those of scores, stay in float32: they
    cost little, and rounding would make different scores equal. The arguments are not changed.
    """
    rounded = copy.deepcopy(graph)
    holder = _parts(module, graph)
    layers = 0
    for node in list(rounded.nodes):
        if node.op == "call_module" and _is_rounded(holder[str(node.target)]):
            layer = copy.deepcopy(holder[str(node.target)])
            layer.weight = nn.Parameter(to_bfloat16(layer.weight.detach()), requires_grad=False)
            name = node.target = f"bfloat16_layer_{layers}"
            holder[name] = layer
        elif node.target is nn.functional.linear and (weight := _weight(node, holder)) is not None:
            name = f"bfloat16_weight_{layers}"
            holder[name] = nn.Parameter(to_bfloat16(weight.detach()), requires_grad=False)
            with rounded.inserting_before(node):
                node.update_arg(1, rounded.get_attr(name))
        else:
            continue
        layers += 1
        _round_input(rounded, node)
        _round_output(rounded, node)
    if not layers:
        raise ExportError(
            "dense_dtype: expected a model with linear layers of at least "
            f"{ROUNDED_OUTPUTS_MIN} outputs for bfloat16, got none; use fp32"
        )
    return fx.GraphModule(holder, rounded), rounded


def _parts(
    module: nn.Module, graph: fx.Graph, added: Mapping[str, nn.Module] = MappingProxyType({})
) -> dict[str, Any]:
    """The parameters and submodules that ``graph`` names, by path, from ``added`` or ``module``."""
    paths = (str(node.target) for node in graph.nodes if node.op in ("call_module", "get_attr"))
    return {
        path: added[path] if path in added else operator.attrgetter(path)(module) for path in paths
    }


def _is_rounded(module: object) -> bool:
    return type(module) is nn.Linear and module.out_features >= ROUNDED_OUTPUTS_MIN


def _weight(node: fx.Node, holder: dict[str, Any]) -> Tensor | None:
    """The weight of a call of linear() if it is a parameter to round, or None."""
    if len(node.args) < 2 or not isinstance(node.args[1], fx.Node):
        return None
    source = node.args[1]
    weight = holder[str(source.target)] if source.op == "get_attr" else None
    if not isinstance(weight, Tensor) or weight.dtype != torch.float32:
        return None
    return weight if len(weight) >= ROUNDED_OUTPUTS_MIN else None


def _round_input(graph: fx.Graph, node: fx.Node) -> None:
    argument = node.args[0] if node.args else node.kwargs["input"]
    with graph.inserting_before(node):
        rounded = graph.call_function(to_bfloat16, (argument,))
    rounded.stack_trace = node.stack_trace
    if node.args:
        node.update_arg(0, rounded)
    else:
        node.update_kwarg("input", rounded)


def _round_output(graph: fx.Graph, node: fx.Node) -> None:
    with graph.inserting_after(node):
        rounded = graph.call_function(to_bfloat16, (node,))
    rounded.stack_trace = node.stack_trace
    node.replace_all_uses_with(rounded, delete_user_cb=lambda user: user is not rounded)


def build_program(
    module: nn.Module,
    schema: Schema,
    *,
    dtype: DenseDtype = "float32",
    samples: Sequence[SampleRequest] = (),
    seed: int,
) -> DenseProgram:
    """Make the dense program of a module, and compare both on random inputs and on samples, in
    float32. The module is not changed; it is split at its lookups, and the rest is compiled.
    ``dtype`` is that of the operands of linear layers in the result. Raises ExportError if the
    module is not on cpu, cannot be traced, split or compiled, or its outputs differ from those of
    the program; InputError if the id map rejects an id of a sample, or a list is too long."""
    check_module(module)
    with (
        _restored(module),
        run_uncompiled(),
        torch.no_grad(),
        plain_layers(module.eval()),
    ):
        buffers = buffer_values(module)
        traced = trace(module)
        check_buffers(module, buffers)
        modules = _embedding_modules(module, traced)
        check_lookups(modules)
        layout = lay_out(modules, schema)
        scoped = split(traced, schema, layout, modules)
        root = module
        if scoped.transforms:
            parts = _parts(module, scoped.graph, scoped.transforms)
            root = fx.GraphModule(parts, copy.deepcopy(scoped.graph))
        program = DenseProgram(
            script=compile_program(root, scoped.graph),
            graph=scoped.graph,
            schema=schema,
            layout=layout,
            outputs=(),
        )
        outputs, not_finite = check_program(
            module,
            traced,
            program,
            modules,
            scoped.output_scopes,
            samples=sample_groups(samples, schema, layout),
            seed=seed,
        )
        warn_of_tables(layout.tables, program.script)
        exact = dataclasses.replace(program, outputs=outputs, not_finite_line=not_finite)
        if dtype == "float32":
            return exact
        holder, graph = round_layers(root, exact.graph)
        script = compile_program(holder, graph)
        return dataclasses.replace(exact, script=script, graph=graph, float32=exact)


def _embedding_modules(module: nn.Module, traced: fx.Graph) -> dict[str, EmbeddingModule]:
    called = {str(node.target) for node in traced.nodes}
    collections = {
        path: part
        for path, part in module.named_modules()
        if path in called and isinstance(part, EMBEDDING_MODULES)
    }
    check_plain_lookups(module, traced, dense_too=not collections)
    if not collections:
        raise ExportError(
            f"{type(module).__name__}: expected an EmbeddingBagCollection or an "
            "EmbeddingCollection in forward, got none"
        )
    return collections


@contextmanager
def _restored(module: nn.Module) -> Iterator[None]:
    """Restore the mode of each submodule after the block, and remove the constants that tracing
    adds."""
    training = {part: part.training for part in module.modules()}
    attributes = set(vars(module))
    try:
        yield
    finally:
        for part, mode in training.items():
            part.training = mode
        for added in set(vars(module)) - attributes:
            delattr(module, added)
