"""A dense program on disk as a module that torch.export follows.

TorchScript runs in an interpreter of its own, which torch.export cannot look into. Frozen, a
program is a list of operators; this calls them one after another.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from embershard.errors import ExportError
from embershard.export.torchscript import load_graph
from embershard.kernels import operator_of
from embershard.package.manifest import DenseDtype

__all__ = ["ReloadedProgram"]

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
    "aten::Int": int,
}

# On numbers; on tensors they are operators of torch.
ON_NUMBERS: Final[dict[str, Callable[..., Any]]] = {
    "aten::add": operator.add,
    "aten::sub": operator.sub,
    "aten::mul": operator.mul,
    "aten::floordiv": operator.floordiv,
}


class ReloadedProgram(nn.Module):
    """The program in a file of TorchScript.

    Args:
        file: as `embershard.export.torchscript.save_program` wrote it.
        outputs: names, in the order of the results.
        dtype: ``bfloat16``: linear layers take and give bfloat16, everything else float32.

    Raises:
        ExportError: the file is no program, or has an operation this cannot follow.
    """

    def __init__(self, file: Path, outputs: Sequence[str], *, dtype: DenseDtype) -> None:
        super().__init__()
        self._graph, self._script = load_graph(file)
        self._outputs = tuple(outputs)
        self._constants: dict[str, Any] = {}
        self._calls: list[tuple[Any, Callable[..., Any]]] = []
        for node in self._graph.nodes():
            if node.kind() != "prim::Constant":
                self._calls.append((node, _call_of(node, bfloat16=dtype == "bfloat16")))
                continue
            value, name = node.output().toIValue(), node.output().debugName()
            if isinstance(value, Tensor):
                self.register_buffer(f"constant_{len(self._constants)}", value.detach())
                value = _Held(f"constant_{len(self._constants)}")
            self._constants[name] = value

    def forward(
        self,
        request_inputs: list[Tensor],
        example_inputs: list[Tensor],
        request_of_example: Tensor,
    ) -> tuple[Tensor, ...]:
        """As docs/format.md says of programs; outputs in the order of ``outputs``."""
        values = {
            name: getattr(self, value.name) if isinstance(value, _Held) else value
            for name, value in self._constants.items()
        }
        given = (request_inputs, example_inputs, request_of_example)
        for place, value in zip(list(self._graph.inputs())[1:], given, strict=True):
            values[place.debugName()] = value
        for node, call in self._calls:
            result = call(*(values[each.debugName()] for each in node.inputs()))
            results = [result] if node.outputsSize() == 1 else result
            for place, value in zip(node.outputs(), results, strict=True):
                values[place.debugName()] = value
        named = values[next(self._graph.outputs()).debugName()]
        return tuple(named[name] for name in self._outputs)


class _Held:
    """A constant that the module holds under a name."""

    def __init__(self, name: str) -> None:
        self.name = name


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
    found = operator_of(node.schema()) if node.schema() != "(no schema)" else None
    if found is None:
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
