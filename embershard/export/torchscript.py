"""Compiles, runs and encodes dense programs. No other module calls torch.jit. Errors name the
author's line and the code to write instead."""

import inspect
import io
import operator
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, fx, nn

from embershard.errors import ExportError
from embershard.export.trace import line_of, target_name

FLOATS: Final = (float, float | None, "float", "float | None")


def rewrite_for_torchscript(graph: fx.Graph, root: nn.Module) -> None:
    """Rewrite operations in place so that TorchScript compiles them. Names and lines stay."""
    for node in list(graph.nodes):
        node.kwargs = {name: value for name, value in node.kwargs.items() if name != "out"}
        if node.op == "call_function":
            _convert_to_floats(node)
        if node.op == "call_method" and node.target == "norm":
            node.op, node.target = "call_function", torch.norm
        elif _is_attention(node, root):
            items = [user for user in node.users if user.target is operator.getitem]
            for weights in [item for item in items if item.args[1] == 1]:
                with graph.inserting_after(weights):
                    checked = graph.call_function(_not_none, (weights,))
                checked.stack_trace = weights.stack_trace
                weights.replace_all_uses_with(
                    checked, lambda user, checked=checked: user is not checked
                )


def _convert_to_floats(node: fx.Node) -> None:
    """Convert int arguments of float parameters (``p=2``), which TorchScript refuses."""
    function: Any = node.target
    try:
        bound = inspect.signature(function).bind(*node.args, **node.kwargs)
    except (TypeError, ValueError):  # A builtin function, which accepts both.
        return
    for name, value in bound.arguments.items():
        if type(value) is int and bound.signature.parameters[name].annotation in FLOATS:
            bound.arguments[name] = float(value)
    node.args, node.kwargs = bound.args, bound.kwargs


def _not_none(weights: Tensor | None) -> Tensor:
    """Tells TorchScript that attention weights are a tensor. Their type includes None."""
    assert weights is not None
    return weights


def _is_attention(node: fx.Node, root: nn.Module) -> bool:
    if node.op == "call_module":
        return isinstance(root.get_submodule(str(node.target)), nn.MultiheadAttention)
    return node.target is nn.functional.multi_head_attention_forward


VERSIONS = ("version", ".data/version")
"""Records with the version of an archive's operators. Newer archives have the second one."""

WRITERS_OWN = (*VERSIONS, ".data/serialization_id")
CALLS_PYTHON = "it calls Python"


def compile_program(root: nn.Module, graph: fx.Graph) -> Any:
    """Compile a dense program to TorchScript: a function of request_inputs, example_inputs and
    request_of_example that returns tensors by output name. Raises ExportError with the operation at
    fault."""
    module = fx.GraphModule(root, graph, class_name="DenseProgram").eval()
    module.graph.eliminate_dead_code()
    rewrite_for_torchscript(module.graph, module)
    try:
        return _script(root, module.graph)
    except Exception as error:  # The compiler raises many kinds of errors.
        raise refusal(error, module, lambda part: _compiles(root, part)) from error


def _script(root: nn.Module, graph: fx.Graph) -> Any:
    module = fx.GraphModule(root, graph, class_name="DenseProgram").eval()
    with _known_warnings_ignored():
        script = torch.jit.script(module)
    compiled: Any = script.inlined_graph
    # Calls of Python compile, but cannot be saved.
    if compiled.findNode("prim::PythonOp", True) is not None:
        raise ExportError(CALLS_PYTHON)
    return script


def _compiles(root: nn.Module, graph: fx.Graph) -> bool:
    try:
        _script(root, graph)
    except Exception:  # The compiler raises many kinds of errors.
        return False
    return True


def run_program(
    program: Any,
    graph: fx.Graph,
    request_inputs: list[Tensor],
    example_inputs: list[Tensor],
    request_of_example: Tensor,
) -> dict[str, Tensor]:
    try:
        with torch.no_grad():
            outputs: dict[str, Tensor] = program(request_inputs, example_inputs, request_of_example)
    except Exception as error:  # An operation's error, wrapped by TorchScript.
        requests, examples = len(request_inputs[0]), len(example_inputs[0])
        reason = str(error).strip().rpartition("\n")[2]
        raise ExportError(
            f"{_author_line(error, graph)}cannot be exported: it fails with {requests} requests "
            f"and {examples} examples, perhaps since it mixes both sizes: {reason}"
        ) from error
    return outputs


def encode_program(program: Any) -> bytes:
    """The bytes of a program's file. They do not depend on machine, folder or time: the first
    export of a module in any process has the same bytes."""
    with _known_warnings_ignored():
        # TorchScript writes the attributes of modules in the order of a set, which differs between
        # processes. A frozen program has no attributes.
        try:
            frozen = torch.jit.freeze(program.eval(), optimize_numerics=False)
            # Into memory, since torch's writer of files ends the process if the disk is full.
            return _without_sources(frozen.save_to_buffer())
        except RuntimeError as error:
            raise ExportError(
                f"expected a dense program that TorchScript can save, got {error}"
            ) from error


def _without_sources(archive: bytes) -> bytes:
    """Remove the records with the source lines of operations."""
    reader = torch._C.PyTorchFileReader(io.BytesIO(archive))
    stripped = io.BytesIO()
    writer = torch._C.PyTorchFileWriter(stripped)
    (version,) = set(VERSIONS) & set(reader.get_all_records())
    writer.set_min_version(int(reader.get_record(version)))
    for name in reader.get_all_records():
        if not name.endswith(".debug_pkl") and name not in WRITERS_OWN:
            record = reader.get_record(name)
            writer.write_record(name, record, len(record))
    writer.write_end_of_file()
    return stripped.getvalue()


def _author_line(error: Exception, graph: fx.Graph) -> str:
    """The line of the model's source that TorchScript's message is about, and ": "."""
    # The message has the generated code, "    name = operation(...)", and a mark in the next line.
    marked = re.search(r"^\s*(\w+)\s*[=:].*\n.*~+ <--- HERE", str(error), re.MULTILINE)
    nodes = [node for node in graph.nodes if marked and node.name == marked[1]]
    return f"{line_of(nodes[0])}: " if nodes else ""


@contextmanager
def _known_warnings_ignored() -> Iterator[None]:
    with warnings.catch_warnings():
        # TorchScript is deprecated. We use it, since a C++ server can load it without a compiler.
        warnings.filterwarnings("ignore", message=r".*torch\.jit")
        # The annotations of fx.GraphModule have no effect here.
        warnings.filterwarnings("ignore", message=r".*instance-level annotations on empty")
        # torch's nn.Transformer causes this by declaring its norm a constant.
        warnings.filterwarnings("ignore", message=r".*was found in ScriptModule constants")
        yield


INSTEAD = {
    "CrossMapLRN2d": "nn.LocalResponseNorm, which computes the same",
    "numpy": "torch operations in place of numpy",
    "tolist": "torch operations in place of lists of numbers",
    "item": "torch operations in place of numbers",
}
OTHERWISE = "other torch operations, or a layer whose forward torch.jit.script accepts"


def refusal(
    error: Exception, module: fx.GraphModule, compiles: Callable[[fx.Graph], bool]
) -> ExportError:
    """The error for a module that TorchScript refuses with ``error``."""
    node = _first_refused(module.graph, compiles)
    return ExportError(
        f"{line_of(node)}: cannot be compiled to TorchScript: {_reason(error, node)}; "
        f"write {INSTEAD.get(_name(node, module), OTHERWISE)}"
    )


def _first_refused(graph: fx.Graph, compiles: Callable[[fx.Graph], bool]) -> fx.Node:
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
    """A graph of the nodes 0 to ``last``, without an output."""
    part = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes)[: last + 1]:
        copies[node] = part.node_copy(node, lambda source: copies[source])
    part.output(None)
    return part


def _name(node: fx.Node, root: nn.Module) -> str:
    if node.op == "call_module":
        return type(root.get_submodule(str(node.target))).__name__
    return target_name(node)


def _reason(error: Exception, node: fx.Node) -> str:
    """One line of a long message, and the marked line if it is in a layer's forward."""
    text = str(error).strip()
    if text.startswith("Arguments for call are not valid"):
        name = node._pretty_print_target(node.target)
        return f"TorchScript has no {name} for arguments of these types"
    if text.startswith("Python builtin"):  # torch 2.14 refuses what older versions compile.
        return CALLS_PYTHON
    lines = [line.strip().rstrip(".:") for line in text.splitlines()]
    if len(lines) > 1 and " -> " in lines[0]:  # The reason follows a line with the signature.
        del lines[0]
    reason = lines[0] if text else type(error).__name__
    marked = re.search(r"^ *(.*)\n.*~+ <--- HERE", text, re.MULTILINE)
    return f"{reason} (at {marked[1]})" if marked and node.op == "call_module" else reason
