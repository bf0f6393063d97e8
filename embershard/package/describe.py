"""Describes a package as text, for `embershard inspect`."""

from collections.abc import Iterable, Sequence

from embershard.formatting import count_text, devices_text, megabytes_text
from embershard.package.input_specs import known_ids
from embershard.package.manifest import Manifest, OutputSpec, TableSpec
from embershard.package.manifest_inputs import Ids, InputSpec, TransformSpec, VocabIds
from embershard.package.placement import device_bytes
from embershard.package.plan import Plan
from embershard.package.reader import Package
from embershard.package.safetensors_file import open_vocabulary

_SHOWN_DEVICES = 4
_SHOWN_IDS = 3
_SHOWN_BOUNDARIES = 8
_LARGE = 1 << 48


def describe_package(package: Package) -> str:
    """Describe tables, inputs, outputs and plans, as text that ends with a newline. MB are 10**6
    bytes of stored rows, without file headers. Errors are differences between stored values and the
    float32 weights."""
    manifest, plan = package.manifest, package.plan()
    sections = [
        [_headline(manifest)],
        _columns(
            [
                "table",
                "rows",
                "dim",
                "weights",
                "MB",
                "fp32 MB",
                "mse",
                "max error",
                f"plan {plan.name}",
            ],
            [_table_line(table, plan) for table in manifest.tables],
        ),
        _columns(
            ["input", "kind", "scope", "ids", "lookups"],
            [_input_line(spec, package) for spec in manifest.inputs],
        ),
        _columns(
            ["output", "scope", "shape"],
            [[output.name, output.scope, _shape(output)] for output in manifest.outputs],
        ),
        _columns(
            ["plan", "devices", "shards", "MB a device"],
            [_plan_line(package.plan(name), manifest) for name in manifest.plans],
        ),
        _footer(manifest),
    ]
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _headline(manifest: Manifest) -> str:
    stored = sum(table.table_bytes for table in manifest.tables)
    fp32 = sum(table.fp32_bytes for table in manifest.tables)
    return "   ".join(
        [
            f"{manifest.model} {manifest.version}",
            f"format {manifest.format_version}",
            f"{count_text(len(manifest.tables), 'table')}, {len(manifest.sparse)} sparse "
            f"and {count_text(len(manifest.dense), 'dense input')}",
            f"{megabytes_text(stored)} MB (fp32 {megabytes_text(fp32)} MB)",
        ]
    )


def _table_line(table: TableSpec, plan: Plan) -> list[str]:
    return [
        table.name,
        f"{table.rows:,}",
        str(table.dim),
        table.weights,
        megabytes_text(table.table_bytes),
        megabytes_text(table.fp32_bytes),
        f"{table.mse:.1e}",
        f"{table.max_error:.1e}",
        _placement(table, plan),
    ]


def _placement(table: TableSpec, plan: Plan) -> str:
    """The devices of a table: "cpu:0", "rows over cpu:0, cpu:1", "4 parts over cpu:0, cpu:1"."""
    shards = [shard for shard in plan.shards if shard.table == table.name]
    used = sorted({device for shard in shards for device in shard.devices})
    where = devices_text([plan.devices[device] for device in used], shown=_SHOWN_DEVICES)
    if len(shards) == 1:
        return where if len(used) == 1 else f"replicas on {where}"
    if all(shard.columns == (0, table.dim) for shard in shards):
        return f"rows over {where}"
    if all(shard.rows == (0, table.rows) for shard in shards):
        return f"columns over {where}"
    return f"{len(shards)} parts over {where}"


def _plan_line(plan: Plan, manifest: Manifest) -> list[str]:
    default = " (default)" if plan.name == manifest.default_plan else ""
    held = device_bytes(plan, manifest.tables)
    least, most = megabytes_text(min(held)), megabytes_text(max(held))
    return [
        f"{plan.name}{default}",
        ", ".join(plan.devices)
        if len(plan.devices) <= _SHOWN_DEVICES
        else f"{len(plan.devices)}, {plan.devices[0]} .. {plan.devices[-1]}",
        str(len(plan.shards)),
        least if least == most else f"{least} .. {most}",
    ]


def _input_line(spec: InputSpec, package: Package) -> list[str]:
    if spec.kind == "dense":
        words = [] if spec.default is None else [f"default {spec.default:g}"]
        words += map(_transform, spec.transforms)
        return [spec.name, "dense", spec.scope, ", ".join(words), ""]
    kind = "sparse, weighted" if spec.weighted else "sparse"
    ids = _ids(spec.ids, package)
    if spec.max_ids:
        ids += f", at most {spec.max_ids} ({spec.keep})"
    lookups = ", ".join(f"{lookup.pooling or 'rows'} of {lookup.table}" for lookup in spec.lookups)
    return [spec.name, kind, spec.scope, ids, lookups]


def _transform(spec: TransformSpec) -> str:
    if spec.kind == "bucketize":
        numbers = [f"{boundary:g}" for boundary in spec.boundaries[:_SHOWN_BOUNDARIES]]
        numbers += ["..."] if len(spec.boundaries) > _SHOWN_BOUNDARIES else []
    else:
        numbers = [f"{value:g}" for key, value in spec if key != "kind"]
    return f"{spec.kind}({', '.join(numbers)})"


def _ids(ids: Ids, package: Package) -> str:
    if ids.kind == "hash":
        return f"hash to {ids.rows:,}"
    known = f"{ids.kind} of {known_ids(ids):,}"
    if ids.kind == "vocab":
        known += f" {_vocabulary_kind(package, ids)}"
    return f"{known}, unknown: {ids.unknown}"


def _vocabulary_kind(package: Package, ids: VocabIds) -> str:
    """Text such as "numbers (1, 2, 3, ...)" for a vocabulary. A package keeps strings only as
    hashes, spread over 64 bits. If the id at a quarter or at three quarters of the sorted ids
    fits into 48 bits, they are therefore numbers."""
    keys, _ = open_vocabulary(package.path / ids.file, ids.file)
    quarters = (int(keys[len(keys) // 4]), int(keys[len(keys) * 3 // 4]))
    if min(map(abs, quarters)) >= _LARGE:
        return "strings or large numbers"
    lowest = ", ".join(str(key) for key in keys[:_SHOWN_IDS])
    return f"numbers ({lowest}{', ...' if len(keys) > _SHOWN_IDS else ''})"


def _shape(output: OutputSpec) -> str:
    first = "1" if output.scope == "request" else "N"
    return f"[{', '.join([first, *map(str, output.shape)])}]"


def _footer(manifest: Manifest) -> list[str]:
    limits = manifest.limits
    programs = ", ".join(
        f"{program.kind} {program.dtype} on {program.target} "
        f"({megabytes_text(manifest.files[program.file].bytes)} MB)"
        for program in manifest.programs
    )
    producer = ", ".join(f"{name} {version}" for name, version in manifest.producer)
    return [
        f"limits     {limits.max_examples:,} examples and {limits.max_ids:,} ids a request",
        f"programs   {programs}",
        f"schema     {manifest.fingerprint}",
        f"producer   {producer}",
    ]


def _columns(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    table = [list(head), *map(list, lines)]
    widths = [max(len(line[place]) for line in table) for place in range(len(head))]
    return [
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]
