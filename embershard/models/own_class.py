"""The user's own model class: imported by name, its arguments checked, built for training."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import traceback
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import torch
from pydantic import (
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.models.arguments import ModelArguments
from embershard.models.base import ONE_SCORE, LogitModel, Loss
from embershard.models.base_config import BaseConfig, EmbeddingDim
from embershard.modules import EmbeddingBagConfig
from embershard.package.schema import Schema
from embershard.sections import problem_of

PROVIDED = ("embedding_bag_collection", "dense_in_features", "schema", "tasks", "dense_device")
"""Parameters of a constructor that embershard passes itself, if the constructor has them."""

Made = TypeVar("Made")


class OwnClassError(InputError):
    """A class or argument that cannot be used; ``key`` of ``[model]`` is at fault."""

    def __init__(self, message: str, key: str = "class") -> None:
        super().__init__(message)
        self.key = key


class OwnArguments(ModelArguments):
    """The user's own model in a checkpoint."""

    arguments: dict[str, Any]
    """Arguments of the constructor, besides those of ``PROVIDED``."""


def import_class(path: str) -> type[nn.Module]:
    """Import ``package.module:Class``; the current folder is importable. Raises OwnClassError if
    there is no such module or class, or it cannot be used as a model."""
    home, separator, name = path.partition(":")
    if not separator or not all(part.isidentifier() for part in [*home.split("."), name]):
        raise OwnClassError(f"expected package.module:Class, got {path!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # `python -m` does the same.
    module = _own_code(lambda: importlib.import_module(home), f"importing {home}")
    model_class = getattr(module, name, None)
    if not (isinstance(model_class, type) and issubclass(model_class, nn.Module)):
        kind = "nothing" if model_class is None else f"a {type(model_class).__name__}"
        raise OwnClassError(f"expected a torch.nn.Module {name!r} in {home}, got {kind} so named")
    try:
        inspect.signature(model_class.forward).bind("self", "dense", "sparse")
    except TypeError as error:
        takes = inspect.signature(model_class.forward)
        raise OwnClassError(f"expected {path} with forward(dense, sparse), got {takes}") from error
    return model_class


def check_arguments(path: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Import a class and compare arguments with its constructor. Returns them, converted to the
    annotated types: a list to a tuple. Raises OwnClassError like ``import_class``, or if an
    argument is unknown, missing or of another type."""
    model_class = import_class(path)
    signature = inspect.signature(model_class)
    takes = f"an argument of {path}{signature}"
    parameters = {
        name: parameter
        for name, parameter in signature.parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    takes_any = inspect.Parameter.VAR_KEYWORD in kinds
    if PROVIDED[0] not in parameters:
        raise OwnClassError(f"expected {PROVIDED[0]} as {takes}, got none")
    for name in arguments:
        if name in PROVIDED:
            raise OwnClassError("expected no value, since embershard passes it, got one", name)
        if name not in parameters and not takes_any:
            raise OwnClassError(f"expected {takes}, got {name!r}", name)
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in (*PROVIDED, *arguments):
            raise OwnClassError(f"expected a value of {name!r}, {takes}, got none")
    try:
        hints = typing.get_type_hints(model_class.__init__)
    except Exception:  # A name that is imported for type checking only.
        hints = {}
    return {name: _converted(name, value, hints, takes) for name, value in arguments.items()}


def build_own(
    path: str,
    saved: OwnArguments,
    bags: nn.Module,
    schema: Schema | None,
    device: torch.device | str | None,
) -> LogitModel:
    """Build a model of the user's own class, and run it once on two examples. Raises OwnClassError
    if arguments do not fit, the class raises an error, or its output is not one logit for each
    task."""
    if schema is None:
        raise InputError(f"model {path!r}: expected schema, got none")
    tasks = dict(saved.tasks or ONE_SCORE)
    arguments = check_arguments(path, saved.arguments)
    provided = (bags, len(schema.dense), schema, tasks, device)
    parameters = inspect.signature(import_class(path)).parameters
    for name, value in zip(PROVIDED, provided, strict=True):
        if name in parameters:
            arguments[name] = value
    module = _own_code(lambda: import_class(path)(**arguments), f"the constructor of {path}")
    if not any(part is bags for part in module.modules()):
        raise OwnClassError(
            f"expected {path} to keep {PROVIDED[0]} as an attribute, got a module without it"
        )
    logits = _own_code(lambda: _run(module, schema), f"the forward of {path}")
    shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if shape != (2, len(tasks)) and (shape != (2,) or len(tasks) > 1):
        raise OwnClassError(
            f"expected {path} to return logits of shape (2, {len(tasks)}) for 2 examples and the "
            f"tasks {list(tasks)}, got {shape}"
        )
    if isinstance(module, LogitModel):
        module.tasks = tasks
        return module
    return _Logits(module, tasks, is_flat=len(shape) == 1)


class _Logits(LogitModel):
    """The user's own module. ``is_flat``: it returns logits ``(B,)``."""

    def __init__(self, model: nn.Module, tasks: Mapping[str, Loss], *, is_flat: bool) -> None:
        super().__init__(tasks)
        self.model, self._is_flat = model, is_flat

    def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> Tensor:
        logits: Tensor = self.model(dense, sparse)
        return logits.unsqueeze(1) if self._is_flat else logits


def _converted(name: str, value: object, hints: Mapping[str, Any], takes: str) -> Any:
    try:
        json.dumps(value)
    except TypeError as error:
        raise OwnClassError(f"expected a value of JSON, got {value!r}", name) from error
    try:
        return TypeAdapter(hints.get(name, Any)).validate_python(value)
    except ValidationError as error:
        raise OwnClassError(problem_of(error.errors()[0], f" as {takes}"), name) from None
    except PydanticUserError:  # A class that pydantic does not know.
        return value


@torch.no_grad()
def _run(module: nn.Module, schema: Schema) -> Any:
    """The output for two examples. Both have row 0 of every input."""
    keys, was_training = [item.name for item in schema.sparse], module.training
    ones = torch.ones(2 * len(keys), dtype=torch.int32)
    sparse = KeyedJaggedTensor(keys, torch.zeros(len(ones), dtype=torch.int64), lengths=ones)
    module.eval()
    logits = module(torch.zeros(2, len(schema.dense)), sparse)
    module.train(was_training)
    return logits


def _own_code(call: Callable[[], Made], what: str) -> Made:
    """Call the user's code, which may raise anything."""
    try:
        return call()
    except (Exception, SystemExit) as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise OwnClassError(
            f"{what} raised {type(error).__name__}: {error} ({at.filename}:{at.lineno})"
        ) from error


class ClassConfig(BaseConfig):
    """Settings of a model of the user's own class."""

    model_config = ConfigDict(extra="allow")

    class_: Annotated[str, Field(alias="class")]
    """``package.module:Class``; the current folder is importable. All other keys are arguments of
    its constructor. [Your own class](models.md#your-own-class) lists the requirements."""

    embedding_dim: EmbeddingDim = 16
    """Columns of every table. A parameter of the constructor with this name gets it as well."""

    @model_validator(mode="before")
    @classmethod
    def _has_no_name(cls, section: Any) -> Any:
        if isinstance(section, dict) and "name" in section:
            raise ValueError("expected 'name' or 'class', got both")
        return section

    @property
    def name(self) -> str:
        """The model's name in a checkpoint."""
        return self.class_

    def check(self) -> None:
        """Import the class and check its arguments; raises OwnClassError."""
        check_arguments(self.class_, self._arguments)

    @property
    def _arguments(self) -> dict[str, Any]:
        """Keys of ``[model]`` for the constructor; ``embedding_dim`` if it has that parameter."""
        arguments = dict(self.model_extra or {})
        if "embedding_dim" in inspect.signature(import_class(self.class_)).parameters:
            arguments["embedding_dim"] = self.embedding_dim
        return arguments

    def _constructor_arguments(
        self, tables: Sequence[EmbeddingBagConfig], schema: Schema
    ) -> dict[str, Any]:
        return {"arguments": self._arguments}
