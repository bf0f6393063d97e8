"""Training on CUDA, and on a stand-in for it that runs on CPU."""

from contextlib import nullcontext

import pytest
import torch

from embershard.errors import InputError
from embershard.modules import EmbeddingConfig
from embershard.sharding import AsyncStateWriter, column_wise, row_wise, table_wise
from embershard.sharding.block_files import Block, read_blocks
from embershard.sharding.devices import InputStream, checked_device
from embershard.sharding.tables import fill_shard
from embershard.sharding.types import whole_shard
from tests.sharding.cases import load_and_read, plan_of
from tests.sharding.device_cases import (
    load_capturable_elsewhere,
    load_elsewhere,
    piped_and_plain,
    pipeline_of_another_device,
    reads_of_steps,
    save_elsewhere,
    save_on_cuda,
    sharded_and_whole_on_cuda,
    streams_of_pipeline,
    time_elsewhere,
    train_elsewhere,
    train_on_cuda,
    train_positions_elsewhere,
    train_with_default_meta,
)
from tests.sharding.reference import make_case
from tests.sharding.test_embeddingbag import KINDS, SIZES, check_equal
from tests.sharding.test_embeddingbag import plan_of as plan_of_kind

SETTINGS = {
    "sum": {"optimizer": "rowwise_adagrad"},
    "mean": {"optimizer": "sgd", "pooling": "MEAN"},
    "weighted": {"optimizer": "adagrad", "is_weighted": True},
    "sequences": {"optimizer": "adagrad", "is_sequence": True},
}


def case_of(setting, world_size):
    return make_case(world_size, sizes=SIZES[world_size], **SETTINGS[setting])


EVERY = [
    pytest.param(*values, id="-".join(map(str, values)))
    for values in (
        *(("weighted", kind, "fused", 2) for kind in KINDS),
        *(
            (setting, kind, "fused", 2)
            for setting in ("sum", "mean")
            for kind in ("grid_shard", "mixed")
        ),
        # Without data_parallel and mixed: torch's backward of replicas makes tensors in C++.
        *(("sequences", kind, "fused", 2) for kind in KINDS[1:-1]),
        ("sum", "row_wise", "fused", 1),
        ("weighted", "grid_shard", "fused", 4),
        ("sequences", "grid_shard", "fused", 4),
        ("weighted", "column_wise", "dense", 2),
        ("sequences", "row_wise", "dense", 2),
    )
]


@pytest.mark.parametrize(("setting", "kind", "kernel", "world_size"), EVERY)
def test_training_elsewhere_mixes_no_devices_and_is_exact(
    workers, setting, kind, kernel, world_size
):
    case = case_of(setting, world_size)
    plan = plan_of_kind(case, kind, world_size, compute_kernel=kernel)
    check_equal(case, plan, workers.run(world_size, train_elsewhere, case, plan))


def test_position_weights_train_elsewhere_as_on_cpu(workers):
    case = make_case(2, sizes=[5, 3], is_weighted=True)
    plan = plan_of_kind(case, "row_wise", 2)
    for (outputs, _, _, weights), expected in workers.run(2, train_positions_elsewhere, case, plan):
        torch.testing.assert_close(outputs, expected[0])
        torch.testing.assert_close(weights, expected[3])


ON_CUDA = [
    pytest.param(*values, id="-".join(map(str, values)))
    for values in (
        *(
            (setting, kind, "fused", n, "nccl")
            for setting in SETTINGS
            for kind in KINDS
            for n in (1, 2)
        ),
        # Both ranks use one GPU, which NCCL refuses.
        *((setting, kind, "fused", 2, "gloo") for setting in SETTINGS for kind in KINDS),
        ("weighted", "grid_shard", "fused", 4, "gloo"),
        ("weighted", "column_wise", "dense", 2, "gloo"),
        ("sequences", "row_wise", "dense", 1, "nccl"),
        *(("sum", "row_wise", kernel, 1, "nccl") for kernel in ("fused_uvm", "fused_uvm_caching")),
    )
]


@pytest.mark.needs_gpu
@pytest.mark.parametrize(("setting", "kind", "kernel", "world_size", "backend"), ON_CUDA)
def test_training_on_cuda_equals_unsharded(workers, setting, kind, kernel, world_size, backend):
    if backend == "nccl" and torch.cuda.device_count() < world_size:
        pytest.skip(f"NCCL wants a GPU for each of {world_size} ranks")
    case = case_of(setting, world_size)
    plan = plan_of_kind(case, kind, world_size, compute_kernel=kernel)
    check_equal(case, plan, workers.run(world_size, train_on_cuda, case, plan, backend))


def with_known_ids(case):
    for step in case.batches:
        for batch in step:
            for ids, *_ in batch.values():
                ids.clamp_(min=0)
    return case


@pytest.mark.parametrize(
    ("setting", "kind"), [("weighted", "row_wise"), ("sequences", "grid_shard")]
)
def test_what_lies_on_cpu_does_so_under_another_default_device(workers, setting, kind):
    case = case_of(setting, 2)
    plan = plan_of_kind(case, kind, 2)
    check_equal(case, plan, workers.run(2, train_with_default_meta, case, plan))


def test_new_weights_are_the_same_under_another_default_device():
    table = EmbeddingConfig(name="t", num_embeddings=3, embedding_dim=2, feature_names=["f"])
    weight, filled = torch.empty(3, 2, device="meta"), [torch.zeros(3, 2), torch.zeros(3, 2)]
    for default, into in zip(("cpu", "meta"), filled, strict=True):
        with torch.device(default):
            fill_shard(table, whole_shard(table), weight, 7, into=into)
    assert filled[0].all()
    assert torch.equal(*filled)


def test_a_saves_copies_are_on_cpu_whatever_the_default_device(tmp_path):
    writer, tensor = AsyncStateWriter(None), torch.tensor([1.0, 2.0])
    with torch.device("meta"):
        writer.start({"t": tensor}, tmp_path / "state", lambda: None)
    writer.wait()
    writer.close()
    read = Block.whole("t", torch.zeros(2))
    read_blocks([read], tmp_path / "state")
    assert torch.equal(read.tensor, tensor)


def test_a_step_elsewhere_reads_thrice_on_the_host(workers):
    """The host reads three results: negative lengths, ids that are outside their tables or -1, and
    sizes."""
    case = with_known_ids(make_case(2, sizes=[5, 3], steps=2))
    for reads in workers.run(2, reads_of_steps, case, plan_of(case, row_wise())):
        assert reads == [(3, 0), (3, 0)]


def test_state_elsewhere_is_saved_and_loaded_under_another_plan(workers, tmp_path):
    case = make_case(2, sizes=[5, 3], steps=2, optimizer="rowwise_adagrad")
    cut = plan_of(case, row_wise(), items=column_wise(ranks=[1, 0]))
    saved = workers.run(2, save_elsewhere, case, cut, tmp_path / "state")
    for run in (load_and_read, load_elsewhere):
        check_same_state(workers.run(2, run, case, cut, tmp_path / "state"), saved)


def test_step_counts_of_a_capturable_adam_alone_load_elsewhere(workers, tmp_path):
    case = make_case(2, sizes=[5, 3], steps=0)
    plan = plan_of(case, row_wise(compute_kernel="dense"))
    results = workers.run(2, load_capturable_elsewhere, case, plan, tmp_path / "state")
    for messages, devices in results:
        assert messages == []
        counts = [state.pop("step") for state in devices]
        assert counts == ["lazy:0"] * (len(counts) - 1) + ["cpu"]
        assert {device for state in devices for device in state.values()} == {"lazy:0"}


def check_same_state(loaded, saved):
    for (shards, messages, _), (expected, _) in zip(loaded, saved, strict=True):
        assert messages == []
        for (shard, *tensors), (saved_shard, *saved_tensors) in zip(shards, expected, strict=True):
            assert shard == saved_shard
            assert all(map(torch.equal, tensors, saved_tensors))


@pytest.mark.needs_gpu
def test_state_behind_a_cache_of_cuda_loads_on_cpu(workers, tmp_path):
    case = make_case(1, sizes=[5], steps=2, optimizer="rowwise_adagrad")
    cuts = [plan_of(case, row_wise(**kernel), world_size=1) for kernel in (CACHED, {})]
    saved = workers.run(1, save_on_cuda, case, cuts[0], tmp_path / "state", "nccl")
    check_same_state(workers.run(1, load_and_read, case, cuts[1], tmp_path / "state"), saved)


CACHED = {"compute_kernel": "fused_uvm_caching"}


@pytest.mark.needs_gpu
@pytest.mark.parametrize("optimizer", ["adam", "partial_rowwise_adam", "lamb"])
def test_optimizers_of_cuda_train_shards_as_whole_tables(workers, optimizer):
    case = with_known_ids(make_case(1, sizes=[5]))  # Whole tables look up row 0 for -1.
    plan = plan_of(case, table_wise(rank=0), world_size=1)
    (steps,) = workers.run(1, sharded_and_whole_on_cuda, case, plan, optimizer)
    for sharded, whole in steps:
        torch.testing.assert_close(sharded, whole)


@pytest.mark.parametrize(
    ("world_size", "backend"),
    [(2, None), pytest.param(1, "nccl", marks=pytest.mark.needs_gpu)],
    ids=["cpu", "cuda"],
)
def test_a_pipeline_over_batches_of_the_host_equals_a_loop(workers, world_size, backend):
    case = make_case(world_size, sizes=SIZES[world_size])
    plans = [plan_of(case, row_wise(), world_size=world_size)] * 2
    for piped, plain in workers.run(world_size, piped_and_plain, case, plans, backend):
        torch.testing.assert_close(piped, plain)


def test_cuda_is_the_current_device(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 1)
    assert checked_device("cuda", 1) == torch.device("cuda", 1)
    with pytest.raises(InputError, match="expected cuda:1, the current device, got cuda:0"):
        checked_device("cuda:0", 1)
    with pytest.warns(UserWarning, match="several GPUs is experimental: .* has run on one only"):
        assert checked_device("cuda", 2) == torch.device("cuda", 1)


def test_a_pipeline_for_another_device_of_the_kind_is_refused(workers):
    case = make_case(1, sizes=[3], steps=0)
    plan = plan_of(case, row_wise(), world_size=1)
    messages = workers.run(1, pipeline_of_another_device, case, plan)
    assert messages == ["device: expected 'lazy:0', got 'lazy:1'"]


def test_lookups_elsewhere_are_not_timed(workers):
    case = make_case(1, sizes=[3], steps=0)
    plan = plan_of(case, row_wise(), world_size=1)
    messages = workers.run(1, time_elsewhere, case, plan)
    assert messages == ["time_lookups: expected tables on cpu, got lazy:0"]


class Part:
    """Stands in for a tensor of a batch: logs when it is moved and used."""

    def __init__(self, log):
        self._log = log

    def to(self, *, device, non_blocking):
        self._log.append(f"copied to {device}, {non_blocking}")
        return self

    def record_stream(self, stream):
        self._log.append(f"used in {stream.name}")


class Stream:
    def __init__(self, name, log):
        self.name, self._log = name, log

    def wait_stream(self, other):
        self._log.append(f"{self.name} waits for {other.name}")

    def record_event(self):
        return f"event {len(self._log)} of {self.name}"

    def wait_event(self, event):
        self._log.append(f"{self.name} waits for {event}")


def test_inputs_have_a_stream_of_their_own_on_cuda(monkeypatch):
    log = []
    model = Stream("model", log)
    monkeypatch.setattr("torch.cuda.Stream", lambda _: Stream("inputs", log))
    monkeypatch.setattr("torch.cuda.current_stream", lambda _: model)
    monkeypatch.setattr("torch.cuda.stream", lambda stream: nullcontext(log.append(stream.name)))
    stream = InputStream(torch.device("cuda", 0))
    with stream.entered(after_model=True):
        batch = stream.moved({"dense": Part(log), "sparse": [Part(log)], "step": 3})
        stream.mark()
        stream.moved(Part(log))
    stream.leave(batch, [None, Part(log)])
    assert batch["step"] == 3
    assert log == [
        "inputs waits for model",
        "inputs",
        *["copied to cuda:0, True"] * 3,
        "model waits for event 4 of inputs",
        *["used in model"] * 3,
    ]


def test_pipelines_leave_the_stream_of_inputs_before_the_model(workers):
    case = make_case(1, sizes=[3], steps=4)
    plans = [plan_of(case, row_wise(), world_size=1)] * 2
    (log,) = workers.run(1, streams_of_pipeline, case, plans)
    step = ["leave", "model"]
    ahead = ["fetch", "fetch", "mark", "fetch"]  # The model does not wait for the last fetch.
    assert log == ["fetch", "mark", *step, *ahead, *step, *["mark", *step] * 2]
