"""Damaged packages that every reader must refuse, naming the same file and field.

Each case is one change to the golden package. A reader's message must begin with
"<file>: <field>" of the case, or with "<file>: missing file" or "unexpected
file". Digests that the change would break are set right again, so that the
reader gets as far as the change.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.hostile import files, manifests, plans
from tests.hostile.draft import Draft

__all__ = ["CASES", "HostileCase"]


WORDING = re.compile(r": (expected .*, got |(missing|unexpected|duplicate) .)", re.DOTALL)


@dataclass(frozen=True)
class HostileCase:
    name: str
    file: str
    field: str
    damage: Callable[[Draft], object]

    def build(self, folder: Path) -> Path:
        """The damaged package, in a new folder below ``folder``."""
        draft = Draft(folder / self.name)
        self.damage(draft)
        return draft.folder

    def is_named_by(self, message: str) -> bool:
        """True if a refusal begins with the case's file and field, and is worded as all are."""
        if not WORDING.search(message):
            return False
        if self.field == "file" and message.endswith(("missing file", "unexpected file")):
            return message.startswith(f"{self.file}: ")
        return message.startswith(f"{self.file}: {self.field}")


CASES = [
    HostileCase(*case)
    for case in [
        *manifests.DIGESTS,
        *manifests.JSON,
        *manifests.FIELDS,
        *manifests.RELATIONS,
        *files.FOLDER,
        *files.SAFETENSORS,
        *files.VOCABULARIES,
        *files.SAMPLES,
        *plans.PLANS,
    ]
]
