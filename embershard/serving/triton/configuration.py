"""``config.pbtxt``: what Triton must know of a model, in protobuf's text format.

Tensors are those of the Open Inference Protocol (docs/protocols.md), described by the same code as
in our own server. Triton merges requests only where all tensors have a first dimension in common,
the requests' number; so each is sent with a 1 before its shape, which is not written here.
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
"""In the folder of the model, beside its versions."""

_HEAD: Final = "# For NVIDIA Triton, by `embershard triton-config`. docs/triton.md is the manual."

_CUDA: Final = "cuda:"

_FBGEMM_CALL: Final = b"ops.fbgemm."
"""How TorchScript writes a call of one of FBGEMM's operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonOptions:
    """What ``config.pbtxt`` says in addition to the model's tensors.

    Raises:
        ConfigError: a number out of range, or another way to hold tables.
    """

    plan: str = plan_option()
    kind: str = option(
        "cpu",
        "where instances run; gpu: on the GPUs of the plan",
        choices=("cpu", "gpu"),
    )
    tables: TableResidency = tables_option()  # noqa: RUF009
    dense_program: str = dense_program_option()
    threads: int = option(
        0,
        "threads of lookups and of the dense program, of an instance",
        unit="N",
        zero="all instances together have one a core",
        change="Raise it if one request is so large that it needs several threads to be in time",
        most=1024,
    )
    instances: int = option(
        0,
        "how many batches run at the same time; instances share one copy of the model",
        unit="N",
        zero="one for each core that Triton finds when it starts, with --threads one; of kind gpu "
        "3 in all, and at least one a GPU",
        change="Lower it if there are other models beside this one",
    )
    max_batch_requests: int = option(256, "most requests in a batch", unit="N", least=1)
    max_batch_examples: int = option(
        0,
        "a batch is full with so many examples; a larger request is split",
        unit="N",
        zero="as many as `embershard serve` merges",
        change="Raise it if a model gains from more",
    )
    max_batch_ids: int = option(
        0, "a batch is full with so many ids", unit="N", zero="the backend's default"
    )
    max_queue_delay_us: int = option(
        0,
        "how long the first request of a batch waits for others while an instance is idle",
        unit="US",
        zero="not at all; requests still gather while it is busy",
    )
    max_queued_requests: int = option(
        4096, "requests that may wait; one more is refused", unit="N", zero="no limit"
    )
    default_timeout_ms: int = option(
        1000,
        "how long a request may wait before it is refused; clients may ask for less",
        unit="MS",
        zero="for ever, and what clients ask for is ignored",
    )

    def __post_init__(self) -> None:
        check_options(self)


def model_config(package: Package, options: TritonOptions | None = None) -> str:
    """The configuration of the package's model.

    It holds for every version with the same inputs and outputs.

    Args:
        package: one version of the model.
        options: None: the defaults.

    Returns:
        The text of ``config.pbtxt``.

    Raises:
        NotFoundError: the package has no plan of that name.
        InputError: the package lies in the folder of another model, or the plan is for another kind
            of device.
    """
    options = options or TritonOptions()
    manifest = package.manifest
    folder = package.path.absolute().parent.name
    if folder != manifest.model:
        raise InputError(
            f"{package.path}: expected it in a folder {manifest.model!r}, the model's name, which "
            f"Triton takes from there; got {folder!r}"
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
            *_list("input", [_input(each) for each in tensors["inputs"]]),
            *_list("output", [_tensor(each) for each in tensors["outputs"]]),
            *_instances(plan, options),
            *_batching(options),
            *_parameters(_given(package, plan, options)),
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
    """Of processors nothing by default: the backend then asks Triton for one instance for each
    core. Of GPUs Triton makes ``count`` instances on each."""
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
    """Two priorities, as in our own protocol; a queue with an end."""
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


def _given(package: Package, plan: Plan, options: TritonOptions) -> dict[str, str]:
    """The backend's parameters that are not its defaults."""
    numbers = {
        "max_batch_examples": options.max_batch_examples,
        "max_batch_ids": options.max_batch_ids,
        "threads": options.threads,
    }
    given = {name: str(value) for name, value in numbers.items() if value}
    if options.plan:
        given["plan"] = options.plan
    if options.dense_program:
        given["dense_program"] = options.dense_program
    if options.tables != "mmap":
        given["tables"] = options.tables
    if not plan.devices[0].startswith("cpu:") or _needs_fbgemm(package):
        given["fbgemm"] = str(fbgemm_folder())
    return given


def _needs_fbgemm(package: Package) -> bool:
    """Returns whether the dense program calls operators of FBGEMM."""
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
    """Each may come in another way, or be left out; what is missing the backend says."""
    ragged = " allow_ragged_batch: true" if -1 in spec["shape"] else ""
    return f"{_tensor(spec)} optional: true{ragged}"


def _parameters(given: Mapping[str, str]) -> Iterator[str]:
    for name, value in sorted(given.items()):
        yield (f"parameters {{ key: {_quoted(name)} value {{ string_value: {_quoted(value)} }} }}")


def _quoted(text: str) -> str:
    """As protobuf's text format writes strings: what JSON escapes, it escapes alike."""
    return json.dumps(text, ensure_ascii=False)


BACKEND: Final = "embershard"
"""As Triton knows it: ``libtriton_embershard.so`` in a folder of that name."""


def backend_directory() -> Path:
    """The folder for ``tritonserver --backend-directory``; it holds ``embershard/``.

    Raises:
        InternalError: the extension is not installed.
        NotFoundError: it was built without the backend.
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
    """Writes the configuration that a package's model needs in Triton, whole or not at all.

    Args:
        package: the folder of one version, ``<repository>/<model>/<version>``.
        options: None: the defaults.
        force: whether another configuration may be overwritten.

    Returns:
        The file, and whether it was written; it is left where it says the same already.

    Raises:
        PackageError: the package is damaged.
        NotFoundError: it has no plan of that name.
        InputError: another configuration is there, without ``force``; the package lies in the
            folder of another model; or the plan is for another kind of device.
    """
    # NumPy, which comes with it, starts threads: no command has them before it needs them.
    from embershard.package import Package
    from embershard.package.sealing import replace_file

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
    """The first line in which they differ, in words."""
    lines = zip_longest(there.splitlines(), text.splitlines())
    for number, (got, expected) in enumerate(lines, start=1):
        if got != expected:
            return f"line {number}: expected {_shown(expected)}, got {_shown(got)}"
    return "expected other ends of lines"


def _shown(line: str | None) -> str:
    return "no more lines" if line is None else repr(line.strip())
