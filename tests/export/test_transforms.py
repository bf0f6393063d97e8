"""A dense program takes raw values, transforms each at its own scope, and then runs the model."""

import dataclasses

import pytest
import torch
from torch import fx, nn
from torch.testing import assert_close

from embershard.errors import ExportError
from embershard.export import export_model
from embershard.export.program_builder import build_program
from embershard.modules import DenseTransforms, to_examples
from embershard.package import Bucketize, Clip, Log1p, Package, Schema, Standardize
from tests.cases import cases
from tests.export.expanding import Case, Forward
from tests.export.models import SCHEMA, Ranker, collection, dlrm

R, B = 5, 11
TRANSFORMS = ((Clip(-0.5, 2), Log1p()), (Standardize(0.25, 3), Bucketize([-0.5, 0, 0.1])), ())


def with_transforms(transforms):
    pairs = zip(SCHEMA.dense, transforms, strict=True)
    dense = [dataclasses.replace(item, transforms=added) for item, added in pairs]
    return Schema(dense=dense, sparse=SCHEMA.sparse)


TRANSFORMED = with_transforms(TRANSFORMS)


def function(forward, **submodules):
    return Forward(forward, embeddings=collection(), **submodules)


def expected(module, schema):
    """Outputs of the module for transformed values, and the program's inputs of raw values."""
    case = Case(module, schema)
    dense, sparse = case.module_inputs()
    with torch.no_grad():
        outputs = module.eval()(DenseTransforms(schema)(dense), sparse)
    return outputs, case.program_inputs()


@cases(
    "module",
    {
        "without-a-mark": lambda: function(lambda m, d, s: m.embeddings(s)["user"][:, :3] * d),
        "columns": lambda: function(
            lambda m, d, s: d[:, 1] * d[:, 0] + m.embeddings(s)["item"][:, 0]
        ),
        "user-tower": Ranker,
        "dlrm": lambda: dlrm().served(SCHEMA),
    },
)
@pytest.mark.parametrize(
    "transforms", [TRANSFORMS, (TRANSFORMS[0], (), ()), ((), (), TRANSFORMS[1])]
)
def test_a_program_of_raw_values_gives_what_the_module_does(module, transforms):
    built, schema = module(), with_transforms(transforms)
    scores, arguments = expected(built, schema)
    program = build_program(built, schema, seed=0)
    assert_close(program.script(*arguments)["score"], scores, rtol=1e-5, atol=1e-6)


def test_request_columns_are_transformed_once_per_request():
    module = Ranker()
    program = build_program(module, TRANSFORMED, seed=0)
    shapes = {}

    class Watching(fx.Interpreter):
        def run_node(self, node):
            result = super().run_node(node)
            shapes[str(node.target)] = getattr(result, "shape", None)
            return result

    for scope in ("request", "example"):
        transforms = DenseTransforms(TRANSFORMED, scope)
        setattr(module, f"embershard_{scope}_transforms", transforms)
    graph = fx.GraphModule(module, program.graph)
    Watching(graph).run(*Case(module, TRANSFORMED).program_inputs())

    assert shapes["embershard_request_transforms"] == (R, 1)
    assert shapes["embershard_example_transforms"] == (B, 2)
    assert shapes["tower"] == (R, 3)


def test_a_mark_takes_a_transformed_request_column():
    module = function(
        lambda m, d, s: {
            "age": d[:, 0],
            "score": to_examples(d[:, 0]) + m.embeddings(s)["item"][:, 0],
        }
    )
    program = build_program(module, TRANSFORMED, seed=0)
    assert [(output.name, output.scope) for output in program.outputs] == [
        ("age", "request"),
        ("score", "example"),
    ]


def test_bfloat16_layers_leave_transforms_in_float32():
    module = function(
        lambda m, d, s: {"score": m.layer(m.embeddings(s)["item"]).sum(1), "dense": d + 0},
        layer=nn.Linear(4, 8),
    )
    outputs, arguments = expected(module, TRANSFORMED)
    program = build_program(module, TRANSFORMED, dtype="bfloat16", seed=0)
    assert_close(program.script(*arguments)["dense"], outputs["dense"], rtol=2e-7, atol=0)


def test_random_samples_suit_a_logarithm(tmp_path):
    schema = with_transforms(((Log1p(),), (Log1p(),), (Log1p(),)))
    package = Package.open(export_model(Ranker(), schema, tmp_path / "m" / "1"))
    assert package.schema().dense == schema.dense
    assert all((sample.example_dense >= 0).all() for sample in package.samples())


def test_a_sample_without_a_finite_score_is_refused(tmp_path):
    schema = with_transforms(((Log1p(),), (), ()))
    samples = Package.open(export_model(Ranker(), SCHEMA, tmp_path / "m" / "1")).samples()
    samples[0].request_dense[:] = -2
    with pytest.raises(ExportError, match="output 'score': expected finite values"):
        export_model(Ranker(), schema, tmp_path / "m" / "2", samples=samples[:1])
