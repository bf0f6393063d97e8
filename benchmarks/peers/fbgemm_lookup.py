"""FBGEMM's quantized lookup from Python, as a child: sums of int8 rows into float32.

    python -m benchmarks.peers.fbgemm_lookup DIM TABLES ROWS BAGS LENGTH default|tuned

``default``: int64 rows, ids checked as the module does it unless told otherwise. ``tuned``: int32
rows, no checks; the caller sets ``THP_MEM_ALLOC_ENABLE=1``. One thread: the operator has no more.
"""

from __future__ import annotations

import sys
from itertools import cycle

import torch
from fbgemm_gpu.split_embedding_configs import SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation
from fbgemm_gpu.split_table_batched_embeddings_ops_inference import (
    IntNBitTableBatchedEmbeddingBagsCodegen,
)

from benchmarks.child import answer

__all__: list[str] = []

ROWS_DRAWN = 1 << 15
"""Of each table, in four batches or more: ours draws as many."""


def main() -> None:
    """Set up, then serve blocks; units are rows."""
    dim, tables, rows, bags, length = map(int, sys.argv[1:6])
    tuned = {"default": False, "tuned": True}[sys.argv[6]]
    torch.set_num_threads(1)
    settings = {"bounds_check_mode": BoundsCheckMode.NONE} if tuned else {}
    module = IntNBitTableBatchedEmbeddingBagsCodegen(
        [("", rows, dim, SparseType.INT8, EmbeddingLocation.HOST)] * tables,
        device="cpu",
        output_dtype=SparseType.FP32,
        **settings,
    )
    module.fill_random_weights()
    dtype = torch.int32 if tuned else torch.int64
    generator = torch.Generator().manual_seed(1)
    count = tables * bags * length
    batches = cycle(
        (
            torch.randint(rows, (count,), generator=generator, dtype=dtype),
            torch.arange(0, count + 1, length, dtype=dtype),
        )
        for _ in range(max(4, ROWS_DRAWN // (bags * length)))
    )

    def run() -> float:
        with torch.inference_mode():
            module(*next(batches))
        return count

    answer(run)


if __name__ == "__main__":
    main()
