"""A GPU that is lost ends the server without a signal."""

import subprocess
import sys

SERVER = """
import sys
from types import SimpleNamespace
from embershard.serving import ServerOptions
from embershard.serving.server_process import run
from embershard.serving.server_process.logs import DescriptorStream, EventLog

log = EventLog(DescriptorStream(2), as_json=False)
server = SimpleNamespace(device_lost=True)
run._wait_for_signal(server, log, ServerOptions(port=0), None)
run._end_without_device(log)
"""


def test_the_process_ends_with_its_own_code_and_says_why():
    ended = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, timeout=60)
    assert ended.returncode == 3
    assert b'ended while=serving message="a GPU is lost"' in ended.stderr
