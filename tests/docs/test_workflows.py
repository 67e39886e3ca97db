"""Workflows, the action and the examples, against the schemas that their forges publish.

The schemas come with check-jsonschema; nothing is fetched.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT
from tests.kit.changes import MUTANTS

CHECKED = {
    "vendor.github-actions": ["action.yml"],
    "vendor.github-workflows": [".github/workflows/*.yml", "docs/ci/github*.yml"],
    "vendor.gitlab-ci": ["docs/ci/gitlab.yml"],
}


def files(schema: str) -> list[Path]:
    found = [file for pattern in CHECKED[schema] for file in sorted(ROOT.glob(pattern))]
    assert len(found) >= len(CHECKED[schema])
    return found


def loaded(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return content


def check(schema: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *paths]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("schema", CHECKED)
def test_the_schema_holds(schema: str) -> None:
    done = check(schema, *files(schema))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("schema", CHECKED)
def test_the_schema_refuses(schema: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yml"
    broken.write_text("name: 1\nruns: {using: composite, steps: [1]}\njobs: []\nscript: {}\n")
    assert check(schema, broken).returncode == 1


@pytest.mark.slow
def test_every_workflow_is_checked() -> None:
    here = {file.relative_to(ROOT) for schema in CHECKED for file in files(schema)}
    there = {
        file.relative_to(ROOT)
        for folder in ("", ".github", "docs")
        for file in (ROOT / folder).glob("**/*.y*ml" if folder else "*.y*ml")
    }
    assert there - here <= {Path(".pre-commit-config.yaml"), Path(".pre-commit-hooks.yaml")}


class TestTheProjectsOwn:
    @pytest.mark.parametrize(
        ("name", "wanted"),
        [
            (
                "ci",
                {
                    "check",
                    "demo",
                    "fuzz",
                    "site",
                    "test",
                    "test-browser",
                    "test-remotes",
                    "test-torch",
                },
            ),
            ("site", {"site"}),
            ("nightly", {"test-all", "test-trainers", "tour", "torture", "fuzz"}),
        ],
    )
    def test_it_runs_what_make_has(self, name: str, wanted: set[str]) -> None:
        steps = [
            step.get("run", "").split()
            for job in loaded(f".github/workflows/{name}.yml")["jobs"].values()
            for step in job["steps"]
        ]
        targets = {words[1] for words in steps if words[:1] == ["make"]}
        assert targets == wanted
        makefile = (ROOT / "Makefile").read_text()
        for target in targets:
            assert f"\n{target}:" in makefile

    def test_every_night_all_is_tried(self) -> None:
        job = loaded(".github/workflows/nightly.yml")["jobs"]["all"]
        assert job["env"][MUTANTS] == "all"
        tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("*.py"))
        for name in job["env"]:
            assert name.startswith("PIP_") or f'"{name}"' in tests

    def test_its_pythons_are_those_that_are_promised(self) -> None:
        matrix = loaded(".github/workflows/ci.yml")["jobs"]["check"]["strategy"]["matrix"]
        project = (ROOT / "pyproject.toml").read_text()
        for version in matrix["python"]:
            assert f"Programming Language :: Python :: {version}" in project

    def test_a_job_may_write_only_where_it_publishes(self) -> None:
        attest = {"id-token": "write", "attestations": "write", "contents": "read"}
        wanted = {
            "site publish": {"pages": "write", "id-token": "write"},
            "release build": attest,
            "release publish": {"id-token": "write"},
            "codeql analyze": {"contents": "read", "security-events": "write"},
        }
        given = {}
        for file in sorted((ROOT / ".github/workflows").glob("*.yml")):
            workflow = loaded(f".github/workflows/{file.name}")
            assert workflow["permissions"] == {"contents": "read"}
            jobs = workflow["jobs"].items()
            given |= {
                f"{file.stem} {name}": job["permissions"]
                for name, job in jobs
                if "permissions" in job
            }
        assert given == wanted
        # The site's own tools have no such right: they ran in another job.
        steps = loaded(".github/workflows/site.yml")["jobs"]["publish"]["steps"]
        assert [step["uses"] for step in steps] == ["actions/deploy-pages@v4"]

    def test_the_site_is_mains_alone(self) -> None:
        """Not that of a pull request, which anybody may open."""
        # YAML 1.1 takes the key `on` for a truth value.
        told = loaded(".github/workflows/site.yml")[True]
        assert told == {"push": {"branches": ["main"]}, "workflow_dispatch": None}

    def test_the_systems_are_those_that_are_promised(self) -> None:
        jobs = loaded(".github/workflows/ci.yml")["jobs"].values()
        assert {job["runs-on"] for job in jobs} == {"ubuntu-latest", "macos-latest"}
        promised = (ROOT / "docs/install.md").read_text()
        mac = loaded(".github/workflows/ci.yml")["jobs"]["macos"]["steps"]
        version = mac[1]["with"]["python-version"]
        assert f"| macOS | the quick tests, in CI with Python {version}," in promised
        assert {step.get("run") for step in mac} >= {"make test PYTHON=python"}


class TestTheExample:
    def test_it_gives_the_action_inputs_that_it_has(self) -> None:
        example = loaded("docs/ci/github.yml")
        (job,) = example["jobs"].values()
        checkout, audit = job["steps"]
        assert set(audit["with"]) <= set(loaded("action.yml")["inputs"])
        assert audit["with"]["trust-root"] == "0" * 40, "a string, whatever its digits"
        assert checkout["with"]["fetch-depth"] == 0

    def test_it_only_reads(self) -> None:
        example = loaded("docs/ci/github.yml")
        assert example["permissions"] == {"contents": "read"}
        # YAML 1.1 takes the key `on` for a truth value.
        assert set(example[True]) == {"pull_request", "push"}
