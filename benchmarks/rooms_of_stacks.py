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

# Classes and functions of ours. The innermost of them on a stack tells the room, whatever it calls.
BY_NAME: dict[str, tuple[str, ...]] = {
    "grpc and protobuf": ("PredictorService", "v1", "Listener", "Recorder", "PredictSerialized"),
    "parse": ("RequestParser", "SplitPacked", "SplitRequestDense", "SplitExampleDense",
              "SplitSparse", "Counter", "OipMessages", "OipInputs", "TensorMap",
              "TorchRecMessages", "ParseTorchRec"),
    "door": ("CheckRequest", "CheckNumExamples", "CheckDense", "CheckIds", "CheckWeights",
             "FirstNotFinite", "SumLengths", "FindKept"),
    "lookup": ("ShardedLookup", "LookupDevice", "BatchCut", "PieceSums",
               "SumBags", "SumColumns", "SumBlock", "SumBlockOf", "Prefetch"),
    "dense": ("TorchScriptProgram",),
    "build": ("BuildBatch", "BuildDense", "BuildDenseColumn", "BuildOffsets", "BuildSparse",
              "BuildRequestOfExample", "CopyLists", "CopyRun", "IdentityMap", "HashMap",
              "VocabMap", "Vocabulary"),
    "queue": ("BatchingQueue", "BatchFormer", "Admit", "Accept", "Predict", "PredictMerged"),
    "answer": ("FillResponse", "Fill", "CutOutputs", "CheckFinite", "BatchRunner", "Answer",
               "AnswerFailed", "AnswerLate", "DueRunner", "RunInHalves"),
    "telemetry": ("Telemetry", "BucketedHistogram", "SlowLog", "CountRun", "Snapshot"),
}  # fmt: skip

# Stacks without one are told by the library that runs, or by one of its callers. What is compiled
# while the server runs is the dense program's: oneDNN and MKL do that, lookups do not.
BY_LIBRARY = (
    ("dense", r"libtorch|libgomp|libc10|mkl_|\[JIT\]|perf-\d+\.map"),
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
        if (room := _room_of_ours(frame.symbol)) is not None:
            return room
    for frame in frames:
        for room, pattern in BY_LIBRARY:
            if re.search(pattern, f"{frame.symbol} {frame.library}"):
                return room
    return OTHER


def _room_of_ours(symbol: str) -> str | None:
    """By the function's own name, not by the types of its arguments; the last part that is known
    counts: of ``Engine::State::Answer`` it is ``Answer``."""
    name = symbol.replace("(anonymous namespace)::", "")
    while (shorter := re.sub(r"<[^<>]*>", "", name)) != name:
        name = shorter
    name = name.split("(")[0].split(" ")[-1]
    if not name.startswith(OURS):
        return None
    for part in reversed(name.split("::")):
        for room, names in BY_NAME.items():
            if part in names:
                return room
    return None


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
