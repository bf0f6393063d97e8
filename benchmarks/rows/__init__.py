"""The benchmarks: functions that declare sides, what they are compared by, and the bound."""

__all__: list[str] = []
