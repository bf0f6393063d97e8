"""The manifests are valid and agree with the server and the image."""

import copy
import re

import kubernetes_validate
import pytest

from embershard.commands.fetch import watch_routes
from embershard.fetch.watch_status import WatchStatus
from tests.docker.files import DOCKER, documents, only_step, parse, stages
from tests.docker.promql import unknown_names

FOLDER = DOCKER / "kubernetes"
MANIFESTS = {document["kind"]: document for document in documents(FOLDER / "server.yaml")}
POD = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
SERVER, PROXY = POD["containers"]
FETCH, WATCH = POD["initContainers"]
IMAGE = stages(DOCKER / "serving.Dockerfile")[-1]
VERSIONS = ["1.30", "1.34"]
ADDED = {
    "job",
    "instance",
    "namespace",
    "pod",
}  # Labels that Prometheus adds, as prometheus.yml says.


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", MANIFESTS)
def test_kubernetes_accepts_the_manifest(kind, version):
    kubernetes_validate.validate(MANIFESTS[kind], version, strict=True)


def patched(document, patch):
    """Applies a patch to a document like `kubectl patch --type json`."""
    document = copy.deepcopy(document)
    for step in patch:
        *parents, last = (
            part.replace("~1", "/") for part in step["path"].removeprefix("/").split("/")
        )
        target = document
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        if step["op"] == "test":
            assert target[last] == step["value"]
        elif last == "-":
            target.append(step["value"])
        else:
            assert (last in target) == (step["op"] == "replace")
            target[last] = step["value"]
    return document


@pytest.mark.parametrize("version", VERSIONS)
def test_the_patch_for_gpus_asks_for_one_and_serves_its_plan(version):
    (patch,) = documents(FOLDER / "gpu.yaml")
    changed = patched(MANIFESTS["Deployment"], patch)
    kubernetes_validate.validate(changed, version, strict=True)
    server, _ = changed["spec"]["template"]["spec"]["containers"]
    assert server["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert parse(server["args"]).plan == "1xcuda"
    assert server["image"] == f"{SERVER['image']}-cuda"
    assert f"-t {server['image']}" in (DOCKER / "serving.Dockerfile").read_text()


def test_a_sidecar_follows_the_init_containers_repository():
    once, watch, server = (parse(fetch["args"]) for fetch in (FETCH, WATCH, SERVER))
    assert "restartPolicy" not in FETCH
    assert WATCH["restartPolicy"] == "Always"
    assert (once.watch, watch.watch > 0) == (None, True)
    for option in ("url", "repository", "model", "all_models", "label", "trusted_key"):
        assert getattr(watch, option) == getattr(once, option)
    assert str(watch.control) == server.control
    assert WATCH["volumeMounts"] == SERVER["volumeMounts"][:2]
    assert watch.keep is not None  # Otherwise the volume would fill up.


def test_ports_are_where_server_watch_and_proxy_listen():
    server, watch = parse(SERVER["args"]), parse(WATCH["args"])
    ports = {
        port["name"]: port["containerPort"]
        for server in (SERVER, WATCH, PROXY)
        for port in server["ports"]
    }
    listens = {variable["name"]: variable["value"] for variable in PROXY["env"]}["LISTEN"]
    assert ports == {
        "grpc": int(listens.split()[0].removeprefix(":")),
        "metrics": server.metrics_port,
        "watch": watch.metrics_port,
    }
    assert (server.metrics_host, watch.metrics_host) == ("0.0.0.0", "0.0.0.0")
    offered = MANIFESTS["Service"]["spec"]["ports"]
    assert {port["name"]: port["port"] for port in offered} == ports
    assert all(port["targetPort"] == port["port"] for port in offered)


def test_clients_reach_the_server_only_through_the_proxy():
    server = parse(SERVER["args"])
    env = {variable["name"]: variable["value"] for variable in PROXY["env"]}
    assert (server.host, server.behind_proxy) == ("127.0.0.1", True)
    assert env["SERVER"] == f"{server.host}:{server.port}"
    assert server.port not in {port["port"] for port in MANIFESTS["Service"]["spec"]["ports"]}


def test_the_proxy_has_the_key_and_only_the_server_the_token():
    volumes = {volume["name"]: volume for volume in POD["volumes"]}

    def secrets(container):
        """Keys of the secret that the container mounts, by path."""
        return {
            f"{mount['mountPath']}/{item['path']}": item["key"]
            for mount in container["volumeMounts"]
            for item in volumes[mount["name"]].get("secret", {}).get("items", [])
        }

    env = {variable["name"]: variable["value"] for variable in PROXY["env"]}
    certificate = env["LISTEN"].split()[3]
    key = certificate.replace(".crt", ".key")
    assert secrets(PROXY) == {certificate: "tls.crt", key: "tls.key"}
    assert secrets(SERVER) == {parse(SERVER["args"]).token_file: "token"}


def test_probes_ask_for_paths_that_are_served():
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert SERVER[probe]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    watch = WATCH["livenessProbe"]["httpGet"]
    assert watch["port"] == parse(WATCH["args"]).metrics_port
    assert watch["path"] in watch_routes(WatchStatus(interval_seconds=30), 60)
    assert "readinessProbe" not in WATCH  # Otherwise a store that is down ends all service.


def test_a_pod_has_time_to_drain():
    before, pause = (
        container["lifecycle"]["preStop"]["sleep"]["seconds"] for container in (PROXY, SERVER)
    )
    drain = parse(SERVER["args"]).drain_timeout_seconds
    assert POD["terminationGracePeriodSeconds"] == pause + drain + 10
    (hard_stop,) = re.findall(r"hard-stop-after (\d+)s", (DOCKER / "haproxy.cfg").read_text())
    # The proxy sends clients away while the server still answers.
    assert before < pause
    assert pause + drain < before + int(hard_stop) < POD["terminationGracePeriodSeconds"]


@pytest.mark.parametrize(
    "container", [SERVER, FETCH, WATCH, PROXY], ids=lambda value: value["name"]
)
def test_nothing_runs_as_root_or_writes_to_the_image(container):
    user, group = only_step(IMAGE, "USER").arguments.split(":")
    context = POD["securityContext"]
    assert context["runAsNonRoot"] is True
    assert (context["runAsUser"], context["runAsGroup"]) == (int(user), int(group))
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_all_speak_of_the_same_pods():
    labels = MANIFESTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert MANIFESTS["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["Service"]["spec"]["selector"] == labels
    assert MANIFESTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    for constraint in POD["topologySpreadConstraints"]:
        assert constraint["labelSelector"]["matchLabels"] == labels
    target = MANIFESTS["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == (
        "Deployment",
        MANIFESTS["Deployment"]["metadata"]["name"],
    )
    (job,) = documents(FOLDER / "prometheus.yml")[0]["scrape_configs"]
    (selector,) = job["kubernetes_sd_configs"][0]["selectors"]
    assert selector["label"] == "app.kubernetes.io/name=" + labels["app.kubernetes.io/name"]


def test_the_server_exports_what_the_autoscalers_metric_needs(scraped):
    (rule,) = documents(FOLDER / "adapter.yaml")[0]["rules"]
    metric, processors = MANIFESTS["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert processors["resource"]["name"] in SERVER["resources"]["requests"]
    assert metric["pods"]["metric"]["name"] == rule["name"]["as"]
    query = rule["metricsQuery"].replace("<<.GroupBy>>", "pod")
    query = query.replace("<<.LabelMatchers>>", 'namespace="default",pod=~"a|b"')
    assert unknown_names(query, scraped, ADDED) == []
    assert unknown_names(rule["seriesQuery"], scraped, ADDED) == []
