"""Serves packages. The control plane is Python, the data plane is C++."""

from embershard.serving.local import LocalPrediction, LocalPredictor
from embershard.serving.options import ServerOptions, TableResidency
from embershard.serving.repository import DenseProgram, ServedPackage
from embershard.serving.server import Server

__all__ = [
    "DenseProgram",
    "LocalPrediction",
    "LocalPredictor",
    "ServedPackage",
    "Server",
    "ServerOptions",
    "TableResidency",
]
