"""Exports a trained module as a package."""

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
from embershard.export.samples import check_requests, random_samples, score_samples
from embershard.export.tables import Weights, weights_of, write_table
from embershard.export.torchscript import encode_program
from embershard.export.trace import uncompiled
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
    """Write the vocabularies, and return the manifest's specs of the inputs."""
    schema, layout = program.schema, program.layout
    files = vocabulary_files(schema)
    paths: dict[str, str] = {}
    for item in schema.sparse:
        file = files.get(item.name)
        if file is not None and file not in paths:
            assert isinstance(item.ids, Vocabulary)
            paths[file] = writer.add_vocabulary(file, item.ids)
    dense, sparse = specs_of(schema, {name: paths[file] for name, file in files.items()})
    with_tables = (
        with_lookups(spec, layout.of_input(item.name), rows=layout.rows(item))
        for spec, item in zip(sparse, schema.sparse, strict=True)
    )
    return [*dense, *with_tables]


def _producer() -> Producer:
    version = importlib.metadata.version
    for name in FBGEMM_DISTRIBUTIONS:
        try:
            fbgemm = version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        ours = embershard.version.__version__
        return Producer(embershard=ours, torch=version("torch"), fbgemm_gpu=fbgemm)
    raise ExportError(
        f"expected one of {', '.join(FBGEMM_DISTRIBUTIONS)} to be installed, got none"
    )


DENSE_DTYPES: Mapping[str, DenseDtype] = {"fp32": "float32", "bf16": "bfloat16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportProgress:
    table: str

    rows_done: int
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

    The program is compared with the module on random batches first. The package contains sample
    requests with the outputs that a server must return. The package appears at ``out`` when it is
    complete.

    ::

        es.export_model(
            model, schema, "repository/ranker/1", weights={"users": "int8", "items": "int4"}
        )

    Args:
        module: has ``forward(dense, sparse)``, where ``dense`` is float32 ``(B, inputs)`` in
            schema order and ``sparse`` a KeyedJaggedTensor of rows. It returns a tensor (the
            output ``score``) or a dict of tensors, and can be traced with torch.fx. For a
            ``LogitModel`` the module that its ``served`` returns is exported, usually the sigmoid
            of its logits. The module is not changed.
        schema: the inputs.
        out: ``<repository>/<model>/<version>``, which must not exist.
        weights: type of the stored weights: int8, int4, fp16 or fp32, or a mapping from patterns
            of table names to types.
        dense_dtype: fp32, or bf16 to round operands and results of linear layers with 8 or more
            outputs to bfloat16. The report compares the samples' outputs with those of fp32.
        devices: devices of the default plan, such as ``2xcpu`` or ``2xcpu:8GiB``. Only processors;
            `embershard plan` adds a plan for GPUs.
        plan: strategy of the default plan: ``table``, ``row``, ``column``, ``replicate``, or
            ``auto``, which plans for the samples' lookups by embershard's default costs.
        samples: real requests, such as ``embershard.data.sample_requests`` returns. Their outputs
            are computed again. None: a few random requests.
        limits: limits of one request. None: 4096 examples, 2**20 ids.
        progress: called while rows are written.
        seed: seed of all random numbers.

    Returns:
        ``out``.

    Raises:
        ExportError: the module cannot be exported, or the arguments do not fit it.
        InputError: ``out`` exists, ``devices`` or ``plan`` is invalid, or the tables do not fit
            the devices.
    """
    limits = default_limits() if limits is None else limits
    _check_kinds(module, schema, limits, seed)
    check_are_samples("samples", () if samples is None else samples)
    module = uncompiled(module)
    model, version = _identity(Path(out))
    fleet = _default_fleet(devices)
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
    scored = score_samples(chosen, program, kinds, random=not samples)
    exact = score_samples(chosen, program.float32, kinds) if program.float32 else None
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
        default_plan = make_default_plan(tables, inputs, scored, fleet, strategy=plan)
        writer.add_plan(default_plan)
        writer.add_samples(scored)
        writer.add_file(PROGRAM_FILE, encode_program(program.script))
        writer.add_file(REPORT_FILE, report_json(tables, scored, exact))
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
                plans=[default_plan.name],
                limits=limits,
            )
        )


def _check_kinds(module: object, schema: object, limits: object, seed: object) -> None:
    kinds = (("module", module, nn.Module), ("schema", schema, Schema), ("limits", limits, Limits))
    for name, value, kind in kinds:
        if not isinstance(value, kind):
            # A frequent mistake is to pass a class in place of its instance.
            got = f"the class {value.__name__} itself" if isinstance(value, type) else value
            raise ExportError(f"{name}: expected a {kind.__name__}, got {got!s:.80}")
    if not isinstance(seed, Integral) or seed < 0:
        raise ExportError(f"seed: expected an integer from 0, got {seed!r}")
    if isinstance(module, DistributedModelParallel):
        raise ExportError(
            "module: expected a module whose weights are all in this process, got "
            "DistributedModelParallel; write its weights with save_state, then call "
            "export_checkpoint(folder, out, model=...)"
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


def _default_fleet(devices: str) -> Fleet:
    """The devices of the package's default plan. Every machine must have them."""
    if not parse_devices(devices.partition(":")[0])[0].startswith("cpu:"):
        raise ExportError(
            f"devices: expected processors, which every machine has, got {devices!r}; export for "
            f"processors, then add a plan with `embershard plan PACKAGE --devices {devices}`"
        )
    return parse_fleet(devices)


NAME = "default"
AUTO = "auto"


def check_strategy(strategy: str) -> None:
    known = [*STRATEGIES, AUTO]
    if strategy not in known:
        raise InputError(f"plan: expected one of {', '.join(known)}, got {strategy!r}")


def make_default_plan(
    tables: Sequence[TableSpec],
    inputs: Sequence[InputSpec],
    samples: Sequence[SampleRequest],
    fleet: Fleet,
    *,
    strategy: str,
) -> Plan:
    """The package's default plan. ``strategy``: one of ``STRATEGIES``, or ``auto``, which plans for
    the samples' lookups. `InputError`: the tables do not fit the fleet."""
    if strategy == AUTO:
        sparse = [spec for spec in inputs if isinstance(spec, SparseInputSpec)]
        load = load_of(tables, sparse, samples, source="the samples")
        machine = default_machine(fleet.kind, fleet.memory_bytes or 0)
        return plan_package(serving_problem(tables, fleet, load, machine), name=NAME)
    shards = tuple(STRATEGIES[strategy](tables, fleet.devices))
    plan = Plan(format_version=FORMAT_VERSION, name=NAME, devices=fleet.devices, shards=shards)
    check_memory(plan, tables, fleet)
    return plan
