"""The gRPC client. It needs numpy and grpcio, but neither torch nor FBGEMM."""

from embershard.client.arrays import Lists
from embershard.client.async_client import AsyncClient
from embershard.client.async_stream import AsyncPredictStream
from embershard.client.channel import Tls
from embershard.client.client import Client
from embershard.client.prediction import Prediction, ServedInput, ServedModel, ServedOutput, Timing
from embershard.client.stream import PredictStream

__all__ = [
    "AsyncClient",
    "AsyncPredictStream",
    "Client",
    "Lists",
    "PredictStream",
    "Prediction",
    "ServedInput",
    "ServedModel",
    "ServedOutput",
    "Timing",
    "Tls",
]
