"""Dense programs whose linear layers take bfloat16."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from embershard.errors import ExportError
from embershard.export import dense_report, export_model
from embershard.export.program_builder import to_bfloat16
from embershard.models import DLRM
from embershard.modules import LowRankCrossNet
from embershard.package import Package, SampleRequest, Schema, SparseInput
from embershard.serving import LocalPredictor
from tests.export.models import REQUEST, SCHEMA, collection, dlrm


def report_in(package):
    return json.loads((package / "report/report.json").read_text())


def rounded(values):
    """Rounds to the nearest bfloat16, with ties to even, by changing bits."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


class Layers(nn.Module):
    """Linear layers: a module, a call of a function, and a last layer with a single output."""

    def __init__(self, items):
        super().__init__()
        self.items = items
        torch.manual_seed(1)
        self.first = nn.Linear(4, 8)
        self.second = nn.Parameter(torch.randn(8, 8))
        self.last = nn.Linear(8, 1)

    def forward(self, dense, sparse):
        hidden = torch.relu(self.first(self.items(sparse)["item"]))
        second = nn.functional.linear(hidden, self.second)
        return {"score": self.last(second)[:, 0], "hidden": second}


ITEM = Schema(sparse=[SparseInput("item"), SparseInput("history"), SparseInput("user")])
ASKED = SampleRequest(
    num_examples=3,
    request_dense=np.zeros(0, np.float32),
    example_dense=np.zeros((3, 0), np.float32),
    lengths=np.array([1, 1, 1, 0, 0, 0, 0, 0, 0], np.int32),
    values=np.array([1, 5, 7], np.int64),
    weights=np.zeros(0, np.float32),
    outputs={},
)


def export_layers(out, **options):
    module = Layers(collection())
    export_model(module, ITEM, out, weights="fp16", samples=[ASKED], **options)
    return module


def test_rounding_is_to_nearest_with_ties_to_even():
    values = torch.randn(1000)
    assert np.array_equal(to_bfloat16(values).numpy(), rounded(values.numpy()))


def test_operands_and_results_are_rounded_except_the_last_layer(tmp_path):
    module = export_layers(tmp_path / "layers" / "1", dense_dtype="bf16")
    table = module.items.state_dict()["embedding_bags.items.weight"].numpy()
    rows = table.astype(np.float16).astype(np.float64)[ASKED.values]
    state = {name: value.numpy() for name, value in module.state_dict().items()}
    weight = rounded(state["first.weight"]).astype(np.float64)
    first = rounded(np.maximum(rounded(rows) @ weight.T + state["first.bias"], 0))
    hidden = rounded(first.astype(np.float64) @ rounded(state["second"]).astype(np.float64).T)
    score = hidden.astype(np.float64) @ state["last.weight"][0] + state["last.bias"][0]
    (sample,) = Package.open(tmp_path / "layers" / "1").samples()
    assert np.array_equal(sample.outputs["hidden"], hidden)
    assert np.allclose(sample.outputs["score"], score, rtol=1e-6, atol=1e-6)


def test_the_manifest_says_what_layers_take(tmp_path):
    for kind, dtype in (("fp32", "float32"), ("bf16", "bfloat16")):
        export_layers(tmp_path / kind / "1", dense_dtype=kind)
        (program,) = Package.open(tmp_path / kind / "1").manifest.programs
        assert (program.kind, program.target, program.dtype) == ("torchscript", "cpu", dtype)


def test_the_module_keeps_its_weights(tmp_path):
    before = Layers(collection()).state_dict()
    after = export_layers(tmp_path / "layers" / "1", dense_dtype="bf16").state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_server_scores_the_samples_alike(tmp_path):
    model = DLRM(collection(), 3, [8, 4], [9, 3, 1])
    out = export_model(model, SCHEMA, tmp_path / "dlrm" / "1", dense_dtype="bf16")
    LocalPredictor(out, threads=1)  # Refuses a package whose samples have other scores.


def test_a_cross_network_is_rounded_too(tmp_path):
    class Crossed(Layers):
        def __init__(self, items):
            super().__init__(items)
            self.cross = LowRankCrossNet(4, 2, 8)

        def forward(self, dense, sparse):
            return self.cross(self.items(sparse)["item"])

    out = tmp_path / "crossed" / "1"
    export_model(Crossed(collection()), ITEM, out, samples=[ASKED], dense_dtype="bf16")
    assert report_in(out)["dense"]["outputs"]["score"]["max_difference"] > 0
    LocalPredictor(out, threads=1)


def test_the_report_says_what_it_costs(tmp_path):
    exact, out = tmp_path / "exact" / "1", tmp_path / "rounded" / "1"
    export_layers(exact)
    export_layers(out, dense_dtype="bf16")
    (sample,), (rounded_sample,) = (Package.open(item).samples() for item in (exact, out))
    scores, rounded_scores = sample.outputs["score"], rounded_sample.outputs["score"]
    differences = np.abs(scores - rounded_scores)
    cost = report_in(out)["dense"]["outputs"]["score"]
    assert cost["max_difference"] == pytest.approx(float(differences.max()))
    assert cost["mean_difference"] == pytest.approx(float(differences.mean()))
    assert cost["pairs"] == 3
    order = np.argsort(scores), np.argsort(rounded_scores)
    assert (cost["pairs_reordered"] == 0) == np.array_equal(*order)
    lines = dense_report(out).splitlines()
    assert [line.split(":")[0].split()[-1] for line in lines] == ["score", "hidden"]
    assert f"at most {differences.max():.1e}; " in lines[0]


@pytest.mark.parametrize("turned", [1, 2])
def test_the_report_warns_if_auc_may_fall_by_over_a_thousandth(tmp_path, turned):
    cost = {"mean_difference": 0.1, "max_difference": 0.2, "pairs": 1000, "pairs_reordered": turned}
    (tmp_path / "report").mkdir()
    report = {"dense": {"dtype": "bfloat16", "outputs": {"score": cost}}}
    (tmp_path / "report/report.json").write_text(json.dumps(report))
    assert ("AUC may fall by more than 0.001" in dense_report(tmp_path)) == (turned > 1)


def test_in_float32_there_is_no_cost_to_report(tmp_path):
    export_layers(tmp_path / "layers" / "1")
    assert report_in(tmp_path / "layers" / "1")["dense"] == {"dtype": "float32", "outputs": {}}
    assert dense_report(tmp_path / "layers" / "1") == ""


def test_a_model_without_layers_is_refused(tmp_path):
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.items = collection()

        def forward(self, dense, sparse):
            return self.items(sparse)["item"].sum(1)

    with pytest.raises(ExportError, match="dense_dtype: expected a model with linear layers of"):
        export_model(Sum(), ITEM, tmp_path / "sum" / "1", dense_dtype="bf16")
    assert not (tmp_path / "sum").exists() or not list((tmp_path / "sum").iterdir())


def test_an_unknown_type_is_refused(tmp_path):
    with pytest.raises(ExportError, match="dense_dtype: expected one of fp32, bf16, got 'int8'"):
        export_model(dlrm(), SCHEMA, tmp_path / "x" / "1", dense_dtype="int8", samples=[REQUEST])
