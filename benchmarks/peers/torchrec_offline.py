"""TorchRec's quantized model as a child, over a model and a batch that lie in a folder.

    python -m benchmarks.peers.torchrec_offline FOLDER eager|script|bf16 THREADS

``eager``: as TorchRec's quantization leaves it. ``script``: int32 ids; traced, scripted and frozen,
without FBGEMM's bounds check; ``THP_MEM_ALLOC_ENABLE=1`` is the caller's to set. ``bf16``: that,
with the dense layers and the pooled vectors in bfloat16. Writes the scores to FOLDER/<mode>.npy
first; units are examples.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode
from torch import nn
from torchrec import EmbeddingBagCollection
from torchrec.fx import Tracer
from torchrec.inference.modules import quantize_inference_model

from benchmarks.child import answer
from benchmarks.peers.torchrec_model import batch_in, model_in, tables_in


def main() -> None:
    """Set up, score once, then serve blocks."""
    folder, mode, threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    assert mode in ("eager", "script", "bf16")
    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if mode == "bf16" else torch.float32
    model = quantize_inference_model(built(folder).eval(), output_dtype=dtype)
    for arch in (model.dense_arch, model.inter_arch, model.over_arch):
        arch.to(dtype)
    if mode != "eager":
        model = scripted(model)
    dense, features = batch_in(folder, ids=torch.int64 if mode == "eager" else torch.int32)
    dense_inputs = dense.to(dtype)

    def score() -> torch.Tensor:
        with torch.inference_mode():
            return torch.sigmoid(model(dense_inputs, features)).squeeze(1)

    np.save(folder / f"{mode}.npy", score().float().numpy())

    def run() -> float:
        return len(score())

    answer("examples", run)


def built(folder: Path) -> nn.Module:
    """The model in float32, with the weights that lie in the folder."""
    collection = EmbeddingBagCollection(tables=tables_in(folder), device=torch.device("cpu"))
    model = model_in(folder, collection)
    model.load_state_dict(torch.load(folder / "state.pt", mmap=True))
    return model


def scripted(model: nn.Module) -> Any:
    """A quantized model, traced, scripted and frozen, without FBGEMM's bounds check."""
    for module in model.modules():
        if hasattr(module, "bounds_check_mode_int"):
            setattr(module, "bounds_check_mode_int", BoundsCheckMode.NONE.value)  # noqa: B010
    tracer = Tracer(leaf_modules=["IntNBitTableBatchedEmbeddingBagsCodegen"])
    traced = torch.fx.GraphModule(model, tracer.trace(model))
    return torch.jit.freeze(torch.jit.script(traced).eval())


if __name__ == "__main__":
    main()
