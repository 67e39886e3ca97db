"""A GitHub runner, as far as `action.yml` sees it: clones, variables, workflow commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.kit import Repo
from tests.kit.starts import FOLDER

ROOT = Path(__file__).parents[2]
NONE = "0" * 40
_EXPRESSION = re.compile(r"\$\{\{ *([\w.-]+) *\}\}")
_V1 = re.compile(r"##\[([\w-]+)")
_V2 = re.compile(r"::([\w-]+)(?: ([^:]*))?::(.*)", re.DOTALL)


@cache
def action() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    return loaded


def step(name: str) -> dict[str, Any]:
    (found,) = [step for step in action()["runs"]["steps"] if step["name"] == name]
    return dict(found)


def evaluated(text: str, context: Mapping[str, str]) -> str:
    """A value with its expressions; a property that is not there is the empty string."""
    return _EXPRESSION.sub(lambda match: context.get(match[1], ""), text)


@dataclass(frozen=True)
class Command:
    """A workflow command that a runner carries out."""

    name: str
    properties: dict[str, str]
    value: str


def commands(output: str) -> list[Command]:
    """What a runner finds in a step's output, as it looks for it.

    Commands start a line, or stand anywhere in one in their older form
    `##[name]`. From `stop-commands` on nothing is one until its word comes.
    """
    found: list[Command] = []
    word = None
    for line in output.splitlines():
        if word is not None:
            word = None if line.strip() == f"::{word}::" else word
            continue
        new, old = _V2.match(line.lstrip()), _V1.search(line)
        if new:
            pairs = (pair.partition("=") for pair in (new[2] or "").split(",") if pair)
            properties = {key: _decoded(value) for key, _, value in pairs}
            found.append(Command(new[1], properties, _decoded(new[3])))
            word = new[3] if new[1] == "stop-commands" else None
        elif old:
            found.append(Command(old[1], {}, line))
    assert word is None, "commands were stopped for the steps that follow"
    return [one for one in found if one.name != "stop-commands"]


def _decoded(value: str) -> str:
    for spelled, meant in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ",")):
        value = value.replace(spelled, meant)
    return value.replace("%25", "%")


@dataclass(frozen=True)
class Ran:
    """What a step left."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str

    @property
    def annotations(self) -> list[Command]:
        """The commands, which are all annotations."""
        found = commands(self.log)
        assert {one.name for one in found} <= {"error", "warning"}, self.log
        return found

    @property
    def titles(self) -> list[str]:
        return [one.properties["title"] for one in self.annotations]

    @property
    def report(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(Path(self.outputs["json"]).read_bytes())
        return loaded

    @property
    def kinds(self) -> set[str]:
        return {finding["kind"] for finding in self.report["findings"]}


@dataclass(frozen=True)
class Runner:
    """A machine with a clone of a server's repository, checked out for an event."""

    server: Repo
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def temp(self) -> Path:
        return self.folder / "temp"

    def start(self) -> None:
        """Make the folders. In the place of the environment that the first step makes is ours."""
        self.workspace.mkdir(parents=True)
        self.temp.mkdir()
        (self.temp / "wtxtgit").mkdir()
        (self.temp / "wtxtgit/bin").symlink_to(FOLDER)

    def checkout(self, ref: str, *options: str) -> None:
        """Do what actions/checkout does with `fetch-depth: 0`."""
        clone = Repo(self.workspace)
        clone.git("init", "-q")
        clone.git("remote", "add", "origin", self.server.path.as_uri())
        wanted = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
        clone.git("fetch", "-q", "--no-tags", *options, "origin", f"+{ref}:refs/remotes/checkout",
                  *(() if options else wanted))  # fmt: skip
        clone.git("checkout", "-q", "--force", "refs/remotes/checkout")

    def audit(
        self, context: Mapping[str, str], variables: Mapping[str, str], name: str = "Audit"
    ) -> Ran:
        """Run a step's script with what GitHub would set."""
        inputs = {
            f"inputs.{key}": about.get("default", "") for key, about in action()["inputs"].items()
        }
        known = {**inputs, **context}
        about = step(name)
        assert about["shell"] == "bash"
        given = {key: evaluated(value, known) for key, value in about.get("env", {}).items()}
        files = {key: self.temp / key for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.write_bytes(b"")
        script = self.temp / "script.sh"
        script.write_text(about["run"])
        done = subprocess.run(
            # As documented for `shell: bash`.
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script],
            cwd=self.workspace,
            env={
                **os.environ,
                "CI": "true",
                "GITHUB_ACTIONS": "true",
                "GITHUB_ACTION_PATH": str(ROOT),
                "GITHUB_WORKSPACE": str(self.workspace),
                "RUNNER_TEMP": str(self.temp),
                **{key: str(file) for key, file in files.items()},
                **variables,
                **given,
                **self.environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        told = files["GITHUB_OUTPUT"].read_text().splitlines()
        outputs = {key: value for key, _, value in (line.partition("=") for line in told)}
        log = done.stdout.decode()
        return Ran(done.returncode, log, outputs, files["GITHUB_STEP_SUMMARY"].read_text())
