"""Programs return the outputs of their modules, and compute each value at its own scope."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.testing import assert_close

from embershard.export.program_builder import build_program
from embershard.models import Score
from embershard.modules import (
    MLP,
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    FusedEmbeddingBagCollection,
    PoolingType,
    to_examples,
)
from embershard.package import DenseInput, Schema, SparseInput
from tests.cases import cases
from tests.export.expanding import Case, Forward
from tests.export.models import SCHEMA, Ranker, collection, dlrm

R, B = 5, 11


def checked(module, schema=SCHEMA):
    """Builds the program, compares its outputs with the module's, and returns ``(spec, output)`` by
    name."""
    program = build_program(module, schema, seed=0)
    case = Case(module, schema)
    module.eval()
    with torch.no_grad():
        value = module(*case.module_inputs())
        outputs = program.script(*case.program_inputs())
    expected = value if isinstance(value, dict) else {"score": value}
    assert list(outputs) == list(expected) == [spec.name for spec in program.outputs]
    for spec in program.outputs:
        output = outputs[spec.name]
        expanded = output[case.request_of_example] if spec.scope == "request" else output
        assert_close(expanded, expected[spec.name], rtol=1e-5, atol=1e-6)
        assert output.shape[1:] == tuple(spec.shape)
    return {spec.name: (spec, outputs[spec.name]) for spec in program.outputs}


def function(forward, **submodules):
    return Forward(forward, embeddings=collection(), **submodules)


FORWARDS = {
    "one-vector": lambda m, d, s: m.embeddings(s)["item"].sum(1),
    "dense-alone": lambda m, d, s: d.sum(1) + m.embeddings(s)["user"].sum(dim=1),
    "dense-slices": lambda m, d, s: torch.cat([d[:, 1:], d[:, :2], m.embeddings(s)["user"]], 1),
    "dense-column": lambda m, d, s: d[:, 0] * d[:, -1] + m.embeddings(s)["item"][:, 0],
    "dense-columns-in-a-list": lambda m, d, s: d[:, [2, 0]] * m.embeddings(s)["item"][:, :2],
    "dense-every-second": lambda m, d, s: d[:, ::2] * m.embeddings(s)["item"][:, :2],
    "dense-with-a-dimension": lambda m, d, s: (
        d[:, None].flatten(1) + m.embeddings(s)["user"][:, :3]
    ),
    "all-vectors": lambda m, d, s: m.embeddings(s).values(),
    "as-a-dict": lambda m, d, s: m.embeddings(s).to_dict()["history"] * d[:, 1:2],
    "both-scopes-added": lambda m, d, s: m.embeddings(s)["user"] + m.embeddings(s)["item"],
    "a-vector-twice": lambda m, d, s: torch.cat([(p := m.embeddings(s))["user"], p["user"]], 1),
    "stacked": lambda m, d, s: torch.stack([(p := m.embeddings(s))["user"], p["item"]], dim=1).sum(
        1
    ),
    "einsum": lambda m, d, s: torch.einsum(
        "bd,bd->b", (p := m.embeddings(s))["history"], p["item"]
    ),
    "reshaped": lambda m, d, s: m.embeddings(s).values().reshape(-1, 3, 4).sum(1),
    "reshaped-by-shape": lambda m, d, s: (p := m.embeddings(s).values()).reshape(
        p.shape[0], 3, p.shape[1] // 3
    ),
    "reshaped-by-size": lambda m, d, s: (p := m.embeddings(s)["user"]).view(p.size(0), 2, -1),
    "zeros-of-a-size": lambda m, d, s: torch.cat(
        [d, d.new_zeros(d.shape[0], 2), m.embeddings(s)["user"]], 1
    ),
    "ones-like": lambda m, d, s: torch.ones_like(d[:, :1]) + m.embeddings(s)["item"],
    "constant": lambda m, d, s: m.embeddings(s)["user"] * torch.tensor([1.0, -2.0, 3.0, 0.5]),
    "scalars": lambda m, d, s: 1 - 2 * m.embeddings(s)["user"] ** 2 / (1 + d[:, :1].abs()),
    "where": lambda m, d, s: torch.where(d[:, :1] > 0, (p := m.embeddings(s))["user"], p["item"]),
    "softmax": lambda m, d, s: functional.softmax(m.embeddings(s)["user"], dim=1) * d[:, 1:2],
    "chunks": lambda m, d, s: torch.cat(m.embeddings(s)["user"].chunk(2, dim=1), dim=1),
    "largest": lambda m, d, s: m.embeddings(s)["user"].max(dim=1)[0] + d[:, 1],
    "dtype-of-a-request": lambda m, d, s: (
        d.to((p := m.embeddings(s)["user"]).dtype).sum(1) + p.shape[1] * p.ndim
    ),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_without_marks_outputs_equal_those_of_expanded_examples(name):
    module = function(FORWARDS[name])
    ((spec, output),) = checked(module).values()
    assert spec.scope == "example"
    assert len(output) == B


MARKED = {
    "tower": lambda m, d, s: (
        to_examples(torch.relu(m.tower(torch.cat([d[:, :1], (p := m.embeddings(s))["user"]], 1))))
        * p["item"][:, :3]
    ),
    "marked-last": lambda m, d, s: to_examples(m.embeddings(s)["history"].sum(1)),
    "marked-twice": lambda m, d, s: to_examples(u := m.embeddings(s)["user"]) + to_examples(u),
    "marked-constant": lambda m, d, s: m.embeddings(s)["user"] + to_examples(m.bias) * d[:, 1:2],
    "mixed-before-the-mark": lambda m, d, s: (
        to_examples((p := m.embeddings(s))["user"]) * p["history"] + p["item"]
    ),
    "all-vectors": lambda m, d, s: to_examples((p := m.embeddings(s))["user"]) * p.values()[:, 4:8],
    "size-of-an-example": lambda m, d, s: (
        to_examples(d[:, 0]) + m.embeddings(s)["user"].reshape(d.shape[0], 2, 2).sum((1, 2))
    ),
    "size-of-a-request": lambda m, d, s: (
        to_examples((p := m.embeddings(s)["user"]).reshape(p.shape[0], 2, 2).sum(1)) * d[:, 1:2]
    ),
    "width-of-a-request": lambda m, d, s: (
        d[:, 1:2] / (u := m.embeddings(s)["user"]).shape[1] + to_examples(u)
    ),
    "widths-of-a-request": lambda m, d, s: (
        to_examples(u := m.embeddings(s)["user"])
        * d[:, 1].reshape(-1, 1).expand(-1, u.shape[1:][0])
    ),
    "zeros-of-a-request": lambda m, d, s: (
        to_examples(torch.cat([(u := m.embeddings(s)["user"]), u.new_zeros(u.size(0), 1)], 1))
        + d[:, 1:2]
    ),
}


@pytest.mark.parametrize("name", MARKED)
def test_with_marks_outputs_equal_those_of_expanded_examples(name):
    module = function(MARKED[name], tower=nn.Linear(5, 3))
    module.bias = nn.Parameter(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    ((spec, output),) = checked(module).values()
    assert spec.scope == "example"
    assert len(output) == B


def test_a_marked_user_tower_runs_once_per_request():
    def forward(m, d, s):
        pooled = m.embeddings(s)
        tower = torch.relu(m.tower(torch.cat([d[:, :1], pooled["user"]], dim=1)))
        score = (to_examples(tower) * pooled["item"][:, :3]).sum(1)
        return {"score": score, "tower": tower, "seen": tower.new_ones(tower.shape[0])}

    outputs = checked(function(forward, tower=nn.Linear(5, 3)))

    assert [outputs[name][0].scope for name in outputs] == ["example", "request", "request"]
    assert outputs["tower"][1].shape == (R, 3)
    assert outputs["seen"][1].shape == (R,)
    assert outputs["score"][1].shape == (B,)


def test_without_a_mark_the_same_tower_runs_once_per_example():
    def forward(m, d, s):
        pooled = m.embeddings(s)
        return {"tower": torch.relu(pooled["user"]), "score": pooled["item"].sum(1)}

    spec, output = checked(function(forward))["tower"]

    assert (spec.scope, output.shape) == ("example", (B, 4))


@pytest.mark.parametrize("cls", [EmbeddingBagCollection, FusedEmbeddingBagCollection])
def test_dlrm(cls):
    ((spec, score),) = checked(Score(dlrm(cls))).values()
    assert (spec.name, spec.scope, spec.shape) == ("score", "example", ())
    assert ((score > 0) & (score < 1)).all()


@pytest.mark.parametrize("cls", [EmbeddingBagCollection, FusedEmbeddingBagCollection])
def test_a_ranker_with_a_user_tower(cls):
    checked(Ranker(cls))


def test_a_feature_of_two_tables_has_a_vector_of_each():
    tables = [
        EmbeddingBagConfig(name="wide", num_embeddings=6, embedding_dim=8, feature_names=["f"]),
        EmbeddingBagConfig(
            name="deep",
            num_embeddings=6,
            embedding_dim=4,
            feature_names=["g", "f"],
            pooling=PoolingType.MEAN,
        ),
    ]
    schema = Schema(sparse=[SparseInput("g", scope="request"), SparseInput("f")])
    module = Forward(
        lambda m, d, s: torch.cat([(p := m.embeddings(s))["f@deep"], p["g"], p["f@wide"]], 1),
        embeddings=collection(tables=tables),
    )
    ((_, output),) = checked(module, schema).values()
    assert output.shape == (B, 16)


def test_two_collections_share_a_feature_and_one_is_called_twice():
    def config(name, dim, *features):
        return EmbeddingBagConfig(
            name=name, num_embeddings=7, embedding_dim=dim, feature_names=list(features)
        )

    first = collection(tables=[config("a", 4, "x", "y")])
    second = collection(FusedEmbeddingBagCollection, tables=[config("b", 8, "y")])

    def forward(m, d, s):
        first, again, second = m.first(s), m.first(s), m.inner.second(s)
        return torch.cat([first["y"], second["y"], again["x"], second.values()], 1)

    module = Forward(forward, first=first, inner=nn.Module())
    module.inner.second = second
    schema = Schema(sparse=[SparseInput("y"), SparseInput("x", scope="request")])
    ((_, output),) = checked(module, schema).values()
    assert output.shape == (B, 4 + 8 + 4 + 8)


def test_weighted_lists():
    tables = [
        EmbeddingBagConfig(name="t", num_embeddings=6, embedding_dim=4, feature_names=["x", "y"])
    ]
    schema = Schema(
        sparse=[SparseInput("y", weighted=True), SparseInput("x", scope="request", weighted=True)]
    )
    module = Forward(
        lambda m, d, s: m.embeddings(s).values().sum(1),
        embeddings=collection(tables=tables, is_weighted=True),
    )
    checked(module, schema)


@cases(
    ("scope", "mark", "expected"),
    {
        "only-requests": ("request", False, ("request", R)),
        "only-requests-marked": ("request", True, ("example", B)),
        "only-examples": ("example", False, ("example", B)),
        "only-examples-marked": ("example", True, ("example", B)),
    },
)
def test_inputs_of_one_scope_keep_it_up_to_the_mark(scope, mark, expected):
    schema = Schema(
        dense=[DenseInput("d", scope=scope)],
        sparse=[SparseInput(name, scope=scope) for name in ("user", "item", "history")],
    )

    def forward(m, d, s):
        x = torch.cat([d, m.embeddings(s).values()], dim=1)
        return (to_examples(x) if mark else x).sum(1)

    ((spec, output),) = checked(function(forward), schema).values()
    assert (spec.scope, len(output)) == expected


def test_no_dense_inputs():
    schema = Schema(sparse=SCHEMA.sparse)
    checked(function(lambda m, d, s: m.embeddings(s).values().sum(1)), schema)


def test_outputs_of_a_dict_keep_names_shapes_and_order():
    def forward(m, d, s):
        vectors = m.embeddings(s).values()
        return {"z": vectors.sum(1), "grid": vectors.reshape(-1, 3, 4), "a": vectors[:, :1]}

    outputs = checked(function(forward))

    assert [(name, spec.shape) for name, (spec, _) in outputs.items()] == [
        ("z", ()),
        ("grid", (3, 4)),
        ("a", (1,)),
    ]


def test_batch_norm_and_dropout_are_exported_in_evaluation_mode():
    module = function(
        lambda m, d, s: (
            m.drop(m.norm(m.embeddings(s).values())).sum(1)
            + functional.dropout(d, 0.5, training=m.training).sum(1)
        ),
        norm=nn.BatchNorm1d(12),
        drop=nn.Dropout(0.9),
        frozen=nn.Dropout(0.9).eval(),
    )
    module.norm.running_mean.fill_(0.25)
    module.norm.running_var.fill_(4.0)
    module.train()
    module.frozen.eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}

    program = build_program(module, SCHEMA, seed=0)

    modes = {name: named_module.training for name, named_module in module.named_modules() if name}
    assert (modes.pop("frozen"), set(modes.values())) == (False, {True})
    assert_close(module.state_dict(), before, rtol=0, atol=0)
    case = Case(module, SCHEMA)
    dense, sparse = case.module_inputs()
    with torch.no_grad():
        vectors = module.embeddings(sparse).values()
        expected = ((vectors - 0.25) / (4.0 + module.norm.eps) ** 0.5).sum(1) + dense.sum(1)
        assert_close(program.script(*case.program_inputs())["score"], expected)


def test_the_module_gains_no_attribute_and_keeps_no_hook():
    module = function(FORWARDS["constant"], over=MLP(4, [3, 1]))
    before = dict(vars(module))
    build_program(module, SCHEMA, seed=0)
    assert vars(module) == before
    assert not module.embeddings._forward_hooks


def test_a_program_holds_no_table():
    program = build_program(Score(dlrm()), SCHEMA, seed=0)
    names = [name for name, _ in program.script.named_parameters()]
    assert names
    assert not [name for name in names if "embedding" in name]


def test_a_model_that_takes_logarithms_of_its_inputs_is_exported():
    module = function(lambda m, d, s: torch.log(d).sum(1) + m.embeddings(s)["user"].sum(1))
    program = build_program(module, SCHEMA, seed=0)
    request, example, rows = Case(module, SCHEMA).program_inputs()
    request[0], example[0] = request[0].exp(), example[0].exp()
    expected = request[0].log()[rows].sum(1) + example[0].log().sum(1) + request[1][rows, :4].sum(1)
    assert_close(program.script(request, example, rows)["score"], expected)


def test_a_dlrms_request_products_are_computed_once_per_request():
    module = dlrm().served(SCHEMA)
    program = build_program(module, SCHEMA, seed=0)
    shapes = {}

    class Watching(torch.fx.Interpreter):
        def run_node(self, node):
            result = super().run_node(node)
            shapes[str(node.target)] = getattr(result, "shape", None)
            return result

    case = Case(module, SCHEMA)
    Watching(torch.fx.GraphModule(module, program.graph)).run(*case.program_inputs())

    assert shapes["of_request"] == (R, 5)
    assert shapes["of_example"] == (B, 5)
    checked(module)
