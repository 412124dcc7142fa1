"""Manifests for KubeRay: what the live service needs is in them, and what an API server would drop is refused."""

from __future__ import annotations

import copy
import inspect
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders.paths import ROOT
from skedge.cli import service as service_commands
from skedge.core.errors import InputError, ScenarioError
from skedge.deploy import crd, kuberay
from skedge.deploy.kuberay import ManifestSettings, as_yaml, group_names, manifests
from skedge.live.cluster.health_checks import HEALTH
from skedge.scenario.file import load_cluster_file, load_scenario, read_spec, shipped
from skedge.scenario.save import cluster_fields

Skedge = Callable[..., Any]
Manifest = dict[str, Any]
CRD = ROOT / "tests" / "data" / "raycluster-crd.yaml"
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")

CLUSTER = """
name: sites
seed: 5
slot: 1min
physics: {colocation: one_server}
cluster:
  servers:
    - {id: north, workers: {gpu: 4}, ps: {cpu: 3}, storage_mb: 20000, site: up}
    - {id: South_1.b, workers: {gpu: 1, tpu: 1}}
    - {id: cloud, kind: cloud}
"""


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths, as a user types them."""
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text(CLUSTER)


@pytest.fixture
def documents() -> list[Manifest]:
    return manifests(
        load_cluster_file("cluster.yaml"), ManifestSettings("registry.example/skedge:1", "edge", "/data/chunks")
    )


@pytest.fixture
def ray(documents: list[Manifest]) -> Manifest:
    return only(documents, "RayCluster")


def only(documents: list[Manifest], kind: str) -> Manifest:
    (found,) = [document for document in documents if document["kind"] == kind]
    return found


def strings(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str) for v in value.values())


def pods(documents: list[Manifest]) -> list[Manifest]:
    spec = only(documents, "RayCluster")["spec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    return [one["template"]["spec"] for one in [*groups, only(documents, "Deployment")["spec"]]]


# --- cluster files


def test_a_cluster_file_needs_no_workload_and_gives_all_that_a_scenario_has_but_jobs() -> None:
    """Name, seed, slot, physics, servers."""
    loaded = load_cluster_file("cluster.yaml")
    assert (loaded.name, loaded.seed, len(loaded.jobs)) == ("sites", 5, 0)
    assert (loaded.physics.slot, loaded.physics.colocation) == (60_000_000, "one_server")
    assert loaded.cluster.server_ids == ["north", "South_1.b", "cloud"]
    assert load_cluster_file("cluster.yaml", seed=9).seed == 9


@pytest.mark.parametrize("kind", ["demo", "s1", "s2", "live-demo"])
def test_a_scenario_file_is_a_cluster_file_with_the_same_cluster(kind: str) -> None:
    """Whether its servers are listed, drawn by number or drawn by the load of its jobs."""
    assert load_cluster_file(shipped(kind)).cluster.servers == load_scenario(shipped(kind)).cluster.servers


def test_a_cluster_drawn_by_number_needs_no_workload_one_drawn_by_load_does() -> None:
    """There is nothing to be a load of."""
    Path("drawn.yaml").write_text("cluster: {draw: {servers: 3}}")
    assert load_cluster_file("drawn.yaml").cluster.server_ids == ["e0", "e1", "e2", "cloud"]
    Path("drawn.yaml").write_text("cluster: {draw: {load: 0.9}}")
    with pytest.raises(ScenarioError, match=r"^drawn.yaml: cluster.draw.load: 0.9: there is no workload"):
        load_cluster_file("drawn.yaml")


def test_the_fields_of_a_cluster_make_the_same_cluster_again() -> None:
    """With nothing left to draw; this is what the controller is given."""
    Path("drawn.yaml").write_text("name: drawn\nseed: 4\ncluster: {draw: {servers: 3, worker_types: 2}}")
    for path in ("cluster.yaml", "drawn.yaml"):
        loaded = load_cluster_file(path)
        Path("again.yaml").write_text(yaml.safe_dump(cluster_fields(loaded)))
        again = load_cluster_file("again.yaml")
        assert again.cluster.servers == loaded.cluster.servers
        assert (again.name, again.seed, again.physics) == (loaded.name, loaded.seed, loaded.physics)


WRONG_FILES = {
    "an unknown field": ("seed: 5", "sed: 5", "cluster.yaml: sed: is not a field (did you mean seed?)"),
    "a wrong workload": ("seed: 5", "workload: {make: paper}", "workload: it must have exactly one of synthetic"),
    "no cluster": ("cluster:", "clusters:", "cluster.yaml: cluster: is missing; it is needed"),
    "no mapping": (CLUSTER, "[]", "cluster.yaml: holds no mapping of fields; there must be at least cluster"),
    "one id for two servers": (
        "South_1.b",
        "north",
        "cluster.yaml: cluster.servers[1] (north): id 'north' is used twice",
    ),
    "a negative number": ("gpu: 4", "gpu: -4", "cluster.yaml: cluster.servers[0].workers.gpu: -4: it must be greater"),
    "no YAML": ("seed: 5", "seed: [5", "cluster.yaml: line"),
    "an id with a blank": ("South_1.b", "South 1", "cluster.yaml: cluster.servers[1].id: 'South 1': as a label"),
    "an id with a slash": ("South_1.b", "a/b", "cluster.servers[1].id: 'a/b': as a label"),
    "an id that ends in a dash": ("South_1.b", "a-", "cluster.servers[1].id: 'a-': as a label"),
    "an id that is too long": ("South_1.b", "x" * 64, "as a label on Kubernetes and Ray nodes it must be at most 63"),
}


@pytest.mark.parametrize("wrong", WRONG_FILES)
def test_a_wrong_cluster_file_is_told_by_file_place_and_value_and_nothing_is_written(
    wrong: str, skedge: Skedge
) -> None:
    """Exit code 1, nothing on stdout."""
    old, new, message = WRONG_FILES[wrong]
    Path("cluster.yaml").write_text(CLUSTER.replace(old, new, 1))
    told = skedge("deploy", "kuberay", "cluster.yaml", "--out", "m.yaml")
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith("skedge: ")
    assert "Traceback" not in told.err
    assert message in told.words
    assert sorted(path.name for path in Path().iterdir()) == ["cluster.yaml"]


# --- names


def test_a_group_is_named_by_its_servers_id_where_kubernetes_allows_it() -> None:
    """Lower-case letters, digits and dashes, 40 at most."""
    ids = ["north", "e0", "0", "a-b", "x" * 40]
    assert group_names(ids) == {name: name for name in ids}


def test_other_ids_get_valid_names_that_differ_and_do_not_depend_on_the_other_servers() -> None:
    """Case, underscores, dots, length, what only a hash tells apart, and the name that KubeRay keeps for the head."""
    ids = ["A.b", "a_b", "A_B", "a-b", "x" * 41, "x" * 63, "X" * 63, "headgroup", "9"]
    names = group_names(ids)
    assert list(names) == ids
    assert len(set(names.values())) == len(ids)
    for name in names.values():
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", name), name
    assert "headgroup" not in names.values()
    assert names["a-b"] == "a-b"
    assert names["A.b"].startswith("a-b-")
    assert all(group_names([one])[one] == names[one] for one in ids)


def test_an_id_that_is_another_ones_name_keeps_it() -> None:
    """The other takes more of its hash."""
    made = group_names(["A.b"])["A.b"]
    names = group_names(["A.b", made])
    assert names[made] == made
    assert names["A.b"] != made


# --- the manifests


def test_there_is_one_worker_group_per_server_which_its_labels_tie_to_it(ray: Manifest) -> None:
    """The engine looks for Ray nodes by the label `server`; Kubernetes puts the pod on the node that is the server."""
    groups = ray["spec"]["workerGroupSpecs"]
    assert [group["labels"] for group in groups] == [{"server": i} for i in ("north", "South_1.b", "cloud")]
    for group in groups:
        selected = {"skedge/server": group["labels"]["server"]}
        assert group["template"]["spec"]["nodeSelector"] == selected
        assert group["template"]["metadata"]["labels"] == selected
        assert [group[key] for key in ("replicas", "minReplicas", "maxReplicas")] == [1, 1, 1]


def test_all_start_parameters_and_labels_are_strings_and_none_is_left_to_kuberays_refusal(ray: Manifest) -> None:
    """KubeRay refuses `labels` among the start parameters; they have a field of their own."""
    for group in [ray["spec"]["headGroupSpec"], *ray["spec"]["workerGroupSpecs"]]:
        assert strings(group["rayStartParams"])
        assert strings(group.get("labels", {}))
        assert "labels" not in group["rayStartParams"]


def test_the_head_takes_no_work_and_finds_dead_nodes_as_soon_as_the_embedded_cluster(ray: Manifest) -> None:
    """KubeRay writes the values into a shell command as they are; the shell must give Ray the JSON."""
    params = ray["spec"]["headGroupSpec"]["rayStartParams"]
    assert params["num-cpus"] == "0"
    (word,) = shlex.split(f"--system-config={params['system-config']}")
    assert json.loads(word.removeprefix("--system-config=")) == HEALTH


def test_chunks_are_on_the_node_where_agents_look_for_them_and_belong_to_the_images_user(ray: Manifest) -> None:
    """The agent of server s writes to STATE/servers/s; a folder made by Kubernetes is root's."""
    for group in ray["spec"]["workerGroupSpecs"]:
        pod = group["template"]["spec"]
        (worker,), (owner,) = pod["containers"], pod["initContainers"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["chunks"]["hostPath"] == {"path": "/data/chunks", "type": "DirectoryOrCreate"}
        mounts = {mount["name"]: mount["mountPath"] for mount in worker["volumeMounts"]}
        assert mounts == {"chunks": f"{kuberay.STATE}/servers", "checkpoints": f"{kuberay.STATE}/checkpoints"}
        assert owner["command"] == ["chown", "1000:1000", mounts["chunks"]]
        assert owner["securityContext"]["runAsUser"] == 0


def test_every_ray_process_has_the_token_from_the_secret_and_one_thread(documents: list[Manifest]) -> None:
    """And no token stands in the manifests."""
    for pod in pods(documents):
        (container,) = pod["containers"]
        env = {one["name"]: one for one in container["env"]}
        assert env["RAY_AUTH_MODE"]["value"] == "token"
        assert env["RAY_AUTH_TOKEN"] == {
            "name": "RAY_AUTH_TOKEN",
            "valueFrom": {"secretKeyRef": {"name": "skedge-ray-token", "key": "auth_token"}},
        }
        assert env["OMP_NUM_THREADS"]["value"] == "1"
    assert "Secret" not in [document["kind"] for document in documents]


def test_no_pod_runs_as_root(documents: list[Manifest]) -> None:
    """But for the container that gives the chunks' folder to the user."""
    for pod in pods(documents):
        assert pod["securityContext"] == {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}
        assert "securityContext" not in pod["containers"][0]


def test_every_container_says_what_it_needs_and_may_use(documents: list[Manifest]) -> None:
    """A core per slot at most: north has 4 workers and 3 PSs; memory grows with the PSs, each a process."""
    for pod in pods(documents):
        given = pod["containers"][0]["resources"]
        assert given["requests"].keys() == given["limits"].keys() == {"cpu", "memory"}
        assert strings(given["requests"])
        assert strings(given["limits"])
    north, south = (pod["containers"][0]["resources"] for pod in pods(documents)[1:3])
    assert north == {"requests": {"cpu": "1", "memory": "4Gi"}, "limits": {"cpu": "7", "memory": "8Gi"}}
    assert south == {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}}


def test_a_server_with_gpus_asks_for_them_and_its_controller_computes_on_them() -> None:
    """Pods ask for whole GPUs, also for a part of one; Ray's node offers what its pod has; others ask for none."""
    Path("cluster.yaml").write_text(
        CLUSTER.replace("site: up", "site: up, gpus: 2").replace("tpu: 1}", "tpu: 1}, gpus: 0.5")
    )
    documents = manifests(load_cluster_file("cluster.yaml"), ManifestSettings("image"))
    groups = only(documents, "RayCluster")["spec"]["workerGroupSpecs"]
    given = [group["template"]["spec"]["containers"][0]["resources"] for group in groups]
    for part in ("requests", "limits"):
        assert [one[part].get("nvidia.com/gpu") for one in given] == ["2", "1", None]
    assert [group["rayStartParams"]["num-gpus"] for group in groups] == ["2", "1", "0"]
    (container,) = only(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["command"][2].endswith(" --device auto\n")


def test_gpus_are_whole_or_a_part_of_one() -> None:
    Path("cluster.yaml").write_text(CLUSTER.replace("site: up", "site: up, gpus: 1.5"))
    with pytest.raises(ScenarioError, match=r"gpus: 1\.5: must be a whole number, or below 1 for a part of a GPU"):
        load_cluster_file("cluster.yaml")


def test_there_is_one_controller_at_a_time_which_runs_skedge_up_on_the_cluster_file(documents: list[Manifest]) -> None:
    """On a Ray node of its own, which a driver needs; in the foreground; the old one ends before a new one starts."""
    spec = only(documents, "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    (container,) = spec["template"]["spec"]["containers"]
    shell, option, script = container["command"]
    assert (shell, option) == ("/bin/sh", "-ec")
    lines = [shlex.split(line) for line in script.splitlines() if not line.startswith("#")]
    assert lines[0] == ["ray", "start", "--address=skedge-head-svc:6379", "--num-cpus=0", "--num-gpus=0"]
    assert lines[-1][:4] == ["exec", "skedge", "up", "/etc/skedge/cluster.yaml"]
    told = ["--state", "/var/lib/skedge-state", "--ray", "skedge-head-svc:6379", "--port", "8400", "--foreground"]
    told += ["--trust-jobs", "--device", "cpu"]
    assert lines[-1][4:] == told
    given = inspect.signature(service_commands.up).parameters
    assert {word.removeprefix("--").replace("-", "_") for word in told if word.startswith("--")} <= given.keys()


def test_a_controller_does_not_take_a_dead_one_for_alive(documents: list[Manifest], tmp_path: Path) -> None:
    """What the dead one left has a process number that may be another process's here."""
    script = only(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]["command"][2]
    for name in ("ray", "skedge", "tail"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$0 $*" >> ran\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "service.json").touch()
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["/bin/sh", "-ec", script.replace(kuberay.STATE, str(tmp_path))], env=env, check=True)
    assert not (tmp_path / "service.json").exists()
    ran = {line.split()[0].rsplit("/")[-1] for line in (tmp_path / "ran").read_text().splitlines()}
    assert {"ray", "skedge"} <= ran


def test_the_controllers_own_ray_node_is_watched(documents: list[Manifest]) -> None:
    """It ends when the head is gone, and does not start again in the same container."""
    (container,) = only(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/api/local_raylet_healthz", "port": 52365}
    assert {"name": "SKEDGE_STATE", "value": kuberay.STATE} in container["env"]


def test_the_head_service_is_the_one_that_kuberay_names_after_the_cluster(ray: Manifest) -> None:
    """`<name>-head-svc`, with the port that the head opens."""
    assert ray["metadata"]["name"] == "skedge"
    ports = ray["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"]
    assert {port["name"]: port["containerPort"] for port in ports}["gcs-server"] == 6379


def test_the_controller_is_given_the_cluster_of_the_file(documents: list[Manifest]) -> None:
    """Out of the ConfigMap, as a file that loads."""
    Path("given.yaml").write_text(only(documents, "ConfigMap")["data"]["cluster.yaml"])
    assert load_cluster_file("given.yaml").cluster.servers == load_cluster_file("cluster.yaml").cluster.servers


def test_every_volume_is_mounted_and_every_claim_is_there(documents: list[Manifest]) -> None:
    """No name stands for nothing. All pods write checkpoints, the controller alone its state."""
    claims = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "PersistentVolumeClaim"}
    for pod in pods(documents):
        volumes = {volume["name"]: volume for volume in pod.get("volumes", ())}
        assert {mount["name"] for mount in pod["containers"][0].get("volumeMounts", ())} == volumes.keys()
        for volume in volumes.values():
            assert volume.get("persistentVolumeClaim", {}).get("claimName", "skedge-state") in claims
    modes = {name: spec["accessModes"] for name, spec in claims.items()}
    assert modes == {"skedge-state": ["ReadWriteOnce"], "skedge-checkpoints": ["ReadWriteMany"]}


def test_namespace_image_and_storage_class_are_where_they_belong() -> None:
    """The class is of the checkpoints alone."""
    made = manifests(load_cluster_file("cluster.yaml"), ManifestSettings("x/y:2", "edge", storage_class="nfs"))
    assert {document["metadata"]["namespace"] for document in made} == {"edge"}
    images = {c["image"] for pod in pods(made) for c in [*pod["containers"], *pod.get("initContainers", ())]}
    assert images == {"x/y:2"}
    assert [one["spec"].get("storageClassName") for one in made[1:3]] == [None, "nfs"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--namespace", "Edge"), "--namespace 'Edge': it must be at most 63 lower-case letters"),
        (("--namespace", "a" * 64), "at most 63"),
        (("--image", ""), "--image '': it must be an image's name"),
        (("--image", "a b"), "--image 'a b'"),
        (("--image", ":tag"), "--image ':tag'"),
        (("--image", "a/B:tag:tag"), "--image 'a/B:tag:tag'"),
        (("--chunks-path", "data"), "--chunks-path 'data': it must be an absolute path"),
        (("--chunks-path", "/data/../etc"), "without '..'"),
    ],
)
def test_options_that_kubernetes_would_refuse_are_refused(
    options: tuple[str, ...], message: str, skedge: Skedge
) -> None:
    """Before anything is written."""
    told = skedge("deploy", "kuberay", "cluster.yaml", "--out", "m.yaml", *options)
    assert (told.code, told.out) == (1, "")
    assert message in told.words
    assert not Path("m.yaml").exists()


# --- the command


def test_what_is_printed_what_is_written_and_what_json_says_are_the_same_documents(skedge: Skedge) -> None:
    """YAML that loads, without anchors; the same bytes every time."""
    printed = skedge("deploy", "kuberay", "cluster.yaml")
    told = skedge("deploy", "kuberay", "cluster.yaml", "--out", "m.yaml")
    as_json = skedge("deploy", "kuberay", "cluster.yaml", "--json").json
    assert told.out == "m.yaml: 5 documents, 3 servers\n"
    assert Path("m.yaml").read_text() == printed.out
    assert not re.search(r"^[^#]*: [&*]\w", printed.out, re.MULTILINE)
    documents = list(yaml.safe_load_all(printed.out))
    kinds = ["ConfigMap", "PersistentVolumeClaim", "PersistentVolumeClaim", "RayCluster", "Deployment"]
    assert [document["kind"] for document in documents] == kinds
    assert as_json["documents"] == documents
    assert list(as_json["groups"]) == ["north", "South_1.b", "cloud"]


def test_a_file_that_is_there_is_replaced_only_if_asked_for(skedge: Skedge) -> None:
    """And is found before the cluster file is read."""
    Path("m.yaml").write_text("mine")
    told = skedge("deploy", "kuberay", "nosuch.yaml", "--out", "m.yaml")
    assert (told.code, told.err) == (1, "skedge: m.yaml: exists already; name a new file, or give --replace\n")
    assert Path("m.yaml").read_text() == "mine"
    assert skedge("deploy", "kuberay", "cluster.yaml", "--out", "m.yaml", "--replace").code == 0
    assert "RayCluster" in Path("m.yaml").read_text()
    assert sorted(path.name for path in Path().iterdir()) == ["cluster.yaml", "m.yaml"]


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("there", "there: cannot be written: it is a folder"),
        ("no/m.yaml", "no/m.yaml: cannot be written: No such file"),
    ],
)
def test_a_file_that_cannot_be_written_is_one_sentence(out: str, message: str, skedge: Skedge) -> None:
    """With --replace as well."""
    Path("there").mkdir()
    for more in ((), ("--replace",)):
        told = skedge("deploy", "kuberay", "cluster.yaml", "--out", out, *more)
        assert (told.code, told.out) == (1, "")
        assert message in told.words
    assert sorted(path.name for path in Path().iterdir()) == ["cluster.yaml", "there"]


# --- the check against a CRD


@pytest.fixture
def schema() -> Manifest:
    pytest.importorskip("jsonschema")
    return crd.read_schema(CRD, "RayCluster", "ray.io/v1")


def test_the_manifest_fits_a_crd_of_kuberays_form(skedge: Skedge) -> None:
    """It is found among other documents of the file, by group, kind and version."""
    told = skedge("deploy", "kuberay", "cluster.yaml", "--out", "m.yaml", "--crd", CRD)
    assert told.out == f"m.yaml: 5 documents, 3 servers, its RayCluster fits {CRD}\n"


def changed(manifest: Manifest, path: str, value: object) -> Manifest:
    """The manifest with `value` at a dotted path; `gone` takes the field away."""
    made = copy.deepcopy(manifest)
    *above, last = (int(part) if part.isdigit() else part for part in path.split("."))
    at: Any = made
    for part in above:
        at = at[part]
    if value == "gone":
        del at[last]
    else:
        at[last] = value
    return made


HEAD, GROUP = "spec.headGroupSpec", "spec.workerGroupSpecs.1"
POD = f"{GROUP}.template.spec"
WRONG_MANIFESTS: dict[str, tuple[str, object, str]] = {
    "an unknown field": (f"{GROUP}.replica", 1, "spec.workerGroupSpecs[1].replica: 1: is not a field of this CRD"),
    "one nearly right": (f"{GROUP}.replica", 1, "(did you mean replicas?); there are groupName, labels, maxReplicas"),
    "one deep in a pod": (f"{POD}.volumes.0.hostPath.kind", "x", "template.spec.volumes[0].hostPath.kind: 'x': is not"),
    "one at the top": ("specs", {}, "specs: {}: is not a field of this CRD (did you mean spec?)"),
    "a number for text": (f"{HEAD}.rayStartParams.num-cpus", 0, "StartParams.num-cpus: 0: it must be of type string"),
    "text for a number": (f"{GROUP}.replicas", "1", "workerGroupSpecs[1].replicas: '1': it must be of type integer"),
    "a truth for a number": (f"{GROUP}.replicas", True, "replicas: True: it must be of type integer"),
    "nothing for text": (f"{GROUP}.groupName", None, "groupName: None: it must be of type string"),
    "a fraction for a port": (f"{HEAD}.template.spec.containers.0.ports.0.containerPort", 6379.5, "of type integer"),
    "too small a number": (f"{GROUP}.minReplicas", -1, "minReplicas: -1: it must be at least 0"),
    "a quantity that is none": (
        f"{POD}.containers.0.resources.limits.memory", "4 GB", "resources.limits.memory: '4 GB': it must match ^",
    ),
    "no name": (f"{GROUP}.groupName", "gone", "spec.workerGroupSpecs[1].groupName: is missing; it is needed"),
    "no least number": (f"{GROUP}.minReplicas", "gone", "spec.workerGroupSpecs[1].minReplicas: is missing"),
    "no template": (f"{HEAD}.template", "gone", "spec.headGroupSpec.template: is missing; it is needed"),
    "no head": (HEAD, "gone", "spec.headGroupSpec: is missing; it is needed"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_MANIFESTS)
def test_a_manifest_that_does_not_fit_is_told_by_field_value_and_what_is_right(
    wrong: str, ray: Manifest, schema: Manifest
) -> None:
    """An unknown field too, which an API server would drop without a word."""
    path, value, message = WRONG_MANIFESTS[wrong]
    crd.check(ray, schema, "kuberay.yaml")
    with pytest.raises(InputError, match=f"^kuberay.yaml: .*{re.escape(message)}"):
        crd.check(changed(ray, path, value), schema, "kuberay.yaml")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{POD}.containers.0.resources.limits.cpu", 4),
        (f"{POD}.containers.0.livenessProbe", {"httpGet": {"port": 52365}}),
        (f"{POD}.containers.0.livenessProbe", {"httpGet": {"port": "metrics"}}),
        (f"{POD}.volumes.0.flexVolume", {"anything": {"goes": [1]}}),
        ("spec.suspend", None),
        ("metadata.annotations", {"a": "b"}),
    ],
)
def test_what_kubernetes_takes_is_taken(path: str, value: object, ray: Manifest, schema: Manifest) -> None:
    """Numbers or text, fields that are kept though unknown, null where it is allowed, the metadata of every object."""
    crd.check(changed(ray, path, value), schema, "kuberay.yaml")


def test_everything_wrong_is_told_at_once_up_to_ten_lines(ray: Manifest, schema: Manifest) -> None:
    """And how many more there are."""
    wrong = copy.deepcopy(ray)
    wrong["spec"] |= {f"x{i:02}": i for i in range(14)}
    with pytest.raises(InputError) as told:
        crd.check(wrong, schema, "k")
    lines = str(told.value).split("\n")
    assert len(lines) == 11
    assert lines[0].startswith("k: spec.x00: 0: is not a field")
    assert lines[10] == "k: and 4 more"


def test_a_crd_that_lacks_a_field_of_ours_refuses_the_manifest_and_nothing_is_written(skedge: Skedge) -> None:
    """KubeRay before 1.5 has no labels of groups."""
    text = CRD.read_text()
    older = re.sub(r"(?m)^ {18,20}labels: .*\n", "", text)
    Path("older.yaml").write_text(older)
    assert older.count("labels") == text.count("labels") - 2
    told = skedge("deploy", "kuberay", "cluster.yaml", "--out", "m.yaml", "--crd", "older.yaml")
    assert (told.code, told.out) == (1, "")
    assert "older.yaml: spec.workerGroupSpecs[0].labels: {'server': 'north'}: is not a field of this CRD" in told.words
    assert not Path("m.yaml").exists()


WRONG_CRDS = {
    "a missing file": (None, "crd.yaml: cannot be read: No such file"),
    "no YAML": ("a: [", "crd.yaml: is not YAML: while parsing"),
    "no CRD": ("kind: Service", "crd.yaml: has no CustomResourceDefinition of RayCluster in ray.io"),
    "nothing": ("", "crd.yaml: has no CustomResourceDefinition"),
    "another version": (
        CRD.read_text().replace("  - name: v1\n", "  - name: v2\n"),
        "crd.yaml: RayCluster: has no schema for version 'v1'; there are v2, v1alpha1",
    ),
    "a damaged schema": (
        CRD.read_text().replace("suspend: {type: boolean, nullable: true}", "suspend: [boolean]"),
        "crd.yaml: the schema of RayCluster is damaged",
    ),
    "an unknown type": (
        CRD.read_text().replace("rayVersion: {type: string}", "rayVersion: {type: text}"),
        "crd.yaml: the schema is damaged: properties.spec.properties.rayVersion.type",
    ),
}


@pytest.mark.parametrize("wrong", WRONG_CRDS)
def test_a_file_that_is_no_crd_of_ray_clusters_is_one_error_that_names_it(wrong: str, skedge: Skedge) -> None:
    """And nothing is written."""
    pytest.importorskip("jsonschema")
    content, message = WRONG_CRDS[wrong]
    if content is not None:
        Path("crd.yaml").write_text(content)
    told = skedge("deploy", "kuberay", "cluster.yaml", "--out", "m.yaml", "--crd", "crd.yaml")
    assert (told.code, told.out) == (1, "")
    assert "Traceback" not in told.err
    assert message in told.words
    assert not Path("m.yaml").exists()


# --- what has to agree with other files


def test_the_ray_of_the_manifests_is_the_ray_of_the_image() -> None:
    """constraints.txt decides; KubeRay chooses its probes by the version that it is told."""
    assert f"\nray=={kuberay.RAY_VERSION}\n" in (ROOT / "constraints.txt").read_text()


def test_the_image_has_the_user_and_the_state_folder_of_the_manifests() -> None:
    """A number, because Kubernetes compares numbers."""
    text = (ROOT / "deploy" / "Containerfile").read_text()
    assert "useradd --uid 1000 --user-group" in text
    assert "USER 1000:1000" in text
    assert f"--owner=skedge --group=skedge {kuberay.STATE}\n" in text
    assert "-c constraints.txt" in text


def test_the_page_shows_what_its_commands_print(skedge: Skedge) -> None:
    """The lines under the commands that write manifests of its cluster file; its job spec is one."""
    cluster, job = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    Path("job.yaml").write_text(job)
    assert read_spec("job.yaml")["name"] == "first"
    Path("cluster.yaml").write_text(cluster)
    Path("ray.io_rayclusters.yaml").write_text(CRD.read_text())
    shown = re.findall(r"\$ skedge (deploy kuberay .*)\n(.*)\n", PAGE)
    assert shown
    for words, line in shown:
        Path("skedge.yaml").unlink(missing_ok=True)
        assert skedge(*shlex.split(words)).out == f"{line}\n"


def test_the_page_names_what_the_manifests_name(documents: list[Manifest]) -> None:
    """The Secret with its key, the label of the nodes, the controller, the state."""
    for name in (kuberay.SECRET, kuberay.SECRET_KEY, kuberay.NODE_LABEL, f"deploy/{kuberay.CONTROLLER}", kuberay.STATE):
        assert name in PAGE
    assert f"port-forward deploy/{kuberay.CONTROLLER} {kuberay.API_PORT}" in PAGE
    for document in documents:
        assert document["kind"] in PAGE
    assert as_yaml(documents).count(kuberay.SECRET) == 5
