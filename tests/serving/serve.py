"""The server that tests start: on a free port, with one thread."""

from pathlib import Path
from typing import Any

from embershard.serving import Server, ServerOptions


def serve(repository: Path | str, **options: Any) -> Server:
    return Server(repository, options=ServerOptions(port=0, threads=1, **options))
