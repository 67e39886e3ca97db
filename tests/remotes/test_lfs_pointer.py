"""Which files are pointers of git-lfs: `docs/spec/containers.md`, "Pointers of git-lfs"."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from wtxtgit.remotes.lfs_pointer import (
    MOST_POINTER,
    LfsObject,
    format_pointer,
    parse_pointer,
    read_pointer,
)

SHA = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
V1 = "https://git-lfs.github.com/spec/v1"
STANDARD = f"version {V1}\noid sha256:{SHA}\nsize 12345\n"
EXTENDED = STANDARD.replace("oid", f"ext-0-foo sha256:{SHA}\noid")


def long(size: int) -> str:
    """A pointer of so many bytes, with an extension whose name is long."""
    return EXTENDED.replace("foo", "f" * (size - len(EXTENDED) + 3))


WRITTEN = {"standard": STANDARD, "extended": EXTENDED, "longest": long(MOST_POINTER)}
"""As git-lfs writes them."""
READ = {
    "no last LF": STANDARD[:-1],
    "CRLF": STANDARD.replace("\n", "\r\n"),
    "white space at the end": STANDARD + "\n \t\r\n",
    "an empty line": STANDARD.replace("\noid", "\n\noid"),
    "pre-release": STANDARD.replace(V1, "https://hawser.github.com/spec/v1"),
    "alpha": STANDARD.replace(V1, "http://git-media.io/v/2"),
    "extensions in another order": EXTENDED.replace("ext-0", f"ext-1-b sha256:{SHA}\next-0"),
    "no bytes": STANDARD.replace("12345", "0"),
    "leading zero": STANDARD.replace("12345", "0012345"),
}
"""As git-lfs reads them besides."""
OURS = {
    "another key": STANDARD.replace("oid", "author x y\noid"),
    "another key at the end": STANDARD + "x-key \u00e9\n",
    "another order": f"version {V1}\nsize 12345\noid sha256:{SHA}\n",
}
"""Those that its specification lets others write, and those out of order."""
NONE = {
    "nothing": "",
    "the version alone": f"version {V1}\n",
    "another version": STANDARD.replace("v1", "v2"),
    "a version that goes on": STANDARD.replace("v1", "v1 "),
    "no version": STANDARD.partition("\n")[2],
    "white space before it": "\n" + STANDARD,
    "no oid": f"version {V1}\nsize 12345\n",
    "no size": STANDARD.partition("size")[0],
    "two oids": STANDARD + f"oid sha256:{SHA}\n",
    "two sizes": STANDARD + "size 1\n",
    "another hash": STANDARD.replace("sha256", "sha1"),
    "a short oid": STANDARD.replace(SHA, SHA[:-1]),
    "a long oid": STANDARD.replace(SHA, SHA + "0"),
    "an oid in upper case": STANDARD.replace(SHA, SHA.upper()),
    "a size below zero": STANDARD.replace("12345", "-1"),
    "no number": STANDARD.replace("12345", "1e4"),
    "a huge size": STANDARD.replace("12345", "9" * 20),
    "a line of one word": STANDARD + "hello\n",
    "a TAB": STANDARD.replace("oid ", "oid\t"),
    "an empty value": STANDARD + "key \n" + "x y\n",
    "a CR in a line": STANDARD + "key a\rb\n",
    "another key in upper case": STANDARD + "Key x\n",
}
"""What git-lfs reads as none either."""
cases = pytest.mark.parametrize


@cases("content", [*WRITTEN.values(), *READ.values(), *OURS.values()])
def test_a_pointer(content: str) -> None:
    pointer = read_pointer(content.encode())
    assert pointer is not None
    assert pointer.to.sha256 == SHA
    assert pointer.is_extended == ("ext-" in content)
    assert parse_pointer(content.encode()) == (None if pointer.is_extended else pointer.to)


@cases("content", [*NONE.values(), long(MOST_POINTER + 1)], ids=[*NONE, "too long"])
def test_none(content: str) -> None:
    assert read_pointer(content.encode()) is None


def test_bytes_that_are_no_text() -> None:
    assert read_pointer(STANDARD.encode() + b"key \xff\n") is None


def test_what_is_written_is_read() -> None:
    to = LfsObject(SHA, 12345)
    assert format_pointer(to) == STANDARD.encode()
    assert parse_pointer(format_pointer(to)) == to


@pytest.mark.skipif(
    shutil.which("git-lfs") is None, reason="git-lfs is not installed: apt install git-lfs"
)
@pytest.mark.slow
def test_what_git_lfs_takes_for_one_is_one(tmp_path: Path) -> None:
    """It takes more: what is longer, and white space before the first line."""
    everything = WRITTEN | READ | OURS | NONE
    taken = set()
    for name, content in everything.items():
        file = tmp_path / "pointer"
        file.write_bytes(content.encode())
        asked = ["git-lfs", "pointer", "--check", "--file", str(file)]
        done = subprocess.run(asked, capture_output=True, check=False)
        if done.returncode == 0:
            taken.add(name)
    assert taken - {"nothing"} == {*WRITTEN, *READ, "white space before it"}
