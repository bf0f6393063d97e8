"""How Triton serves a model."""

from dataclasses import dataclass

from embershard.serving.option import check_options, option
from embershard.serving.options import (
    TableResidency,
    dense_program_option,
    plan_option,
    tables_option,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonOptions:
    """What ``config.pbtxt`` says beside the model's tensors.

    Raises:
        ConfigError: a number out of range, or another way to hold tables.
    """

    plan: str = plan_option()
    tables: TableResidency = tables_option()  # noqa: RUF009
    dense_program: str = dense_program_option()
    threads: int = option(
        0,
        "threads of lookups and of the dense program, of an instance",
        unit="N",
        zero="all instances together have one a core",
        change="Raise it if one request is so large that it needs several threads to be in time",
        most=1024,
    )
    instances: int = option(
        0,
        "how many batches run at the same time; instances share one copy of the model",
        unit="N",
        zero="one for each core that Triton finds when it starts, with --threads one",
        change="Lower it if there are other models beside this one",
    )
    max_batch_requests: int = option(256, "most requests in a batch", unit="N", least=1)
    max_batch_examples: int = option(
        0,
        "a batch is full with so many examples; a larger request is split",
        unit="N",
        zero="as many as `embershard serve` merges",
        change="Raise it if a model gains from more",
    )
    max_batch_ids: int = option(
        0, "a batch is full with so many ids", unit="N", zero="the backend's default"
    )
    max_queue_delay_us: int = option(
        0,
        "how long the first request of a batch waits for others while an instance is idle",
        unit="US",
        zero="not at all; requests still gather while it is busy",
    )
    max_queued_requests: int = option(
        4096, "requests that may wait; one more is refused", unit="N", zero="no limit"
    )
    default_timeout_ms: int = option(
        1000,
        "how long a request may wait before it is refused; clients may ask for less",
        unit="MS",
        zero="for ever, and what clients ask for is ignored",
    )

    def __post_init__(self) -> None:
        check_options(self)
