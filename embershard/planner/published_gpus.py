"""Machines of GPUs, by figures that others published: nothing of them is measured here.

A lookup, an update and a message move bytes at a share of the bandwidth of the data sheet, which is
what the kernels of FBGEMM and NCCL were seen to reach. Starts of kernels are 0: every rank has the
same ones, and no plan changes them.
"""

from functools import cache
from typing import Final, NamedTuple

from embershard.errors import InputError
from embershard.package.row_format import RowFormat, WeightType
from embershard.planner.machine import Kernel, Link, Machine, MissCost, RowCost
from embershard.planner.measured_lookups import WEIGHTS
from embershard.sharding.shard_memory import FLOAT_BYTES, ID_BYTES

FORWARD_SHARE, BACKWARD_SHARE = 0.647, 0.265
CACHED_RATIO = 2.0
CACHE_BYTES = 50 << 20
HOST_BYTES_PER_SECOND, NETWORK_BYTES_PER_SECOND = 370e9, 48e9
HOST_MEMORY_RATE = 64e9
DIM = 128
"""Of the rows whose bytes say how much longer a sum is than a stored row."""

SOURCES: Final = {
    "caches": "50 MB of L2: NVIDIA Hopper Architecture In-Depth",
    "forward": "64.7 % of peak bandwidth, FBGEMM: meta-pytorch/torchrec pull request 4757",
    "backward": "26.5 % of peak bandwidth, FBGEMM: meta-pytorch/torchrec pull request 4757",
    "cached": "rows in L2: twice the peak bandwidth of memory: NVIDIA, Accelerating Embedding "
    "Lookups with cuEmbed",
    "host": "370 GB/s each way, NCCL, of 450 GB/s of NVLink 4: NVIDIA/nccl-tests issue 212",
    "host memory": "64 GB/s each way, PCIe Gen5 x16: NVIDIA H100 Tensor Core GPU data sheet",
    "network": "48 GB/s of a ConnectX-7 of 400 Gb/s a GPU: NVIDIA/nccl-tests issue 267",
}


class Gpu(NamedTuple):
    """What its data sheet says."""

    name: str
    memory_bytes: int
    bytes_per_second: float
    source: str


GPUS: Final = (
    Gpu("NVIDIA H100 SXM", 80 * 10**9, 3.35e12, "NVIDIA H100 Tensor Core GPU data sheet: 80 GB"),
    Gpu("NVIDIA H200 SXM", 141 * 10**9, 4.8e12, "NVIDIA H200 Tensor Core GPU data sheet: 141 GB"),
)
"""The smallest first."""


def gpu_for(memory_bytes: float) -> Gpu:
    """The smallest GPU with so much memory; the largest if none has."""
    return next((each for each in GPUS if memory_bytes <= each.memory_bytes), GPUS[-1])


@cache
def gpu_machine(name: str) -> Machine:
    """Costs of one of ``GPUS``.

    Raises:
        InputError: it is none of them.
    """
    gpu = next((each for each in GPUS if each.name == name), None)
    if gpu is None:
        known = ", ".join(each.name for each in GPUS)
        raise InputError(f"gpu: expected one of {known}, got {name!r}")
    peak = gpu.bytes_per_second
    forward = 1 / (FORWARD_SHARE * peak)
    cached = 1 / (CACHED_RATIO * peak)
    nothing = RowCost(start=0, id=0, id_byte=0, bag=0, bag_byte=0)
    memory = f"{peak / 1e12:g} TB/s of memory: {gpu.source}"
    return Machine(
        processor=gpu.name,
        versions={},
        caches=(CACHE_BYTES,),
        kernels={
            name: Kernel(forward=_lookup(cached, forward, 1.0), backward=_update(peak, *state))
            for name, state in STATE_BYTES.items()
        },
        lookups={weights: _lookup(cached, forward, _sum_ratio(weights)) for weights in WEIGHTS},
        exchange=nothing.model_copy(update={"bag_byte": 2 / HOST_BYTES_PER_SECOND}),
        host=Link(latency_seconds=0, bytes_per_second=HOST_BYTES_PER_SECOND),
        network=Link(latency_seconds=0, bytes_per_second=NETWORK_BYTES_PER_SECOND),
        host_memory_rate=HOST_MEMORY_RATE,
        measured=False,
        sources={"memory": memory, **SOURCES},
    )


STATE_BYTES: Final = {"rowwise_adagrad": (4, 0.0), "adagrad": (0, 1.0), "sgd": (0, 0.0)}
"""Of an optimizer: bytes of state of a row, and bytes of state a byte of the row."""


def _lookup(cached: float, memory: float, sum_ratio: float) -> RowCost:
    """Seconds of a byte of a row in the cache, and of one in memory or written; bytes of a sum over
    those of a row."""
    return RowCost(
        start=0,
        id=ID_BYTES * memory,
        id_byte=cached,
        bag=0,
        bag_byte=sum_ratio * memory,
        misses=(MissCost(row=0, row_byte=memory - cached),),
    )


def _sum_ratio(weights: WeightType) -> float:
    """Bytes of a sum, which is fp32, over those of a stored row."""
    return FLOAT_BYTES * DIM / RowFormat(weights, DIM).row_bytes


def _update(peak: float, state_of_row: int, state_of_byte: float) -> RowCost:
    """Each id reads the gradient of its bag; each distinct row and its state are read and
    written."""
    second = 1 / (BACKWARD_SHARE * peak)
    return RowCost(
        start=0,
        id=ID_BYTES * second,
        id_byte=second,
        bag=0,
        bag_byte=0,
        row=2 * state_of_row * second,
        row_byte=2 * (1 + state_of_byte) * second,
    )
