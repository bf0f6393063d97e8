"""Generates docs/configuration.md from the classes that read a training run's TOML file."""

import inspect
import json
import types
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from embershard.data.parquet_config import (
    DenseColumn,
    ParquetConfig,
    SparseColumn,
    SplitConfig,
)
from embershard.data.registry import DataConfig
from embershard.data.tasks import TaskConfig
from embershard.models import MODEL_CONFIGS, ClassConfig, DLRMConfig
from embershard.training.config import (
    CheckpointConfig,
    ShardingConfig,
    TrackingConfig,
    TrainingConfig,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
HEAD = """# Configuration of a training run

The TOML file that [`embershard train`](cli.md#embershard-train) reads, such as
[movielens.toml](../examples/movielens/movielens.toml). `make docs` generates this page. An error
in the file names its line.
"""
MODELS = """[Built-in models](models.md#built-in-models) says what each model is. A
key without models is for all models.

"""
TASKS = """One section for each task, in the order of the model's logits. NAME is the name of the
package's output. Without a section the model has one task `score` with the loss `bce`.
[Several tasks](training.md#several-tasks) says how they are trained and evaluated.

"""
TYPES = {bool: "true or false", int: "integer", float: "number", str: "text", Path: "text"}
BOUNDS = {Ge: ("ge", "at least"), Gt: ("gt", "above"), Le: ("le", "at most"), Lt: ("lt", "below")}


def configuration_page() -> str:
    parts = [HEAD, *_data()]
    parts += _section("`[tasks.NAME]`", TaskConfig, note=TASKS)
    parts += _models()
    parts += _section("`[model]` with `class`", ClassConfig)
    parts += _section("`[training]`", TrainingConfig)
    parts += _section("`[checkpoint]`", CheckpointConfig)
    parts += _section("`[sharding]`", ShardingConfig, note=f"{ShardingConfig.__doc__}\n\n")
    parts += _section("`[tracking]`", TrackingConfig, note=_note(TrackingConfig))
    return "\n".join(parts)


def _data() -> Iterator[str]:
    yield from _section("`[data]` with built-in data", DataConfig)
    note = "[data.md](data.md) says how to use it.\n\n"
    yield from _section('`[data]` with `name = "parquet"`', ParquetConfig, note=note)
    yield from _section("`[data.split]`", SplitConfig, note=_note(SplitConfig))
    yield from _section("`[data.dense.NAME]`", DenseColumn, note=_note(DenseColumn))
    yield from _section("`[data.sparse.NAME]`", SparseColumn, note=_note(SparseColumn))


def _models() -> Iterator[str]:
    yield f"## `[model]` with `name`\n\n{MODELS}| key | models | type | default | meaning |"
    yield "|---|---|---|---|---|"
    names = ", ".join(f"`{name}`" for name in MODEL_CONFIGS)
    yield f"| `name` | | {names} | `{json.dumps(DLRMConfig().name)}` | Name of the model. |"
    models = dict[tuple[str, ...], list[str]]()
    for name, config in MODEL_CONFIGS.items():
        for cells in _rows(config):
            models.setdefault(cells, []).append(f"`{name}`")
    for (key, *others), owners in models.items():
        if key != "`name`":
            owner = "" if len(owners) == len(MODEL_CONFIGS) else ", ".join(owners)
            yield _line([key, owner, *others])
    yield ""


def _note(section: type[BaseModel]) -> str:
    return f"{inspect.getdoc(section)}\n\n"


def _section(title: str, section: type[BaseModel], *, note: str = "") -> Iterator[str]:
    yield f"## {title}\n\n{note}| key | type | default | meaning |\n|---|---|---|---|"
    yield from map(_line, _rows(section))
    yield ""


def _rows(section: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    for name, field in section.model_fields.items():
        if _is_section(field.annotation):
            continue
        meaning = " ".join((field.description or "").split()).replace("``", "`")
        yield f"`{field.alias or name}`", _type(field), _default(field), meaning


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _is_section(annotation: object) -> bool:
    """True for keys that have their own table on the page."""
    kind = typing.get_args(annotation)[1] if typing.get_origin(annotation) is dict else annotation
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _type(field: FieldInfo) -> str:
    bounds = [
        f"{words} {getattr(bound, attribute):,}"
        for kind, (attribute, words) in BOUNDS.items()
        for bound in field.metadata
        if isinstance(bound, kind)
    ]
    if [bound.rpartition(" ")[0] for bound in bounds] == ["at least", "at most"]:
        bounds = [" to ".join(bound.rpartition(" ")[2] for bound in bounds)]
    return ", ".join([_type_name(field.annotation), *bounds])


def _type_name(annotation: object) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type_name(arguments[0])
    if origin is typing.Literal:
        return ", ".join(f"`{json.dumps(value)}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return _type_name(next(kind for kind in arguments if kind is not types.NoneType))
    if origin is tuple:
        return f"list, each {_type_name(arguments[0])}"
    if origin is dict:
        return f"table of {_type_name(arguments[1])}"
    assert isinstance(annotation, type)
    return TYPES[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is None:
        return "none"
    if field.default == {}:
        return "empty"
    if isinstance(field.default, dict):
        return ", ".join(f"`{json.dumps(k)} = {json.dumps(v)}`" for k, v in field.default.items())
    return f"`{json.dumps(field.default)}`"
