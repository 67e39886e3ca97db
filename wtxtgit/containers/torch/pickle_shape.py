"""What a pickle holds besides its numbers, which a comparison tells one by one.

Nothing is executed: opcodes are read. Spec: `docs/diff.md`, "All other bytes"
"""

from __future__ import annotations

import pickletools
import re
from hashlib import sha256

from wtxtgit.io.view import Buffer

MOST = 4 * 1024 * 1024
"""Longer pickles, in bytes, are not looked at: each opcode takes about a microsecond."""
_NUMBERS = frozenset({"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"})
_DISCARDING = frozenset({"POP", "POP_MARK", "DUP"})
"""Opcodes with which a pickle may hold what is not in its value."""
_TEXTS = frozenset({"BINUNICODE", "SHORT_BINUNICODE"})
_DIGITS = re.compile(r"[0-9]+")


def shape_of(raw: Buffer) -> bytes | None:
    """Return a hash that is the same for all numbers, also in texts, and all lengths of their runs.

    None if there may be numbers in the pickle that are not in its value, or bytes after it.
    """
    if len(raw) > MOST:
        return None
    shape = sha256()
    was_number = False
    end = 0
    try:
        for opcode, value, at in pickletools.genops(bytes(raw)):
            if opcode.name in _DISCARDING:
                return None
            is_number = opcode.name in _NUMBERS
            if not (is_number and was_number):
                told = _DIGITS.sub("#", str(value)) if opcode.name in _TEXTS else value
                word = "number" if is_number else f"{opcode.name} {told!r}"
                shape.update(word.encode("utf-8", "surrogatepass") + b"\n")
            was_number, end = is_number, (at or 0) + 1
    except ValueError:
        return None
    return shape.digest() if end == len(raw) else None
