"""Which room a stack belongs to, by hand-written stacks."""

import re

import pytest

from benchmarks.rooms_of_stacks import BY_NAME, Frame, room_of, shares, stacks
from tests.house.sources import PREDICTOR

TORCH = "/venv/torch/lib/libtorch_cpu.so"
OURS = "/venv/embershard/serving/_predictor.so"
GRPC = "/usr/lib/libgrpc.so.29"

TEXT = f"""\
  367 
\t           108f36 epoll_wait (/usr/lib/libc.so.6)
\t           40edbc [unknown] ({GRPC})

  356 
\taf38dd0 mkl_blas_def_xsgemv ({TORCH})
\t8d57656 at::native::addmm(at::Tensor const&, int) ({TORCH})

  356 
\taf38dd0 mkl_blas_def_xsgemv ({TORCH})

"""  # noqa: W291


def test_stacks_are_cut_at_empty_lines_and_keep_their_order():
    assert [len(frames) for frames in stacks(TEXT)] == [2, 2, 1]
    assert next(iter(stacks(TEXT))) == [
        Frame("epoll_wait", "/usr/lib/libc.so.6"),
        Frame("[unknown]", GRPC),
    ]


def test_shares_are_of_all_samples_largest_first():
    assert shares(TEXT) == {
        "dense": (2 / 3, [("mkl_blas_def_xsgemv", 2 / 3)]),
        "grpc and protobuf": (1 / 3, [("epoll_wait", 1 / 3)]),
    }


@pytest.mark.parametrize(
    ("frames", "room"),
    [
        pytest.param([("memmove", "libc"), ("embershard::BuildBatch", OURS)], "build", id="ours"),
        pytest.param(
            [("at::empty", TORCH), ("embershard::(anonymous namespace)::BuildDense", OURS)],
            "build",
            id="calls-torch",
        ),
        pytest.param(
            [
                ("embershard::SumLengths", OURS),
                ("embershard::CheckRequest", OURS),
                ("embershard::PredictorService::Predict", OURS),
            ],
            "door",
            id="the-innermost-counts",
        ),
        pytest.param(
            [
                (
                    "void embershard::(anonymous namespace)::SumColumns<embershard::(anonymous "
                    "namespace)::Int8Row>(embershard::BagSums const&)",
                    OURS,
                )
            ],
            "lookup",
            id="a-template",
        ),
        pytest.param(
            [
                ("mkl_blas_avx512_sgemm", TORCH),
                ("torch::jit::Method::operator()", TORCH),
                (
                    "embershard::TorchScriptProgram::Run(embershard::DenseProgramInputs const&)",
                    OURS,
                ),
                ("embershard::BatchRunner::RunUnguarded(embershard::Slot*)", OURS),
            ],
            "dense",
            id="dense-under-the-runner",
        ),
        pytest.param(
            [("embershard::Engine::State::Answer(embershard::Request*)", OURS)],
            "answer",
            id="a-function-of-a-class",
        ),
        pytest.param(
            [("memcpy", "libc"), ("embershard::BatchRunner::Run(embershard::LookupBatch)", OURS)],
            "answer",
            id="arguments-do-not-count",
        ),
        pytest.param([("[unknown]", "/tmp/perf-12.map")], "dense", id="jitted-kernel"),
        pytest.param([("[unknown]", "[JIT] tid 31")], "dense", id="jitted-and-not-in-a-map"),
        pytest.param([("schedule", "[kernel.kallsyms]")], "other", id="nothing-known"),
    ],
)
def test_a_stack_belongs_to_a_room(frames, room):
    assert room_of([Frame(*each) for each in frames]) == room


FOLDERS = {
    "grpc and protobuf": ("grpc",),
    "parse": ("grpc", "batching", "tensors"),
    "door": ("batching",),
    "lookup": ("lookup",),
    "dense": ("dense",),
    "build": ("batching", "package"),
    "queue": ("batching", "engine"),
    "answer": ("grpc", "batching", "engine"),
    "telemetry": ("telemetry", "engine"),
}
"""Where the names of a room are declared."""


@pytest.mark.parametrize(
    ("room", "name"), [(room, name) for room in BY_NAME for name in BY_NAME[room]]
)
def test_a_name_of_a_room_is_a_class_or_a_function_in_its_folders(room, name):
    declared = re.compile(rf"\b(class|struct) {name}\b|\b{name}(\(|::)")
    sources = [
        source.read_text()
        for folder in FOLDERS[room]
        for source in (PREDICTOR / folder).glob("*.[ch]*")
    ]
    assert any(declared.search(source) for source in sources)
