"""A plugin of scikit-build-core that makes wheels require the torch they were compiled against.

libtorch has no stable ABI across minor versions, so the extension works only with the version that
it was compiled against. pyproject.toml has the range of versions to compile against.
"""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any


class Provider:
    """Adds requirements to wheels, but not to source distributions."""

    def build_state(self, build_state: str) -> None:
        self._is_sdist = build_state == "sdist"

    def dynamic_wheel(self, settings: Mapping[str, Any]) -> dict[str, bool]:
        return {"dependencies": True, "optional-dependencies": True}

    def dynamic_metadata(
        self, settings: Mapping[str, Any], project: Mapping[str, Any]
    ) -> dict[str, Any]:
        if self._is_sdist:
            return {"dependencies": [], "optional-dependencies": {}}
        return requirements(version("torch"))


def requirements(torch: str) -> dict[str, Any]:
    """Requirements of a wheel that is compiled against ``torch``, in addition to pyproject.toml.
    FBGEMM 1.6 belongs to torch 2.11, 1.7 to 2.12, and so on."""
    major, minor = torch.split(".")[:2]
    fbgemm = f"1.{int(minor) - 5}"
    return {
        "dependencies": [f"torch=={major}.{minor}.*"],
        "optional-dependencies": {
            "cpu": [f"fbgemm-gpu-cpu=={fbgemm}.*"],
            "cuda": [f"fbgemm-gpu=={fbgemm}.*"],
        },
    }
