"""Which part of the server a sampled stack belongs to.

Stacks come as `perf script -F tid,ip,sym,dso` prints them: samples apart by empty lines, each a
thread's number, then its frames, the innermost first:

    ␣␣367
    ␣␣␣␣␣␣108f36 epoll_wait (/usr/lib/x86_64-linux-gnu/libc.so.6)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["Frame", "room_of", "shares", "stacks"]

FRAME = re.compile(r"\s+[0-9a-f]+ (?P<symbol>.*) \((?P<library>[^()]*)\)")

OURS = "embershard::"

# The innermost function of ours tells the room, whatever it calls.
BY_FUNCTION = (
    ("grpc and protobuf", r"PredictorService|embershard::v1::|Listener|Recorder"),
    ("parse", r"RequestParser|SplitPacked|ParsePacked"),
    ("door", r"CheckRequest|CheckNumExamples|FirstRefused|SumLengths|Door"),
    ("lookup", r"Fbgemm|Lookup|DeviceThread|LookupBatch|JaggedRows|\bDevice::"),
    ("dense", r"TorchScript|DenseProgram|RunProgram"),
    ("build", r"Build|IdMap|IdentityMap|HashMap|VocabMap|::Map\b|CopyRun|CopyLists"),
    ("queue", r"BatchingQueue|BatchFormer|Engine::State::Accept|Engine::Predict\b"),
    ("answer", r"FillResponse|CutOutputs|CheckFinite|BatchRunner|Answer|Response"),
    ("telemetry", r"Telemetry|Histogram|Snapshot|Slow"),
)

# Stacks without one are told by the library that runs, or by one of its callers.
BY_LIBRARY = (
    ("lookup", r"fbgemm|\[JIT\]|perf-\d+\.map"),
    ("dense", r"libtorch|libgomp|libc10|mkl_"),
    ("grpc and protobuf", r"libgrpc|libprotobuf|libabsl|libgpr|grpc"),
)

OTHER = "other"


class Frame(NamedTuple):
    """One call."""

    symbol: str
    library: str


def stacks(text: str) -> Iterator[list[Frame]]:
    """The frames of each sample, the innermost first."""
    for sample in text.split("\n\n"):
        found = (FRAME.fullmatch(line.rstrip()) for line in sample.splitlines())
        frames = [Frame(each["symbol"], each["library"]) for each in found if each]
        if frames:
            yield frames


def room_of(frames: Sequence[Frame]) -> str:
    """A room of the server, gRPC, or ``other``."""
    for frame in frames:
        if OURS in frame.symbol:
            for room, pattern in BY_FUNCTION:
                if re.search(pattern, frame.symbol):
                    return room
    for frame in frames:
        for room, pattern in BY_LIBRARY:
            if re.search(pattern, f"{frame.symbol} {frame.library}"):
                return room
    return OTHER


def shares(text: str) -> dict[str, tuple[float, list[tuple[str, float]]]]:
    """Of each room, largest first: its share of all samples, and its innermost functions with
    theirs."""
    rooms: dict[str, Counter[str]] = {}
    total = 0
    for frames in stacks(text):
        total += 1
        leaf = frames[0]
        name = leaf.symbol if leaf.symbol != "[unknown]" else leaf.library.rpartition("/")[2]
        rooms.setdefault(room_of(frames), Counter())[name] += 1
    ordered = sorted(rooms.items(), key=lambda item: -item[1].total())
    return {
        room: (
            leaves.total() / total,
            [(name, count / total) for name, count in leaves.most_common()],
        )
        for room, leaves in ordered
    }
