"""Programs on disk, as modules that torch.export follows."""

import pytest
import torch

from embershard.errors import ExportError
from embershard.export import compiled_package, export_model
from embershard.export.compiled_package import compile_ahead
from embershard.export.reloaded import ReloadedProgram
from embershard.export.torchscript import save_program
from embershard.package import Package
from tests.cases import cases
from tests.export.models import SCHEMA, Ranker, dlrm
from tests.serving.attending import export_attending
from tests.serving.models import export_ranker, make_ranker

R, B = 3, 7


def batch(package):
    """A batch as docs/format.md says, of random values."""
    dims = {table.name: table.dim for table in package.manifest.tables}
    torch.manual_seed(1)
    inputs = []
    for scope, count in (("request", R), ("example", B)):
        dense = [each for each in package.manifest.dense if each.scope == scope]
        tables = [
            lookup.table
            for each in package.manifest.sparse
            if each.scope == scope
            for lookup in each.lookups
        ]
        width = sum(dims[table] for table in tables)
        inputs.append([torch.randn(count, len(dense)), torch.randn(count, width)])
    return (*inputs, torch.tensor([0, 0, 0, 1, 1, 2, 2]))


def reloaded(package, **options):
    file = package.path / package.manifest.torchscript.file
    names = [each.name for each in package.manifest.outputs]
    script = torch.jit.load(file)
    return ReloadedProgram(file, names, **options), script, names


PACKAGES = {
    "several-outputs": export_ranker,
    "marked": lambda folder: export_model(Ranker(), SCHEMA, folder / "ranker" / "1"),
    "dlrm": lambda folder: export_model(dlrm(), SCHEMA, folder / "dlrm" / "1"),
    "rounded": lambda folder: export_model(
        *make_ranker(), folder / "ranker" / "1", dense_dtype="bf16"
    ),
}

pytestmark = pytest.mark.filterwarnings(r"ignore:.*torch\.jit:DeprecationWarning")


@pytest.mark.parametrize("name", PACKAGES)
def test_it_gives_what_torchscript_gives(tmp_path, name):
    package = Package.open(PACKAGES[name](tmp_path))
    program, script, names = reloaded(package, dtype="float32")
    inputs = batch(package)
    expected = script(*inputs)
    for output, found in zip(names, program(*inputs), strict=True):
        assert torch.equal(found, expected[output]), output


def test_in_bfloat16_it_is_near_that_and_not_the_same(tmp_path):
    package = Package.open(export_ranker(tmp_path))
    program, script, names = reloaded(package, dtype="bfloat16")
    inputs = batch(package)
    expected = script(*inputs)
    for output, found in zip(names, program(*inputs), strict=True):
        assert found.dtype == torch.float32
        assert 0 < (found - expected[output]).abs().max() < 0.02, output


def test_torch_export_keeps_both_sizes_open(tmp_path):
    package = Package.open(export_ranker(tmp_path))
    program, script, names = reloaded(package, dtype="float32")
    requests, examples = torch.export.Dim("requests"), torch.export.Dim("examples")
    sizes = ([{0: requests}] * 2, [{0: examples}] * 2, {0: examples})
    exported = torch.export.export(program, batch(package), dynamic_shapes=sizes, strict=False)
    (one, wide), (dense, pooled), _ = batch(package)
    other = ([one[:1], wide[:1]], [dense[:5], pooled[:5]], torch.zeros(5, dtype=torch.int64))
    expected = script(*other)
    for output, found in zip(names, exported.module()(*other), strict=True):
        assert torch.allclose(found, expected[output], atol=1e-6), output


def scripted(source):
    class Written(torch.nn.Module):
        """Of a type of its own: a script's methods are those of its type."""

    with pytest.warns(DeprecationWarning, match=r"torch\.jit"):
        script = torch.jit.script(Written())
    script.define(source)
    return script


def test_a_program_that_branches_is_refused(tmp_path):
    source = (
        "def forward(self, a: List[Tensor], b: List[Tensor], c: Tensor) -> Dict[str, Tensor]:\n"
        "    score = b[0].sum(dim=1)\n"
        "    if bool(score.sum() > 0):\n"
        "        score = score + 1\n"
        '    return {"score": score}\n'
    )
    save_program(scripted(source), tmp_path / "dense.pt")
    words = r"cannot be compiled: expected operators of torch in its TorchScript, got "
    with pytest.raises(ExportError, match=words):
        ReloadedProgram(tmp_path / "dense.pt", ["score"], dtype="float32")


def test_a_file_that_is_no_program_is_refused(tmp_path):
    (tmp_path / "dense.pt").write_bytes(b"nothing")
    with pytest.raises(ExportError, match=r"dense\.pt: expected a program in TorchScript, got "):
        ReloadedProgram(tmp_path / "dense.pt", ["score"], dtype="float32")


@cases(
    ("lines", "words"),
    {
        "on-a-value": (
            ["n = int(c.max())", "if n == 0:", "    score = score + 1"],
            "expected no branch on what a batch holds",
        ),
        "on-a-size": (
            ["if b[0].size(0) == 1:", "    score = score + 1"],
            "expected sizes to be compared with 0 alone",
        ),
        "a-loop-over-examples": (
            ["for i in range(b[0].size(0)):", "    score = score + i"],
            "expected a loop of a number of turns",
        ),
    },
)
def test_what_a_batch_decides_is_refused(tmp_path, lines, words):
    """One side of it alone would be compiled."""
    body = "".join(f"    {line}\n" for line in lines)
    source = (
        "def forward(self, a: List[Tensor], b: List[Tensor], c: Tensor) -> Dict[str, Tensor]:\n"
        f'    score = b[0].sum(dim=1)\n{body}    return {{"score": score}}\n'
    )
    save_program(scripted(source), tmp_path / "dense.pt")
    program = ReloadedProgram(tmp_path / "dense.pt", ["score"], dtype="float32")
    examples = torch.export.Dim("examples")
    sizes = ([], [{0: examples}], {0: examples})
    given = ([], [torch.randn(3, 2)], torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ExportError, match=words):
        torch.export.export(program, given, dynamic_shapes=sizes, strict=False)


def test_sequences_of_any_lengths_give_what_torchscript_gives(tmp_path):
    package = Package.open(export_attending(tmp_path, weights="int8"))
    file, manifest = package.path / package.manifest.torchscript.file, package.manifest
    names = [each.name for each in manifest.outputs]
    program = ReloadedProgram(file, names, dtype="float32").eval()
    given, sizes = compiled_package._inputs(manifest)
    exported = torch.export.export(program, given, dynamic_shapes=sizes, strict=False).module()
    with pytest.warns(DeprecationWarning, match=r"torch\.jit"):
        script = torch.jit.load(str(file))
    for lengths in ([2, 0, 5], [0, 0, 1], [9, 9, 9]):
        offsets = torch.tensor([0, *lengths]).cumsum(0)
        request, example, places = [list(given[0]), list(given[1]), given[2]]
        for place in (2, 4):  # The history, in two tables.
            request[place] = torch.randn(int(offsets[-1]), request[place].shape[1])
            request[place + 1] = offsets
        expected = script(request, example, places)
        for name, found in zip(names, exported(request, example, places), strict=True):
            assert torch.allclose(found, expected[name], atol=1e-6), name


def test_a_time_that_is_over_is_an_error(tmp_path):
    package = Package.open(export_ranker(tmp_path))
    with pytest.raises(ExportError, match=r"expected to be compiled within 0\.01 s, and was not"):
        compile_ahead(package, tmp_path / "x.pt2", dtype="float32", timeout_seconds=0.01)


def test_without_a_compiler_it_says_what_to_install(tmp_path, monkeypatch):
    package = Package.open(export_ranker(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    words = "expected a C\\+\\+ compiler, no-such-compiler, got none; install it"
    with pytest.raises(ExportError, match=words):
        compile_ahead(package, tmp_path / "x.pt2", dtype="float32", timeout_seconds=100)
