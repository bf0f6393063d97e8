"""Exports a package, unless it exists, and prints its folder.

``python -m benchmarks.workers.export JSON``, where JSON holds the fields of `PackageSpec`.
"""

import json
import sys

from benchmarks.packages import PackageSpec, export

if __name__ == "__main__":
    print(export(PackageSpec(**json.loads(sys.argv[1]))))
