"""Makes the dense program of a package from a module, and checks it against it."""

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
from embershard.export.tracing import run_uncompiled, trace
from embershard.export.trials import check_program
from embershard.package.manifest import DenseDtype
from embershard.package.samples import SampleRequest
from embershard.package.schema import Schema

FEWEST_OUTPUTS = 8
"""Of a layer that is rounded."""


def to_bfloat16(values: Tensor) -> Tensor:
    """The nearest bfloat16 of float32 values, as float32."""
    return values.to(torch.bfloat16).to(torch.float32)


def round_layers(module: nn.Module, graph: fx.Graph) -> tuple[nn.Module, fx.Graph]:
    """A dense program whose linear layers take bfloat16: what holds the parameters and submodules
    of ``module``, some of them rounded, and the graph that names them. ``module`` and ``graph``, of
    a program in float32, are left as they were.

    linear(x, weight, bias)  ->  rounded(linear(rounded(x), rounded(weight), bias))

    Products of two bfloat16 are exact in float32, so that a processor without bfloat16 computes the
    same, only slower. One with it recognizes the form (dense/torchscript_passes.h of the
    predictor). Layers of few outputs, such as those that give scores, stay float32: they cost
    little, and rounded scores would be equal where they were not.
    """
    rounded = copy.deepcopy(graph)
    holder = _parts(module, graph)
    layers = 0
    for node in list(rounded.nodes):
        if node.op == "call_module" and _takes_part(holder[str(node.target)]):
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
            f"{FEWEST_OUTPUTS} outputs for bfloat16, got none; use fp32"
        )
    return fx.GraphModule(holder, rounded), rounded


def _parts(
    module: nn.Module, graph: fx.Graph, added: Mapping[str, nn.Module] = MappingProxyType({})
) -> dict[str, Any]:
    """The parameters and submodules that ``graph`` names, by path: of ``added``, otherwise of
    ``module``."""
    paths = (str(node.target) for node in graph.nodes if node.op in ("call_module", "get_attr"))
    return {
        path: added[path] if path in added else operator.attrgetter(path)(module) for path in paths
    }


def _takes_part(module: object) -> bool:
    return type(module) is nn.Linear and module.out_features >= FEWEST_OUTPUTS


def _weight(node: fx.Node, holder: dict[str, Any]) -> Tensor | None:
    """Of a call of linear(): a parameter to round, where it is one."""
    if len(node.args) < 2 or not isinstance(node.args[1], fx.Node):
        return None
    source = node.args[1]
    found = holder[str(source.target)] if source.op == "get_attr" else None
    if not isinstance(found, Tensor) or found.dtype != torch.float32:
        return None
    return found if len(found) >= FEWEST_OUTPUTS else None


def _round_input(graph: fx.Graph, node: fx.Node) -> None:
    given = node.args[0] if node.args else node.kwargs["input"]
    with graph.inserting_before(node):
        taken = graph.call_function(to_bfloat16, (given,))
    taken.stack_trace = node.stack_trace
    if node.args:
        node.update_arg(0, taken)
    else:
        node.update_kwarg("input", taken)


def _round_output(graph: fx.Graph, node: fx.Node) -> None:
    with graph.inserting_after(node):
        given = graph.call_function(to_bfloat16, (node,))
    given.stack_trace = node.stack_trace
    node.replace_all_uses_with(given, delete_user_cb=lambda user: user is not given)


def build_program(
    module: nn.Module,
    schema: Schema,
    *,
    dtype: DenseDtype = "float32",
    samples: Sequence[SampleRequest] = (),
    seed: int,
) -> DenseProgram:
    """Split a module ``forward(dense, sparse)`` at its lookups, compile the rest, and check on
    random inputs and on ``samples`` that they agree. The module is left as it was. The program that
    is compared takes float32; ``dtype`` is what linear layers of the returned one take.

    Raises:
        ExportError: the module does not lie on cpu, cannot be traced, split or compiled, or the
            program's outputs differ from the module's.
        InputError: an id of a sample that its map rejects, or a list that is too long.
    """
    check_module(module)
    with (
        _left_as_it_was(module),
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
    found = {
        path: each
        for path, each in module.named_modules()
        if path in called and isinstance(each, EMBEDDING_MODULES)
    }
    check_plain_lookups(module, traced, dense_too=not found)
    if not found:
        raise ExportError(
            f"{type(module).__name__}: expected an EmbeddingBagCollection or an "
            "EmbeddingCollection in forward, got none"
        )
    return found


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
