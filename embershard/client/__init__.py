"""The gRPC client. Needs numpy and grpcio, neither torch nor fbgemm."""

from embershard.client.arrays import Lists
from embershard.client.client import Client
from embershard.client.prediction import Prediction, Timing
from embershard.client.schema import ServedInput, ServedModel, ServedOutput

__all__ = [
    "Client",
    "Lists",
    "Prediction",
    "ServedInput",
    "ServedModel",
    "ServedOutput",
    "Timing",
]
