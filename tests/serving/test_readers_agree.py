"""The Python and the C++ reader give the same verdict on every package."""

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from embershard.errors import PackageError
from embershard.package.reader import verify_package
from embershard.serving._native import load_extension
from tests.cases import cases
from tests.hostile.cases import CASES, HostileCase
from tests.hostile.draft import GOLDEN, NARROW, Draft
from tests.hostile.manifests import COMPILED

ACCEPTED = "accepted"

SPARE = "programs/dense.pt2"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()

# Values that stand at the edge of what some field may be, or that are of another kind.
AWKWARD: list[Any] = [
    *(None, True, False, 0, 1, -1, 4, 5, 8, 600, 2**31 - 1, 2**31, 2**40, 2**63 - 1, 2**63),
    *(2**64 - 1, -(2**63), 0.0, -0.0, 1.0, 1e-5, 1e15, -1e15, 999999999999999.9, 5e-324, 1e300),
    *("", "a", "users", "x" * 128, "x" * 129, "..", "a/../b", "/a", "é", "a\u2028b", "\x7f", "\t"),
    *("oov", "zero", "reject", "dense", "sparse", "identity", "hash", "vocab", "sum", "mean"),
    *("pooled", "sequence", "torchscript", "aotinductor", "cpu", "bfloat16"),
    *([], [0, 1], [[]], {}, {"kind": "dense"}),
]


def with_sequences() -> dict[str, Any]:
    """The golden manifest, its users and items looked up without pooling as well."""
    document: dict[str, Any] = json.loads((GOLDEN / "manifest.json").read_bytes())
    for place, table in ((2, "users"), (4, "items")):
        sequence = {"table": table, "output": "sequence", "pooling": None}
        document["inputs"][place]["lookups"].append(sequence)
    return document


def with_transforms() -> dict[str, Any]:
    """The golden manifest, its dense inputs with every kind of transform."""
    document: dict[str, Any] = json.loads((GOLDEN / "manifest.json").read_bytes())
    document["inputs"][0]["transforms"] = [
        {"kind": "clip", "low": 0, "high": 5e-5},
        {"kind": "log1p"},
    ]
    document["inputs"][1]["transforms"] = [
        {"kind": "standardize", "mean": -0.5, "deviation": 1e-15},
        {"kind": "bucketize", "boundaries": [-3, 0.25, 999999999999999.9]},
    ]
    return document


def with_compiled() -> dict[str, Any]:
    """The golden manifest with a compiled program, whose file is one that plays no other part."""
    document: dict[str, Any] = json.loads((GOLDEN / "manifest.json").read_bytes())
    document["programs"].append({**COMPILED, "file": SPARE})
    document["files"][SPARE] = {"bytes": 0, "sha256": EMPTY_SHA256}
    return document


def python_verdict(folder: Path) -> str:
    return _verdict(lambda: verify_package(folder))


def cpp_verdict(folder: Path) -> str:
    return _verdict(lambda: load_extension().verify_package(str(folder)))


def _verdict(verify: Callable[[], object]) -> str:
    try:
        verify()
    except PackageError as error:
        return str(error)
    return ACCEPTED


def places(document: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every value inside a JSON document."""
    inside: list[tuple[str | int, Any]] = []
    if isinstance(document, dict):
        inside = list(document.items())
    elif isinstance(document, list):
        inside = list(enumerate(document))
    for step, value in inside:
        yield (*path, step)
        yield from places(value, (*path, step))


def at(document: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


@st.composite
def mutations(draw: st.DrawFn, document: Any) -> Any:
    """``document`` with one value replaced, removed, or added where none belongs."""
    document = copy.deepcopy(document)
    everywhere = list(places(document))
    path = draw(st.sampled_from(everywhere))
    parent, step = at(document, path[:-1]), path[-1]
    elsewhere = st.sampled_from(everywhere).map(lambda other: at(document, other))
    value = copy.deepcopy(draw(st.sampled_from(AWKWARD) | elsewhere))
    kind = draw(st.sampled_from(["replace", "remove", "add"]))
    if kind == "replace":
        parent[step] = value
    elif kind == "remove":
        del parent[step]
    elif isinstance(parent, list):
        parent.insert(int(step), value)
    else:
        parent["extra"] = value
    return document


def replace_manifest(draft: Draft, document: dict[str, Any]) -> None:
    """Another manifest, with the fingerprint and digest that belong to it."""

    def edit(old: dict[str, Any]) -> None:
        old.clear()
        old.update(document)

    draft.edit_manifest(edit)


@pytest.fixture
def draft(tmp_path: Path) -> Draft:
    return Draft(tmp_path / "1")


def test_both_readers_take_the_golden_package() -> None:
    assert (python_verdict(GOLDEN), cpp_verdict(GOLDEN)) == (ACCEPTED, ACCEPTED)


def test_both_readers_take_sequences(draft: Draft) -> None:
    replace_manifest(draft, with_sequences())
    assert (python_verdict(draft.folder), cpp_verdict(draft.folder)) == (ACCEPTED, ACCEPTED)


def test_both_readers_take_transforms(draft: Draft) -> None:
    replace_manifest(draft, with_transforms())
    assert (python_verdict(draft.folder), cpp_verdict(draft.folder)) == (ACCEPTED, ACCEPTED)


def test_both_readers_take_a_compiled_program(draft: Draft) -> None:
    (draft.folder / SPARE).write_bytes(b"")
    replace_manifest(draft, with_compiled())
    assert (python_verdict(draft.folder), cpp_verdict(draft.folder)) == (ACCEPTED, ACCEPTED)


def test_both_readers_take_padded_rows() -> None:
    assert (python_verdict(NARROW), cpp_verdict(NARROW)) == (ACCEPTED, ACCEPTED)


@cases(
    ("file", "path", "value", "field"),
    {
        "row-not-padded": ("manifest.json", ("tables", 0, "row_bytes"), 4, ""),
        "no-columns": ("manifest.json", ("tables", 0, "dim"), 0, ""),
        "dim-over-the-row": ("manifest.json", ("tables", 0, "dim"), 5, "tables.0.row_bytes"),
        "dim-that-the-plan-does-not-cover": (
            "manifest.json",
            ("tables", 0, "dim"),
            2,
            "plans/default.json: shards",
        ),
        "edge-within-4": ("plans/columns.json", ("shards", 2, "columns"), [0, 5], ""),
        "begins-within-4": ("plans/columns.json", ("shards", 3, "columns"), [5, 6], ""),
        "in-the-padding": ("plans/columns.json", ("shards", 3, "columns"), [4, 8], ""),
        "ends-before-the-dim": ("plans/columns.json", ("shards", 3, "columns"), [4, 5], ""),
    },
)
def test_both_readers_refuse_wrong_padding_for_the_same_field(
    file: str, path: tuple[str | int, ...], value: Any, field: str, tmp_path: Path
) -> None:
    draft = Draft(tmp_path / "1", NARROW)

    def edit(document: Any) -> None:
        at(document, path[:-1])[path[-1]] = value

    if file == "manifest.json":
        draft.edit_manifest(edit)
    else:
        draft.edit_json(file, edit)
    expected = (
        field if field.startswith("plans/") else f"{file}: {field or '.'.join(map(str, path))}"
    )
    for verdict in (python_verdict(draft.folder), cpp_verdict(draft.folder)):
        assert verdict.startswith(expected)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["manifest.json", "plans/columns.json"]).flatmap(
        lambda file: st.tuples(st.just(file), mutations(json.loads((NARROW / file).read_bytes())))
    )
)
def test_both_readers_judge_padded_rows_alike(
    changed: tuple[str, dict[str, Any]],
) -> None:
    file, document = changed
    with TemporaryDirectory() as folder:
        draft = Draft(Path(folder) / "1", NARROW)
        if file == "manifest.json":
            replace_manifest(draft, document)
        else:
            draft.replace(file, json.dumps(document).encode())
        python, cpp = python_verdict(draft.folder), cpp_verdict(draft.folder)
    assert (python == ACCEPTED) == (cpp == ACCEPTED), (python, cpp)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_cpp_reader_refuses_a_hostile_package_by_that_field(
    case: HostileCase, tmp_path: Path
) -> None:
    verdict = cpp_verdict(case.build(tmp_path))
    assert case.is_named_by(verdict), verdict


@settings(max_examples=400, deadline=None)
@given(
    mutations(json.loads((GOLDEN / "manifest.json").read_bytes()))
    | mutations(with_sequences())
    | mutations(with_compiled())
    | mutations(with_transforms())
)
def test_both_readers_judge_a_changed_manifest_alike(document: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        draft = Draft(Path(folder) / "1")
        if SPARE in str(document):
            (draft.folder / SPARE).write_bytes(b"")
        replace_manifest(draft, document)
        python, cpp = python_verdict(draft.folder), cpp_verdict(draft.folder)
    assert (python == ACCEPTED) == (cpp == ACCEPTED), (python, cpp)


@settings(max_examples=300, deadline=None)
@given(mutations(json.loads((GOLDEN / "plans/halves.json").read_bytes())))
def test_both_readers_judge_a_changed_plan_alike(document: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        draft = Draft(Path(folder) / "1")
        draft.replace("plans/halves.json", json.dumps(document).encode())
        python, cpp = python_verdict(draft.folder), cpp_verdict(draft.folder)
    assert (python == ACCEPTED) == (cpp == ACCEPTED), (python, cpp)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["manifest.json", "plans/halves.json", "ids/user.safetensors"]),
    st.data(),
)
def test_both_readers_judge_changed_bytes_alike(file: str, data: st.DataObject) -> None:
    old = (GOLDEN / file).read_bytes()
    begin = data.draw(st.integers(0, len(old) - 1))
    end = data.draw(st.integers(begin, min(len(old), begin + 8)))
    new = data.draw(st.binary(max_size=3) | st.sampled_from([b'"', b"{", b"]", b",", b"0", b"\n"]))
    changed = old[:begin] + new + old[end:]
    assume(changed != old)
    with TemporaryDirectory() as folder:
        draft = Draft(Path(folder) / "1")
        if file == "manifest.json":
            draft.write_manifest(changed)
        else:
            draft.replace(file, changed)
        python, cpp = python_verdict(draft.folder), cpp_verdict(draft.folder)
    assert (python == ACCEPTED) == (cpp == ACCEPTED), (python, cpp)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e15, 1e15, exclude_min=True, exclude_max=True), min_size=1))
@example([0.1 + 0.2, 1e-5, 0.0001, -0.0, 123456789012345.67, 2.0**49 + 0.5, 5e-324])
def test_both_readers_take_the_fingerprint_of_any_defaults(defaults: list[float]) -> None:
    """The samples know nothing of the added inputs: that is where both readers stop, and not
    before, at the fingerprint."""
    with TemporaryDirectory() as folder:
        draft = Draft(Path(folder) / "1")
        document = draft.manifest()
        document["inputs"][:0] = [
            {"kind": "dense", "name": f"d{place}", "scope": "example", "default": default}
            for place, default in enumerate(defaults)
        ]
        replace_manifest(draft, document)
        verdicts = python_verdict(draft.folder), cpp_verdict(draft.folder)
    for verdict in verdicts:
        assert verdict.startswith("samples.safetensors: 0/example_dense: ")


@pytest.mark.parametrize(
    "text", ["25e-2", "0.250", "2.5E-1", "1e0", "-0.0", "-0", "0", "7", "1234567890123456789e-6"]
)
def test_both_readers_take_a_default_however_it_is_written(text: str, draft: Draft) -> None:
    placeholder = -987654321
    document = draft.manifest()
    document["inputs"][1]["default"] = json.loads(text)
    replace_manifest(draft, document)
    fingerprint = draft.manifest()["schema"]
    document["inputs"][1]["default"] = placeholder
    document["schema"] = fingerprint
    draft.write_manifest(json.dumps(document).replace(str(placeholder), text).encode())
    assert (python_verdict(draft.folder), cpp_verdict(draft.folder)) == (ACCEPTED, ACCEPTED)
