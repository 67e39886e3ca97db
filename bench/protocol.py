"""The filter process by itself, spoken to as git speaks: what the protocol costs beyond the work.

gitattributes(5), "Long Running Filter Process".
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO

from bench.data import model_of, text_of
from bench.git import NAME
from bench.measure import (
    MIB,
    WTXTGIT,
    Against,
    BenchError,
    Entrant,
    Place,
    Row,
    Sample,
    command,
    race,
)
from bench.memory import Watch
from bench.start import GREETING
from wtxtgit.io.files import read_whole

_CONTENT = 65516
"""Bytes of content in git's packets: LARGE_PACKET_DATA_MAX."""
_FLUSH = b"0000"
_BEFORE, _AFTER = 3, 2
"""Flush packets before an answer's content (two greetings, the status), and from its end on."""


def filters(place: Place, size: int, runs: int) -> list[Row]:
    """Clean and smudge over the protocol, against the same work without git's packets."""
    repo = place.folder("filtered")
    command(place, "git", "init", "-q", repo)
    model = model_of(place, size)
    text = text_of(place, model)
    nbytes = model.stat().st_size
    # Clean looks how long the file is of which git sends the content.
    os.link(model, repo / NAME)
    listed: list[tuple[str, str, Path, tuple[str | Path, ...]]] = [
        ("clean", "emit to a pipe", model, (*WTXTGIT, "emit", model)),
        ("smudge", "restore to a pipe", text, (*WTXTGIT, "restore", text, "-o", "-")),
    ]
    entrants = []
    for word, floor, path, argv in listed:
        entrants += [
            Entrant(floor, nbytes, action=partial(command, place, *argv, cwd=repo)),
            Entrant(
                f"{word} over git's protocol",
                nbytes,
                (Against(floor, 0.4, "beyond"), Against(floor)),
                action=partial(_filtered, place, repo, word, path),
            ),
        ]
    return race(entrants, runs)


def _filtered(place: Place, repo: Path, word: str, path: Path) -> Sample:
    """One request to a filter that is started for it, to the end of its answer."""
    content = read_whole(path)
    started = time.perf_counter()
    with subprocess.Popen(
        (*WTXTGIT, "filter-process"),
        cwd=repo,
        env=place.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=MIB,
    ) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018, S101
        with Watch(process.pid) as watch:
            asked = process.stdin.fileno()
            os.write(asked, GREETING)
            for header, piece in _request(word, content):
                # What a pipe has no room for is taken later: the write waits for it.
                os.writev(asked, (header, piece))
            count = _answered(process.stdout)
            seconds = time.perf_counter() - started
            process.stdin.close()
    if count < len(content) // 2:
        raise BenchError(f"the filter's answer has {count} bytes")
    return Sample(seconds, watch.resident, watch.anonymous)


def _request(word: str, content: memoryview) -> Iterator[tuple[bytes, memoryview | bytes]]:
    for line in (f"command={word}\n".encode(), f"pathname={NAME}\n".encode()):
        yield b"%04x" % (len(line) + 4), line
    yield _FLUSH, b""
    for start in range(0, len(content), _CONTENT):
        piece = content[start : start + _CONTENT]
        yield b"%04x" % (len(piece) + 4), piece
    yield _FLUSH, b""


def _answered(answer: IO[bytes]) -> int:
    """Read an answer to its end; gives the bytes of its content."""
    count = 0
    for section in range(_BEFORE + _AFTER):
        while (size := _size(answer.read(4))) > len(_FLUSH):
            packet = answer.read(size - 4)
            count += len(packet) if section == _BEFORE else 0
    return count


def _size(header: bytes) -> int:
    try:
        return int(header, 16)
    except ValueError:
        raise BenchError(f"the filter's answer ends, or has a packet of {header!r} bytes") from None
