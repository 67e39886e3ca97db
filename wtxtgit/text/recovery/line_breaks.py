"""Restoring line ends in a text whose lines were broken elsewhere, or joined.

All white space is removed first, since it is not known which of it is original: the fields show
where lines end, and where blanks belong between them.
"""

from __future__ import annotations

import re

from wtxtgit.text import grammar
from wtxtgit.text.grammar import line_count

_WHITE = b" \t\n\r\f\v"
_WHITE_OR_QUOTED = _WHITE + b">|"

# No value contains `=`. So each pattern can end in only one place, and takes linear time.
_SOLID = (
    (rb"WTXT1(?=meta)", b"WTXT 1"),
    (rb"WTXT-DETACHED1(?=meta)", b"WTXT-DETACHED 1"),
    (rb"WTXT-DELTA2base_sha256_all=(.{64})", b"WTXT-DELTA 2 base_sha256_all=%b"),
    (rb"WLEDGER1repo=(.{64})path=([^=]+)(?=metaschema=|atpath=)", b"WLEDGER 1 repo=%b path=%b"),
    (rb"atpath=([^=]+)(?=metaschema=)", b"at path=%b"),
    ((rb"metaschema=([^=]+)gen=([0-9]+)ts=(.{20})build=([^=]+)endian=LEhost=([^=]+)"
     rb"cuda=([^=]+)(?=capext=|WSUM1)"),
     b"meta schema=%b gen=%b ts=%b build=%b endian=LE host=%b cuda=%b"),
    (rb"WSUM1sha256_all=(.{64})merkle_prev=(.{64})merkle_this=(.{64})",
     b"WSUM 1 sha256_all=%b merkle_prev=%b merkle_this=%b"),
    (rb"detachedsha256=(.{64})", b"detached sha256=%b"),
    (rb"capext=([^=]+)(?=root)", b"cap ext=%b"),
    (rb"rootsha256_all=(.{64})merkle_prev=(.{64})merkle_this=(.{64})fastxor=(.{16})",
     b"root sha256_all=%b merkle_prev=%b merkle_this=%b fastxor=%b"),
    (rb"root_pendingsha256_all=0{64}note=\"finalizewithWSUM\"", grammar.PENDING_LINE[:-1]),
    (rb"signed25519=(.{88})keyid=(.{16})", b"sign ed25519=%b keyid=%b"),
    ((rb"arrname=([^=]+)dtype=([^=]+)shape=([^=]+)order=Cbytes=([0-9]+)sha256=(.{64})hmac=(.{64})"
     rb"salt=(.{16})"),
     b"arr name=%b dtype=%b shape=%b order=C bytes=%b sha256=%b hmac=%b salt=%b"),
    # In a plain delta.
    (rb"arrname=([^=]+)(?=chix=)", b"arr name=%b"),
    (rb"delname=([A-Za-z0-9_]+?)(?=arrname=|delname=|enddelta|audit)", b"del name=%b"),
    (rb"idxrows_per_chunk=([0-9]+)row_size=([0-9]+)row_blocking=(on|off)",
     b"idx rows_per_chunk=%b row_size=%b row_blocking=%b"),
    # Its values may have had blanks, which are gone: nothing proves what it said.
    (rb"audit.+?(?=endwtxt|enddelta)", b"audit"),
    (rb"endch", b"endch"),
    (rb"endarr", b"endarr"),
    (rb"endwtxt", b"endwtxt"),
    (rb"enddelta", b"enddelta"),
)  # fmt: skip
_SOLID_LINES = [(re.compile(pattern), spelled) for pattern, spelled in _SOLID]
_SOLID_CHUNK = re.compile(
    rb"chix=(.{6})off=(.{12})len=([0-9]{1,12}?)sha256=(.{64})crc32c=(.{8})b64=onwidth=76lines="
)
_CHUNK = b"ch ix=%b off=%b len=%b sha256=%b crc32c=%b b64=on width=76 lines=%d\n"
_LAST = (grammar.LAST_LINE, b"enddelta\n")
_BEHIND_DETACHED = (b"chix=", grammar.END_ARRAY[:-1])


def lined(text: bytes) -> bytes:
    """Return a text whose lines were broken elsewhere with its own lines.

    It is returned unchanged if it can't be parsed this way.
    """
    for between in (_WHITE, _WHITE_OR_QUOTED):
        if (done := _lined(text.translate(None, between))) is not None:
            return done
    return text


def _lined(solid: bytes) -> bytes | None:
    done = bytearray()
    at = 0
    while at < len(solid):
        if (m := _SOLID_CHUNK.match(solid, at)) is not None:
            at = _take_chunk(solid, m, done)
            continue
        for pattern, spelled in _SOLID_LINES:
            if (m := pattern.match(solid, at)) is not None:
                done += (spelled % m.groups() if m.groups() else spelled) + b"\n"
                at = m.end()
                break
        else:
            return None
        if done.endswith(_LAST):
            break
    return bytes(done)


def _take_chunk(solid: bytes, m: re.Match[bytes], done: bytearray) -> int:
    """Append a chunk's lines to `done`; returns where the chunk ends."""
    size = int(m[3])
    count = line_count(size)
    done += _CHUNK % (*m.groups(), count)
    at = m.end() + len(str(count))
    if solid.startswith(_BEHIND_DETACHED, at):
        return at
    step = grammar.LINE_BASE64 + 1
    end = min(at + count * step, len(solid))
    for line in range(at, end, step):
        done += solid[line : line + step - 1] + b" " + solid[line + step - 1 : line + step] + b"\n"
    return end
