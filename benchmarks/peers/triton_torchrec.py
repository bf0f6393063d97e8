"""TorchRec's quantized model for Triton's Python backend.

The parameter ``folder`` is a folder of `benchmarks.torchrec`. With ``mode`` ``each``, requests run
one by one. With ``merged``, all requests of a call form one batch, and the model is traced,
scripted and frozen, with int32 ids.

Inputs are DENSE float32 [1, B, F], LENGTHS int32 [1, L] and VALUES int64 [1, V], feature by
feature. The output is score, float32 [1, B].
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray
from torchrec import KeyedJaggedTensor
from torchrec.inference.modules import quantize_inference_model

from benchmarks.peers.merged_lists import merged_lists
from benchmarks.peers.torchrec_offline import about_in, built, scripted


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        parameters = json.loads(args["model_config"])["parameters"]
        folder = Path(parameters["folder"]["string_value"])
        self.merges = parameters["mode"]["string_value"] == "merged"
        self.keys = about_in(folder)["keys"]
        model = quantize_inference_model(built(folder).eval(), output_dtype=torch.float32)
        self.model = scripted(model) if self.merges else model
        self.ids = torch.int32 if self.merges else torch.int64

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        inputs = [
            [_array(request, name) for name in ("DENSE", "LENGTHS", "VALUES")]
            for request in requests
        ]
        if not self.merges:
            return [_answer(self._scores(*arrays)) for arrays in inputs]
        dense, lengths, values = (list(arrays) for arrays in zip(*inputs, strict=True))
        scores = self._scores(
            np.concatenate(dense), *merged_lists(lengths, values, keys=len(self.keys))
        )
        ends = np.cumsum([len(rows) for rows in dense])[:-1]
        return [_answer(part) for part in np.split(scores, ends)]

    def _scores(
        self, dense: NDArray[np.float32], lengths: NDArray[np.int32], values: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        features = KeyedJaggedTensor(
            keys=self.keys,
            values=torch.from_numpy(values).to(self.ids),
            lengths=torch.from_numpy(lengths),
        )
        with torch.inference_mode():
            logits = self.model(torch.from_numpy(dense), features)
            scores: NDArray[np.float32] = torch.sigmoid(logits).squeeze(1).numpy()
        return scores


def _array(request: Any, name: str) -> NDArray[Any]:
    """A request's tensor without its first dimension of 1."""
    array: NDArray[Any] = pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0]
    return array


def _answer(scores: NDArray[np.float32]) -> Any:
    return pb_utils.InferenceResponse([pb_utils.Tensor("score", scores[np.newaxis])])
