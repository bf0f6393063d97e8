"""A dense program on disk as a module that torch.export follows.

TorchScript runs in an interpreter of its own, which torch.export cannot look into. Frozen, a
program is a list of operators; this calls them one after another. Padding a sequence branches on
its lengths: of such a branch one side is compiled, where that does for both.
"""

import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from embershard.errors import ExportError
from embershard.export.torchscript import load_graph
from embershard.kernels import operator_of
from embershard.package.manifest import DenseDtype

# TorchScript's numbers for what its operators say as an int.
DTYPES: Final = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    11: torch.bool,
    15: torch.bfloat16,
}
LAYOUTS: Final = {0: torch.strided}

# What is no operator on tensors, by kind.
PLAIN: Final[dict[str, Callable[..., Any]]] = {
    "prim::ListConstruct": lambda *items: list(items),
    "prim::TupleConstruct": lambda *items: items,
    "prim::DictConstruct": lambda *items: dict(zip(items[::2], items[1::2], strict=True)),
    "prim::ListUnpack": lambda items: items,
    "prim::TupleUnpack": lambda items: items,
    "prim::NumToTensor": torch.scalar_tensor,
    "aten::size": lambda tensor, *dim: tensor.shape[dim[0]] if dim else list(tensor.shape),
    "aten::dim": lambda tensor: tensor.dim(),
    "aten::__getitem__": operator.getitem,
    "aten::len": len,
    "aten::Int": lambda number: number,  # Already one; `int` would ask for its value.
    "aten::numel": lambda tensor: tensor.numel(),
    "prim::dtype": lambda tensor: tensor.dtype,
    "prim::device": lambda tensor: tensor.device,
}

# On numbers; on tensors they are operators of torch.
ON_NUMBERS: Final[dict[str, Callable[..., Any]]] = {
    "aten::add": operator.add,
    "aten::sub": operator.sub,
    "aten::mul": operator.mul,
    "aten::floordiv": operator.floordiv,
}
COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "aten::lt": operator.lt,
    "aten::gt": operator.gt,
    "aten::eq": operator.eq,
}
BRANCHES: Final = "cannot be compiled: expected no branch on what a batch holds, got one on {}"

ON_LISTS: Final[dict[str, Callable[..., Any]]] = {
    "aten::append": lambda items, item: items.append(item) or items,
    "aten::slice": lambda items, begin, end, step: items[begin:end:step],
}


class ReloadedProgram(nn.Module):
    """The program in a file of TorchScript.

    Args:
        file: as `embershard.export.torchscript.save_program` wrote it.
        outputs: names, in the order of the results.
        dtype: ``bfloat16``: linear layers take and give bfloat16, everything else float32.
        least_width: that a padded sequence is taken to have. 2: as torch.export does with any size
            that varies, so that torch need not ask whether it is 0 or 1; what is compiled does
            for those too, without its checks of numbers.

    Raises:
        ExportError: the file is no program, or has an operation this cannot follow.
    """

    def __init__(
        self, file: Path, outputs: Sequence[str], *, dtype: DenseDtype, least_width: int = 0
    ) -> None:
        super().__init__()
        self._graph, self._script = load_graph(file)
        self._outputs = tuple(outputs)
        self._constants: dict[str, Any] = {}
        self._buffer_of: dict[str, str] = {}  # Of constants that are tensors.
        self._calls: dict[Any, Callable[..., Any]] = {}
        self._bfloat16 = dtype == "bfloat16"
        self._least_width = least_width
        self._prepare(self._graph)

    def forward(
        self,
        request_inputs: list[Tensor],
        example_inputs: list[Tensor],
        request_of_example: Tensor,
    ) -> tuple[Tensor, ...]:
        """As docs/format.md says of programs; outputs in the order of ``outputs``."""
        held = {name: getattr(self, buffer) for name, buffer in self._buffer_of.items()}
        values = self._constants | held
        given = (request_inputs, example_inputs, request_of_example)
        for place, value in zip(list(self._graph.inputs())[1:], given, strict=True):
            values[place.debugName()] = value
        self._run(self._graph, values)
        named = values[next(self._graph.outputs()).debugName()]
        return tuple(named[name] for name in self._outputs)

    def _prepare(self, block: Any) -> None:
        """Constants and calls of a graph or a block, and of the blocks in it."""
        for node in block.nodes():
            if node.kind() in ("prim::If", "prim::Loop"):
                for inner in node.blocks():
                    self._prepare(inner)
            elif node.kind() == "prim::Constant":
                name, value = node.output().debugName(), node.output().toIValue()
                if isinstance(value, Tensor):
                    self._buffer_of[name] = f"constant_{len(self._buffer_of)}"
                    self.register_buffer(self._buffer_of[name], value.detach())
                else:
                    self._constants[name] = value
            elif node.kind() not in ("prim::RaiseException", "aten::format", "aten::item"):
                self._calls[node.output().debugName()] = _call_of(node, bfloat16=self._bfloat16)

    def _run(self, block: Any, values: dict[str, Any]) -> None:
        for node in block.nodes():
            if node.kind() == "prim::Constant":
                continue
            given = [values[each.debugName()] for each in node.inputs()]
            if node.kind() == "prim::If":
                results = self._run_branch(node, given[0], values)
            elif node.kind() == "prim::Loop":
                results = self._run_loop(node, given, values)
            elif node.kind() == "aten::item":
                results = [self._number(given[0])]
            else:
                result = self._calls[node.output().debugName()](*given)
                results = [result] if node.outputsSize() == 1 else result
            for place, value in zip(node.outputs(), results, strict=True):
                values[place.debugName()] = value

    def _number(self, tensor: Tensor) -> Any:
        """What one holds. A whole number is the longest of lengths, to pad to."""
        number: Any = tensor.item()
        if isinstance(number, torch.SymInt) and self._least_width:
            torch._check(number >= self._least_width)  # type: ignore[no-untyped-call]
        return number

    def _run_branch(self, node: Any, condition: Any, values: dict[str, Any]) -> list[Any]:
        """One side of it, which has to do for both where a batch decides."""
        true, false = node.blocks()
        if isinstance(condition, bool):
            return self._run_block(true if condition else false, values)
        if not isinstance(condition, torch.SymBool):
            raise ExportError(BRANCHES.format(condition))
        if _is_raised(true) or _is_raised(false):
            fine: Any = torch.sym_not(condition) if _is_raised(true) else condition  # type: ignore[no-untyped-call]
            torch._check(fine)  # type: ignore[no-untyped-call]
            return self._run_block(false if _is_raised(true) else true, values)
        if not free_unbacked_symbols(condition):
            return self._run_block(true if condition else false, values)
        kept = [values.get(each.debugName()) for each in true.outputs()]
        given = self._run_block(false, values)
        _check_for_nothing(condition, [] if list(true.nodes()) else kept, given)
        return given

    def _run_block(self, block: Any, values: dict[str, Any]) -> list[Any]:
        self._run(block, values)
        return [values[each.debugName()] for each in block.outputs()]

    def _run_loop(self, node: Any, given: list[Any], values: dict[str, Any]) -> list[Any]:
        """A loop over a range, unrolled."""
        (block,) = node.blocks()
        turn, *places = block.inputs()
        count, _, *carried = given
        if not isinstance(count, int):
            raise ExportError(
                "cannot be compiled: expected a loop of a number of turns, got one "
                "whose turns depend on a batch"
            )
        for number in range(count):
            values[turn.debugName()] = number
            for place, value in zip(places, carried, strict=True):
                values[place.debugName()] = value
            _, *carried = self._run_block(block, values)
        return carried


def _compared(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Sizes are compared with 0 alone: torch.export takes a size that varies for none of the small
    ones, and a server gives a compiled program at least one of everything."""

    def call(one: Any, other: Any) -> Any:
        sizes = [each for each in (one, other) if isinstance(each, torch.SymInt)]
        if sizes and 0 not in [each for each in (one, other) if type(each) is int]:
            raise ExportError(
                "cannot be compiled: expected sizes to be compared with 0 alone, got "
                f"{compare.__name__}({one}, {other})"
            )
        return compare(one, other)

    return call


def _is_raised(block: Any) -> bool:
    return any(each.kind() == "prim::RaiseException" for each in block.nodes())


def _check_for_nothing(condition: torch.SymBool, kept: list[Any], given: list[Any]) -> None:
    """``if kept.numel() == 0: return kept`` is the same as going on: both have no elements then."""
    if len(kept) == len(given) == 1 and isinstance(kept[0], Tensor):
        empty: Any = kept[0].numel() == 0
        same = isinstance(empty, torch.SymBool) and empty.node.expr == condition.node.expr
        if same and kept[0].shape == given[0].shape and kept[0].dtype == given[0].dtype:
            return
    raise ExportError(BRANCHES.format(condition))


def _call_of(node: Any, *, bfloat16: bool) -> Callable[..., Any]:
    """What a node calls, taking its inputs in order."""
    kind = node.kind()
    if kind in PLAIN:
        return PLAIN[kind]
    if kind == "aten::linear" and bfloat16:
        return _linear_in_bfloat16
    takes_tensors = any(each.type().kind() == "TensorType" for each in node.inputs())
    if kind in ON_NUMBERS and not takes_tensors:
        return ON_NUMBERS[kind]
    if kind in COMPARISONS and not takes_tensors:
        return _compared(COMPARISONS[kind])
    if kind in ON_LISTS and not takes_tensors:
        return ON_LISTS[kind]
    found = operator_of(node.schema()) if node.schema() != "(no schema)" else None
    if found is None or kind == "aten::Bool":  # Of a tensor: its value.
        raise ExportError(
            f"cannot be compiled: expected operators of torch in its TorchScript, got {kind}"
        )
    arguments = found._schema.arguments  # type: ignore[attr-defined]

    def call(*given: Any) -> Any:
        ordered, named = [], {}
        for argument, value in zip(arguments, given, strict=True):
            value = _as_python(argument.name, value)
            if argument.kwarg_only:
                named[argument.name] = value
            else:
                ordered.append(value)
        return found(*ordered, **named)

    return call


def _as_python(name: str, value: Any) -> Any:
    if name == "dtype" and isinstance(value, int):
        return DTYPES[value]
    return LAYOUTS[value] if name == "layout" and isinstance(value, int) else value


def _linear_in_bfloat16(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    narrow = [None if each is None else each.bfloat16() for each in (values, weight, bias)]
    return nn.functional.linear(*narrow).float()  # type: ignore[arg-type]
