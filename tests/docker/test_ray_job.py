"""The RayJob: its pods are valid, and it calls the example as the example is."""

import shlex

import kubernetes_validate
import pytest

from tests.docker.files import DOCKER, documents
from tests.docker.test_kubernetes import VERSIONS
from tests.repository.sources import ROOT

(JOB,) = documents(DOCKER / "kubernetes/rayjob.yaml")
CLUSTER = JOB["spec"]["rayClusterSpec"]
HEAD = CLUSTER["headGroupSpec"]
(WORKERS,) = CLUSTER["workerGroupSpecs"]
COMMAND = shlex.split(JOB["spec"]["entrypoint"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("group", [HEAD, WORKERS], ids=["head", "workers"])
def test_kubernetes_takes_the_pods(group, version):
    pod = {"apiVersion": "v1", "kind": "Pod", **group["template"]}
    pod["metadata"] = {"name": "pod", **pod["metadata"]}
    kubernetes_validate.validate(pod, version, strict=True)


def test_the_job_has_the_keys_of_its_version():
    assert (JOB["apiVersion"], JOB["kind"]) == ("ray.io/v1", "RayJob")
    assert JOB["spec"].keys() == {
        "entrypoint", "submissionMode", "shutdownAfterJobFinishes", "backoffLimit",
        "rayClusterSpec",
    }  # fmt: skip
    assert HEAD.keys() == {"rayStartParams", "template"}
    assert WORKERS.keys() == {
        "groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template",
    }  # fmt: skip
    assert all(isinstance(value, str) for value in HEAD["rayStartParams"].values())


def test_the_scorers_fit_the_workers_and_leave_a_core():
    flags = dict(zip(COMMAND[3::2], COMMAND[4::2], strict=True))
    (container,) = WORKERS["template"]["spec"]["containers"]
    cores = int(container["resources"]["limits"]["cpu"])
    assert int(flags["--workers"]) == WORKERS["replicas"]
    assert cores / 2 < int(flags["--cores"]) < cores


def test_the_job_calls_the_example_with_flags_that_it_has():
    example = ROOT / "examples" / COMMAND[1].rpartition("/")[2]
    source = example.read_text()
    for flag in COMMAND[3::2]:
        assert f'"{flag}"' in source


def test_files_are_on_the_shared_volume():
    for group in (HEAD, WORKERS):
        (container,) = group["template"]["spec"]["containers"]
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in group["template"]["spec"]["volumes"]}
        assert "persistentVolumeClaim" in volumes[mounts["/runs"]]
    paths = [word for word in COMMAND[2:] if word.startswith("/")]
    assert len(paths) == 3
    assert all(path.startswith("/runs/") for path in paths)
