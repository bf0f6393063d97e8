"""The JobSet and the TorchX component: valid, and true to the command and the image."""

import copy
import shlex

import kubernetes_validate
import pytest
from torchx.runner import get_runner

from embershard.cli import parser
from tests.docker.files import DOCKER, documents, one, stages
from tests.docker.test_kubernetes import VERSIONS

(JOBSET,) = documents(DOCKER / "kubernetes/training.yaml")
(REPLICATED,) = JOBSET["spec"]["replicatedJobs"]
JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "node"}} | REPLICATED[
    "template"
]
POD = JOB["spec"]["template"]["spec"]
(TRAIN,) = POD["containers"]


def launched(arguments):
    """Options of torchrun, and the command that it starts."""
    at = arguments.index("-m")
    assert arguments[at + 1] == "embershard"
    options = dict(argument.removeprefix("--").split("=") for argument in arguments[:at])
    return options, parser().parse_args(arguments[at + 2 :])


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_the_job(version):
    kubernetes_validate.validate(JOB, version, strict=True)


def test_what_kubernetes_does_not_take_is_noticed():
    changed = copy.deepcopy(JOB)
    changed["spec"]["paralelism"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(changed, VERSIONS[0], strict=True)


def test_the_jobset_has_the_keys_of_its_version():
    assert JOBSET["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    assert JOBSET["spec"].keys() == {"network", "failurePolicy", "replicatedJobs"}
    assert REPLICATED.keys() == {"name", "replicas", "template"}


def test_torchrun_meets_at_the_first_of_as_many_pods():
    options, command = launched(TRAIN["args"])
    assert int(options["nnodes"]) == JOB["spec"]["parallelism"] == JOB["spec"]["completions"]
    name = JOBSET["metadata"]["name"]
    host, _, port = options["rdzv-endpoint"].partition(":")
    assert host == f"{name}-{REPLICATED['name']}-0-0.{name}"
    assert JOBSET["spec"]["network"]["enableDNSHostnames"]
    assert int(port) == TRAIN["ports"][0]["containerPort"]
    assert (command.command, command.resume) == ("train", True)


def test_files_are_on_the_shared_volume():
    _, command = launched(TRAIN["args"])
    mounts = {mount["mountPath"]: mount["name"] for mount in TRAIN["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    assert mounts.keys() == {"/runs", "/tmp"}
    assert "persistentVolumeClaim" in volumes[mounts[str(command.config.parent)]]


def test_the_pod_runs_as_the_user_of_the_image():
    image = stages(DOCKER / "training.Dockerfile")[-1]
    user, group = one(image, "USER").rest.split(":")
    context = POD["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (int(user), int(group))


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
