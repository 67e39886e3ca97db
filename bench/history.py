"""A history of sealed checkpoints, made fast: what `bench.audit` audits.

Texts and ledgers are made by the library and given to `git fast-import`, those
of one file after the other, so that its packs are as small as git's own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
from safetensors.numpy import save

from wtxtgit.containers import any_format
from wtxtgit.filter.content import examine
from wtxtgit.model.array import Signature
from wtxtgit.model.ledger import Ledger, LedgerHead
from wtxtgit.text import ledger as ledger_text
from wtxtgit.text.digest import keyid
from wtxtgit.text.layout import snapshot_of
from wtxtgit.text.ledger import next_record, with_signature
from wtxtgit.text.write import TextWriter
from wtxtgit.trust.signing import SigningKey

COLUMNS = 1024
"""Of float32: a row is 4 KiB."""
ROWS_OF_A_MIB = 256
CHANGED_ROWS = 3


def add_generations(
    repo: Path, key: SigningKey, repo_id: bytes, commits: int, files: int, rows: int
) -> None:
    """Add commits to main that change one of `files` checkpoints of `rows` rows each, sealed."""
    command = ("git", "fast-import", "--quiet", "--force")
    with subprocess.Popen(command, cwd=repo, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None  # noqa: S101
        out = process.stdin
        marks: dict[tuple[int, int], tuple[int, int]] = {}
        mark = 0
        for file in range(files):
            generations = len(range(file, commits, files))
            texts = list(_texts(file, generations, rows))
            for n, text in enumerate(texts):
                mark += 1
                marks[file, n] = mark, 0
                _blob(out, mark, text)
            for n, content in enumerate(_ledgers(key, repo_id, _name(file), texts)):
                mark += 1
                marks[file, n] = marks[file, n][0], mark
                _blob(out, mark, content)
        for commit in range(commits):
            file, n = commit % files, commit // files
            text_mark, ledger_mark = marks[file, n]
            about = f"committer A <a@example.com> {1_700_000_000 + commit} +0000\ndata 0\n"
            start = "from refs/heads/main^0\n" if commit == 0 else ""
            name = _name(file).decode()
            out.write(
                f"commit refs/heads/main\n{about}{start}M 100644 :{text_mark} {name}\n"
                f"M 100644 :{ledger_mark} {name}.wsum\n".encode()
            )
        out.close()
    if process.returncode:
        raise SystemExit("git fast-import failed")


def _texts(file: int, generations: int, rows: int) -> Iterator[bytes]:
    generator = np.random.default_rng(file)
    weights = generator.standard_normal((rows, COLUMNS), np.float32)
    for _ in range(generations):
        weights[generator.integers(0, rows, CHANGED_ROWS)] *= np.float32(1.01)
        cut = any_format.split(memoryview(save({"w": weights})))
        yield b"".join(map(bytes, TextWriter(snapshot_of(cut)).stream()))


def _ledgers(key: SigningKey, repo_id: bytes, path: bytes, texts: list[bytes]) -> Iterator[bytes]:
    head = LedgerHead(repo_id, path)
    ledger: Ledger | None = None
    for text in texts:
        facts = examine(memoryview(text))
        assert facts.sha256_all is not None  # noqa: S101
        record = next_record(
            ledger,
            sha256_all=facts.sha256_all,
            ts="2026-01-01T00:00:00Z",
            build="bench",
            schema=facts.schema,
        )
        signature = key.sign(ledger_text.covered(head, record))
        record = with_signature(record, Signature(signature, keyid(key.public_key)))
        ledger = Ledger(head, (*(ledger.records if ledger else ()), record))
        yield ledger_text.format_ledger(ledger)


def _name(file: int) -> bytes:
    return b"model%d.safetensors" % file


def _blob(out: IO[bytes], mark: int, content: bytes) -> None:
    out.write(b"blob\nmark :%d\ndata %d\n" % (mark, len(content)))
    out.write(content)
    out.write(b"\n")
