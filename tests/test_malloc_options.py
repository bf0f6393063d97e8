"""Effects of `set_malloc_options` on glibc's malloc, each in a new process."""

import ctypes
import json
import os
import subprocess
import sys

import pytest

from tests.cases import cases

glibc = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="another C library than glibc 2.33 and later",
)

LARGE_BLOCK = """
import ctypes, json, os, sys
from embershard.malloc_options import set_malloc_options

class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    _fields_ = [(name, ctypes.c_size_t) for name in names]

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.mallinfo2.restype = ctypes.c_void_p, Info
if sys.argv[1] == "set":
    set_malloc_options(os.environ)
before = libc.mallinfo2().hblks
block = ctypes.c_void_p(libc.malloc(40 << 20))  # Over every default threshold.
mapped = libc.mallinfo2().hblks - before
libc.free(block)
print(json.dumps({"mapped": mapped, "kept": libc.mallinfo2().keepcost >= 40 << 20}))
"""

ARENAS = """
import ctypes, json, os, sys, tempfile, threading
from embershard.malloc_options import set_malloc_options

THREADS = 12
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p

def arenas():
    with tempfile.NamedTemporaryFile() as file:
        stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
        libc.malloc_info(0, stream)
        libc.fclose(stream)
        return file.read().count(b"<heap ")

libc.mallopt(-8, 2)  # M_ARENA_MAX
if sys.argv[1] == "set":
    set_malloc_options(os.environ)
before = arenas()
ready, finished = threading.Barrier(THREADS + 1), threading.Event()

def allocate():
    libc.malloc(1 << 16)
    ready.wait()
    finished.wait()

threads = [threading.Thread(target=allocate) for _ in range(THREADS)]
for thread in threads:
    thread.start()
ready.wait()
print(json.dumps(arenas() - before))
finished.set()
"""


def run(script, how, **environment):
    """Runs a script, and returns the JSON that it prints."""
    free = {name: text for name, text in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", script, how]
    done = subprocess.run(
        command, env={**free, **environment}, capture_output=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


@glibc
def test_malloc_keeps_what_is_freed():
    assert run(LARGE_BLOCK, "set") == {"mapped": 0, "kept": True}


@glibc
@cases(
    ("how", "environment"),
    {
        "by-default": ("not-set", {}),
        "by-the-environment": ("set", {"MALLOC_MMAP_THRESHOLD_": "65536"}),
    },
)
def test_malloc_returns_what_is_freed(how, environment):
    assert run(LARGE_BLOCK, how, **environment) == {"mapped": 1, "kept": False}


@glibc
def test_each_thread_has_an_arena():
    assert run(ARENAS, "set") == 12


@glibc
@cases(
    ("how", "environment"),
    {
        "by-default": ("not-set", {}),
        "by-the-environment": ("set", {"MALLOC_ARENA_MAX": "2"}),
    },
)
def test_threads_share_arenas(how, environment):
    assert run(ARENAS, how, **environment) <= 1
