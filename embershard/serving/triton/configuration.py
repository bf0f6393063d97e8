"""Writes ``config.pbtxt``, Triton's configuration of a model in protobuf's text format.

The tensors are those of the Open Inference Protocol (docs/protocols.md). Triton merges requests
only if all tensors share a first dimension, so clients send each tensor with an additional first
dimension of 1, which ``config.pbtxt`` does not contain.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from embershard.errors import InputError, NotFoundError
from embershard.serving._native import extension_folder, fbgemm_folder, load_extension
from embershard.serving.option import check_options, option
from embershard.serving.options import (
    TableResidency,
    dense_program_option,
    plan_option,
    tables_option,
)

if TYPE_CHECKING:
    from embershard.package import Package, Plan


CONFIG_FILE: Final = "config.pbtxt"
"""Name of the file in the model's folder, next to its versions."""

_HEAD: Final = "# For NVIDIA Triton, by `embershard triton-config`. docs/triton.md is the manual."

_CUDA: Final = "cuda:"

_FBGEMM_CALL: Final = b"ops.fbgemm."
"""Text of a call of an FBGEMM operator in TorchScript."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonOptions:
    """Settings in ``config.pbtxt`` in addition to the model's tensors.

    Raises:
        ConfigError: a number is out of range, or a choice is unknown.
    """

    plan: str = plan_option()
    kind: str = option(
        "cpu",
        "devices of the instances; gpu: the GPUs of the plan",
        choices=("cpu", "gpu"),
    )
    tables: TableResidency = tables_option()  # noqa: RUF009
    dense_program: str = dense_program_option()
    threads: int = option(
        0,
        "threads of each instance, for lookups and for the dense program",
        unit="N",
        zero="one for each core, divided among all instances",
        change="Raise it if a single request needs several threads to meet its deadline",
        most=1024,
    )
    instances: int = option(
        0,
        "number of batches that run at the same time; instances share one copy of the model",
        unit="N",
        zero="one for each core that Triton finds at its start, or one if --threads is set; with "
        "--kind gpu 3, divided among the GPUs and rounded up for each",
        change="Lower it if Triton serves other models too",
    )
    max_batch_requests: int = option(256, "most requests in a batch", unit="N", least=1)
    max_batch_examples: int = option(
        0,
        "number of examples that fill a batch; a larger request is split",
        unit="N",
        zero="the default of `embershard serve`",
        change="Raise it if the model is faster with larger batches",
    )
    max_batch_ids: int = option(
        0, "number of ids that fill a batch", unit="N", zero="the backend's default"
    )
    max_queue_delay_us: int = option(
        0,
        "time for which the first request of a batch waits for others if an instance is idle",
        unit="US",
        zero="it does not wait; requests still gather while all instances are busy",
    )
    max_queued_requests: int = option(
        4096, "most waiting requests; further ones are refused", unit="N", zero="no limit"
    )
    default_timeout_ms: int = option(
        1000,
        "longest time that a request may wait before it is refused; clients may set a shorter one",
        unit="MS",
        zero="no limit, and the clients' timeouts are ignored",
    )

    def __post_init__(self) -> None:
        check_options(self)


def model_config(package: Package, options: TritonOptions | None = None) -> str:
    """Make the text of ``config.pbtxt``, which is valid for all versions with the same tensors.

    Raises:
        NotFoundError: the package has no plan with that name.
        InputError: the package is in the folder of another model, or the plan is for another kind
            of device.
    """
    options = options or TritonOptions()
    manifest = package.manifest
    folder = package.path.absolute().parent.name
    if folder != manifest.model:
        raise InputError(
            f"{package.path}: expected a folder with the model's name {manifest.model!r} above it, "
            f"from which Triton takes the name; got {folder!r}"
        )
    plan = package.plan(options.plan)
    _check_kind(plan, options.kind)
    text = (package.path / "manifest.json").read_text()
    tensors = load_extension().describe_tensors(text)
    return "\n".join(
        [
            _HEAD,
            f"name: {_quoted(manifest.model)}",
            f"backend: {_quoted(BACKEND)}",
            f"max_batch_size: {options.max_batch_requests}",
            *_list("input", [_input(spec) for spec in tensors["inputs"]]),
            *_list("output", [_tensor(spec) for spec in tensors["outputs"]]),
            *_instances(plan, options),
            *_batching(options),
            *_parameters(_backend_parameters(package, plan, options)),
            "",
        ]
    )


def _check_kind(plan: Plan, kind: str) -> None:
    kinds = {device.partition(":")[0] for device in plan.devices}
    if len(kinds) > 1:
        raise InputError(
            f"plan {plan.name!r}: expected devices of one kind, got {' and '.join(sorted(kinds))}; "
            "`embershard plan` makes such plans"
        )
    expected = "gpu" if kinds == {"cuda"} else "cpu"
    if kind == expected:
        return
    remedy = (
        "--kind gpu"
        if expected == "gpu"
        else "`embershard plan --devices 1xcuda:80GB` adds a plan for a GPU, and --plan names it"
    )
    raise InputError(
        f"kind: expected {expected} for plan {plan.name!r}, which is for {plan.devices[0]}, got "
        f"{kind}; {remedy}"
    )


def _instances(plan: Plan, options: TritonOptions) -> Iterator[str]:
    """The instance group. CPUs have none by default: the backend then requests one instance per
    core. For GPUs, Triton makes ``count`` instances on each."""
    if options.kind == "gpu":
        from embershard.package.plan import DEVICE_SLOTS

        gpus = [device.removeprefix(_CUDA) for device in plan.devices]
        count = -(-(options.instances or DEVICE_SLOTS) // len(gpus))
        yield f"instance_group [ {{ kind: KIND_GPU count: {count} gpus: [ {', '.join(gpus)} ] }} ]"
        return
    count = options.instances or (1 if options.threads else 0)
    if count:
        yield f"instance_group [ {{ kind: KIND_CPU count: {count} }} ]"


def _batching(options: TritonOptions) -> Iterator[str]:
    """Dynamic batching with two priorities, as in our own protocol, and a bounded queue."""
    yield "dynamic_batching {"
    if options.max_queue_delay_us:
        yield f"  max_queue_delay_microseconds: {options.max_queue_delay_us}"
    yield "  priority_levels: 2"
    yield "  default_priority_level: 1"
    yield "  default_queue_policy {"
    yield "    timeout_action: REJECT"
    if options.default_timeout_ms:
        yield f"    default_timeout_microseconds: {options.default_timeout_ms * 1000}"
        yield "    allow_timeout_override: true"
    if options.max_queued_requests:
        yield f"    max_queue_size: {options.max_queued_requests}"
    yield "  }"
    yield "}"


def _backend_parameters(package: Package, plan: Plan, options: TritonOptions) -> dict[str, str]:
    """Parameters that differ from the backend's defaults."""
    numbers = {
        "max_batch_examples": options.max_batch_examples,
        "max_batch_ids": options.max_batch_ids,
        "threads": options.threads,
    }
    parameters = {name: str(value) for name, value in numbers.items() if value}
    if options.plan:
        parameters["plan"] = options.plan
    if options.dense_program:
        parameters["dense_program"] = options.dense_program
    if options.tables != "mmap":
        parameters["tables"] = options.tables
    if not plan.devices[0].startswith("cpu:") or _needs_fbgemm(package):
        parameters["fbgemm"] = str(fbgemm_folder())
    return parameters


def _needs_fbgemm(package: Package) -> bool:
    with zipfile.ZipFile(package.path / package.manifest.torchscript.file) as archive:
        code = [name for name in archive.namelist() if name.endswith(".py")]
        return any(_FBGEMM_CALL in archive.read(name) for name in code)


def _list(field: str, items: Sequence[str]) -> Iterator[str]:
    yield f"{field} ["
    for place, item in enumerate(items, start=1):
        yield f"  {{ {item} }}{',' if place < len(items) else ''}"
    yield "]"


def _tensor(spec: Mapping[str, Any]) -> str:
    dims = ", ".join(map(str, spec["shape"]))
    return f"name: {_quoted(spec['name'])} data_type: TYPE_{spec['datatype']} dims: [ {dims} ]"


def _input(spec: Mapping[str, Any]) -> str:
    """All inputs are optional for Triton; the backend reports those that are missing."""
    ragged = " allow_ragged_batch: true" if -1 in spec["shape"] else ""
    return f"{_tensor(spec)} optional: true{ragged}"


def _parameters(parameters: Mapping[str, str]) -> Iterator[str]:
    for name, value in sorted(parameters.items()):
        yield (f"parameters {{ key: {_quoted(name)} value {{ string_value: {_quoted(value)} }} }}")


def _quoted(text: str) -> str:
    """A string of protobuf's text format, which has the same escapes as JSON."""
    return json.dumps(text, ensure_ascii=False)


BACKEND: Final = "embershard"
"""Triton's name of the backend, which is ``libtriton_embershard.so`` in a folder of that name."""


def backend_directory() -> Path:
    """The folder for ``tritonserver --backend-directory``, which contains ``embershard/``.

    Raises InternalError if the extension is not installed, NotFoundError if it has no backend.
    """
    folder = extension_folder() / "triton" / "backends"
    library = folder / BACKEND / f"libtriton_{BACKEND}.so"
    if not library.is_file():
        raise NotFoundError(
            f"there is no {library}: embershard was built without the "
            "backend; `make install` builds it"
        )
    return folder


def write_model_config(
    package: str | Path, options: TritonOptions | None = None, *, force: bool = False
) -> tuple[Path, bool]:
    """Write the configuration of a package's model for Triton, atomically.

    Args:
        package: the folder of one version, ``<repository>/<model>/<version>``.
        force: overwrite a different configuration.

    Returns:
        The path of the file, and False if it already had the same text and was not written.

    Raises:
        PackageError: the package is damaged.
        NotFoundError: the package has no plan with that name.
        InputError: there is a different configuration, and ``force`` is false; the package is in
            the folder of another model; or the plan is for another kind of device.
    """
    # Imported here, because it imports numpy, which starts threads that most commands do not need.
    from embershard.package import Package
    from embershard.package.files import replace_file

    opened = Package.open(package)
    text = model_config(opened, options)
    file = opened.path.absolute().parent / CONFIG_FILE
    try:
        there = file.read_text(errors="replace")
    except FileNotFoundError:
        there = None
    if there == text:
        return file, False
    if there is not None and not force:
        raise InputError(f"{file}: {_difference(there, text)}; --force overwrites it")
    replace_file(file, text.encode())
    return file, True


def _difference(there: str, text: str) -> str:
    """Describe the first line in which the texts differ."""
    lines = zip_longest(there.splitlines(), text.splitlines())
    for number, (got, expected) in enumerate(lines, start=1):
        if got != expected:
            return f"line {number}: expected {_shown(expected)}, got {_shown(got)}"
    return "expected other line endings"


def _shown(line: str | None) -> str:
    return "no more lines" if line is None else repr(line.strip())
