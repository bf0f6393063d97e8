"""Programs on disk, as modules that torch.export follows."""

import pytest
import torch

from embershard.errors import ExportError
from embershard.export import export_model
from embershard.export.ahead_of_time import compile_ahead
from embershard.export.reloaded import ReloadedProgram
from embershard.export.torchscript import save_program
from embershard.package import Package
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


def test_a_program_that_branches_is_refused(tmp_path):
    source = (
        "def forward(self, a: List[Tensor], b: List[Tensor], c: Tensor) -> Dict[str, Tensor]:\n"
        "    score = b[0].sum(dim=1)\n"
        "    if bool(score.sum() > 0):\n"
        "        score = score + 1\n"
        '    return {"score": score}\n'
    )
    with pytest.warns(DeprecationWarning, match=r"torch\.jit"):
        script = torch.jit.script(torch.nn.Module())
    script.define(source)
    save_program(script, tmp_path / "dense.pt")
    words = r"cannot be compiled: expected operators of torch in its TorchScript, got "
    with pytest.raises(ExportError, match=words):
        ReloadedProgram(tmp_path / "dense.pt", ["score"], dtype="float32")


def test_a_file_that_is_no_program_is_refused(tmp_path):
    (tmp_path / "dense.pt").write_bytes(b"nothing")
    with pytest.raises(ExportError, match=r"dense\.pt: expected a program in TorchScript, got "):
        ReloadedProgram(tmp_path / "dense.pt", ["score"], dtype="float32")


def test_sequences_are_refused_by_name(tmp_path):
    package = Package.open(export_attending(tmp_path, weights="int8"))
    with pytest.raises(ExportError, match="input 'history': expected pooled inputs"):
        compile_ahead(package, tmp_path / "x.pt2", dtype="float32", timeout_seconds=100)


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
