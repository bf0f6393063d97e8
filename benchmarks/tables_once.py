"""Loads the tables of a package once, in a fresh process, and prints the seconds it took.

``python -m benchmarks.tables_once mmap|resident REPOSITORY`` builds a server, which reads and
checks every byte and runs its samples. ``python -m benchmarks.tables_once torch FILE`` is
``torch.load`` of a state dict. Libraries are loaded before the clock starts.
"""

from __future__ import annotations

import sys
import time

__all__: list[str] = []


def main(how: str, path: str) -> float:
    """Seconds."""
    if how == "torch":
        import torch

        started = time.perf_counter()
        tables = torch.load(path)
        # Every page, as a model would touch it.
        total = sum(int(rows[:, 0].sum()) for rows in tables.values())
        assert total >= 0
        return time.perf_counter() - started
    from embershard.serving import Server, ServerOptions
    from embershard.serving._native import load_extension

    load_extension()
    options = ServerOptions(port=0, tables="resident" if how == "resident" else "mmap")
    started = time.perf_counter()
    server = Server(path, options=options)
    seconds = time.perf_counter() - started
    server.stop()
    return seconds


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
