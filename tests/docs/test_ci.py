"""The hosted checks run the README's commands, on pinned actions; hooks before a commit are the project's own tools."""

from __future__ import annotations

import re
import shlex
import tomllib
from typing import Any

import yaml

from builders.paths import ROOT

WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
HOOKS: dict[str, Any] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
LINT = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


def steps() -> list[dict[str, Any]]:
    return [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def test_the_commands_of_the_readme_are_run() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    commands = [step["run"] for step in WORKFLOW["jobs"]["test"]["steps"] if "run" in step]
    assert commands == ["make demo", "make test"]
    assert all(re.search(rf"^{command} +#", readme, re.MULTILINE) for command in commands)


def test_each_python_that_the_project_allows_from_the_first_on_is_tried() -> None:
    least = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["requires-python"]
    versions = WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert f">={versions[0]}" == least
    assert versions == ["3.11", "3.12", "3.13"]


def test_actions_are_pinned_to_a_commit() -> None:
    actions = [step["uses"] for step in steps() if "uses" in step]
    assert actions
    assert [action for action in actions if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action)] == []


def test_no_job_may_write() -> None:
    assert WORKFLOW["permissions"] == {}
    assert {str(job.get("permissions", {})) for job in WORKFLOW["jobs"].values()} <= {"{}", "{'contents': 'read'}"}


def test_hooks_are_the_lint_of_the_makefile() -> None:
    assert LINT is not None
    (repository,) = HOOKS["repos"]
    assert repository["repo"] == "local", "nothing is downloaded"
    hooks = {shlex.split(hook["entry"])[0].removeprefix(".venv/bin/") for hook in repository["hooks"]}
    assert hooks == set(re.findall(r"\$\(BIN\)/([\w-]+)", LINT[1]))
