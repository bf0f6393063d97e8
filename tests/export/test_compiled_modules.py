"""Modules of torch.compile are exported like the modules that they compile."""

import pytest
import torch
from torch import nn

from embershard.export import export_model
from embershard.export.program_builder import build_program
from embershard.package import Package, verify_package
from tests.export.expanding import Case, Forward
from tests.export.models import SCHEMA, collection, dlrm
from tests.export.test_scopes import checked

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


@pytest.fixture
def no_compiler():
    """Options of torch.compile whose compiler fails if it is called."""

    def refuse(graph, inputs):
        raise AssertionError("nothing is compiled")

    return {"backend": refuse}


def tower():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.GELU())


def in_place_with(module, **options):
    module.compile(**options)
    return module


COMPILED = {
    "layer": lambda options: torch.compile(tower(), **options),
    "layer-of-a-layer": lambda options: nn.Sequential(
        tower(), torch.compile(nn.Sequential(torch.compile(tower(), **options)), **options)
    ),
    "layer-in-place": lambda options: in_place_with(tower(), **options),
    "torch-layer": lambda options: torch.compile(nn.Linear(4, 4), **options),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_layer_at_any_depth_is_exported(name, no_compiler):
    module = Forward(
        lambda m, d, s: m.tower(m.embeddings(s)["item"]) + m.embeddings(s)["user"],
        embeddings=collection(),
        tower=COMPILED[name](no_compiler),
    )
    with torch.compiler.set_stance("force_eager"):
        checked(module)


@pytest.mark.parametrize("compiled", [torch.compile, in_place_with], ids=["wrapped", "in-place"])
def test_compiled_embedding_collection_is_exported(no_compiler, compiled):
    module = Forward(
        lambda m, d, s: m.embeddings(s).values(), embeddings=compiled(collection(), **no_compiler)
    )
    program = build_program(module, SCHEMA, seed=0)
    assert set(program.layout.tables) == {"items", "users"}


def test_compiled_function_is_exported(no_compiler):
    double = torch.compile(lambda x: x * 2, **no_compiler)
    module = Forward(lambda m, d, s: double(m.embeddings(s)["item"]), embeddings=collection())
    program = build_program(module, SCHEMA, seed=0)
    inputs = Case(module, SCHEMA).program_inputs()
    torch.testing.assert_close(
        program.script(*inputs)["score"], inputs[1][1] * 2, rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("in_place_too", [False, True])
def test_compiled_model_is_exported_as_what_it_serves(no_compiler, in_place_too, tmp_path):
    model = dlrm()
    if in_place_too:
        model.compile(**no_compiler)
    package = export_model(torch.compile(model, **no_compiler), SCHEMA, tmp_path / "dlrm" / "1")
    verify_package(package)
    (output,) = Package.open(package).manifest.outputs
    assert (output.name, output.scope) == ("score", "example")
