"""`git+URL#REV:PATH` where commands and Python take a checkpoint: another repository's file."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import wtxtgit
from tests.e2e.sealed import MODEL, Sealed, checkpoint
from tests.remotes.servers import git_backend
from wtxtgit.errors import EnvironmentFailure, InputError, RemoteRefused, UsageError
from wtxtgit.remotes.git_urls import parse_git_url, repository_url

pytestmark = pytest.mark.slow


@pytest.fixture
def there(chain: Sealed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sealed:
    """A repository with generations and a bare clone, `there.git`; the cache is empty."""
    chain.generation(12.0)
    chain.git("tag", "-a", "-m", "two", "v2")
    chain.generation(13.0, name=f"sub/{MODEL}")
    chain.generation(14.0)
    bare = chain.path.parent / "there.git"
    chain.git("clone", "-q", "--bare", str(chain.path), str(bare))
    chain.git("-C", str(bare), "config", "uploadpack.allowFilter", "true")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    return chain


def spelled(repo: Sealed, rest: str) -> str:
    return f"git+file://{repo.path.parent}/there.git#{rest}"


def first(name: str) -> float:
    return float(wtxtgit.load(name)["first"][0])


@pytest.mark.parametrize(
    ("rest", "value"),
    [
        (f"main:{MODEL}", 14.0),
        (f"HEAD:sub/{MODEL}", 13.0),
        (f"v2:{MODEL}", 12.0),
        (f"HEAD~2:{MODEL}", 12.0),
        (f"main^^1:{MODEL}", 12.0),
        (f"v2~1:{MODEL}", 1.0),
        (f"main~2:{MODEL}@latest", 12.0),
        (f"main:{MODEL}@gen:2", 12.0),
        (f"v2:{MODEL}@latest", 12.0),
        (f"main:{MODEL}@signed-by:alice@example.com", 14.0),
    ],
)
def test_commands_and_python_take_it(
    there: Sealed, rest: str, value: float, tmp_path: Path
) -> None:
    name = spelled(there, rest)
    assert first(name) == value
    with wtxtgit.open(name) as opened:
        assert opened["first"][0] == value
    out = tmp_path / "out.safetensors"
    there.call("restore", name, "-o", str(out))
    assert out.read_bytes() == checkpoint(value)
    there.call("verify", name)
    there.call("inspect", name)
    there.call("emit", name, "-o", str(tmp_path / "out.wtxt"))
    there.call("convert", name, str(tmp_path / "out.npz"))
    report = there.call("diff", "--json", name, str(out)).report
    assert [one for one in report["tensors"] if one["status"] != "same"] == []


def test_a_full_id_needs_no_server_once_it_is_here(there: Sealed) -> None:
    name = spelled(there, f"{there.oid('v2')}:{MODEL}")
    assert first(name) == 12.0
    shutil.rmtree(there.path.parent / "there.git")
    assert first(name) == 12.0
    with pytest.raises(EnvironmentFailure):
        first(spelled(there, f"main:{MODEL}"))


def test_an_ancestor_of_a_full_id(there: Sealed) -> None:
    name = spelled(there, f"{there.head}~2:{MODEL}")
    assert first(name) == 12.0
    shutil.move(there.path.parent / "there.git", there.path.parent / "away")
    assert first(name) == 12.0


def test_of_a_repository_that_names_objects_by_sha256(there: Sealed, tmp_path: Path) -> None:
    there.git("init", "-q", "--object-format=sha256", str(tmp_path / "long"))
    (tmp_path / "long" / MODEL).write_bytes(checkpoint(12.0))
    there.git("-C", str(tmp_path / "long"), "add", MODEL)
    there.git("-C", str(tmp_path / "long"), "commit", "-q", "-m", "one")
    assert first(f"git+file://{tmp_path}/long#main:{MODEL}") == 12.0


def test_a_branch_is_asked_for_again(there: Sealed) -> None:
    name = spelled(there, f"main:{MODEL}")
    assert first(name) == 14.0
    there.generation(15.0)
    there.git("push", "-q", str(there.path.parent / "there.git"), "main")
    assert first(name) == 15.0


def test_only_what_is_read_is_fetched(there: Sealed, tmp_path: Path) -> None:
    first(spelled(there, f"main:{MODEL}"))
    (clone,) = (tmp_path / "cache/wtxtgit/clones").iterdir()
    kinds = there.git("-C", str(clone), "cat-file", "--batch-all-objects", "--batch-check")
    assert kinds.count(b" blob ") == 1
    assert kinds.count(b" commit ") > 3
    assert not list((clone / "hooks").glob("*"))


def test_a_server_on_loopback(there: Sealed) -> None:
    with git_backend(there.path.parent) as host:
        folder = "//".join(("git+http:", host))
        name = f"{folder}/there.git#main:{MODEL}"
        assert first(name) == 14.0
        assert first(f"{name}@gen:2") == 12.0
        with pytest.raises(RemoteRefused, match="no such branch or tag"):
            first(f"{folder}/there.git#none:{MODEL}")
        with pytest.raises(RemoteRefused):
            first(f"{folder}/none.git#main:{MODEL}")


def test_a_set_by_its_index(there: Sealed) -> None:
    for number in (1, 2):
        there.write(f"set/model-0000{number}-of-00002.safetensors", checkpoint(float(number)))
    index = {"metadata": {}, "weight_map": {}}
    part = "model-0000{}-of-00002.safetensors"
    for number in (1, 2):
        (there.path / "set" / part.format(number)).unlink()
        wtxtgit.dump(
            {f"w{number}": np.full(4, number, "f4")},
            there.path / "set" / part.format(number),
        )
        index["weight_map"][f"w{number}"] = part.format(number)
    there.write("set/model.safetensors.index.json", json.dumps(index).encode())
    there.commit_all()
    there.git("push", "-q", str(there.path.parent / "there.git"), "main")
    loaded = wtxtgit.load(spelled(there, "main:set/model.safetensors.index.json"))
    assert {name: float(array[0]) for name, array in loaded.items()} == {"w1": 1.0, "w2": 2.0}


def test_what_there_is_not(there: Sealed) -> None:
    with pytest.raises(InputError, match="no such file"):
        first(spelled(there, "main:none"))
    with pytest.raises(InputError, match="no such file"):
        first(spelled(there, "main:sub"))
    with pytest.raises(EnvironmentFailure):
        first(spelled(there, f"{'0' * 40}:{MODEL}"))
    for lacking in ("main~99", "main^2", f"main~{'9' * 30}", f"{there.head}~99"):
        with pytest.raises(RemoteRefused, match=f"has no commit {re.escape(lacking)}$"):
            first(spelled(there, f"{lacking}:{MODEL}"))
    with pytest.raises(InputError, match="no generation"):
        first(spelled(there, f"main:{MODEL}@gen:9"))
    there.call("restore", spelled(there, f"main:{MODEL}"), ok=(2,))


@pytest.mark.parametrize(
    "target",
    [
        "git+ext:||sh -c touch% pwned#main:m",
        "git+ext::sh -c touch% pwned#main:m",
        "git+fd:||17#main:m",
        "git+http:||example.com/x.git#main:m",
        "git+ftp:||example.com/x.git#main:m",
        "git+https:||user:secret@example.com/x.git#main:m",
        "git+https:||token@example.com/x.git#main:m",
        "git+ssh:||-oProxyCommand=touch/x#main:m",
        "git+ssh:||a@-oProxyCommand=touch/x#main:m",
        "git+ssh:||example.com/--upload-pack=touch#main:m",
        "git+https:||example.com/x.git?a=b#main:m",
        "git+https:||example.com/x y.git#main:m",
        "git+https:||example.com/x.git#--upload-pack=touch:m",
        "git+https:||example.com/x.git#+main:m",
        "git+https:||example.com/x.git#main..other:m",
        "git+https:||example.com/x.git#^main:m",
        "git+https:||example.com/x.git#~1:m",
        "git+https:||example.com/x.git#main^{/x}:m",
        "git+https:||example.com/x.git#main^0x:m",
        "git+https:||example.com/x.git#main:../m",
        "git+https:||example.com/x.git#main:/m",
        "git+https:||example.com/x.git#main:.git//config",
        "git+https:||example.com/x.git#main",
        "git+https:||example.com/x.git",
    ],
)
def test_hostile_spellings_are_refused_before_anything_runs(target: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_git_url(target.replace("||", "//"))
    assert "secret" not in caught.value.message
    assert "token" not in caught.value.message


@pytest.mark.parametrize(
    ("spelled", "url"),
    [
        ("git+https:||example.com/x", "https:||example.com/x"),
        ("https:||example.com/x.git", "https:||example.com/x.git"),
        ("https:||example.com/x.git/", "https:||example.com/x.git/"),
        ("ssh:||git@example.com/x", "ssh:||git@example.com/x"),
        ("git:||example.com/x", "git:||example.com/x"),
        ("git@example.com:team/x", "git@example.com:team/x"),
        # Files, and what begins like a repository.
        ("https:||example.com/x.fold", None),
        ("git+https:||example.com/x.git#main:m", None),
        ("HEAD:x.git", None),
        ("x.git", None),
        ("there@host:x", None),
    ],
)
def test_repositories_are_known_by_their_urls(
    spelled: str, url: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there@host:x").touch()
    expected = None if url is None else url.replace("||", "//")
    assert repository_url(spelled.replace("||", "//")) == expected


@pytest.mark.parametrize(
    "spelled",
    [
        "git+ext:||sh -c touch% pwned",
        "ext:||sh -c touch% pwned.git",
        "http:||example.com/x.git",
        "https:||user:secret@example.com/x.git",
        "https:||token@example.com/x.git",
        "https:||example.com/x?a=b.git",
        "https:||example.com/x#b.git",
        "ssh:||-oProxyCommand=touch/x",
        "ssh:||example.com/--upload-pack=touch",
        "-o@example.com:x",
        "a@-oProxyCommand:x",
        "a@example.com:--upload-pack=touch",
        "a@example.com:x\ny",
    ],
)
def test_hostile_repositories_are_refused_before_anything_runs(spelled: str) -> None:
    with pytest.raises(UsageError) as caught:
        repository_url(spelled.replace("||", "//"))
    assert "secret" not in caught.value.message
    assert "token" not in caught.value.message


def test_hooks_and_config_of_the_other_repository_run_nothing(
    there: Sealed, tmp_path: Path
) -> None:
    bare, ran = there.path.parent / "there.git", tmp_path / "ran"
    for hook in ("post-checkout", "reference-transaction", "post-update", "pre-receive"):
        file = bare / "hooks" / hook
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\ntouch {ran}\n")
        file.chmod(0o755)
    for key in ("core.fsmonitor", "core.sshCommand", "uploadpack.packObjectsHook"):
        there.git("-C", str(bare), "config", key, f"touch {ran}")
    there.write(".gitattributes", b"* filter=evil\n")
    assert first(spelled(there, f"main:{MODEL}")) == 14.0
    assert not ran.exists()


def test_a_hook_of_gits_reads_no_other_repository(
    there: Sealed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", os.fspath(there.path / ".git"))
    with pytest.raises(EnvironmentFailure, match="hook"):
        first(spelled(there, f"main:{MODEL}"))
