"""Links lead somewhere, and no file tells of the machine that it was written on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors, lines, page_names, tracked_files

HOSTS = {
    "docs.sigstore.dev",
    "in-toto.io",
    # OpenSSF Model Signing calls its own kind of statement by a URL of this host.
    "model_signing",
    "download.pytorch.org",
    "sqlite.org",
    "www.w3.org",
    "distributed.dask.org",
    "api.github.com",
    "docs.github.com",
    "docs.oasis-open.org",
    "example.com",
    "filesystem-spec.readthedocs.io",
    "git-lfs.github.com",
    "git-media.io",
    "git-annex.branchable.com",
    "github.com",
    "hawser.github.com",
    "json-schema.org",
    "numpy.org",
    "pkware.cachefly.net",
    "pre-commit.com",
    "raw.githubusercontent.com",
    "www.apache.org",
}
"""All hosts that a file may link to; example.com is reserved for examples."""
_URL = re.compile(rb"\b(?:https?|git|ssh|ftp)://(?:[^/\s\"'`<>)@]*@)?([^/\s\"'`<>)]*)")
# Below example.com nobody has a host; what only resembles it is what tests try to pass for it.
_NO_HOST = re.compile(
    r"|HOST|localhost|127\.0\.0\.1:.*|-.*|\{.*\}.*|(?:models\.)?example\.com(?:\.evil|:443|\?x)?"
)
_REGISTRY = re.compile(
    rb"\b(?:[\w.-]*(?:pypi|pythonhosted|npmjs|artifactory|nexus|jfrog|devpi|conda|docker|quay|ghcr)"
    rb"[\w-]*(?:\.[a-z][\w-]*)+|(?:extra-)?index[-]url|trusted[-]host|find[-]links)\b",
    re.IGNORECASE,
)
_MACHINE = re.compile(rb"(?<![\w./:$}~-])/(?:root|work|home|Users|opt|srv|mnt|workspace)(?![\w-])")


def texts() -> list[tuple[str, bytes]]:
    """All files that are text; fixtures of binary formats are no text."""
    if not (ROOT / ".git").exists():
        pytest.skip("a source tree without its repository: git clone has one")
    contents = ((str(f.relative_to(ROOT)), f.read_bytes()) for f in tracked_files())
    return [(name, content) for name, content in contents if b"\0" not in content]


def found(pattern: re.Pattern[bytes], files: list[tuple[str, bytes]]) -> list[str]:
    return [
        f"{name}:{len(content[: match.start()].splitlines())}: {match[0].decode(errors='replace')}"
        for name, content in files
        for match in pattern.finditer(content)
    ]


def test_files_are_found() -> None:
    names = {name for name, _ in texts()}
    assert {"README.md", "pyproject.toml", "wtxtgit/__init__.py", ".gitignore"} <= names


@pytest.mark.parametrize("page", page_names())
def test_links_lead_somewhere(page: str) -> None:
    for line in lines(page):
        for link in line.links:
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
            assert target.is_relative_to(ROOT), f"{line}: {link}"
            assert target.exists(), f"{line}: {link}"
            if anchor:
                names = list(anchors(str(target.relative_to(ROOT))))
                assert anchor in names, f"{line}: {link}"


def test_the_readme_leads_to_every_page() -> None:
    linked = {link.partition("#")[0] for line in lines("README.md") for link in line.links}
    assert set(page_names()) - {"README.md"} <= linked


def test_pages_and_code_cite_sections_that_exist() -> None:
    """As in `docs/spec/wtxt.md`, section "Row blocking"."""
    cited = re.compile(rb"`?(docs/[\w/]+\.md)`?,\s+(?:#\s+)?(?:[Ss]ection\s+)?\"([^\"\n]+)\"")
    count = 0
    for name, content in texts():
        for match in cited.finditer(content):
            page, section = match[1].decode(), match[2].decode()
            headings = {line.section.replace("`", "") for line in lines(page)}
            count += 1
            assert section.replace("`", "") in headings, f"{name}: {page}, {section}"
    assert count >= 10


@pytest.mark.slow
def test_no_registry_is_named() -> None:
    # GitHub's, which a target may be: nothing is installed from there.
    assert [place for place in found(_REGISTRY, texts()) if not place.endswith(": ghcr.io")] == []


def test_no_path_of_a_developers_machine_is_named() -> None:
    files = texts()
    assert found(_MACHINE, files) == []
    here = [str(ROOT), str(Path(ROOT, ".venv"))]
    for path in here if len(ROOT.parts) > 2 else here[1:]:
        assert found(re.compile(re.escape(path.encode()) + rb"\b"), files) == []


def test_links_lead_to_known_hosts() -> None:
    hosts = {match[1].decode() for _, content in texts() for match in _URL.finditer(content)}
    assert {host for host in hosts if host.isascii() and not _NO_HOST.fullmatch(host)} <= HOSTS


class TestThePatterns:
    """They find what they are for, and no more."""

    @pytest.mark.parametrize("where", [b"root/x", b"work/main", b"home/me", b"Users/me/x"])
    def test_paths(self, where: bytes) -> None:
        for before in (b"", b" ", b'"', b"=", b"(", b"`"):
            assert _MACHINE.search(before + b"/" + where)
        for before in (b"a", b".", b"https:/" + b"/host", b"$HOME"):
            assert not _MACHINE.search(before + b"/" + where)
        assert not _MACHINE.search(b"/" + where.replace(b"/", b"-s/"))

    @pytest.mark.parametrize("name", ["pypi", "pythonhosted", "artifactory"])
    def test_registries(self, name: str) -> None:
        for before in ("", "files.", "my-mirror."):
            assert _REGISTRY.search(f"see {before}{name}.org/x".encode())
        assert not _REGISTRY.search(f"see {name} alone".encode())

    def test_settings_of_registries(self) -> None:
        assert _REGISTRY.search(b"--index" + b"-url x")
        assert not _REGISTRY.search(b"an index of urls, a registry")
