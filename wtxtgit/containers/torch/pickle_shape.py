"""What a pickle holds besides its numbers and texts, which a comparison tells one by one.

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
    """Return a hash that is the same for all numbers and texts, and all lengths of runs of numbers.

    Of a pickle that takes names of globals from texts (protocol 4), for texts that differ only in
    their digits. None if the pickle may hold what is not in its value, or if bytes follow it.
    """
    if len(raw) > MOST:
        return None
    shape, named = sha256(), sha256()
    was_number = has_names = False
    end = 0
    try:
        for opcode, value, at in pickletools.genops(bytes(raw)):
            if opcode.name in _DISCARDING:
                return None
            is_number = opcode.name in _NUMBERS
            if not (is_number and was_number):
                word = "number" if is_number else f"{opcode.name} {value!r}"
                if opcode.name in _TEXTS:
                    word = opcode.name
                    named.update(_DIGITS.sub("#", str(value)).encode("utf-8", "surrogatepass"))
                for one in (shape, named):
                    one.update(word.encode("utf-8", "surrogatepass") + b"\n")
            was_number, end = is_number, (at or 0) + 1
            has_names = has_names or opcode.name == "STACK_GLOBAL"
    except ValueError:
        return None
    if end != len(raw):
        return None
    return named.digest() if has_names else shape.digest()
