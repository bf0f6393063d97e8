"""Which room a stack belongs to, by hand-written stacks."""

import pytest

from benchmarks.rooms_of_stacks import Frame, room_of, shares, stacks

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
            [("at::empty", TORCH), ("embershard::FbgemmCall::Run", OURS)],
            "lookup",
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
        pytest.param([("[unknown]", "/tmp/perf-12.map")], "lookup", id="jitted-kernel"),
        pytest.param([("schedule", "[kernel.kallsyms]")], "other", id="nothing-known"),
    ],
)
def test_a_stack_belongs_to_a_room(frames, room):
    assert room_of([Frame(*each) for each in frames]) == room
