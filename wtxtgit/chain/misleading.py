"""Names that mislead: what stands in a file's way, twins, checkpoints that nobody tracks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache

from wtxtgit.git.attributes import FILE_NAME, Line
from wtxtgit.git.trees import Entry
from wtxtgit.model.ledger import LEDGER_SUFFIX

ENDINGS = (
    b".fold", b".mind", b".aero", b".checkpoint", b".taridx", b".safetensors", b".npz", b".npy",
    b".pt", b".pth", b".gguf",
)  # fmt: skip
"""How names of checkpoints end."""

_FILTER = b"filter=wtxt"
# HFS+ passes these over, Technical Note TN1150, "Unicode Subtleties"; git's utf8.c has the list.
_PASSED_OVER = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF]
)
_LAST = re.compile(r"[ .]+$")


class Folder:
    """What stands above and below paths of a tree."""

    def __init__(self, files: Mapping[bytes, Entry]) -> None:
        self._files = files
        self._folders = {above for path in files for above in above_of(path)}

    def obstacle(self, path: bytes) -> str | None:
        """What keeps a regular file from standing at a path, if anything."""
        if path in self._folders:
            return "a folder stands in its place"
        for above in above_of(path):
            entry = self._files.get(above)
            if entry is not None:
                what = "file" if entry.is_file else "link or submodule"
                return f"a {what} stands in the place of the folder {_shown(above)}"
        return None


def twins(files: Collection[bytes], paths: Iterable[bytes]) -> dict[bytes, bytes]:
    """Of each path the other one, if any, that some file system writes to the same file.

    Names that differ in case, in how Unicode composes them, or in what HFS+
    and NTFS pass over. Folders count as well.
    """
    # Most trees are all of lower-case ASCII: there names can't meet.
    standing: dict[str, bytes] = {}
    met: dict[str, bytes] = {}
    for path in files:
        for one in (path, *above_of(path)):
            name = _folded(one)
            other = standing.setdefault(name, one)
            if other != one:
                met[name] = one
    if not met:
        return {}
    found: dict[bytes, bytes] = {}
    for path in paths:
        for one in (path, path + LEDGER_SUFFIX, *above_of(path)):
            name = _folded(one)
            if name in met:
                other = standing[name] if standing[name] != one else met[name]
                found.setdefault(path, other)
    return found


def attribute_twins(files: Iterable[bytes]) -> list[bytes]:
    """Files that some file system opens where git asks for a gitattributes file, and others not."""
    name = FILE_NAME.encode()
    last = ((path, path.rpartition(b"/")[2]) for path in files)
    return [path for path, one in last if one != name and _folded_name(one) == FILE_NAME]


def untracked(
    files: Iterable[bytes], artifacts: Collection[bytes], lines: Iterable[Line]
) -> Iterator[tuple[bytes, str]]:
    """Files that look like checkpoints and are no artifacts, with the reason."""
    patterns = {
        line.pattern.rpartition(b"/")[2]
        for line in lines
        if line.pattern is not None and _FILTER in line.attributes
    }
    plain = {pattern for pattern in patterns if pattern.strip(b"*")}
    for path in files:
        if path in artifacts:
            continue
        name = path.rpartition(b"/")[2]
        if any(fnmatchcase(name.decode("latin-1"), one.decode("latin-1")) for one in plain):
            yield path, "its name is one of those that are tracked, and it is not"
        elif name.lower().endswith(ENDINGS):
            yield path, "its name is a checkpoint's, and nothing tracks or seals it"


@cache
def _folded_name(name: bytes) -> str:
    if name.isascii() and name.islower() and not name.endswith((b".", b" ")):
        return name.decode("ascii")
    text = name.decode("utf-8", "surrogateescape").translate(_PASSED_OVER)
    text = unicodedata.normalize("NFD", text).casefold()
    return _LAST.sub("", unicodedata.normalize("NFC", text))


def _folded(path: bytes) -> str:
    return "/".join(map(_folded_name, path.split(b"/")))


def above_of(path: bytes) -> Iterator[bytes]:
    """The folders above a path, the nearest first."""
    end = path.rfind(b"/")
    while end > 0:
        yield path[:end]
        end = path.rfind(b"/", 0, end)


def _shown(path: bytes) -> str:
    return ascii(path.decode("utf-8", "backslashreplace"))
