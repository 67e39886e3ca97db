"""How much parity a FOLD chunk has: `rs(n)` gives n bytes for each block of 255 - n.

Spec: `docs/spec/fold.md`, "Parity".
"""

from __future__ import annotations

import re

CODEWORD = 255
"""Bytes of a block and its parity."""

_ALGORITHM = re.compile(r"rs\(([1-9][0-9]{0,2})\)")


def parity_bytes(algorithm: object) -> int | None:
    """n of `rs(n)`, 0 for `none`, None for what is neither."""
    if algorithm == "none":
        return 0
    match = _ALGORITHM.fullmatch(algorithm) if isinstance(algorithm, str) else None
    n = int(match[1]) if match else CODEWORD
    return n if n < CODEWORD else None


def parity_len(payload_len: int, n: int) -> int:
    """Bytes of parity of a payload: n for each block begun."""
    return n * -(-payload_len // (CODEWORD - n))
