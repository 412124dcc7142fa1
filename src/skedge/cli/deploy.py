"""``skedge deploy``: Kubernetes manifests for the live service."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from skedge.core.errors import InputError
from skedge.deploy.crd import check, read_schema
from skedge.deploy.helm import chart, write
from skedge.deploy.kuberay import ManifestSettings, as_yaml, group_names, manifests
from skedge.report.write import write_report
from skedge.runs.new_folder import new_folder
from skedge.scenario.file import load_cluster_file

from .console import out, print_answer, print_json
from .lazy import command_group
from .options import JsonOption

# tagged with the version of skedge that writes the manifests
_IMAGE, _CHUNKS = f"skedge:{version('skedge')}", "/var/lib/skedge"

deploy = command_group("The live service on Kubernetes: manifests to apply.")


@deploy.command()
def kuberay(
    cluster: Annotated[Path, typer.Argument(help="A cluster file: a scenario file, whose workload may be missing.")],
    file: Annotated[Path | None, typer.Option("--out", help="New file; default: print the manifests.")] = None,
    crd: Annotated[
        Path | None, typer.Option(help="KubeRay's CRD of RayClusters (YAML), to check the manifests against.")
    ] = None,
    image: Annotated[str, typer.Option(help="Image of deploy/Containerfile.")] = _IMAGE,
    namespace: Annotated[str, typer.Option(help="Kubernetes namespace.")] = "skedge",
    chunks_path: Annotated[str, typer.Option(help="Folder for chunks on the nodes.")] = _CHUNKS,
    storage_class: Annotated[
        str | None, typer.Option(help="Storage class of the checkpoint volume, which all pods write to.")
    ] = None,
    replace: Annotated[bool, typer.Option(help="Replace the file if it exists.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make Kubernetes manifests for a cluster file: a RayCluster with a worker group per server, and the controller."""
    if file is not None:
        _must_be_new(file, replace=replace)
    loaded = load_cluster_file(cluster)
    try:
        documents = manifests(loaded, ManifestSettings(image, namespace, chunks_path, storage_class))
        groups = group_names(loaded.cluster.server_ids)
    except InputError as error:
        raise InputError(f"{cluster}: {error}") from error
    if crd is not None:
        for document in documents:
            if document["kind"] == "RayCluster":
                check(document, read_schema(crd, document["kind"], document["apiVersion"]), str(crd))
    if file is not None:
        _write(file, as_yaml(documents))
    if as_json:
        written = {"file": None if file is None else str(file), "crd": None if crd is None else str(crd)}
        print_json({**written, "groups": groups, "documents": documents})
    elif file is None:
        typer.echo(as_yaml(documents), nl=False)
    else:
        fits = "" if crd is None else f", its RayCluster fits {crd}"
        out.print(f"{file}: {len(documents)} documents, {len(groups)} servers{fits}", soft_wrap=True)


@deploy.command()
def helm(
    cluster: Annotated[Path, typer.Argument(help="A cluster file: a scenario file, whose workload may be missing.")],
    folder: Annotated[Path, typer.Option("--out", help="New folder of the chart.")] = Path("skedge-chart"),
    image: Annotated[str, typer.Option(help="Value of image.")] = _IMAGE,
    chunks_path: Annotated[str, typer.Option(help="Value of chunksPath.")] = _CHUNKS,
    storage_class: Annotated[str | None, typer.Option(help="Value of storageClass.")] = None,
    replace: Annotated[bool, typer.Option(help="Replace the folder if it exists.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a Helm chart for a cluster file: the manifests of `kuberay`, whose image and places are values."""
    with new_folder(folder, replacing=replace) as temp_folder:
        try:
            settings = ManifestSettings(image, chunks_path=chunks_path, storage_class=storage_class)
            files = chart(load_cluster_file(cluster), settings, version("skedge"))
        except InputError as error:
            raise InputError(f"{cluster}: {error}") from error
        write(files, temp_folder)
    sentence = f"{folder}: install with helm install skedge {folder} --namespace NAMESPACE"
    print_answer({"folder": str(folder), "files": list(files)}, sentence, as_json=as_json, soft_wrap=True)


def _must_be_new(file: Path, *, replace: bool) -> None:
    if os.path.isdir(file):
        raise InputError(f"{file}: cannot be written: it is a folder; name a file")
    if os.path.lexists(file) and not replace:
        raise InputError(f"{file}: exists already; name a new file, or give --replace")


def _write(file: Path, text: str) -> None:
    """Write the file atomically."""
    try:
        write_report(file, text)
    except OSError as error:
        raise InputError(f"{file}: cannot be written: {error.strerror}") from error
