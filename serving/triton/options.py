"""How Triton serves a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, get_args

from embershard.errors import ConfigError
from embershard.serving.options import TableResidency

__all__ = ["TritonOptions"]

_LEAST: Final = {
    "instances": 0,
    "max_batch_requests": 1,
    "max_batch_examples": 0,
    "max_batch_ids": 0,
    "max_queue_delay_us": 0,
    "max_queued_requests": 0,
    "default_timeout_ms": 0,
}
_MOST: Final = (1 << 31) - 1
_THREADS_MOST: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonOptions:
    """What ``config.pbtxt`` says beside the model's tensors.

    Raises:
        ConfigError: a number out of range, or another way to hold tables.
    """

    plan: str = ""
    """Which of the package's plans places the tables. Empty: the package's default."""

    dense_program: str = ""
    """Target of the dense program, as in ``ServerOptions``: ``cpu`` is TorchScript. Empty: what
    ``embershard compile`` made, where the package has it."""

    tables: TableResidency = "mmap"
    """``mmap``: read from the files as needed. ``resident``: copied into memory at the start."""

    threads: int = 0
    """Threads of lookups and of the dense program, of each instance. 0: all instances together have
    one a core. Raise it if one request is so large that it needs several threads to be in time."""

    instances: int = 0
    """How many batches run at the same time. The instances share one copy of the model. 0: one for
    each core of the process, which Triton counts when it starts; with ``threads``: one. Lower it if
    there are other models beside this one."""

    max_batch_requests: int = 256
    """Most requests in a batch, at least 1."""

    max_batch_examples: int = 0
    """A batch is full with so many examples; a larger request is cut. 0: as many as our server
    merges. Raise it where a model gains from more."""

    max_batch_ids: int = 0
    """A batch is full with so many ids, likewise."""

    max_queue_delay_us: int = 0
    """How long, in microseconds, the first request of a batch waits for others while an instance
    is idle. 0: not at all; requests still gather while it is busy."""

    max_queued_requests: int = 4096
    """Requests waiting at once; one more is refused. 0: no limit."""

    default_timeout_ms: int = 1000
    """How long a request may wait, in milliseconds, before it is refused; clients may ask for less.
    0: for ever, and what clients ask for is not heard."""

    def __post_init__(self) -> None:
        if self.tables not in get_args(TableResidency):
            raise ConfigError(f"tables: expected mmap or resident, got {self.tables!r}")
        if not 0 <= self.threads <= _THREADS_MOST:
            raise ConfigError(f"threads: expected 0..{_THREADS_MOST}, got {self.threads}")
        for name, least in _LEAST.items():
            if not least <= getattr(self, name) <= _MOST:
                raise ConfigError(f"{name}: expected {least}..{_MOST}, got {getattr(self, name)}")
