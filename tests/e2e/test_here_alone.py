"""What git filters by settings of one clone alone: seals, checks and doctor say it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.sealed import ROOT, Sealed, assert_holds
from tests.kit import ATTRIBUTES, Repo, safetensors
from tests.kit.pasting import HERE, make_pastable, paste
from wtxtgit.text.grammar import is_text

NAME = "M.SAFETENSORS"
LINK = "link.safetensors"
PATTERN = f"*.SAFETENSORS {ATTRIBUTES}\n"
SAID = "only core.ignoreCase or attributes of this clone have"


def by_case(repo: Repo) -> None:
    repo.git("config", "core.ignoreCase", "true")


def by_info(repo: Repo) -> None:
    repo.write(".git/info/attributes", PATTERN)


def by_a_file_of_the_user(repo: Repo) -> None:
    repo.git("config", "core.attributesFile", "../mine")
    (repo.path.parent / "mine").write_text(PATTERN)


def by_the_file_that_git_looks_for(repo: Repo) -> None:
    file = Path.home() / ".config/git/attributes"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(PATTERN)


WAYS: list[Callable[[Repo], None]] = [
    by_case, by_info, by_a_file_of_the_user, by_the_file_that_git_looks_for,
]  # fmt: skip
ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def repo(repo: Repo, driver: None, keys: None) -> Sealed:
    """A repository with a signer, where *.safetensors is tracked, and hints can be pasted."""
    sealed = Sealed(repo.path)
    sealed.call("track", "*.safetensors")
    sealed.call("signers", "add", "alice@example.com", "alice")
    sealed.git("config", "wtxtgit.signingKey", "alice")
    sealed.git("add", "-A")
    sealed.call("seal", "--staged")
    sealed.commit()
    sealed.git("tag", ROOT)
    make_pastable(sealed)
    return sealed


def filtered_here_alone(repo: Sealed, way: Callable[[Repo], None]) -> None:
    way(repo)
    repo.write(NAME, safetensors(1.0))
    repo.git("add", NAME)
    assert is_text(repo.blob(NAME))


def hints(printed: str) -> list[str]:
    return re.findall(rf"{SAID}.*\n(?:wtxtgit: hint|here-alone): (.*)", printed)


@ways
def test_a_seal_says_what_it_leaves_out(repo: Sealed, way: Callable[[Repo], None]) -> None:
    filtered_here_alone(repo, way)
    (hint,) = hints(repo.call("seal", "--staged", folder=HERE).err)
    for command in hint.split(", then "):
        paste(repo, command)
    assert SAID not in repo.call("seal", "--staged").err
    repo.commit()
    assert_holds(repo)
    Path.home().joinpath(".config/git/attributes").unlink(missing_ok=True)
    clone = Repo(repo.path).clone("clone", "-c", "core.ignoreCase=false")
    assert (clone.path / NAME).read_bytes() == safetensors(1.0)
    assert clone.status() == b""


@ways
def test_doctor_names_it(repo: Sealed, way: Callable[[Repo], None]) -> None:
    filtered_here_alone(repo, way)
    repo.commit()
    told = repo.call("doctor", "--json", ok=(0, 1), folder=HERE).report["checks"]
    (one,) = (check for check in told if check["name"] == "here-alone")
    assert (one["level"], SAID in one["message"]) == ("warn", True)
    for command in one["fix"].split(", then "):
        paste(repo, "git commit -qm tracked" if command == "commit" else command)
    told = repo.call("doctor", "--json", ok=(0, 1)).report["checks"]
    assert next(c["level"] for c in told if c["name"] == "here-alone") == "ok"


@ways
@pytest.mark.parametrize("has_signers", [True, False])
def test_the_hook_warns(repo: Sealed, way: Callable[[Repo], None], has_signers: bool) -> None:
    if not has_signers:
        repo.git("rm", "-q", "-r", ".wtxt", ".gitattributes")
        repo.git("update-ref", "-d", "HEAD")
        repo.write(".gitattributes", f"*.safetensors {ATTRIBUTES}\n")
        repo.git("add", ".gitattributes")
    repo.call("install", "--local", "--hooks")
    filtered_here_alone(repo, way)
    said = repo.run("git", "commit", "-qm", "x").stderr.decode()
    assert f"wtxtgit: warning: {NAME}: unfiltered-text: {SAID}" in said
    assert f"wtxtgit track -- {NAME} && git add -- .gitattributes" in said
    repo.git("reset", "-q", "--soft", "HEAD^") if has_signers else repo.git(
        "update-ref", "-d", "HEAD"
    )
    paste(repo, f"wtxtgit track -- {NAME} && git add -- .gitattributes", "")
    assert SAID not in repo.run("git", "commit", "-qm", "x", ok=(0, 1)).stderr.decode()


def test_names_that_differ_in_case_alone_are_nothing_new_elsewhere(repo: Sealed) -> None:
    repo.write(NAME, safetensors(1.0))
    repo.git("add", NAME)
    assert not is_text(repo.blob(NAME))
    assert SAID not in repo.call("check", "--staged", ok=(0, 1)).out
    told = repo.call("doctor", "--json", ok=(0, 1)).report["checks"]
    assert next(c["level"] for c in told if c["name"] == "here-alone") == "ok"


@pytest.fixture
def linked(repo: Sealed) -> Sealed:
    """A link under a tracked name, in a clone without links."""
    (repo.path / LINK).symlink_to("elsewhere.safetensors")
    repo.git("add", "-A", ":!bin")
    repo.commit()
    repo.git("config", "core.symlinks", "false")
    (repo.path / LINK).unlink()
    repo.git("checkout", "--", LINK)
    assert (repo.path / LINK).read_bytes() == b"elsewhere.safetensors"
    return repo


def links(repo: Sealed) -> dict[str, str]:
    told = repo.call("doctor", "--json", ok=(0, 1), folder=HERE).report["checks"]
    (one,) = (check for check in told if check["name"] == "links")
    return {key: one[key] for key in ("level", "message", "fix")}


def test_doctor_names_links_where_there_are_none(linked: Sealed) -> None:
    """Git looks at their attributes alone, and would make a text of the target."""
    assert linked.status() == f" M {LINK}\0".encode()
    told = links(linked)
    assert (told["level"], LINK in told["message"]) == ("warn", True)
    for command in told["fix"].split(", then "):
        paste(linked, "git commit -qm out" if command == "commit" else command)
    assert links(linked)["level"] == "ok"
    assert linked.status() == b""
    linked.git("add", "--renormalize", ".")
    assert linked.blob(LINK) == b"elsewhere.safetensors"


def test_doctor_names_links_that_became_texts(linked: Sealed) -> None:
    linked.git("add", LINK)
    assert is_text(linked.blob(LINK))
    linked.commit()
    told = links(linked)
    assert (told["level"], LINK in told["message"]) == ("error", True)
    command = told["fix"].partition("; ")[2].removesuffix(" takes the link of one")
    linked.git("config", "core.symlinks", "true")
    paste(linked, command.replace("COMMIT", "HEAD^"))
    assert linked.blob(LINK) == b"elsewhere.safetensors"
    assert links(linked)["level"] == "ok"
