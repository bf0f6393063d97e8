"""TorchRec's quantized model as a model of Triton's backend for Python, which calls it.

Parameters: ``folder``, which `benchmarks.torchrec` filled; ``mode``, ``each``: request by
request, ids as they come; ``merged``: one batch of all requests of a call, traced, scripted and
frozen, with int32 ids. Tensors: DENSE [1, B, F] float32, LENGTHS [1, L] int32, VALUES [1, V] int64,
feature by feature; score [1, B] float32.
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
    """What Triton's backend for Python calls."""

    def initialize(self, args: dict[str, str]) -> None:
        """Builds the model, once an instance."""
        given = json.loads(args["model_config"])["parameters"]
        folder = Path(given["folder"]["string_value"])
        self.merges = given["mode"]["string_value"] == "merged"
        self.keys = about_in(folder)["keys"]
        model = quantize_inference_model(built(folder).eval(), output_dtype=torch.float32)
        self.model = scripted(model) if self.merges else model
        self.ids = torch.int32 if self.merges else torch.int64

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answers all requests of a call."""
        inputs = [
            [_array(request, name) for name in ("DENSE", "LENGTHS", "VALUES")]
            for request in requests
        ]
        if not self.merges:
            return [_answer(self._scores(*each)) for each in inputs]
        dense, lengths, values = (list(each) for each in zip(*inputs, strict=True))
        scores = self._scores(
            np.concatenate(dense), *merged_lists(lengths, values, keys=len(self.keys))
        )
        ends = np.cumsum([len(each) for each in dense])[:-1]
        return [_answer(each) for each in np.split(scores, ends)]

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
            found: NDArray[np.float32] = torch.sigmoid(logits).squeeze(1).numpy()
        return found


def _array(request: Any, name: str) -> NDArray[Any]:
    """A tensor of a request, without the 1 before its shape."""
    found: NDArray[Any] = pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0]
    return found


def _answer(scores: NDArray[np.float32]) -> Any:
    return pb_utils.InferenceResponse([pb_utils.Tensor("score", scores[np.newaxis])])
