"""From a trained module to a published package."""

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from pathlib import Path

from torch import nn

import embershard.version
from embershard.errors import ExportError, InputError
from embershard.export.dense_program import DenseProgram
from embershard.export.program_builder import build_program
from embershard.export.report import REPORT_FILE, report_json
from embershard.export.samples import check_requests, random_samples, scored
from embershard.export.tables import Weights, weights_of, write_table
from embershard.export.torchscript import encode_program
from embershard.export.tracing import uncompiled
from embershard.models import LogitModel
from embershard.package.id_maps import Vocabulary
from embershard.package.input_specs import specs_of, vocabulary_files, with_lookups
from embershard.package.manifest import (
    FORMAT_VERSION,
    DenseDtype,
    Limits,
    Producer,
    ProgramSpec,
    TableSpec,
    default_limits,
)
from embershard.package.manifest_inputs import InputSpec, SparseInputSpec
from embershard.package.names import identity_of
from embershard.package.placement import STRATEGIES
from embershard.package.plan import Plan, parse_devices
from embershard.package.samples import SampleRequest, check_are_samples
from embershard.package.schema import Schema
from embershard.package.writer import PackageContents, PackageWriter
from embershard.planner import (
    Fleet,
    check_memory,
    load_of,
    parse_fleet,
    plan_package,
    serving_problem,
)
from embershard.planner.machine import default_machine
from embershard.sharding import DistributedModelParallel

PROGRAM_FILE = "programs/dense.pt"
FBGEMM_DISTRIBUTIONS = ("fbgemm-gpu-cpu", "fbgemm-gpu")


def write_inputs(writer: PackageWriter, program: DenseProgram) -> list[InputSpec]:
    """Write the vocabularies; what the manifest says of the inputs."""
    schema, layout = program.schema, program.layout
    files = vocabulary_files(schema)
    paths: dict[str, str] = {}
    for item in schema.sparse:
        file = files.get(item.name)
        if file is not None and file not in paths:
            assert isinstance(item.ids, Vocabulary)
            paths[file] = writer.add_vocabulary(file, item.ids)
    dense, sparse = specs_of(schema, {name: paths[file] for name, file in files.items()})
    looked_up = (
        with_lookups(kept, layout.of_input(item.name), rows=layout.rows(item))
        for kept, item in zip(sparse, schema.sparse, strict=True)
    )
    return [*dense, *looked_up]


def _producer() -> Producer:
    version = importlib.metadata.version
    for name in FBGEMM_DISTRIBUTIONS:
        try:
            fbgemm = version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        ours = embershard.version.__version__
        return Producer(embershard=ours, torch=version("torch"), fbgemm_gpu=fbgemm)
    raise ExportError(f"expected one of {FBGEMM_DISTRIBUTIONS} to be installed, got neither")


DENSE_DTYPES: Mapping[str, DenseDtype] = {"fp32": "float32", "bf16": "bfloat16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportProgress:
    """How far an export is."""

    table: str
    rows_done: int
    """Over all tables."""

    rows_total: int


def export_model(
    module: nn.Module,
    schema: Schema,
    out: str | Path,
    *,
    weights: Weights = "int8",
    dense_dtype: str = "fp32",
    devices: str = "1xcpu",
    plan: str = "table",
    samples: Sequence[SampleRequest] | None = None,
    limits: Limits | None = None,
    progress: Callable[[ExportProgress], None] | None = None,
    seed: int = 0,
) -> Path:
    """Export a module as a package: quantized tables, id maps, a plan and the dense program.

    Everything is written beside ``out`` and appears there whole, or not at all. The program is
    compared with the module on random batches first, and the package carries requests with the
    outputs that its own bytes must give.

    ::

        es.export_model(
            model, schema, "repository/ranker/1", weights={"users": "int8", "items": "int4"}
        )

    Args:
        module: ``forward(dense, sparse)``: float32 ``(B, inputs)`` in schema order and a
            KeyedJaggedTensor of rows; gives a tensor (the output ``score``) or a dict of them. It
            must trace with torch.fx. A ``LogitModel`` is exported as what it says is
            ``served``, in essence the sigmoid of its logits. Left as it was; tables are read slice
            by slice.
        schema: the inputs.
        out: ``<repository>/<model>/<version>``; must not be there yet.
        weights: how tables are stored: int8, int4, fp16 or fp32, or a mapping from patterns of
            table names.
        dense_dtype: what linear layers of the dense program take, fp32 or bf16. In bf16 their
            operands and results are rounded, all else stays fp32; the report says what that does
            to the samples' outputs.
        devices: what the default plan places the tables on: ``2xcpu``, ``2xcpu:8GiB``. Processors
            only: `embershard plan` adds a plan for GPUs.
        plan: how: ``table``, ``row``, ``column``, ``replicate``, or ``auto``: by the costs that
            ship and what the samples look up.
        samples: real requests as ``SampleRequest``s, such as ``embershard.data.sample_requests``
            returns; their outputs are computed anew. None: a few random ones.
        limits: most that one request may hold. None: 4096 examples, 2**20 ids.
        progress: called as rows are written.
        seed: of everything random.

    Returns:
        ``out``.

    Raises:
        ExportError: a module that cannot be exported, or arguments that do not fit it.
        InputError: something is at ``out`` already, devices that cannot be read, an unknown
            ``plan``, or tables that do not fit the devices.
    """
    limits = default_limits() if limits is None else limits
    _check_kinds(module, schema, limits, seed)
    check_are_samples("samples", () if samples is None else samples)
    module = uncompiled(module)
    model, version = _identity(Path(out))
    fleet = _served(devices)
    check_strategy(plan)
    check_requests(samples or (), schema, limits)
    program = build_program(
        module.served(schema) if isinstance(module, LogitModel) else module,
        schema,
        dtype=_dtype(dense_dtype),
        samples=samples or (),
        seed=seed,
    )
    layout = program.layout
    kinds = weights_of(layout.tables, weights)
    chosen = samples or random_samples(schema, layout, limits=limits, seed=seed)
    checked = scored(chosen, program, kinds, random=not samples)
    exact = scored(chosen, program.float32, kinds) if program.float32 else None
    done, total = 0, sum(len(weight) for weight in layout.tables.values())

    def written(table: str, rows: int) -> None:
        nonlocal done
        done += rows
        if progress is not None:
            progress(ExportProgress(table=table, rows_done=done, rows_total=total))

    with PackageWriter(Path(out)) as writer:
        tables = [
            write_table(writer, name, weight, kinds[name], written=partial(written, name))
            for name, weight in layout.tables.items()
        ]
        inputs = write_inputs(writer, program)
        placed = place(tables, inputs, checked, fleet, strategy=plan)
        writer.add_plan(placed)
        writer.add_samples(checked)
        writer.add_file(PROGRAM_FILE, encode_program(program.script))
        writer.add_file(REPORT_FILE, report_json(tables, checked, exact))
        return writer.publish(
            PackageContents(
                model=model,
                version=version,
                producer=_producer(),
                inputs=inputs,
                outputs=program.outputs,
                tables=tables,
                programs=[
                    ProgramSpec(
                        kind="torchscript", target="cpu", dtype=program.dtype, file=PROGRAM_FILE
                    )
                ],
                plans=[placed.name],
                limits=limits,
            )
        )


def _check_kinds(module: object, schema: object, limits: object, seed: object) -> None:
    """A class in place of its instance is easily passed."""
    kinds = (("module", module, nn.Module), ("schema", schema, Schema), ("limits", limits, Limits))
    for name, given, kind in kinds:
        if not isinstance(given, kind):
            got = f"the class {given.__name__} itself" if isinstance(given, type) else given
            raise ExportError(f"{name}: expected a {kind.__name__}, got {got!s:.80}")
    if not isinstance(seed, Integral) or seed < 0:
        raise ExportError(f"seed: expected an integer from 0, got {seed!r}")
    if isinstance(module, DistributedModelParallel):
        raise ExportError(
            "module: expected one that lies in this process, got DistributedModelParallel; "
            "save_state it, then call export_checkpoint(folder, out, model=...)"
        )


def _identity(out: Path) -> tuple[str, int]:
    try:
        return identity_of(out)
    except InputError as problem:
        raise ExportError(str(problem)) from problem


def _dtype(dense_dtype: str) -> DenseDtype:
    if dense_dtype not in DENSE_DTYPES:
        raise ExportError(
            f"dense_dtype: expected one of {', '.join(DENSE_DTYPES)}, got {dense_dtype!r}"
        )
    return DENSE_DTYPES[dense_dtype]


def _served(devices: str) -> Fleet:
    """The devices of the package's first plan, which every machine has."""
    if not parse_devices(devices.partition(":")[0])[0].startswith("cpu:"):
        raise ExportError(
            f"devices: expected cpu, which every machine has, got {devices!r}; after the export "
            f"`embershard plan PACKAGE --devices {devices}` adds a plan for them"
        )
    return parse_fleet(devices)


NAME = "default"
AUTO = "auto"


def check_strategy(strategy: str) -> None:
    """Whether ``place`` knows it."""
    known = [*STRATEGIES, AUTO]
    if strategy not in known:
        raise InputError(f"plan: expected one of {', '.join(known)}, got {strategy!r}")


def place(
    tables: Sequence[TableSpec],
    inputs: Sequence[InputSpec],
    samples: Sequence[SampleRequest],
    fleet: Fleet,
    *,
    strategy: str,
) -> Plan:
    """The package's default plan, by one of ``STRATEGIES``, or ``auto``: by what the samples look
    up. `InputError`: the tables do not fit the fleet."""
    if strategy == AUTO:
        sparse = [each for each in inputs if isinstance(each, SparseInputSpec)]
        load = load_of(tables, sparse, samples, source="the samples")
        machine = default_machine(fleet.kind, fleet.memory_bytes or 0)
        return plan_package(serving_problem(tables, fleet, load, machine), name=NAME)
    shards = tuple(STRATEGIES[strategy](tables, fleet.devices))
    plan = Plan(format_version=FORMAT_VERSION, name=NAME, devices=fleet.devices, shards=shards)
    check_memory(plan, tables, fleet)
    return plan
