"""A predictor in this process that takes and gives messages, as servers do."""

from collections.abc import Sequence

import numpy as np

from embershard._proto import predictor_pb2 as pb
from embershard.errors import EmbershardError
from embershard.package import SampleRequest
from embershard.serving import LocalPredictor


class MessagePredictor(LocalPredictor):
    """Answers messages as a server does, without a server."""

    def answers(self, messages: Sequence[bytes]) -> list[bytes | EmbershardError]:
        """Returns a serialized ``PredictResponse`` or the error for each serialized
        ``PredictRequest``. All requests want the same outputs."""
        model = pb.GetModelResponse.FromString(self.get_model())
        parsed = [pb.PredictRequest.FromString(message) for message in messages]
        (wanted,) = {tuple(item.outputs) for item in parsed} or {()}
        answers = self.predict_merged([arrays_of(model, item) for item in parsed], wanted)
        return [
            answer if isinstance(answer, EmbershardError) else _message(answer)
            for answer in answers
        ]


def arrays_of(model: pb.GetModelResponse, request: pb.PredictRequest) -> SampleRequest:
    """The arrays of a message in either form."""
    packed = request.packed if request.HasField("packed") else _packed(model, request)
    count = request.num_examples
    columns = sum(
        item.HasField("dense") and item.scope == pb.SCOPE_EXAMPLE for item in model.inputs
    )
    return SampleRequest(
        num_examples=count,
        request_dense=np.frombuffer(packed.request_dense, "<f4"),
        example_dense=np.frombuffer(packed.example_dense, "<f4").reshape(count, columns),
        lengths=np.frombuffer(packed.lengths, "<i4"),
        values=np.frombuffer(packed.values, "<i8"),
        weights=np.frombuffer(packed.weights, "<f4"),
        outputs={},
    )


def _packed(model: pb.GetModelResponse, request: pb.PredictRequest) -> pb.Packed:
    """Named inputs, in the model's order; an input that is left out is empty or has its default."""
    dense = {feature.name: feature.values for feature in request.dense}
    sparse = {feature.name: feature for feature in request.sparse}
    columns = dict[int, list[np.ndarray]]({pb.SCOPE_REQUEST: [], pb.SCOPE_EXAMPLE: []})
    packed = pb.Packed()
    for item in model.inputs:
        count = 1 if item.scope == pb.SCOPE_REQUEST else request.num_examples
        if item.HasField("dense"):
            default = np.full(count, item.dense.default, "<f4").tobytes()
            columns[item.scope].append(np.frombuffer(dense.get(item.name, default), "<f4"))
        else:
            lists = sparse.get(item.name, pb.SparseValues(lengths=bytes(4 * count)))
            packed.lengths += lists.lengths
            packed.values += lists.values
            packed.weights += lists.weights
    packed.request_dense = np.array(columns[pb.SCOPE_REQUEST], "<f4").tobytes()
    packed.example_dense = np.array(columns[pb.SCOPE_EXAMPLE], "<f4").T.tobytes()
    return packed


def _message(answer) -> bytes:
    outputs = [
        pb.Output(name=name, shape=values.shape, values=values.tobytes())
        for name, values in answer.outputs.items()
    ]
    unknown = [pb.UnknownIds(feature=key, count=count) for key, count in answer.unknown_ids.items()]
    return pb.PredictResponse(outputs=outputs, unknown_ids=unknown).SerializeToString()
