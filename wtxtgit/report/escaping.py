"""Text out of files and repositories, made harmless where it is shown."""

from __future__ import annotations

_UNDECODED = range(0xDC80, 0xDD00)
"""What os.fsdecode gives for bytes that are no UTF-8."""


def escaped(text: str) -> str:
    """Text in which nothing controls a terminal, a line or the order of letters."""
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(c: str) -> str:
    code = ord(c)
    if code in _UNDECODED:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
