"""The chart renders to the manifests, by Helm itself; unit and compose file start the service as it is."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders.paths import ROOT
from skedge.cli import service
from skedge.core.errors import InputError
from skedge.deploy.helm import chart
from skedge.deploy.kuberay import STATE, ManifestSettings, manifests
from skedge.scenario.file import load_cluster_file

Skedge = Callable[..., Any]
HELM = shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")
CLUSTER = """
name: sites
cluster:
  servers:
    - {id: north, workers: {gpu: 4}, ps: {cpu: 3}, storage_mb: 20000, gpus: 2}
    - {id: South_1.b, workers: {gpu: 1, tpu: 1}}
    - {id: cloud, kind: cloud}
"""


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text(CLUSTER)


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    assert HELM is not None, "Helm comes with the extra dev"
    return subprocess.run([HELM, *words], capture_output=True, text=True, check=False)


def in_order(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(documents, key=lambda document: (document["kind"], document["metadata"]["name"]))


@pytest.mark.parametrize("storage_class", [None, "nfs"])
def test_the_chart_renders_to_the_manifests_of_the_same_settings(storage_class: str | None, skedge: Skedge) -> None:
    assert skedge("deploy", "helm", "cluster.yaml", "--out", "chart").code == 0
    given = ["--set", "image=registry.example/skedge:2", "--set", "chunksPath=/data/chunks"]
    given += [] if storage_class is None else ["--set", f"storageClass={storage_class}"]
    rendered = helm("template", "skedge", "chart", "--namespace", "edge", *given)
    assert rendered.returncode == 0, rendered.stderr
    settings = ManifestSettings("registry.example/skedge:2", "edge", "/data/chunks", storage_class)
    right = manifests(load_cluster_file("cluster.yaml"), settings)
    assert in_order(list(yaml.safe_load_all(rendered.stdout))) == in_order(right)


def test_the_options_are_the_values_of_the_chart(skedge: Skedge) -> None:
    options = ["--image", "a/b:3", "--chunks-path", "/mnt/c", "--storage-class", "ceph"]
    said = skedge("deploy", "helm", "cluster.yaml", "--out", "chart", *options, "--json").json
    assert sorted(said["files"]) == sorted(p.relative_to("chart").as_posix() for p in Path("chart").rglob("*.*"))
    values = yaml.safe_load(Path("chart/values.yaml").read_text())
    assert values == {"image": "a/b:3", "chunksPath": "/mnt/c", "storageClass": "ceph"}
    rendered = helm("template", "skedge", "chart", "--namespace", "skedge")
    right = manifests(load_cluster_file("cluster.yaml"), ManifestSettings("a/b:3", "skedge", "/mnt/c", "ceph"))
    assert in_order(list(yaml.safe_load_all(rendered.stdout))) == in_order(right)


def test_helm_finds_nothing_wrong_with_the_chart(skedge: Skedge) -> None:
    skedge("deploy", "helm", "cluster.yaml", "--out", "chart")
    assert "0 chart(s) failed" in helm("lint", "chart").stdout


@pytest.mark.parametrize("wrong", ["chunksPath=data", "chunksPath=/a/../b", "image=", "image=a b"])
def test_helm_refuses_values_that_skedge_refuses(wrong: str, skedge: Skedge) -> None:
    skedge("deploy", "helm", "cluster.yaml", "--out", "chart")
    rendered = helm("template", "skedge", "chart", "--set", wrong)
    assert rendered.returncode != 0
    assert wrong.partition("=")[0] in rendered.stderr
    name = {"chunksPath": "chunks_path", "image": "image"}[wrong.partition("=")[0]]
    with pytest.raises(InputError):
        ManifestSettings(**{"image": "a", name: wrong.partition("=")[2]})


def test_braces_of_a_cluster_file_are_no_expressions() -> None:
    """A type of worker may have any name; Helm must not evaluate it."""
    Path("cluster.yaml").write_text('cluster: {servers: [{id: a, workers: {"{{ .Values.image }}": 1}, ps: {cpu: 1}}]}')
    scenario = load_cluster_file("cluster.yaml")
    for name, text in chart(scenario, ManifestSettings("a:1"), "1.0.0").items():
        Path("chart", name).parent.mkdir(parents=True, exist_ok=True)
        Path("chart", name).write_text(text)
    rendered = helm("template", "skedge", "chart", "--namespace", "skedge")
    right = manifests(scenario, ManifestSettings("a:1"))
    assert in_order(list(yaml.safe_load_all(rendered.stdout))) == in_order(right)


def test_a_folder_that_is_there_and_a_wrong_file_are_one_sentence_and_nothing_is_written(skedge: Skedge) -> None:
    Path("chart").mkdir()
    assert "exists already" in skedge("deploy", "helm", "cluster.yaml", "--out", "chart").err
    assert skedge("deploy", "helm", "nosuch.yaml", "--out", "new").code == 1
    assert skedge("deploy", "helm", "cluster.yaml", "--out", "new", "--image", "a b").code == 1
    assert sorted(path.name for path in Path().iterdir()) == ["chart", "cluster.yaml"]
    assert skedge("deploy", "helm", "cluster.yaml", "--out", "chart", "--replace").code == 0


# --- one machine


def options_of_up() -> set[str]:
    return set(re.findall(r"\"(--[a-z-]+)(?:/--[a-z-]+)?\"", Path(service.__file__).read_text())) | {
        f"--{name.replace('_', '-')}" for name in service.up.__annotations__
    }


def test_the_unit_starts_the_service_in_the_foreground() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "deploy" / "skedge.service")
    words = unit["Service"]["ExecStart"].split()
    assert words[1:3] == ["up", "/etc/skedge/cluster.yaml"]
    assert "--foreground" in words
    assert {word for word in words if word.startswith("--")} <= options_of_up()
    assert f"SKEDGE_STATE=/var/lib/{unit['Service']['StateDirectory']}" in unit["Service"]["Environment"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_unit() -> None:
    text = (ROOT / "deploy" / "skedge.service").read_text()
    here = re.sub(r"ExecStart=\S+", f"ExecStart={sys.executable}", text).replace("User=skedge", "User=root")
    Path("skedge.service").write_text(here)
    command = [str(shutil.which("systemd-analyze")), "verify", "./skedge.service"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_compose_file_starts_the_image_on_the_state_folder_of_the_image() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    one = compose["services"]["skedge"]
    assert one["command"][:2] == ["up", "/etc/skedge/cluster.yaml"]
    assert {word for word in one["command"] if word.startswith("--")} <= options_of_up()
    assert one["environment"]["SKEDGE_STATE"] == STATE
    assert f"state:{STATE}" in one["volumes"]
    assert (ROOT / "deploy" / one["build"]["context"] / one["build"]["dockerfile"]).is_file()
    default = re.search(r":-([^}]+)\}", one["volumes"][0])
    assert default is not None
    assert (ROOT / "deploy" / default[1]).is_file()


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="there is no docker-compose")
def test_compose_finds_nothing_wrong_with_the_file() -> None:
    command = ["docker-compose", "-f", str(ROOT / "deploy" / "compose.yaml"), "config"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "skedge" in yaml.safe_load(done.stdout)["services"]


def test_json_and_the_schema_of_values_are_valid() -> None:
    files = chart(load_cluster_file("cluster.yaml"), ManifestSettings("a:1"), "1.0.0")
    assert json.loads(files["values.schema.json"])["required"] == ["image", "chunksPath", "storageClass"]
    assert yaml.safe_load(files["Chart.yaml"])["apiVersion"] == "v2"
