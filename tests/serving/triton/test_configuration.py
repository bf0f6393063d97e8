"""config.pbtxt: protobuf reads it, and it says what our own server says of the model."""

import shutil

import pytest
import tritonclient.grpc as triton
from google.protobuf import text_format
from torch import nn
from tritonclient.grpc import model_config_pb2

from embershard.errors import ConfigError, InputError, NotFoundError
from embershard.export import export_model
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package import (
    DenseInput,
    Identity,
    Package,
    Schema,
    SparseInput,
    add_plan,
    make_plan,
    parse_devices,
)
from embershard.serving.triton import TritonOptions, model_config, write_model_config
from tests.cases import cases
from tests.repository.sources import ROOT

TYPES = {"FP32": "TYPE_FP32", "INT32": "TYPE_INT32", "INT64": "TYPE_INT64"}
GOLDEN = ROOT / "tests" / "golden" / "format_0" / "tiny" / "1"
EXAMPLE = ROOT / "model_repo" / "tiny"


def parsed(text: str) -> model_config_pb2.ModelConfig:
    """Parses the text as Triton does: unknown fields are errors."""
    return text_format.Parse(text, model_config_pb2.ModelConfig())


@pytest.fixture(scope="module")
def config(package):
    return parsed(model_config(Package.open(package)))


def type_name(tensor):
    return model_config_pb2.DataType.Name(tensor.data_type)


def test_tensors_are_those_of_our_own_server(config, server):
    with triton.InferenceServerClient(server.address) as client:
        said = client.get_model_metadata("ranker")
    for ours, theirs in ((config.input, said.inputs), (config.output, said.outputs)):
        assert [(our.name, type_name(our), list(our.dims)) for our in ours] == [
            (their.name, TYPES[their.datatype], list(their.shape)) for their in theirs
        ]


def test_inputs_may_be_left_out_and_differ_in_size(config):
    assert all(item.optional for item in config.input)
    ragged = {item.name for item in config.input if item.allow_ragged_batch}
    assert ragged == {item.name for item in config.input if -1 in item.dims}
    assert {"price", "item.values", "DENSE", "VALUES"} <= ragged
    assert "age" not in ragged


def test_requests_are_batched_by_default(config):
    assert (config.name, config.backend) == ("ranker", "embershard")
    assert config.max_batch_size == 256
    batching = config.dynamic_batching
    assert (batching.priority_levels, batching.default_priority_level) == (2, 1)
    policy = batching.default_queue_policy
    assert policy.default_timeout_microseconds == 1_000_000
    assert policy.allow_timeout_override
    assert policy.max_queue_size == 4096
    assert dict(config.parameters) == {}


@cases(
    ("options", "expected"),
    {
        "left-to-the-backend": ({}, []),
        "stated": ({"instances": 3}, [3]),
        "threads-alone": ({"threads": 4}, [1]),
        "both": ({"threads": 4, "instances": 2}, [2]),
    },
)
def test_instances_are_stated_only_if_they_or_threads_are_set(package, options, expected):
    config = parsed(model_config(Package.open(package), TritonOptions(**options)))
    assert [group.count for group in config.instance_group] == expected
    kinds = {group.kind for group in config.instance_group}
    assert kinds <= {model_config_pb2.ModelInstanceGroup.KIND_CPU}


@pytest.fixture(scope="module")
def for_gpus(package, tmp_path_factory):
    """The package, with plans for one GPU and for two, one that needs none, and a mixed one."""
    out = shutil.copytree(package, tmp_path_factory.mktemp("gpus") / "ranker" / "1")
    plans = {name: parse_devices(name) for name in ("1xcuda", "2xcuda", "1xtorch-cpu")}
    for name, devices in {**plans, "mixed": ["cuda:0", "cpu:1"]}.items():
        add_plan(out, make_plan(Package.open(out), devices, name=name, strategy="table"))
    return Package.open(out)


@cases(
    ("options", "expected"),
    {
        "one": ({"plan": "1xcuda"}, (3, [0])),
        "two": ({"plan": "2xcuda"}, (2, [0, 1])),
        "stated": ({"plan": "2xcuda", "instances": 5}, (3, [0, 1])),
    },
)
def test_instances_on_gpus_are_on_those_of_the_plan(for_gpus, options, expected):
    config = parsed(model_config(for_gpus, TritonOptions(kind="gpu", **options)))
    (group,) = config.instance_group
    assert group.kind == model_config_pb2.ModelInstanceGroup.KIND_GPU
    assert (group.count, list(group.gpus)) == expected
    assert config.parameters["fbgemm"].string_value.endswith("fbgemm_gpu")


def test_torchs_kernels_on_a_processor_are_of_kind_cpu(for_gpus):
    config = parsed(model_config(for_gpus, TritonOptions(plan="1xtorch-cpu")))
    assert list(config.instance_group) == []
    assert config.parameters["fbgemm"].string_value.endswith("fbgemm_gpu")


@cases(
    ("plan", "kind", "words"),
    {
        "gpu-plan": (
            "1xcuda",
            "cpu",
            "kind: expected gpu for plan '1xcuda', which is for cuda:0, got cpu; --kind gpu",
        ),
        "cpu-plan": (
            "default",
            "gpu",
            "kind: expected cpu for plan 'default', which is for cpu:0, got gpu; `embershard plan "
            "--devices 1xcuda:80GB` adds a plan for a GPU, and --plan names it",
        ),
        "mixed-plan": (
            "mixed",
            "gpu",
            "plan 'mixed': expected devices of one kind, got cpu and cuda; `embershard plan` makes "
            "such plans",
        ),
    },
)
def test_instances_of_another_kind_than_the_plan_are_refused(for_gpus, plan, kind, words):
    with pytest.raises(InputError) as caught:
        model_config(for_gpus, TritonOptions(plan=plan, kind=kind))
    assert str(caught.value) == words


def test_options_are_said(package):
    options = TritonOptions(
        plan="2xcpu",
        dense_program="cpu",
        tables="resident",
        threads=3,
        instances=2,
        max_batch_requests=32,
        max_batch_examples=100,
        max_batch_ids=9000,
        max_queue_delay_us=250,
        max_queued_requests=0,
        default_timeout_ms=0,
    )
    config = parsed(model_config(Package.open(package), options))
    assert {name: parameter.string_value for name, parameter in config.parameters.items()} == {
        "plan": "2xcpu",
        "dense_program": "cpu",
        "tables": "resident",
        "threads": "3",
        "max_batch_examples": "100",
        "max_batch_ids": "9000",
    }
    assert config.max_batch_size == 32
    assert config.instance_group[0].count == 2
    assert config.dynamic_batching.max_queue_delay_microseconds == 250
    policy = config.dynamic_batching.default_queue_policy
    assert (policy.max_queue_size, policy.default_timeout_microseconds) == (0, 0)
    assert not policy.allow_timeout_override


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"threads": 1025}, "threads: expected 0..1024, got 1025"),
        ({"instances": -1}, "instances: expected 0..2147483647, got -1"),
        ({"max_batch_ids": -1}, "max_batch_ids: expected 0..2147483647, got -1"),
        ({"kind": "tpu"}, "kind: expected cpu or gpu, got 'tpu'"),
        ({"tables": "ram"}, "tables: expected mmap or resident, got 'ram'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_option_out_of_range_is_refused(option, words):
    with pytest.raises(ConfigError) as caught:
        TritonOptions(**option)
    assert str(caught.value) == words


def test_a_plan_that_is_not_there_is_refused(package):
    with pytest.raises(NotFoundError, match="plan: expected one of default, 2xcpu, got 'none'"):
        model_config(Package.open(package), TritonOptions(plan="none"))


def test_a_package_in_the_folder_of_another_model_is_refused(package, tmp_path):
    moved = shutil.copytree(package, tmp_path / "other" / "1")
    with pytest.raises(InputError, match=r"with the model's name 'ranker'.*got 'other'"):
        write_model_config(moved)
    assert not (tmp_path / "other" / "config.pbtxt").exists()


NAMES = ['say "hi"', "back\\slash", "é ü", "日本", "a'b", "%s {}", "tags[0]"]


class Plain(nn.Module):
    """Outputs named as its dense inputs are."""

    def __init__(self) -> None:
        super().__init__()
        config = EmbeddingBagConfig(
            name="items", num_embeddings=3, embedding_dim=4, feature_names=["item"]
        )
        self.embeddings = EmbeddingBagCollection([config])

    def forward(self, dense, sparse):
        item = self.embeddings(sparse)["item"].sum(dim=1)
        return {name: dense[:, place] + item for place, name in enumerate(NAMES)}


def test_any_name_is_read_back(tmp_path):
    schema = Schema(
        dense=[DenseInput(name) for name in NAMES],
        sparse=[SparseInput("item", ids=Identity(3))],
    )
    out = export_model(Plain(), schema, tmp_path / "plain" / "1")
    config = parsed(model_config(Package.open(out)))
    assert [item.name for item in config.input] == [
        *NAMES, "item.values", "item.lengths", "DENSE", "LENGTHS", "VALUES",
    ]  # fmt: skip
    assert [item.name for item in config.output] == NAMES


def test_the_example_is_the_golden_package_and_its_config():
    files = sorted(path.relative_to(GOLDEN) for path in GOLDEN.rglob("*") if path.is_file())
    example = sorted(
        path.relative_to(EXAMPLE / "1") for path in (EXAMPLE / "1").rglob("*") if path.is_file()
    )
    assert example == files
    for file in files:
        assert (EXAMPLE / "1" / file).read_bytes() == (GOLDEN / file).read_bytes()
    assert (EXAMPLE / "config.pbtxt").read_text() == model_config(Package.open(EXAMPLE / "1"))
