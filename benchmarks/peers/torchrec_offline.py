"""TorchRec's quantized model, with a model and a batch in a folder of `benchmarks.torchrec`.

    python -m benchmarks.peers.torchrec_offline FOLDER eager|script|bf16 THREADS

eager    the result of TorchRec's quantization
script   int32 ids; traced, scripted and frozen, without FBGEMM's bounds check. The caller sets
         ``THP_MEM_ALLOC_ENABLE=1``
bf16     like script, with dense layers and pooled vectors in bfloat16

Writes the scores to FOLDER/<mode>.npy, then speaks the line protocol of `benchmarks.child`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor, PoolingType
from torchrec.fx import Tracer
from torchrec.inference.modules import quantize_inference_model
from torchrec.models.dlrm import DLRM, DLRM_DCN

from benchmarks.child import answer


def main() -> None:
    folder, mode, threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    assert mode in ("eager", "script", "bf16")
    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if mode == "bf16" else torch.float32
    model = quantize_inference_model(built(folder).eval(), output_dtype=dtype)
    for arch in (model.dense_arch, model.inter_arch, model.over_arch):
        arch.to(dtype)
    if mode != "eager":
        model = scripted(model)
    batch = np.load(folder / "batch.npz")
    dense = torch.from_numpy(batch["dense"]).to(dtype)
    features = KeyedJaggedTensor(
        keys=about_in(folder)["keys"],
        values=torch.from_numpy(batch["values"]).to(
            torch.int64 if mode == "eager" else torch.int32
        ),
        lengths=torch.from_numpy(batch["lengths"]),
    )

    def score() -> torch.Tensor:
        with torch.inference_mode():
            return torch.sigmoid(model(dense, features)).squeeze(1)

    np.save(folder / f"{mode}.npy", score().float().numpy())

    def run() -> float:
        return len(score())

    answer("examples", run)


def about_in(folder: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads((folder / "model.json").read_text())
    return about


def built(folder: Path) -> nn.Module:
    about = about_in(folder)
    tables = [
        EmbeddingBagConfig(**{**table, "pooling": PoolingType[table["pooling"]]})
        for table in about["tables"]
    ]
    collection = EmbeddingBagCollection(tables=tables, device=torch.device("cpu"))
    layers = (collection, about["dense_in"], about["dense_layers"], about["over_layers"])
    model: nn.Module = DLRM_DCN(*layers, *about["cross"]) if about["cross"] else DLRM(*layers)
    model.load_state_dict(torch.load(folder / "state.pt", mmap=True))
    return model


def scripted(model: nn.Module) -> Any:
    for module in model.modules():
        if hasattr(module, "bounds_check_mode_int"):
            setattr(module, "bounds_check_mode_int", BoundsCheckMode.NONE.value)  # noqa: B010
    tracer = Tracer(leaf_modules=["IntNBitTableBatchedEmbeddingBagsCodegen"])
    traced = torch.fx.GraphModule(model, tracer.trace(model))
    return torch.jit.freeze(torch.jit.script(traced).eval())


if __name__ == "__main__":
    main()
