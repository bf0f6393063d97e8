"""Rules for includes between C++ components, checked in the sources."""

import re

import pytest

from tests.cases import cases
from tests.repository.sources import PREDICTOR, own_files

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"(?P<own>[^"]+)"|<(?P<system>[^>]+)>)', re.MULTILINE)

# The other components that each component may include.
ALLOWED = {
    "base": [],
    "package": ["base"],
    "telemetry": ["base"],
    "lookup": ["base", "package"],
    "dense": ["base", "package"],
    "device": ["base", "package", "lookup", "dense"],
    "model": ["base", "package", "lookup", "dense", "device"],
    "bench": ["base"],
}
ALLOWED["batching"] = [*ALLOWED["model"], "model"]
ALLOWED["tensors"] = [*ALLOWED["batching"], "batching"]
ALLOWED["engine"] = [*ALLOWED["tensors"], "tensors", "telemetry"]
ALLOWED["registry"] = ALLOWED["example"] = ALLOWED["triton"] = [*ALLOWED["engine"], "engine"]
ALLOWED["grpc"] = [*ALLOWED["registry"], "registry"]
ALLOWED["binding"] = [*ALLOWED["grpc"], "grpc"]

# Only these files of the load tool may include gRPC.
GRPC_IN_BENCH = ("bench/grpc_", "bench/module")

# Prefixes of foreign headers, and of the files that may include them.
FOREIGN = {
    "torch": (("torch/", "ATen/", "c10/"), ("dense/torchscript", "dense/tensors", "device/torch_")),
    "messages": (
        ("google/protobuf", "grpc", "embershard/v1/", "inference/", "torchrec/"),
        ("grpc/", *GRPC_IN_BENCH),
    ),
    "python": (("pybind11/", "Python.h"), ("binding/", "bench/module")),
}


def sources() -> dict[str, list[str]]:
    """Includes of each file of the predictor, by `component/name`."""
    return {
        path.relative_to(PREDICTOR).as_posix(): includes(path.read_text())
        for path in own_files(".h", ".cc")
        if path.is_relative_to(PREDICTOR)
    }


def includes(text: str) -> list[str]:
    return [result["own"] or result["system"] for result in INCLUDE.finditer(text)]


# The predictor is in namespace `embershard`. The components that use it have their own namespaces.
NAMESPACES = {
    "grpc": "embershard::rpc",
    "triton": "embershard::triton",
    "binding": "embershard::binding",
    "bench": "embershard::bench",
}
OPENED = re.compile(r"^namespace (embershard(?:::(?!v1\b)\w+)?) \{$(?!\nclass)", re.MULTILINE)


def component(place: str) -> str:
    return place.split("/")[0]


def component_faults(files: dict[str, list[str]]) -> list[str]:
    """Includes of components that are not allowed for the component of the file."""
    return [
        f"{place} includes {value}"
        for place, included in files.items()
        for value in included
        if component(value) in ALLOWED
        and component(value) not in {component(place), *ALLOWED[component(place)]}
        if not is_grpc_library(value)
    ]


def foreign_faults(files: dict[str, list[str]], library: str) -> list[str]:
    """Forbidden includes of foreign headers, directly or through a header of ours."""
    headers, users = FOREIGN[library]
    wrappers = {
        place
        for place, included in files.items()
        if any(item.startswith(headers) and item not in files for item in included)
    }
    return [
        f"{place} includes {value}"
        for place, included in files.items()
        if not place.startswith(users)
        for value in included
        if value in wrappers or (value.startswith(headers) and value not in files)
    ]


def is_grpc_library(header: str) -> bool:
    """True for a header of the gRPC library, false for one of our component `grpc`."""
    return header.startswith("grpc/") and not (PREDICTOR / header).exists()


# Headers of the engine for the Triton backend. Triton has its own queues and versions.
ENGINE_IN_TRITON = {
    "engine/batch_executor.h",
    "engine/self_check.h",
}


def test_a_component_opens_its_namespace():
    for path in own_files(".h", ".cc"):
        if path.is_relative_to(PREDICTOR):
            place = path.relative_to(PREDICTOR).as_posix()
            opened = OPENED.findall(path.read_text())
            assert set(opened) <= {NAMESPACES.get(component(place), "embershard")}, place


def test_every_component_has_a_rule():
    assert {component(place) for place in sources()} <= set(ALLOWED)


def test_components_include_one_way():
    assert component_faults(sources()) == []


def test_triton_takes_of_the_engine_what_needs_no_queue():
    included_headers = {
        value
        for place, included in sources().items()
        if component(place) == "triton"
        for value in included
        if component(value) == "engine" or value == "batching/batching_queue.h"
    }
    assert included_headers <= ENGINE_IN_TRITON


@pytest.mark.parametrize("library", FOREIGN)
def test_foreign_headers_are_included_only_where_allowed(library):
    assert foreign_faults(sources(), library) == []


@cases(
    ("place", "header"),
    {
        "upwards": ("base/file.cc", "package/plan.h"),
        "sideways": ("lookup/lookup.cc", "dense/dense_program.h"),
        "the-end-of-the-chain": ("engine/engine.cc", "binding/errors.h"),
        "another-protocol": ("triton/exchange.cc", "grpc/status_map.h"),
    },
)
def test_a_forbidden_component_is_noticed(place, header):
    assert component_faults({place: [header]}) == [f"{place} includes {header}"]


@cases(
    ("library", "place", "header"),
    {
        "torch": ("torch", "model/model.cc", "torch/script.h"),
        "aten": ("torch", "lookup/lookup.cc", "ATen/ATen.h"),
        "ours": ("messages", "batching/request_checks.cc", "embershard/v1/predictor.pb.h"),
        "grpc": ("messages", "engine/engine.cc", "grpcpp/grpcpp.h"),
        "pybind11": ("python", "grpc/service.cc", "pybind11/pybind11.h"),
    },
)
def test_a_foreign_header_is_noticed(library, place, header):
    assert foreign_faults({place: [header]}, library) == [f"{place} includes {header}"]


def test_a_foreign_header_is_noticed_behind_one_of_ours():
    files = {"dense/torchscript.h": ["ATen/ATen.h"], "model/model.cc": ["dense/torchscript.h"]}
    assert foreign_faults(files, "torch") == ["model/model.cc includes dense/torchscript.h"]


def test_both_spellings_of_an_include_are_read():
    text = '// #include "no.h"\n#include <torch/script.h>\n#  include "base/status.h"\n'
    assert includes(text) == ["torch/script.h", "base/status.h"]
