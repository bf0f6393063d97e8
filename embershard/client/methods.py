"""The service's methods, on a channel of either kind."""

from __future__ import annotations

from typing import Any, NamedTuple

import grpc
import grpc.aio

from embershard._proto import predictor_pb2 as pb

__all__ = ["CHANNEL_OPTIONS", "Methods", "methods_of"]

SERVICE = "/embershard.v1.Predictor"

CHANNEL_OPTIONS = (
    # Ranking requests pass gRPC's default of 4 MiB; the server states its own limit.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A lost connection is tried again as soon as gRPC may, so that a retry can find the server
    # that took its place. By default it fails for a second without trying.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A server that vanishes without a word ends its streams, which have no deadline, within 80 s.
    # Asked while a call is open, for as long as it is.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
)


class Methods(NamedTuple):
    """Each takes and gives messages; what a call of it is depends on the channel."""

    predict: Any
    get_model: Any
    predict_stream: Any


def methods_of(channel: grpc.Channel | grpc.aio.Channel) -> Methods:
    return Methods(
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
