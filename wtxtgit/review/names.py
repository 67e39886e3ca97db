"""Names that read as another name: characters that are not shown, and letters that look alike.

Spec: `docs/review.md`, section "Risks".
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from wtxtgit.report.diff import DiffReport, TensorStatus

_UNSHOWN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Unicode's categories of characters that are not shown, or that turn others round."""
_ALIKE = frozenset({"ARMENIAN", "CHEROKEE", "COPTIC", "CYRILLIC", "FULLWIDTH", "GREEK", "LISU",
                    "MATHEMATICAL"})  # fmt: skip
"""The first words of the names of letters that look like Latin ones."""


def misleading(report: DiffReport) -> Iterator[tuple[str, str]]:
    """Yield names that only the side after has, each with the reason why it may mislead."""
    come = (TensorStatus.ADDED, TensorStatus.RENAMED)
    new = [
        *(tensor.name for tensor in report.tensors if tensor.status in come),
        *(part.name for part in report.parts if part.name and part.status in come),
        *(change.path for change in report.metadata if change.kind in come),
    ]
    # Of a new file nothing shows which letters are usual there.
    usual = set(_ALIKE) if not report.a else _scripts(_old_names(report))
    for name in new:
        # Nearly all names are ASCII.
        if name.isascii() and name.isprintable():
            continue
        hidden = next((char for char in name if unicodedata.category(char) in _UNSHOWN), None)
        if hidden is not None:
            yield name, f"the name has U+{ord(hidden):04X}, which is not shown"
        elif other := sorted(_scripts((name,)) - usual):
            yield name, f"the name has letters that look like Latin ones ({other[0].lower()})"


def _old_names(report: DiffReport) -> Iterator[str]:
    for tensor in report.tensors:
        if tensor.status is not TensorStatus.ADDED:
            yield tensor.base_name or tensor.name


def _scripts(names: Iterable[str]) -> set[str]:
    """Return the scripts of letters in these names that look like Latin ones."""
    chars = {char for name in names if not name.isascii() for char in name if char.isalpha()}
    return {unicodedata.name(char, "").partition(" ")[0] for char in chars} & _ALIKE
