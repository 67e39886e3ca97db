"""The two migrations: what an import and an export do to the files and lines of a commit."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git.attributes import CHECKOUT
from wtxtgit.git.repository import FILTERS, UNSET, UNSPECIFIED
from wtxtgit.io.files import shown_path
from wtxtgit.rewrite.lines import ImportLines, added_lines, exported, imported
from wtxtgit.rewrite.walk import Values

LFS = b"lfs"
"""The driver of git-lfs, and the form of files that become its pointers."""
RAW = b"raw"
"""The form of files that git stores as they are."""
_CHANGING = [CHECKOUT.index(name) for name in ("ident", "working-tree-encoding")]
_TEXT = CHECKOUT.index("text")


class ImportMigration:
    """Files become texts, in the form named by their driver."""

    makes_texts = True

    def __init__(self, import_lines: ImportLines) -> None:
        self.import_lines = import_lines

    def content(self, content: bytes | None, *, at_top: bool) -> bytes | None:
        return imported(content, self.import_lines, at_top=at_top)

    def begins(self, content: bytes) -> bool:
        return self.import_lines.replaces(content)

    @cached_property
    def lines(self) -> bytes | None:
        return added_lines(self.import_lines) if self.import_lines.patterns else None

    def candidates(self, before: Iterable[Values], top: Values) -> set[bytes]:
        if self.import_lines.patterns:
            return {path for path, values in top.items() if values[0] in FILTERS}
        return {path for some in before for path, values in some.items() if values[0] == LFS}

    def forms(self, before: Values, after: Values) -> dict[bytes, bytes]:
        return {
            path: values[0]
            for path, values in after.items()
            if _is_ours_alone(values) and (self.import_lines.patterns or before[path][0] == LFS)
        }


class ExportMigration:
    """Texts become files, or pointers of git-lfs if its own lines apply to them afterwards."""

    makes_texts = False
    lines = None

    def __init__(self, *, to_lfs: bool) -> None:
        self._to_lfs = to_lfs

    def content(self, content: bytes | None, *, at_top: bool) -> bytes | None:
        return exported(content, to_lfs=self._to_lfs)

    def begins(self, content: bytes) -> bool:
        return self.content(content, at_top=True) != content

    def candidates(self, before: Iterable[Values], top: Values) -> set[bytes]:
        return {path for some in before for path, values in some.items() if values[0] in FILTERS}

    def forms(self, before: Values, after: Values) -> dict[bytes, bytes]:
        forms = {}
        for path, values in before.items():
            if values[0] not in FILTERS:
                continue
            driver = after[path][0]
            if driver in FILTERS:
                raise EnvironmentFailure(
                    f"{shown_path(path)}: a macro in a gitattributes file keeps it as text, and "
                    f"macros can't be rewritten"
                )
            if driver == LFS and not self._to_lfs:
                raise EnvironmentFailure(
                    f"{shown_path(path)}: a git-lfs line in .gitattributes still matches it",
                    hint="--to-lfs turns the files into git-lfs pointers",
                )
            forms[path] = LFS if driver == LFS else RAW
        return forms


def _is_ours_alone(values: tuple[bytes, ...]) -> bool:
    """Whether only our filter changes a file between work tree and repository."""
    conversions = {values[place] for place in _CHANGING}
    return values[0] in FILTERS and values[_TEXT] == UNSET and conversions <= {UNSET, UNSPECIFIED}
