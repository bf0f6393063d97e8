"""Packages in NVIDIA Triton: the configuration of a model, and the folder of the backend."""

from embershard.serving.triton.configuration import (
    CONFIG_FILE,
    TritonOptions,
    backend_directory,
    model_config,
    write_model_config,
)

__all__ = [
    "CONFIG_FILE",
    "TritonOptions",
    "backend_directory",
    "model_config",
    "write_model_config",
]
