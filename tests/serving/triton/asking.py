"""Requests as Triton's clients send them to a model that batches: with a 1 before each shape."""

import numpy as np
from tritonclient.grpc import InferInput, InferRequestedOutput, InferResult

from tests.serving.asking import Asked
from tests.serving.open_inference.tensors import Arrays, arrays_of, infer_inputs


def one(arrays: Arrays) -> Arrays:
    """The tensors of one request."""
    return {name: array[np.newaxis] for name, array in arrays.items()}


def inputs_of(request: Asked, *, is_packed: bool = False) -> list[InferInput]:
    return infer_inputs(one(arrays_of(request, is_packed=is_packed)))


def outputs_of(result: InferResult) -> dict[str, np.ndarray]:
    """Outputs by name, without that 1."""
    results = {}
    for output in result.get_response().outputs:
        values = result.as_numpy(output.name)
        assert values.shape[0] == 1, values.shape
        results[output.name] = values[0]
    return results


def wanted(*names: str) -> list[InferRequestedOutput]:
    return [InferRequestedOutput(name) for name in names]
