"""Writes docs/manifest.schema.json from the models that read manifest.json.

python scripts/write_manifest_schema.py
"""

import json
from pathlib import Path

from embershard.package.manifest import Manifest


def main() -> None:
    """Writes the file."""
    path = Path(__file__).parent.parent / "docs" / "manifest.schema.json"
    path.write_text(json.dumps(Manifest.model_json_schema(), indent=2) + "\n")


if __name__ == "__main__":
    main()
