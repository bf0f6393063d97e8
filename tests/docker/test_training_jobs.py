"""The JobSet, the RayJob and the TorchX component are valid and call commands that exist."""

import shlex

import kubernetes_validate
import pytest
from torchx.runner import get_runner

from embershard.cli import parser
from tests.docker.files import DOCKER, documents
from tests.docker.test_kubernetes import VERSIONS
from tests.repository.sources import ROOT

(JOBSET,) = documents(DOCKER / "kubernetes/training.yaml")
(REPLICATED,) = JOBSET["spec"]["replicatedJobs"]
JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "node"}} | REPLICATED[
    "template"
]
(TRAIN,) = JOB["spec"]["template"]["spec"]["containers"]
(RAYJOB,) = documents(DOCKER / "kubernetes/rayjob.yaml")
CLUSTER = RAYJOB["spec"]["rayClusterSpec"]
(WORKERS,) = CLUSTER["workerGroupSpecs"]
PODS = [
    {"apiVersion": "v1", "kind": "Pod", **group["template"]}
    | {"metadata": {"name": "pod", **group["template"]["metadata"]}}
    for group in (CLUSTER["headGroupSpec"], WORKERS)
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", [JOB, *PODS], ids=["jobset", "ray-head", "ray-worker"])
def test_kubernetes_accepts_the_training_manifests(manifest, version):
    kubernetes_validate.validate(manifest, version, strict=True)


def launched(arguments):
    """Options of torchrun, and the parsed arguments of the command that it starts."""
    at = arguments.index("-m")
    assert arguments[at + 1] == "embershard"
    options = dict(argument.removeprefix("--").split("=") for argument in arguments[:at])
    return options, parser().parse_args(arguments[at + 2 :])


def test_torchrun_meets_at_the_first_of_as_many_pods():
    options, command = launched(TRAIN["args"])
    assert int(options["nnodes"]) == JOB["spec"]["parallelism"] == JOB["spec"]["completions"]
    name = JOBSET["metadata"]["name"]
    host, _, port = options["rdzv-endpoint"].partition(":")
    assert host == f"{name}-{REPLICATED['name']}-0-0.{name}"
    assert JOBSET["spec"]["network"]["enableDNSHostnames"]
    assert int(port) == TRAIN["ports"][0]["containerPort"]
    assert (command.command, command.resume) == ("train", True)


def test_torchx_takes_the_component():
    file = DOCKER / "torchx/training.py"
    with get_runner() as runner:
        dry = runner.dryrun_component(
            f"{file}:train", ["--config", "/runs/ranker.toml"], scheduler="local_cwd"
        )
    (replica,) = dry.request.role_params["node"]
    *shell, line = replica.args
    options, command = launched(shlex.split(line)[1:])
    assert shell == ["bash", "-c"]
    assert options["nproc-per-node"] == "2"
    assert (str(command.config), command.resume) == ("/runs/ranker.toml", True)


def test_the_ray_job_calls_the_example_with_its_own_flags():
    _, example, *flags = shlex.split(RAYJOB["spec"]["entrypoint"])
    source = (ROOT / "examples" / example.rpartition("/")[2]).read_text()
    values = dict(zip(flags[1::2], flags[2::2], strict=True))
    assert all(f'"{flag}"' in source for flag in values)
    (container,) = WORKERS["template"]["spec"]["containers"]
    cores = int(container["resources"]["limits"]["cpu"])
    assert int(values["--workers"]) == WORKERS["replicas"]
    assert cores / 2 < int(values["--cores"]) < cores
