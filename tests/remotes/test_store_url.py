"""Which remote a store has, and what a tree may name as one."""

from __future__ import annotations

import shlex

import pytest

from tests.kit import Repo
from wtxtgit.errors import UsageError
from wtxtgit.git.remotes import asked
from wtxtgit.git.repository import Repository
from wtxtgit.remotes.payload.store_url import UrlOrigin, chosen, given, use

AT = "//"
"""Before what only looks like a host."""
HOSTILE = [
    "git+ext::sh -c 'touch ran'",
    "git+ext::touch%20ran",
    "git+--upload-pack=touch ran",
    "git+-u",
    "--config=x",
    f"git+ssh:{AT}-oProxyCommand=touch/x",
    f"git+https:{AT}user:secret@example.com/x",
    f"git+https:{AT}secret@example.com/x",
    "s3://key:secret@bucket/x",
    "git+file:///somebody/x",
    "git+/somebody/x",
    "git+../x",
    "git+nowhere",
    "git+example.com:x",
    "git+http://example.com/x",
    "git+git://example.com/x",
    "file:///somebody/x",
    "/somebody/x",
    "memory://x",
    "local:///somebody/x",
    "simplecache::file:///somebody/x",
    "reference://x",
    "zip://x::s3://y",
    "s3://bucket/x?token=secret",
    f"git+https:{AT}127.0.0.1/x",
    "git+oci://example.com/x",
    "http://example.com/x",
    f"http:{AT}127.0.0.1/x",
    f"https:{AT}127.0.0.1/x",
    f"https:{AT}[::1]/x",
    f"https:{AT}0x7f000001/x",
    f"https:{AT}2130706433/x",
    f"https:{AT}127.0.0.0x1/x",
    f"https:{AT}localhost/x",
    f"https:{AT}localhost./x",
    f"https:{AT}x.localhost/x",
    f"https:{AT}metadata/x",
    "https://example.com/x?token=secret",
    "https://example.com/x#secret",
    f"https:{AT}user:secret@example.com/x",
    f"https:{AT}user@example.com/x",
    f"https:{AT}example.com:secret@127.0.0.1/x",
    f"https:{AT}example.com:/x",
    f"https:{AT}/x",
    "oci://localhost:5000/x",
    "oci://127.0.0.1:5000/x",
    "oci://registry/x",
    "oci://example.com/x:tag",
    "oci://example.com",
    "oci://EXAMPLE.com/x",
    "LFS",
    "lfs:origin",
    "lfs+",
    "lfs+origin",
    f"lfs+https:{AT}127.0.0.1/x",
    "lfs+http://example.com/x",
    f"lfs+ssh:{AT}example.com/x",
    "lfs+file:///somebody/x",
    f"lfs+https:{AT}user:secret@example.com/x",
    f"lfs+https:{AT}secret@example.com/x",
    "lfs+https://example.com/x?token=secret",
    "S3://bucket",
    "s3://bucket/\x1b[31m",
]
NOT_EVEN_OF_THE_USER = [
    "", "git+", "git+-x", "-x", "git+ext::touch ran", "simplecache::s3://x", "x", "/x",
    "http://example.com/x", f"https:{AT}/x", "https://example.com/x?y", "oci://x", "oci://x/y:tag",
    f"oci:{AT}user:secret@example.com/x", f"https:{AT}secret@example.com/x",
    f"git+https:{AT}user:secret@example.com/x",
    "lfs+", "lfs+x", "lfs+s3://x/y", "lfs+https://example.com/x#y", f"lfs+https:{AT}secret@x/y",
]  # fmt: skip


@pytest.fixture
def here(repo: Repo) -> Repo:
    repo.git("remote", "add", "origin", "https://example.com/x.git")
    return repo


def named(repo: Repo, url: str) -> None:
    repo.git("config", "--file", str(repo.path / "s"), "store.url", url)
    repo.write(".wtxt/store", (repo.path / "s").read_bytes())


def choose(repo: Repo, remote: str | None = None) -> tuple[str, str, bool]:
    found = chosen(Repository.discover(repo.path), None if remote is None else asked(remote))
    return found.url, found.origin, found.may_push


def test_the_config_comes_before_the_tree_and_that_before_the_git_remote(here: Repo) -> None:
    assert choose(here) == ("git+origin", UrlOrigin.DEFAULT, True)
    assert choose(here, "fork") == ("git+fork", UrlOrigin.DEFAULT, True)
    named(here, "s3://bucket/x")
    assert choose(here, "fork") == ("s3://bucket/x", UrlOrigin.TREE, False)
    assert use(here.repository, "file:///x").may_push
    assert choose(here) == ("file:///x", UrlOrigin.CONFIG, True)


@pytest.mark.parametrize("url", ["foo://x", "htps://example.com/x"])
def test_a_scheme_that_nothing_opens_is_refused_at_once(here: Repo, url: str) -> None:
    error, hint = here.wtxtgit("store", "use", url, ok=[2]).stderr.decode().splitlines()
    assert error == f'wtxtgit: error: "{url}" is not the URL of a store'
    for kind in ("git+REMOTE", "lfs", "oci://", "file:///", "s3://", "https://"):
        assert kind in hint
    assert here.git("config", "--get", "wtxtgit.store", ok=[1]) == b""


def test_a_store_whose_package_is_not_installed_can_be_chosen(here: Repo) -> None:
    assert here.wtxtgit("store", "use", "tosfs://bucket/x").stdout.startswith(b"tosfs://bucket/x:")


@pytest.mark.parametrize(
    "url",
    [
        "git+https://example.com/y", f"git+https:{AT}example.com:8443/y", f"git+ssh:{AT}host/y",
        "https://example.com/y", f"https:{AT}1.example.com:8443", "oci://example.com:5000/x/y",
    ],
)  # fmt: skip
def test_a_tree_may_name_what_is_elsewhere(here: Repo, url: str) -> None:
    named(here, url)
    assert choose(here) == (url, UrlOrigin.TREE, False)


@pytest.mark.parametrize("url", ["lfs", "lfs+https://example.com/y"])
def test_a_tree_may_name_servers_of_git_lfs(here: Repo, url: str) -> None:
    named(here, url)
    assert choose(here) == (url, UrlOrigin.TREE, False)
    # A server can't list: a git remote does, the one that is pushed to.
    assert chosen(here.repository, asked("fork")).git == asked("fork")
    (found,) = given(here.repository, "fork")
    assert found.url == "git+fork"
    use(here.repository, url)
    assert choose(here) == (url, UrlOrigin.CONFIG, True)
    assert chosen(here.repository).git == asked("origin")
    (found,) = given(here.repository, "fork")
    assert found.git is not None
    assert (found.url, found.git.address, found.may_push) == (url, "fork", True)
    here.git("remote", "remove", "origin")
    with pytest.raises(UsageError, match="needs a git remote"):
        choose(here)


def test_the_index_tells_where_the_work_tree_does_not(here: Repo) -> None:
    named(here, "s3://bucket/x")
    here.add(".wtxt/store")
    (here.path / ".wtxt/store").unlink()
    assert choose(here)[0] == "s3://bucket/x"


def test_nothing_is_included_and_no_link_is_followed(here: Repo) -> None:
    secret = here.path / "secret"
    secret.write_text("[store]\n\turl = s3://from/elsewhere\n")
    here.write(".wtxt/store", f"[include]\n\tpath = {secret}\n")
    assert choose(here)[0] == "git+origin"
    (here.path / ".wtxt/store").unlink()
    (here.path / ".wtxt/store").symlink_to(secret)
    assert choose(here)[0] == "git+origin"


@pytest.mark.slow
def test_hostile_urls_of_a_tree(here: Repo) -> None:
    for url in HOSTILE:
        named(here, url)
        with pytest.raises(UsageError) as raised:
            choose(here)
        told = f"{raised.value.message} {raised.value.hint}"
        assert "secret" not in told
        assert "\x1b" not in told
    assert not (here.path / "ran").exists()


@pytest.mark.parametrize("url", NOT_EVEN_OF_THE_USER)
def test_urls_that_no_engine_takes(here: Repo, url: str) -> None:
    with pytest.raises(UsageError) as raised:
        use(here.repository, url)
    assert "secret" not in raised.value.message
    assert choose(here)[0] == "git+origin"


def test_without_any_remote(repo: Repo) -> None:
    with pytest.raises(UsageError, match="no remote"):
        choose(repo)


@pytest.mark.parametrize("more", ["$(touch${IFS}ran)", "`ran`", ";ran", "&ran", "|ran", "'"])
def test_the_command_of_a_hint_says_nothing_else_to_a_shell(repo: Repo, more: str) -> None:
    """Whoever wrote the tree would have it run by whoever pastes it."""
    url = f"s3://bucket/x{more}"
    spelled = url.replace("\\", "\\\\").replace('"', '\\"')
    repo.write(".wtxt/store", f'[store]\n\turl = "{spelled}"\n')
    with pytest.raises(UsageError) as raised:
        chosen(Repository.discover(repo.path)).check_chosen()
    command = (raised.value.hint or "").rpartition("  #")[0]
    assert command == f"wtxtgit store use {shlex.quote(url)}"
