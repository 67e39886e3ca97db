"""docs/ci.md: its commands, its examples, its tables."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from tests.docs.pages import ROOT, blocks, spans, tables
from tests.docs.shell import Done, Step, assert_as_shown, run, steps
from tests.docs.test_workflows import check, loaded
from wtxtgit import errors
from wtxtgit.report.audit import AuditReport, Finding

pytestmark = pytest.mark.slow

PAGE = "docs/ci.md"
SET_UP = """\
git init -q --bare server.git
git init -q work && cd work
wtxtgit install --local
wtxtgit track '*.safetensors'
wtxtgit key new --name alice --no-passphrase
wtxtgit signers add alice@example.com alice
cp ../step1.safetensors model.safetensors
git add .gitattributes .wtxt model.safetensors
wtxtgit seal --staged
git commit -q -m 'first generation'
git tag trusted
cp ../step2.safetensors model.safetensors
"""


@pytest.fixture
def folder(tmp_path: Path, home: Path) -> Path:
    """A server, and a clone with one sealed generation and a change that is not sealed."""
    assert home.is_dir()
    for step in (1, 2):
        save_file({"w": np.full((8, 8), step, "f4")}, tmp_path / f"step{step}.safetensors")
    shutil.copy(ROOT / "docs/ci/pre-receive", tmp_path)
    (done,) = run([Step(PAGE, SET_UP.replace("\n", " &&\n").removesuffix(" &&\n"), ())], tmp_path)
    assert done.code == 0, done
    return tmp_path


def do(folder: Path, *sections: str) -> list[Done]:
    todo = [step for section in sections for step in steps(*blocks(PAGE, "console", section))]
    done = run(todo, folder)
    assert_as_shown(done)
    return done


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_no_block_is_left_out() -> None:
    found = Counter((block.section, block.language) for block in blocks(PAGE))
    assert found == {
        ("GitHub", "yaml"): 1,
        ("Git servers", "console"): 2,
        ("Seal in CI", "console"): 1,
        ("The trust root", "console"): 2,
        ("Formats", "json"): 1,
        ("Formats", "yaml"): 1,
    }


def test_a_server_and_a_trust_root_that_moves(folder: Path) -> None:
    done = do(folder, "Git servers", "The trust root")
    refused = next(one for one in done if "refused" in one.step.output)
    assert "content-mismatch" in refused.output
    assert git(folder / "server.git", "rev-parse", "main") == (
        git(folder / "work", "rev-parse", "trusted")
    )
    assert done[-1].output.strip() == git(folder / "work", "rev-parse", "HEAD")


def test_a_job_seals_with_the_key_in_its_environment(folder: Path, home: Path) -> None:
    (folder / "work/model.safetensors").write_bytes((folder / "step1.safetensors").read_bytes())
    (folder / "work/train.py").write_text("import shutil\nshutil.copy('../step2.safetensors', ")
    with (folder / "work/train.py").open("a") as script:
        script.write("'model.safetensors')\n")
    entered = [Step(PAGE, "cd work", ()), *steps(*blocks(PAGE, "console", "Seal in CI"))]
    assert_as_shown(run(entered, folder)[1:])
    git(folder / "work", "add", "train.py")
    git(folder / "work", "commit", "-q", "-m", "script")
    git(folder / "work", "push", "-q", "../server.git", "main")
    git(folder, "--git-dir=server.git", "symbolic-ref", "HEAD", "refs/heads/main")
    secret = (home / ".config/wtxtgit/keys/ci").read_text()
    shutil.rmtree(home / ".config/wtxtgit/keys")

    git(folder, "clone", "-q", "server.git", "job")
    given: dict[str, Any] = loaded("docs/ci/github-seal.yml")["jobs"]["train"]
    assert given["environment"]
    # What the image has, and what a test has instead of it.
    done = [step for step in given["steps"] if "run" in step and "pip" not in step["run"]]
    assert [step for step in done if "env" in step] == [
        step for step in done if step["run"].startswith("wtxtgit seal ")
    ]
    for step in done:
        more = {"GITHUB_RUN_NUMBER": "7"}
        if "env" in step:
            assert step["env"] == {"WTXTGIT_KEY": "${{ secrets.WTXTGIT_KEY }}"}
            more["WTXTGIT_KEY"] = secret
        (ran,) = run([Step(PAGE, step["run"].strip(), ())], folder / "job", more)
        assert ran.code == 0, ran
    audit = ["wtxtgit", "audit", "--trust-root", git(folder / "work", "rev-parse", "trusted")]
    (ran,) = run([Step(PAGE, " ".join([*audit, "main"]), ())], folder / "server.git")
    assert ran.code == 0, ran
    assert "ci@example.com" in ran.output
    log = run([Step(PAGE, "wtxtgit log model.safetensors", ())], folder / "job")
    assert "ci@example.com" in log[0].output, log


class TestExamples:
    def test_the_workflow_is_the_one_that_is_there(self) -> None:
        (block,) = blocks(PAGE, "yaml", "GitHub")
        assert block.text == (ROOT / "docs/ci/github.yml").read_text()

    def test_the_upload_is_a_step(self, folder: Path, tmp_path: Path) -> None:
        (block,) = blocks(PAGE, "yaml", "Formats")
        steps_of: list[dict[str, Any]] = yaml.safe_load(block.text)
        example = loaded("docs/ci/github.yml")
        example["on"] = example.pop(True)
        example["jobs"]["audit"]["steps"] += steps_of
        file = tmp_path / "workflow.yml"
        file.write_text(yaml.safe_dump(example))
        done = check("vendor.github-workflows", file)
        assert done.returncode == 0, done.stdout

        (tmp_path / "wtxtgit").symlink_to(sys.prefix)
        root = git(folder / "work", "rev-parse", "trusted")
        environment = {"RUNNER_TEMP": str(tmp_path), "ROOT": root}
        script = steps_of[0]["run"]
        (ran,) = run([Step(PAGE, script, ())], folder / "work", environment)
        assert ran.code == 0, ran
        assert json.loads((tmp_path / "audit.sarif").read_bytes())["version"] == "2.1.0"

    def test_the_report_has_these_fields(self) -> None:
        (block,) = blocks(PAGE, "json", "Formats")
        shown = json.loads(block.text)
        report: dict[str, Any] = AuditReport(
            1, findings=(Finding("c", b"p", "unsealed", "m"),)
        ).as_dict()
        assert list(shown) == list(report)
        assert list(shown["findings"][0]) == list(report["findings"][0])


class TestTables:
    def test_inputs_and_outputs_are_the_actions(self) -> None:
        action = loaded("action.yml")
        inputs, _, outputs = tables(PAGE, "GitHub")
        assert [name for row in inputs for name in spans(row[0])] == list(action["inputs"])
        assert [name for row in outputs for name in spans(row[0])] == list(action["outputs"])

    def test_formats_are_the_commands(self) -> None:
        (done,) = run([Step(PAGE, "wtxtgit audit --help", ())], ROOT)
        found = re.search(r"--format \[([\w|]+)\]", done.output)
        assert found
        (table,) = tables(PAGE, "Formats")
        assert [name for row in table for name in spans(row[0])] == found[1].split("|")

    def test_exit_codes(self) -> None:
        (table,) = tables(PAGE, "Exit codes")
        kinds = errors.WtxtgitError.__subclasses__()
        codes = {0, *(kind.exit_code for kind in kinds)}
        assert [int(row[0]) for row in table] == sorted(codes)
