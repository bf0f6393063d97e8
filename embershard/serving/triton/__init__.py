"""The same packages in NVIDIA Triton: the model's configuration, and where the backend lies."""

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
