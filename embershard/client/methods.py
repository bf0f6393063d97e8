"""The service's methods, on a channel of either kind."""

from __future__ import annotations

from typing import Any, NamedTuple

import grpc
import grpc.aio

from embershard._proto import predictor_pb2 as pb
from embershard.client.channel import with_token

__all__ = ["Methods", "methods_of"]

SERVICE = "/embershard.v1.Predictor"


class Methods(NamedTuple):
    """Each takes and gives messages; what a call of it is depends on the channel."""

    predict: Any
    get_model: Any
    predict_stream: Any


def methods_of(channel: grpc.Channel | grpc.aio.Channel, token: str) -> Methods:
    """
    Args:
        token: that every call brings. Empty: none.
    """
    methods = Methods(
        predict=channel.unary_unary(
            f"{SERVICE}/Predict",
            request_serializer=pb.PredictRequest.SerializeToString,
            response_deserializer=pb.PredictResponse.FromString,
        ),
        get_model=channel.unary_unary(
            f"{SERVICE}/GetModel",
            request_serializer=pb.GetModelRequest.SerializeToString,
            response_deserializer=pb.GetModelResponse.FromString,
        ),
        predict_stream=channel.stream_stream(
            f"{SERVICE}/PredictStream",
            request_serializer=pb.PredictRequest.SerializeToString,
            response_deserializer=pb.PredictResponse.FromString,
        ),
    )
    return Methods(*(with_token(method, token) for method in methods))
