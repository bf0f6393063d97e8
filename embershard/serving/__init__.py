"""Serving a package: the control plane in Python over a data plane in C++."""

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
