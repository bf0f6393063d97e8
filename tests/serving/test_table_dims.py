"""Tables of any dim, and of float32: padded in the package, unpadded in scores."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from embershard.explain import explain_request, explanation_json
from embershard.export import export_model
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
    FusedEmbeddingBagCollection,
    PoolingType,
    to_examples,
)
from embershard.package import (
    STRATEGIES,
    Identity,
    Package,
    Schema,
    SparseInput,
    add_plan,
    make_plan,
)
from embershard.package.reader import verify_package
from tests.hostile.draft import NARROW
from tests.serving.asking import Asked, named, outputs_of
from tests.serving.messages import MessagePredictor
from tests.serving.oracle import Oracle

DIMS = (1, 2, 3, 5, 6, 7, 10, 100)
ROWS = 50
TOLERANCE = 1e-6

SCHEMA = Schema(
    sparse=[
        *(SparseInput(f"sum_{dim}", ids=Identity(ROWS)) for dim in DIMS),
        *(SparseInput(f"mean_{dim}", scope="request", ids=Identity(ROWS)) for dim in DIMS),
        *(SparseInput(f"weighted_{dim}", weighted=True, ids=Identity(ROWS)) for dim in DIMS),
        *(SparseInput(f"listed_{dim}", ids=Identity(ROWS)) for dim in DIMS),
    ]
)


def bags(kind: str, pooling: PoolingType = PoolingType.SUM) -> list[EmbeddingBagConfig]:
    return [
        EmbeddingBagConfig(
            name=f"{kind}_{dim}",
            num_embeddings=ROWS,
            embedding_dim=dim,
            feature_names=[f"{kind}_{dim}"],
            pooling=pooling,
        )
        for dim in DIMS
    ]


class EveryDim(nn.Module):
    """Returns the looked-up vectors: pooled ones of either scope, weighted ones, and sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.sums = EmbeddingBagCollection(bags("sum"))
        self.means = EmbeddingBagCollection(bags("mean", PoolingType.MEAN))
        self.weighted = EmbeddingBagCollection(bags("weighted"), is_weighted=True)
        self.lists = nn.ModuleList(
            EmbeddingCollection(
                [
                    EmbeddingConfig(
                        name=f"listed_{dim}",
                        num_embeddings=ROWS,
                        embedding_dim=dim,
                        feature_names=[f"listed_{dim}"],
                    )
                ]
            )
            for dim in DIMS
        )

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> dict[str, torch.Tensor]:
        listed = [
            self.lists[place](sparse)[f"listed_{dim}"].to_padded_dense(3).flatten(1)
            for place, dim in enumerate(DIMS)
        ]
        return {
            "sums": self.sums(sparse).values(),
            "means": to_examples(self.means(sparse).values()),
            "weighted": self.weighted(sparse).values(),
            "listed": torch.cat(listed, dim=1),
        }


def every_dim() -> EveryDim:
    torch.manual_seed(5)
    module = EveryDim()
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(mean=3.0)
    return module.eval()


def asked_of(examples: int, longest: int, *, shortest: int = 0) -> Asked:
    random = np.random.default_rng(examples + longest)
    sparse, weights = {}, {}
    for item in SCHEMA.sparse:
        count = 1 if item.scope == "request" else examples
        lists = [
            random.integers(0, ROWS, random.integers(shortest, longest + 1)).tolist()
            for _ in range(count)
        ]
        sparse[item.name] = lists
        if item.weighted:
            weights[item.name] = [random.uniform(-2, 2, len(ids)).tolist() for ids in lists]
    return Asked(examples, sparse=sparse, weights=weights, schema=SCHEMA)


def answer_of(predictor: MessagePredictor, request: Asked) -> dict[str, np.ndarray]:
    (answer,) = predictor.answers([named(request).SerializeToString()])
    return outputs_of(answer)


def answer_of_module(module: nn.Module, request: Asked) -> dict[str, np.ndarray]:
    """The module's own answer, every request-scoped list repeated for each example."""
    lists, weights = [], []
    for item in SCHEMA.sparse:
        repeats = request.num_examples if item.scope == "request" else 1
        lists += request.sparse[item.name] * repeats
        options = request.weights.get(item.name)
        weights += options or [[1.0] * len(ids) for ids in request.sparse[item.name]] * repeats
    sparse = KeyedJaggedTensor(
        keys=[item.name for item in SCHEMA.sparse],
        values=torch.tensor([value for ids in lists for value in ids], dtype=torch.int64),
        lengths=torch.tensor([len(ids) for ids in lists]),
        weights=torch.tensor([factor for weight in weights for factor in weight]),
    )
    with torch.no_grad():
        outputs = module(torch.zeros(request.num_examples, 0), sparse)
    return {name: output.numpy() for name, output in outputs.items()}


@pytest.fixture(scope="module", params=["int8", "int4", "fp16", "fp32"])
def stored(request, tmp_path_factory):
    """A package of every dim, in one of the weight types."""
    out = tmp_path_factory.mktemp(request.param) / "dims" / "1"
    return export_model(every_dim(), SCHEMA, out, weights=request.param)


def test_served_vectors_of_any_dim_have_no_padding(stored):
    predictor, oracle = MessagePredictor(stored, threads=1), Oracle(stored)

    for request in (asked_of(1, 1), asked_of(7, 3), asked_of(60, 3)):
        got, expected = answer_of(predictor, request), oracle.answer(request)
        assert got["sums"].shape == (request.num_examples, sum(DIMS))
        for name, values in expected.items():
            np.testing.assert_allclose(got[name], values, rtol=TOLERANCE, atol=1e-5)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_plan_serves_tables_of_any_dim(stored, strategy, tmp_path):
    package = Package.open(stored)
    names = ["cpu:0", "cpu:1", "cpu:2"]
    plan = make_plan(package, names, name=f"new-{strategy}", strategy=strategy)
    add_plan(stored, plan)
    request = asked_of(40, 3)

    got = answer_of(MessagePredictor(stored, plan=plan.name, threads=3), request)

    whole = answer_of(MessagePredictor(stored, threads=1), request)
    for name, values in whole.items():
        if strategy == "row":
            np.testing.assert_allclose(got[name], values, rtol=TOLERANCE, atol=1e-5)
        else:
            np.testing.assert_array_equal(got[name], values)


def test_a_manifest_keeps_the_dim_and_pads_the_row(stored):
    verify_package(stored)
    manifest = json.loads((stored / "manifest.json").read_text())
    assert {table["dim"] for table in manifest["tables"]} == set(DIMS)
    weights = manifest["tables"][0]["weights"]
    expected = {
        "int8": [8, 8, 8, 12, 12, 12, 16, 104],
        "int4": [6, 6, 6, 8, 8, 8, 10, 54],
        "fp16": [8, 8, 8, 16, 16, 16, 24, 200],
        "fp32": [16, 16, 16, 32, 32, 32, 48, 400],
    }[weights]
    assert [table["row_bytes"] for table in manifest["tables"][: len(DIMS)]] == expected


def test_explain_reads_vectors_without_their_padding(stored):
    module = every_dim()
    lists = {item.name: [[7]] if item.scope == "example" else [7] for item in SCHEMA.sparse}
    weights = {f"weighted_{dim}": [[1.0]] for dim in DIMS}

    explanation = explain_request(stored, sparse=lists, weights=weights)

    inputs = explanation_json(explanation)["sparse"]
    for options, item in zip(inputs, SCHEMA.sparse, strict=True):
        kind, _, dim = item.name.partition("_")
        collection = {
            "sum": module.sums,
            "mean": module.means,
            "weighted": module.weighted,
            "listed": module.lists[DIMS.index(int(dim))],
        }[kind]
        vector = collection.state_dict()[
            f"embedding{'s' if kind == 'listed' else '_bags'}.{item.name}.weight"
        ][7]
        (norm,) = options["lists"][0]["ids"][0]["norms"]
        assert norm == pytest.approx(float(vector.norm()), rel=0.05)


@pytest.fixture(scope="module")
def lossless(tmp_path_factory):
    out = tmp_path_factory.mktemp("lossless") / "dims" / "1"
    return export_model(every_dim(), SCHEMA, out, weights="fp32")


def test_fp32_vectors_of_one_id_are_the_modules_bit_for_bit(lossless):
    request = asked_of(30, 1, shortest=1)

    got, expected = (
        answer_of(MessagePredictor(lossless, threads=1), request),
        answer_of_module(every_dim(), request),
    )

    for name, values in got.items():
        if name == "weighted":  # The weight is one more product, and one more rounding.
            np.testing.assert_allclose(values, expected[name], rtol=TOLERANCE)
        else:
            np.testing.assert_array_equal(values, expected[name], err_msg=name)


def test_fp32_sums_are_the_modules_to_rounding(lossless):
    request = asked_of(30, 40)

    got, expected = (
        answer_of(MessagePredictor(lossless, threads=1), request),
        answer_of_module(every_dim(), request),
    )

    for name in ("sums", "means", "weighted"):
        scale = np.abs(expected[name]).max()
        assert np.abs(got[name] - expected[name]).max() <= TOLERANCE * scale, name


def test_an_fp32_export_measures_no_error(lossless):
    for table in Package.open(lossless).manifest.tables:
        assert (table.mse, table.max_error) == (0.0, 0.0)


class WideAndDeep(nn.Module):
    """A weight an id, and a tower over vectors, trained in one collection."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = FusedEmbeddingBagCollection(
            [
                EmbeddingBagConfig(
                    name=f"{name}_{dim}",
                    num_embeddings=ROWS,
                    embedding_dim=dim,
                    feature_names=[name],
                )
                for name in ("user", "item")
                for dim in (1, 8)
            ],
            learning_rate=0.5,
        )
        self.deep = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        ids = self.ids(sparse)
        wide = ids["user@user_1"] + ids["item@item_1"]
        deep = self.deep(torch.cat([ids["user@user_8"], ids["item@item_8"]], dim=1))
        return torch.sigmoid(wide + deep).squeeze(1)


def test_a_trained_wide_and_deep_model_is_served_as_it_is(tmp_path):
    torch.manual_seed(0)
    module = WideAndDeep()
    users, items = torch.randint(0, ROWS, (2, 20))
    sparse = KeyedJaggedTensor(
        ["user", "item"], torch.cat([users, items]), lengths=torch.ones(40, dtype=torch.int64)
    )
    before = module.ids.state_dict()["embedding_bags.user_1.weight"].clone()
    for _ in range(3):
        (module(torch.zeros(20, 0), sparse) - (users % 2)).square().sum().backward()
    assert not torch.equal(module.ids.state_dict()["embedding_bags.user_1.weight"], before)

    schema = Schema(sparse=[SparseInput("user"), SparseInput("item")])
    package = export_model(module.eval(), schema, tmp_path / "wd" / "1", weights="fp32")
    request = Asked(
        20,
        sparse={
            "user": [[user] for user in users.tolist()],
            "item": [[item] for item in items.tolist()],
        },
        schema=schema,
    )
    scores = answer_of(MessagePredictor(package, threads=1), request)["score"]

    with torch.no_grad():
        expected = module(torch.zeros(20, 0), sparse).numpy()
    np.testing.assert_allclose(scores, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("plan", ["default", "columns"])
def test_the_golden_package_of_padded_rows_is_served(plan):
    predictor = MessagePredictor(NARROW, plan=plan, threads=1)  # Answers its sample, or raises.
    schema = Schema(
        sparse=[
            SparseInput("user", scope="request"),
            SparseInput("tags", scope="request", weighted=True),
            SparseInput("item"),
            SparseInput("bias"),
        ]
    )
    request = Asked(
        1,
        sparse={"user": [[4]], "tags": [[6]], "item": [[15, 14]], "bias": [[8, 1]]},
        weights={"tags": [[2.0]]},
        schema=schema,
    )

    vectors = answer_of(predictor, request)["vectors"]

    users, tags = [(64 + c) / 128 - 1 for c in range(3)], [12 + c / 2 for c in range(5)]
    items = [((15 + c) % 16 + (14 + c) % 16) / 4 - 1 for c in range(6)]
    assert vectors.tolist() == [[*users, *tags, *items, 0.25]]
