"""How long the threads of a serving process spin for each other."""

import subprocess
import sys

import pytest

from embershard.serving.server_process.run import spin_briefly


def test_threads_spin_briefly():
    environment = {"PATH": "/bin"}
    spin_briefly(environment)
    assert environment == {"PATH": "/bin", "GOMP_SPINCOUNT": "1000"}


@pytest.mark.parametrize("said", [{"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "active"}])
def test_what_a_user_says_holds(said):
    environment = dict(said)
    spin_briefly(environment)
    assert environment == said


def test_it_is_said_before_the_library_that_reads_it_is_loaded():
    """`embershard serve` imports nothing that maps libgomp before it starts a server."""
    code = (
        "from embershard.cli import main\n"
        "try:\n"
        "    main(['serve', '--help'])\n"
        "except SystemExit:\n"
        "    pass\n"
        "import embershard.serving.server_process.run\n"
        "import sys; sys.exit('libgomp' in open('/proc/self/maps').read())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
