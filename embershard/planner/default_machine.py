"""The costs that ship with embershard, as ``embershard calibrate`` measured them. The files say
where each figure is from."""

from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from embershard.package.row_format import RowFormat, WeightType
from embershard.planner.machine import Link, Machine, MissCost, RowCost, read_machine
from embershard.planner.measurements import WEIGHTS
from embershard.sharding.shard_memory import FLOAT_BYTES, ID_BYTES

FORWARD_SHARE, CACHED_RATIO = 0.647, 2.0
HOST: Final = Link(latency_seconds=0, bytes_per_second=370e9)
NETWORK: Final = Link(latency_seconds=0, bytes_per_second=48e9)
EXCHANGE: Final = RowCost(start=0, id=0, id_byte=0, bag=0, bag_byte=2 / HOST.bytes_per_second)
DIM = 128
"""Of the rows whose bytes say how much longer a sum is than a stored row."""


class Gpu(NamedTuple):
    """Figures of a GPU's data sheet. Its GB of memory are GiB: nvidia-smi shows 81,559 MiB for an
    H100."""

    name: str
    memory_bytes: int
    bytes_per_second: float
    source: str

    @property
    def sources(self) -> dict[str, str]:
        """Sources of ``published_lookups``, ``HOST``, ``NETWORK`` and ``EXCHANGE``."""
        peak = f"{self.bytes_per_second / 1e12:g} TB/s of memory: {self.source}"
        return {
            "lookups": f"{peak}; 64.7 % of it, FBGEMM: meta-pytorch/torchrec pull request 4757",
            "lookups in the cache": "twice the peak bandwidth of memory: NVIDIA, Accelerating "
            "Embedding Lookups with cuEmbed",
            "host, exchange": "370 GB/s each way, NCCL, of 450 GB/s of NVLink 4: NVIDIA/nccl-tests "
            "issue 212",
            "network": "48 GB/s of a ConnectX-7 of 400 Gb/s a GPU: NVIDIA/nccl-tests issue 267",
        }


GPUS: Final = (
    Gpu("NVIDIA H100 SXM", 80 << 30, 3.35e12, "NVIDIA H100 Tensor Core GPU data sheet: 80 GB"),
    Gpu("NVIDIA H200 SXM", 141 << 30, 4.8e12, "NVIDIA H200 Tensor Core GPU data sheet: 141 GB"),
)
"""The smallest first."""


def gpu_for(memory_bytes: float) -> Gpu:
    """The smallest GPU with so much memory; the largest if none has."""
    return next((each for each in GPUS if memory_bytes <= each.memory_bytes), GPUS[-1])


def published_lookups(gpu: Gpu) -> dict[str, RowCost]:
    """Costs of a server's lookups with one cache, by how rows are stored."""
    cached = 1 / (CACHED_RATIO * gpu.bytes_per_second)
    memory = 1 / (FORWARD_SHARE * gpu.bytes_per_second)
    return {
        weights: RowCost(
            start=0,
            id=ID_BYTES * memory,
            id_byte=cached,
            bag=0,
            bag_byte=_sum_ratio(weights) * memory,
            misses=(MissCost(row=0, row_byte=memory - cached),),
        )
        for weights in WEIGHTS
    }


def _sum_ratio(weights: WeightType) -> float:
    """Bytes of a sum, which is fp32, over those of a stored row."""
    return FLOAT_BYTES * DIM / RowFormat(weights, DIM).row_bytes


FOLDER = Path(__file__).parent
PROCESSOR: Final = "xeon_amx.json"
MEASURED: Final = dict(zip(GPUS, ("h100.json", "h200.json"), strict=True))


def default_machine(kind: str = "cpu", memory_bytes: float = 0) -> Machine:
    """The machine of any processor, or of the smallest GPU with enough memory.

    Args:
        kind: "cpu" or "cuda".
        memory_bytes: of a GPU.
    """
    return _read(MEASURED[gpu_for(memory_bytes)] if kind == "cuda" else PROCESSOR)


@cache
def _read(name: str) -> Machine:
    return read_machine(FOLDER / name)
