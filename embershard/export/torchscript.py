"""The one place that calls torch.jit: dense programs to TorchScript, run, and on disk; and what it
refuses, in the words of the author's forward."""

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
from embershard.export.tracing import line_of, target_name

FLOATS: Final = (float, float | None, "float", "float | None")
"""Annotations of arguments that are floats."""


def rewrite_for_torchscript(graph: fx.Graph, root: nn.Module) -> None:
    """Give operations the form that TorchScript compiles, in place; nodes keep their names and what
    is known of their lines. ``root`` holds the submodules that ``graph`` names."""
    for node in list(graph.nodes):
        node.kwargs = {name: given for name, given in node.kwargs.items() if name != "out"}
        if node.op == "call_function":
            _give_floats(node)
        if node.op == "call_method" and node.target == "norm":
            node.op, node.target = "call_function", torch.norm
        elif _gives_attention(node, root):
            items = [user for user in node.users if user.target is operator.getitem]
            for weights in [item for item in items if item.args[1] == 1]:
                with graph.inserting_after(weights):
                    given = graph.call_function(_given, (weights,))
                given.stack_trace = weights.stack_trace
                weights.replace_all_uses_with(given, lambda user, given=given: user is not given)


def _give_floats(node: fx.Node) -> None:
    """``normalize(x, p=2)``: TorchScript takes no whole number for a float."""
    function: Any = node.target
    try:
        given = inspect.signature(function).bind(*node.args, **node.kwargs)
    except (TypeError, ValueError):  # A builtin, whose operator takes either.
        return
    for name, value in given.arguments.items():
        if type(value) is int and given.signature.parameters[name].annotation in FLOATS:
            given.arguments[name] = float(value)
    node.args, node.kwargs = given.args, given.kwargs


def _given(weights: Tensor | None) -> Tensor:
    """Attention weights, which TorchScript takes for a tensor or None."""
    assert weights is not None
    return weights


def _gives_attention(node: fx.Node, root: nn.Module) -> bool:
    if node.op == "call_module":
        return isinstance(root.get_submodule(str(node.target)), nn.MultiheadAttention)
    return node.target is nn.functional.multi_head_attention_forward


VERSIONS = ("version", ".data/version")
"""Where an archive holds the version of its operators: newer ones in the folder."""

WRITERS_OWN = (*VERSIONS, ".data/serialization_id")
"""Records that every writer of archives adds by itself."""

CALLS_PYTHON = "it calls Python"


def compile_program(root: nn.Module, graph: fx.Graph) -> Any:
    """TorchScript of a dense program, (request_inputs, example_inputs, request_of_example) to a
    dict from output name to tensor. ``root`` holds the parameters and submodules that ``graph``
    names. `ExportError`: TorchScript cannot express an operation; it is named."""
    module = fx.GraphModule(root, graph, class_name="DenseProgram").eval()
    module.graph.eliminate_dead_code()
    rewrite_for_torchscript(module.graph, module)
    try:
        return _script(root, module.graph)
    except Exception as error:  # It raises whatever its compiler does.
        raise refusal(error, module, lambda part: _compiles(root, part)) from error


def _script(root: nn.Module, graph: fx.Graph) -> Any:
    module = fx.GraphModule(root, graph, class_name="DenseProgram").eval()
    with _known_warnings_ignored():
        script = torch.jit.script(module)
    found: Any = script.inlined_graph
    if found.findNode("prim::PythonOp", True) is not None:  # It compiles, but no file can hold it.
        raise ExportError(CALLS_PYTHON)
    return script


def _compiles(root: nn.Module, graph: fx.Graph) -> bool:
    try:
        _script(root, graph)
    except Exception:  # Whatever its compiler raises.
        return False
    return True


def run_program(
    program: Any,
    graph: fx.Graph,
    request_inputs: list[Tensor],
    example_inputs: list[Tensor],
    request_of_example: Tensor,
) -> dict[str, Tensor]:
    """Run a program of `compile_program`."""
    try:
        with torch.no_grad():
            outputs: dict[str, Tensor] = program(request_inputs, example_inputs, request_of_example)
    except Exception as error:  # What an operation raises, wrapped by TorchScript.
        requests, examples = len(request_inputs[0]), len(example_inputs[0])
        reason = str(error).strip().rpartition("\n")[2]
        raise ExportError(
            f"{_author_line(error, graph)}cannot be exported: fails with {requests} requests and "
            f"{examples} examples, where sizes of both may mix: {reason}"
        ) from error
    return outputs


def encode_program(program: Any) -> bytes:
    """Returns the file of a program of `compile_program`. The bytes say nothing of the machine, the
    folder or the time: the same module, exported first thing in another process, gives the same
    ones."""
    with _known_warnings_ignored():
        # As the server does once more when it loads it. TorchScript writes what a class of modules
        # holds in the order of a set, which differs between processes; frozen, there are none.
        try:
            frozen = torch.jit.freeze(program.eval(), optimize_numerics=False)
            # No file: torch's own writer ends the process if the disk is full.
            return _without_sources(frozen.save_to_buffer())
        except RuntimeError as error:
            raise ExportError(f"the dense program cannot be saved: {error}") from error


def _without_sources(archive: bytes) -> bytes:
    """Drops the records that say which line of which file each operation came from."""
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
    """Where the author wrote the operation that TorchScript points at, and ": "."""
    # It shows the generated code, "    name = operation(...)", and marks it in the next line.
    marked = re.search(r"^\s*(\w+)\s*[=:].*\n.*~+ <--- HERE", str(error), re.MULTILINE)
    found = [node for node in graph.nodes if marked and node.name == marked[1]]
    return f"{line_of(found[0])}: " if found else ""


@contextmanager
def _known_warnings_ignored() -> Iterator[None]:
    # TorchScript is deprecated: torch 2.13 tells programmers so, torch 2.14 every user. We keep it
    # because a C++ server can load it without a compiler.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*torch\.jit")
        # It reads the source of fx.GraphModule, whose annotations it does not need here.
        warnings.filterwarnings("ignore", message=r".*instance-level annotations on empty")
        # torch's own nn.Transformer names its norm a constant.
        warnings.filterwarnings("ignore", message=r".*was found in ScriptModule constants")
        yield


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
    return target_name(node)


def _reason(error: Exception, node: fx.Node) -> str:
    """One line of what is often a page, and the line of a layer's forward that it points at."""
    text = str(error).strip()
    if text.startswith("Arguments for call are not valid"):
        return f"TorchScript has no {node._pretty_print_target(node.target)} of these arguments"
    if text.startswith("Python builtin"):  # torch 2.14 refuses it, older versions compile it.
        return CALLS_PYTHON
    lines = [line.strip().rstrip(".:") for line in text.splitlines()]
    if len(lines) > 1 and " -> " in lines[0]:  # A signature; the line below says what is wrong.
        del lines[0]
    reason = lines[0] if text else type(error).__name__
    marked = re.search(r"^ *(.*)\n.*~+ <--- HERE", text, re.MULTILINE)
    return f"{reason} (at {marked[1]})" if marked and node.op == "call_module" else reason
