"""The process of `embershard serve`: its start and end, its signals and its log."""

from embershard.serving.server_process.run import ProcessOptions, run_server

__all__ = ["ProcessOptions", "run_server"]
