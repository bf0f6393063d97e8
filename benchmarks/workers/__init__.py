"""Programs that run one side of a comparison, with the measured checkout's embershard."""

__all__: list[str] = []
