"""Traces a module to a graph whose leaves are its embedding modules."""

import ast
import inspect
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import fx, nn

import embershard.jagged
from embershard.errors import ExportError
from embershard.export.embeddings import EMBEDDING_MODULES
from embershard.export.item_assignment import item_assigned
from embershard.modules import to_examples

COMPILER = "torch._dynamo"
"""Module of torch.compile. It takes seconds to import, so we only use it if it is loaded."""


def uncompiled(module: nn.Module) -> nn.Module:
    """The original of a module of torch.compile, or the module itself."""
    if COMPILER in sys.modules and isinstance(
        module, sys.modules[COMPILER].eval_frame.OptimizedModule
    ):
        original: nn.Module = module._orig_mod
        return original
    return module


def uncompiled_name(name: str) -> str:
    """The name of a compiled module's weight in the original module."""
    return name.replace("_orig_mod.", "")


@contextmanager
def run_uncompiled() -> Iterator[None]:
    """Run the originals of all compiled modules and functions during the block."""
    if COMPILER not in sys.modules:
        yield
        return
    traceable = sys.modules[COMPILER].config.patch(error_on_nested_fx_trace=False)
    with torch.compiler.set_stance("force_eager"), traceable:
        yield


def passing_answer(frame: FrameType) -> bool | None:
    """The truth of a traced value that lets the author's check at ``frame`` pass. Checks are assert
    statements, and if statements that only raise an error. Tracing skips them, since values are
    unknown. Returns None if the line is no check, or only a part of its test is negated."""
    checks = [
        check
        for check in _checks(frame.f_code.co_filename)
        if check.first_line <= frame.f_lineno <= check.last_line
    ]
    if not checks:
        return None
    return min(checks, key=lambda check: check.last_line - check.first_line).answer


class _Check:
    def __init__(self, statement: ast.Assert | ast.If) -> None:
        self.first_line = statement.lineno
        self.last_line = statement.test.end_lineno or statement.test.lineno
        holds = isinstance(statement, ast.Assert)
        negations = sum(map(_negates, ast.walk(statement.test)))
        self.answer: bool | None = holds
        if negations:
            self.answer = not holds if negations == 1 and _negates(statement.test) else None


def _negates(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return any(isinstance(operator, ast.NotIn) for operator in node.ops)
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


@cache
def _checks(file: str) -> tuple[_Check, ...]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ()
    return tuple(
        _Check(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and _only_raises(node))
    )


def _only_raises(node: ast.If) -> bool:
    return not node.orelse and len(node.body) == 1 and isinstance(node.body[0], ast.Raise)


LIBRARIES = (
    str(Path(torch.__file__).parent),
    str(Path(__file__).parent),
    str(Path(embershard.jagged.__file__).parent),
    to_examples.__code__.co_filename,
    "<",
)
"""Beginnings of file names that are not the author's code. "<" is code without a file."""


REFUSED_LAYERS = (nn.SyncBatchNorm, nn.MaxUnpool1d, nn.MaxUnpool2d, nn.MaxUnpool3d)
"""Layers that TorchScript refuses. It compiles their operations, so tracing enters them."""


INSTEAD = {
    "cannot be iterated": "a fixed number of names (a, b = x.shape), indices (x[:, 0]), a fixed "
    "number of steps (for i in range(5): x[:, i]) or keys (for key in ('user', 'item'): "
    "pooled[key])",
    "control flow": "torch.where(condition, a, b) for conditions on values; evaluate conditions on "
    "shapes when the module is built",
    "'len' is not supported": "x.shape[0] in place of len(x)",
    "interpreted as an integer": "operations on the whole batch in place of a loop over its rows; "
    "set other numbers when the module is built",
    "int() argument must be": "sizes without int(): x.shape[0]; tensors in place of numbers: "
    "x[:, 0], not int(x[0, 0])",
    "torch.autocast": "export_model(..., dense_dtype='bf16') in place of torch.autocast",
    "expand() takes": "a buffer (self.register_buffer) in place of a tensor made in forward",
    "instead found type 'TracedValue'": "the function without torch.jit.script, or a layer of it",
    "real number, not 'TracedValue'": "tensors in place of numbers: x[:, 0], not float(x[0, 0])",
    "<class 'numpy.": "float(value) in place of a number of numpy",
    "__array_struct__": "math or torch in place of numpy, float(value) for a number",
    "__cuda_array_interface__": "the layer on the padded sequence in place of "
    "pack_padded_sequence, and take output[torch.arange(output.shape[0]), lengths - 1]",
}


class TracedValue(fx.Proxy):
    def __setitem__(self, index: Any, value: Any) -> None:
        arguments = (self, index, value)
        self.node = self.tracer.create_proxy("call_function", item_assigned, arguments, {}).node


class _Tracer(fx.Tracer):
    record_stack_traces = True

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, REFUSED_LAYERS):
            return False
        if isinstance(m, (*EMBEDDING_MODULES, torch.jit.ScriptModule)):
            return True
        return super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        plain = uncompiled(m)
        if plain is not m:
            return plain(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return TracedValue(node, self)

    def to_bool(self, obj: fx.Proxy) -> bool:
        caller = sys._getframe(1)
        while caller.f_code.co_filename == fx.proxy.__file__ and caller.f_back is not None:
            caller = caller.f_back
        answer = passing_answer(caller)
        return super().to_bool(obj) if answer is None else answer


def trace(module: nn.Module) -> fx.Graph:
    """Trace ``forward(dense, sparse)``. The graph's placeholders are dense and sparse."""
    name = type(module).__name__
    _check_arguments(module)
    try:
        graph = _trace(module)
    except Exception as error:  # The author's code may raise anything.
        sentence = re.split(r"\n|\. ", str(error).strip())[0] or type(error).__name__
        reason = sentence + _remedy(error)
        raise ExportError(f"{author_line(error)}{name}: cannot be traced: {reason}") from error
    return graph


def _check_arguments(module: nn.Module) -> None:
    names = list(inspect.signature(module.forward).parameters)
    if len(names) == 2:
        return
    remedy = ""
    if len(names) == 1:
        remedy = (
            f"; write forward(self, dense, sparse), and model({names[0]}.dense, {names[0]}.sparse) "
            "in the training loop"
        )
    raise ExportError(
        f"{type(module).__name__}: expected forward(dense, sparse), got "
        f"forward({', '.join(names)}){remedy}"
    )


def _trace(module: nn.Module) -> fx.Graph:
    with _with_traced_arguments(), _without_autocast():
        try:
            return _Tracer().trace(module)
        except Exception:  # The author's code may raise anything.
            tracer = _Tracer()
            tracer.proxy_buffer_attributes = True  # Lets forward slice a buffer by a traced size.
            with suppress(Exception):
                return tracer.trace(module)
            raise


def _remedy(error: Exception) -> str:
    return next((f"; write {better}" for part, better in INSTEAD.items() if part in str(error)), "")


@contextmanager
def _without_autocast() -> Iterator[None]:
    """Let a trace fail at an enabled ``torch.autocast``, which would be missing in the graph."""
    entered: Any = torch.autocast.__enter__

    def enter(context: Any) -> Any:
        if context._enabled:
            raise ExportError("torch.autocast is not supported in forward")
        return entered(context)

    setattr(torch.autocast, "__enter__", enter)  # noqa: B010
    try:
        yield
    finally:
        setattr(torch.autocast, "__enter__", entered)  # noqa: B010


@contextmanager
def _with_traced_arguments() -> Iterator[None]:
    """Let calls be traced that torch.fx does not support.

    | call | traced as |
    |---|---|
    | ``torch.zeros(rows, 4)``, ``empty``, ``ones`` | ``torch.zeros((rows, 4))`` |
    | ``torch.finfo(x.dtype)`` | ``torch.finfo(torch.float32)``, the type of exported modules |
    """

    def with_size_tuple(factory: Callable[..., Any]) -> Callable[..., Any]:
        def traced(*size: Any, **options: Any) -> Any:
            if len(size) > 1 and any(isinstance(part, fx.Proxy) for part in size):
                return factory(size, **options)
            return factory(*size, **options)

        return traced

    def finfo(dtype: Any = None) -> Any:
        return before["finfo"](torch.float32 if isinstance(dtype, fx.Proxy) else dtype)

    before: dict[str, Any] = {
        name: getattr(torch, name) for name in ("empty", "finfo", "ones", "zeros")
    }
    for name, factory in before.items():
        setattr(torch, name, finfo if name == "finfo" else with_size_tuple(factory))
    try:
        yield
    finally:
        for name, factory in before.items():
            setattr(torch, name, factory)


def target_name(node: fx.Node) -> str:
    target: Any = node.target
    return target if isinstance(target, str) else getattr(target, "__name__", "")


def line_of(node: fx.Node) -> str:
    """The author's line of a node, ``file:line: code``, or the node itself if it is unknown."""
    lines = [line.strip() for line in (node.stack_trace or "").splitlines() if line.strip()]
    for place, line in reversed(list(enumerate(lines))):
        if not line.startswith('File "'):
            continue
        file, number = line.split('"')[1], line.split("line ")[1].split(",")[0]
        if not file.startswith(LIBRARIES):
            code = lines[place + 1] if place + 1 < len(lines) else ""
            return f"{file}:{number}: {code.rstrip(':')}"
    if node.target is getattr:  # In ``x.max(1).values`` only the node ``x.max(1)`` has a line.
        return line_of(node.all_input_nodes[0])
    return node.format_node() or node.name


def refusal(node: fx.Node, problem: str) -> ExportError:
    return ExportError(f"{line_of(node)}: cannot be exported: {problem}")


def author_line(error: BaseException) -> str:
    """The author's line of an error, ``file:line: code: ``, or ""."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(LIBRARIES):
            code = (frame.line or "").rstrip(":")
            return f"{frame.filename}:{frame.lineno}: {code}: "
    return ""
