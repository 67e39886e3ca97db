"""Audits and reviews on a cluster, whose workers have a clone: the same output, byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cluster.processes import Processes, busy, with_write_end
from tests.e2e.sealed import MODEL, OTHER, ROOT, Sealed, text
from tests.e2e.test_detached_sealed import ATTRIBUTES, forget, put, version
from tests.kit import LAUNCHER, Repo
from tests.kit.changes import is_nightly
from wtxtgit.chain.reader import Facts
from wtxtgit.checkpoint import verify
from wtxtgit.cli.options import CLUSTER_KEY
from wtxtgit.cluster import tasks as cluster_verify
from wtxtgit.cluster.client import connected
from wtxtgit.cluster.tasks import examiner
from wtxtgit.filter.content import ContentCache

pytestmark = pytest.mark.slow

AUDIT = ("audit", "--trust-root", ROOT, "--no-cache")
REVIEW = ("review", "main...topic", "--trust-root", ROOT, "--no-cache")
FORMS = [
    (*AUDIT, "--json"),
    (*AUDIT, "topic"),
    (*AUDIT, "topic", "--format", "sarif"),
    (*REVIEW, "--json"),
    (*REVIEW, "--format", "html"),
    (*REVIEW, "--format", "md"),
    REVIEW,
]


@pytest.fixture
def topic(chain: Sealed) -> Sealed:
    """A branch with a change that is sealed, one that is not, a damaged text and a new file."""
    chain.branch("topic")
    chain.generation(2.0, 3.0)
    chain.put(4.0, name=OTHER)
    chain.commit("nobody seals")
    damaged = bytearray(text(5.0))
    damaged[len(damaged) // 2] ^= 1
    chain.write("damaged.safetensors", bytes(damaged))
    chain.write("new.safetensors", text(6.0))
    chain.write("no.safetensors", b"no checkpoint")
    chain.commit_all("more")
    return chain


def process(repo: Repo, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return repo.wtxtgit(*arguments, ok=(0, 1, 4, 5))


def bare_clone(repo: Sealed, name: str, *options: str) -> Path:
    return repo.clone(name, "--bare", *options).path


@pytest.mark.parametrize("arguments", FORMS)
def test_the_output_is_the_same(
    topic: Sealed, shared: Processes, arguments: tuple[str, ...]
) -> None:
    here = process(topic, *arguments)
    there = process(topic, *arguments, "--scheduler", shared.address)
    assert (there.returncode, there.stderr) == (here.returncode, here.stderr)
    assert there.stdout == here.stdout
    assert here.stdout


@pytest.mark.parametrize("arguments", [AUDIT, REVIEW])
def test_another_clone(topic: Sealed, shared: Processes, arguments: tuple[str, ...]) -> None:
    clone = str(bare_clone(topic, "clone.git"))
    here = process(topic, *arguments)
    there = process(topic, *arguments, "--scheduler", shared.address, "--worker-clone", clone)
    assert (there.returncode, there.stdout) == (here.returncode, here.stdout)


@pytest.mark.parametrize("arguments", [(*AUDIT, "topic"), REVIEW])
def test_a_clone_that_lacks_blobs(
    topic: Sealed, shared: Processes, arguments: tuple[str, ...]
) -> None:
    clone = bare_clone(topic, "old.git", "--no-local", "--branch", ROOT, "--single-branch")
    there = process(topic, *arguments, "--scheduler", shared.address, "--worker-clone", str(clone))
    first, hint = there.stderr.decode().splitlines()
    assert (there.returncode, there.stdout) == (5, b"")
    assert first.startswith(f"wtxtgit: error: {clone} on a worker: git has no ")
    assert hint.startswith("wtxtgit: hint: --worker-clone is where the workers' clone is")


def test_no_clone(topic: Sealed, shared: Processes, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder in (empty, tmp_path / "gone"):
        there = process(topic, *AUDIT, "--scheduler", shared.address, "--worker-clone", str(folder))
        assert there.returncode == 5
        assert f"{folder} on a worker: " in there.stderr.decode()
    there = topic.wtxtgit(
        *AUDIT, "--scheduler", shared.address, "--worker-clone", "relative", ok=(2,)
    )
    assert b"--worker-clone needs an absolute path" in there.stderr


def test_keys_are_not_sent_in_the_clear(topic: Sealed, shared: Processes) -> None:
    key = topic.path.parent / "key"
    key.write_bytes(bytes(32))
    there = topic.wtxtgit(*REVIEW, "--key", str(key), "--scheduler", shared.address, ok=(2,))
    assert b"a key would be sent to the workers unencrypted" in there.stderr


def test_verify_of_blobs(topic: Sealed, shared: Processes) -> None:
    names = [f"topic:{MODEL}", "topic:damaged.safetensors", f":{OTHER}", "topic:gone", "gone:x"]
    here = process(topic, "verify", "--json", *names)
    there = process(topic, "verify", "--json", *names, "--scheduler", shared.address)
    assert (there.returncode, there.stdout) == (here.returncode, here.stdout)
    assert here.returncode == 1
    behind = topic.clone("behind")
    behind.git("checkout", "-q", "--detach", ROOT)
    there = process(
        topic,
        *("verify", f"HEAD:{MODEL}", "--scheduler", shared.address),
        *("--worker-clone", str(behind.path)),
    )
    assert there.returncode == 5
    assert (
        b"a worker's clone has a different 'HEAD:model.safetensors' than this one" in there.stderr
    )


@pytest.mark.parametrize(
    "arguments",
    [
        (*AUDIT, "topic", "--json"),
        pytest.param(
            (*REVIEW, "--json"),
            marks=pytest.mark.skipif(not is_nightly(), reason="it takes long: it runs every night"),
        ),
    ],
)
def test_a_worker_is_killed(topic: Sealed, lone: Processes, arguments: tuple[str, ...]) -> None:
    """It is killed while its git reads the clone's configuration, a named pipe."""
    here = process(topic, *arguments)
    clone = bare_clone(topic, "clone.git")
    gate, settings = clone / "gate", clone / "settings"
    settings.touch()
    with (clone / "config").open("a") as config:
        config.write(f"[include]\n\tpath = {gate}\n")
    os.mkfifo(gate)
    lone.add_worker()
    lone.add_worker()
    there = subprocess.Popen(
        [
            *LAUNCHER.arguments,
            *arguments,
            *("--scheduler", lone.address, "--worker-clone", str(clone)),
        ],
        cwd=topic.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with there:
        end = with_write_end(gate)
        reading, *_ = busy(lone.watcher(), bool)
        lone.workers[reading].kill()
        settings.replace(gate)
        os.close(end)
        out, err = there.communicate()
    assert (there.returncode, err) == (here.returncode, here.stderr)
    assert out == here.stdout


def test_what_workers_said_is_not_believed_without_them(
    topic: Sealed, shared: Processes, home: Path
) -> None:
    audit = ("audit", "topic", "--trust-root", ROOT)
    oid = topic.git("rev-parse", f"topic:{MODEL}").decode().strip()
    folder = home / ".local" / "state" / "wtxtgit"

    def known(name: str) -> bool:
        with ContentCache(topic.repository, folder / name) as found:
            return oid in found.facts([oid])

    first = process(topic, *audit, "--scheduler", shared.address)
    assert known(CLUSTER_KEY)
    assert not known("facts.key")
    again = process(topic, *audit, "--scheduler", shared.address)
    here = process(topic, *audit)
    assert known("facts.key")
    assert first.stdout == again.stdout == here.stdout


def test_progress(topic: Sealed, shared: Processes) -> None:
    """The same bytes are counted, whoever works."""
    repo = topic.repository
    oids = [topic.git("rev-parse", f"topic:{name}").decode().strip() for name in (MODEL, OTHER)]
    (topic.path / "text").write_bytes(text(1.0))
    names = [str(topic.path / "text")]
    here: list[int] = []
    there: list[int] = []
    Facts(repo, 1).of(oids, here.append)
    verify.verify_files(names, verify.demands(), progress=here.append)
    with connected(shared.address) as cluster:
        on_cluster = examiner(cluster, repo, None, pytest.fail)
        Facts(repo, 1, examiner=on_cluster).of(oids, there.append)
        cluster_verify.verify_files(cluster, names, verify.demands(), progress=there.append)
    assert sum(here) == sum(there) > 0


class TestDetachedTexts:
    """Workers read payload by the URL of the store, whatever their clone has of it."""

    @pytest.fixture
    def detached(self, chain: Sealed, tmp_path: Path) -> Sealed:
        """A branch with a sealed detached text, whose payload is in a folder and nowhere else."""
        chain.branch("topic")
        chain.write(".gitattributes", ATTRIBUTES)
        chain.add(".gitattributes")
        put(chain, version(1.0))
        chain.seal(MODEL)
        chain.commit()
        chain.call("store", "use", (tmp_path / "there").as_uri())
        chain.call("push")
        forget(chain)
        return chain

    def test_it_is_read_by_url(self, detached: Sealed, shared: Processes) -> None:
        command = (*AUDIT, "topic", "--json", "--scheduler", shared.address)
        done = process(detached, *command)
        assert json.loads(done.stdout)["detached"] == {"verified": 1, "held": 0}
        assert done.stderr == b""
        # Nothing of it stays in the clone, and here the text alone was looked at.
        assert not list(detached.path.glob(".git/wtxt/store/packs/*"))
        here = process(detached, *AUDIT, "topic", "--json")
        assert json.loads(here.stdout)["detached"] == {"verified": 0, "held": 1}
        review = process(detached, *REVIEW, "--json", "--scheduler", shared.address)
        (model,) = (a for a in json.loads(review.stdout)["artifacts"] if a["path"] == MODEL)
        assert "not-compared" not in [flag["risk"] for flag in model["flags"]]
        assert not list(detached.path.glob(".git/wtxt/store/packs/*"))

    def test_what_a_worker_can_not_open_is_told(self, detached: Sealed, shared: Processes) -> None:
        detached.git("config", "wtxtgit.store", "git+origin")
        detached.git("remote", "add", "origin", "../nowhere.git")
        done = process(detached, *AUDIT, "topic", "--json", "--scheduler", shared.address)
        assert json.loads(done.stdout)["detached"] == {"verified": 0, "held": 1}
        (line,) = done.stderr.decode().splitlines()
        assert line.startswith("wtxtgit: note: workers can't read payload from git+origin")

    def test_a_store_that_is_gone(self, detached: Sealed, shared: Processes) -> None:
        detached.git("config", "wtxtgit.store", "file:///nowhere/at/all")
        done = process(detached, *AUDIT, "topic", "--json", "--scheduler", shared.address)
        assert json.loads(done.stdout)["detached"] == {"verified": 0, "held": 1}
