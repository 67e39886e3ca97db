"""`wtxtgit recover` of texts: what is mended, healed, lost, and what is written."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.data import DATA, seeded
from tests.kit import safetensors
from tests.text.recovery.damage import quoted
from wtxtgit.text.ledger import read

NAME = "model.safetensors"
RAW = safetensors(*range(40_000))


@pytest.fixture
def text(wtxtgit: Command) -> bytes:
    """The text of a file that is not there any more."""
    wtxtgit.folder.joinpath(NAME).write_bytes(RAW)
    assert wtxtgit("emit", NAME, "-o", "good.wtxt").code == 0
    wtxtgit.folder.joinpath(NAME).unlink()
    path = wtxtgit.folder / "good.wtxt"
    content = path.read_bytes()
    path.unlink()
    return content


def armored(text: bytes, number: int = 100) -> int:
    """Where an armored line starts, in the middle of the first long array."""
    start = text.index(b"lines=1150\n") + len(b"lines=1150\n")
    return start + number * 79


def put(wtxtgit: Command, content: bytes, name: str = "bad.wtxt") -> None:
    wtxtgit.folder.joinpath(name).write_bytes(content)


def with_wrong_character(text: bytes) -> bytes:
    at = armored(text) + 20
    return text[:at] + (b"A" if text[at : at + 1] != b"A" else b"B") + text[at + 1 :]


def with_lost_chunk(text: bytes) -> bytes:
    at = armored(text, 3)
    return text[:at] + text[at + 79 * 500 :]


def test_a_wrong_character_is_mended(wtxtgit: Command, text: bytes) -> None:
    put(wtxtgit, with_wrong_character(text))
    assert wtxtgit("verify", "bad.wtxt").code == 1
    done = wtxtgit("recover", "bad.wtxt")
    assert done.code == 0
    told = "wtxtgit: hint: wtxtgit recover -o OUT -- bad.wtxt writes it\n"
    assert done.err == f"wtxtgit: note: nothing was written\n{told}"
    assert b"mended" in done.out
    assert b"bad.wtxt: all of it was recovered: 1 chunk mended" in done.out
    # Only looked at so far.
    assert wtxtgit.names() == ["bad.wtxt"]
    assert wtxtgit("recover", "bad.wtxt", "-o", "again.wtxt").code == 0
    assert wtxtgit.folder.joinpath("again.wtxt").read_bytes() == text
    assert wtxtgit("recover", "bad.wtxt", "-o", NAME).code == 0
    assert wtxtgit.folder.joinpath(NAME).read_bytes() == RAW
    assert wtxtgit.folder.joinpath("bad.wtxt").read_bytes() == with_wrong_character(text)


def test_what_is_whole(wtxtgit: Command, text: bytes) -> None:
    put(wtxtgit, text)
    done = wtxtgit("recover", "bad.wtxt")
    assert (done.code, done.out) == (0, b"bad.wtxt: nothing is damaged\n")


def test_what_a_transport_did(wtxtgit: Command, text: bytes) -> None:
    put(wtxtgit, quoted(text), "mail.txt")
    done = wtxtgit("recover", "mail.txt", "-o", "mail.wtxt")
    assert done.code == 0
    assert b"undone: quote marks" in done.out.splitlines()
    assert wtxtgit.folder.joinpath("mail.wtxt").read_bytes() == text


def test_what_is_lost_is_told_and_nothing_written(wtxtgit: Command, text: bytes) -> None:
    put(wtxtgit, with_lost_chunk(text))
    done = wtxtgit("recover", "bad.wtxt", "--json")
    told = json.loads(done.out)
    assert done.code == 1
    assert told["state"] == "partial"
    (array,) = [array for array in told["arrays"] if array["lost"]]
    assert array["chunks"] == [
        {"ix": 0, "state": "lost", "start": 0, "end": 65_536, "rows": [0, 16_384]}
    ]
    refused = wtxtgit("recover", "bad.wtxt", "-o", NAME)
    assert refused.code == 1
    assert b"not all of it could be recovered: 1 chunk lost" in refused.out
    assert wtxtgit.names() == ["bad.wtxt"]


def test_parts_with_zeros(wtxtgit: Command, text: bytes) -> None:
    put(wtxtgit, with_lost_chunk(text))
    done = wtxtgit("recover", "bad.wtxt", "--partial", "-o", NAME, "--json")
    told = json.loads(done.out)
    assert done.code == 1
    assert told["output"] == NAME
    ((start, end),) = told["lost"]
    assert end - start == 65_536
    written = wtxtgit.folder.joinpath(NAME).read_bytes()
    assert written == RAW[:start] + bytes(end - start) + RAW[end:]
    refused = wtxtgit("recover", "bad.wtxt", "--partial", "-o", "part.wtxt")
    assert refused.code == 2


@pytest.mark.parametrize("source", ["file", "text", "delta"])
def test_a_lost_chunk_is_healed(wtxtgit: Command, text: bytes, source: str) -> None:
    put(wtxtgit, with_lost_chunk(text))
    if source == "file":
        # Another file that has the same first chunk.
        put(wtxtgit, safetensors(*range(16_384), *([7.0] * 30_000)), "other.safetensors")
        place = "other.safetensors"
    elif source == "text":
        place = "other.wtxt"
        put(wtxtgit, text, place)
    else:
        put(wtxtgit, safetensors(*([0.5] * 40_000)), "old.safetensors")
        put(wtxtgit, RAW, "new.safetensors")
        place = "change.delta"
        made = wtxtgit("delta", "make", "old.safetensors", "new.safetensors", "-o", place)
        assert made.code == 0, made.err
        wtxtgit.folder.joinpath("new.safetensors").unlink()
    done = wtxtgit("recover", "bad.wtxt", "--from", place, "-o", NAME, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["state"] == "whole"
    (chunk,) = [chunk for array in told["arrays"] for chunk in array["chunks"]]
    assert (chunk["state"], chunk["source"]) == ("healed", place)
    assert wtxtgit.folder.joinpath(NAME).read_bytes() == RAW


@pytest.mark.parametrize("bare", [False, True], ids=["clone", "bare"])
def test_another_clone_heals(wtxtgit: Command, text: bytes, bare: bool) -> None:
    other = wtxtgit.folder / "other"
    who = ("-c", "user.name=a", "-c", "user.email=a@b")

    def git(*arguments: str | Path) -> None:
        subprocess.run(["git", *who, *arguments], cwd=wtxtgit.folder, check=True)

    git("init", "-q", "here")
    put(wtxtgit, text, "here/model.wtxt")
    git("-C", "here", "add", "model.wtxt")
    git("-C", "here", "commit", "-qm", "good")
    git("clone", "-q", *(["--bare"] if bare else []), "here", other)
    git("init", "-q", "there")
    put(wtxtgit, with_lost_chunk(text), "there/model.wtxt")
    damaged = wtxtgit.folder / "there/model.wtxt"
    assert wtxtgit("recover", damaged).code == 1
    done = wtxtgit("recover", damaged, "--from", other, "--json")
    assert done.code == 0, done.err
    (chunk,) = [chunk for array in json.loads(done.out)["arrays"] for chunk in array["chunks"]]
    assert chunk["source"].startswith(str(other))
    assert chunk["source"].endswith(":model.wtxt")


def test_a_place_that_holds_nothing(wtxtgit: Command, text: bytes) -> None:
    put(wtxtgit, with_lost_chunk(text))
    put(wtxtgit, b"something else", "other")
    assert wtxtgit("recover", "bad.wtxt", "--from", "other").code == 1
    missing = wtxtgit("recover", "bad.wtxt", "--from", "nowhere.wtxt")
    assert missing.code in (3, 5)
    assert "nowhere.wtxt" in missing.complaint()


@pytest.mark.parametrize(
    "arguments",
    [
        ("bad.wtxt", "-o", "bad.wtxt"),
        ("bad.wtxt", "--partial"),
        ("bad.wtxt", "--ecc", "--partial", "-o", "x"),
        ("bad.wtxt", "--as-commit", "-o", "x"),
    ],
)
def test_what_makes_no_sense(wtxtgit: Command, text: bytes, arguments: tuple[str, ...]) -> None:
    put(wtxtgit, with_wrong_character(text))
    assert wtxtgit("recover", *arguments).code == 2
    assert wtxtgit.names() == ["bad.wtxt"]


def test_what_is_neither_text_nor_checkpoint(wtxtgit: Command) -> None:
    put(wtxtgit, b"no text at all", "x")
    assert wtxtgit("recover", "x").code == 3


def test_in_a_folder_without_a_repository(tmp_path: Path, wtxtgit: Command, text: bytes) -> None:
    put(wtxtgit, with_wrong_character(text))
    assert not any(parent.joinpath(".git").exists() for parent in tmp_path.parents)
    assert wtxtgit("recover", wtxtgit.folder / "bad.wtxt").code == 0


@pytest.fixture
def delta(wtxtgit: Command) -> bytes:
    put(wtxtgit, safetensors(*([0.5] * 40_000)), "old.safetensors")
    put(wtxtgit, RAW, "new.safetensors")
    made = wtxtgit("delta", "make", "old.safetensors", "new.safetensors", "-o", "good")
    assert made.code == 0, made.err
    content = wtxtgit.folder.joinpath("good").read_bytes()
    wtxtgit.folder.joinpath("good").unlink()
    return content


def test_a_delta(wtxtgit: Command, delta: bytes) -> None:
    wtxtgit.folder.joinpath("new.safetensors").unlink()
    for name, content in {
        "wrong.wtxtdelta": with_wrong_character(delta),
        "mail.txt": quoted(delta),
    }.items():
        put(wtxtgit, content, name)
        done = wtxtgit("recover", name, "-o", "again")
        assert (done.code, done.err) == (0, "")
        assert wtxtgit.folder.joinpath("again").read_bytes() == delta
        wtxtgit.folder.joinpath("again").unlink()
    put(wtxtgit, with_lost_chunk(delta), "cut")
    assert wtxtgit("recover", "cut").code == 1
    put(wtxtgit, RAW, "new.safetensors")
    assert wtxtgit("recover", "cut", "--from", "new.safetensors", "-o", "again").code == 0
    assert wtxtgit.folder.joinpath("again").read_bytes() == delta


def test_a_ledger(wtxtgit: Command) -> None:
    rng = seeded("ledger")
    mended = 0
    for path in sorted((DATA / "ledgers").glob("*")):
        ledger = path.read_bytes()
        if not read(ledger).ok:
            continue
        put(wtxtgit, ledger, "l.wsum")
        assert b"nothing is damaged" in wtxtgit("recover", "l.wsum").out
        put(wtxtgit, quoted(ledger).replace(b"\n", b"\r\n"), "l.wsum")
        assert wtxtgit("recover", "l.wsum", "-o", "again").code == 0
        assert wtxtgit.folder.joinpath("again").read_bytes() == ledger
        at = ledger.index(b"sha256_all=") + 11 + rng.randrange(64)
        put(wtxtgit, ledger[:at] + b"x" + ledger[at + 1 :], "l.wsum")
        assert wtxtgit("recover", "l.wsum", "-o", "again").code == 0
        assert wtxtgit.folder.joinpath("again").read_bytes() == ledger
        mended += 1
    assert mended >= 3


def test_another_copy_that_ends_behind_an_array_s_line(wtxtgit: Command, text: bytes) -> None:
    """Of its chunks it has none to give."""
    at = armored(text, 3)
    put(wtxtgit, text[:at] + text[at + 79 * 20 :])
    line = text.index(b"\narr name=w ") + 1
    put(wtxtgit, text[: text.index(b"\n", line) + 1], "cut.wtxt")
    done = wtxtgit("recover", "bad.wtxt", "--from", "cut.wtxt", "-o", "again.wtxt")
    assert done.code == 1, done.err
    assert "again.wtxt" not in wtxtgit.names()


class TestTwice:
    """A text that was pasted twice, wherever: each copy can say what the other has lost."""

    def lost(self, text: bytes, number: int) -> bytes:
        at = armored(text, number)
        return text[:at] + text[at + 79 * 20 :]

    @pytest.mark.parametrize("at", [None, 45_000, 100_000, -9], ids=str)
    @pytest.mark.parametrize("damaged", [(), ("outer",), ("inner",), ("outer", "inner")], ids=str)
    def test_a_copy_in_another(
        self, wtxtgit: Command, text: bytes, at: int | None, damaged: tuple[str, ...]
    ) -> None:
        outer = self.lost(text, 3) if "outer" in damaged else text
        inner = self.lost(text, 1300) if "inner" in damaged else text
        both = outer + inner if at is None else outer[:at] + inner + outer[at:]
        put(wtxtgit, both)
        done = wtxtgit("recover", "bad.wtxt", "-o", "again.wtxt")
        assert done.code == 0, done.out
        assert wtxtgit.folder.joinpath("again.wtxt").read_bytes() == text
        assert b"undone: other copies of it\n" in done.out

    @pytest.mark.parametrize("sent", [quoted, lambda text: b"Hello,\n" + text + b"Bye\n"])
    def test_within_a_message(
        self, wtxtgit: Command, text: bytes, sent: Callable[[bytes], bytes]
    ) -> None:
        put(wtxtgit, sent(self.lost(text, 3) + b"and once more:\n" + self.lost(text, 1300)))
        assert wtxtgit("recover", "bad.wtxt", "-o", "again.wtxt").code == 0
        assert wtxtgit.folder.joinpath("again.wtxt").read_bytes() == text

    def test_an_older_version_that_a_message_quotes(self, wtxtgit: Command, text: bytes) -> None:
        put(wtxtgit, safetensors(*range(1, 40_001)), "older.safetensors")
        older = wtxtgit("emit", "older.safetensors").out
        put(wtxtgit, self.lost(text, 3) + b"> it was:\n" + older)
        assert wtxtgit("recover", "bad.wtxt", "-o", "again.wtxt").code == 1
        assert "again.wtxt" not in wtxtgit.names()

    def test_half_of_one_and_half_of_the_other(self, wtxtgit: Command, text: bytes) -> None:
        put(wtxtgit, quoted(text[:150_000] + text[:90] + text[60_000:]))
        assert wtxtgit("recover", "bad.wtxt", "-o", "again.wtxt").code == 0
        assert wtxtgit.folder.joinpath("again.wtxt").read_bytes() == text

    def test_what_none_of_them_has_is_lost(self, wtxtgit: Command, text: bytes) -> None:
        put(wtxtgit, self.lost(text, 3) + self.lost(text, 3))
        done = wtxtgit("recover", "--json", "bad.wtxt", "-o", "again.wtxt")
        assert done.code == 1
        report = json.loads(done.out)
        assert report["undone"] == ["other copies of it"]
        assert [(array["name"], array["lost"]) for array in report["arrays"] if array["lost"]] == [
            ("w", 1)
        ]

    def test_a_part_of_it_that_stands_before_it(self, wtxtgit: Command, text: bytes) -> None:
        """A part without a header has lost nothing that it knows of."""
        half = text[text.index(b"\n", len(text) // 2) + 1 :]
        put(wtxtgit, half + self.lost(text, 3))
        report = json.loads(wtxtgit("recover", "--json", "bad.wtxt", "-o", "again.wtxt").out)
        kept = {array["name"]: array["intact"] for array in report["arrays"]}
        put(wtxtgit, self.lost(text, 3))
        alone = json.loads(wtxtgit("recover", "--json", "bad.wtxt", "-o", "again.wtxt").out)
        assert all(kept[array["name"]] >= array["intact"] for array in alone["arrays"])

    def test_an_audit_line_that_begins_as_a_delta(self, wtxtgit: Command, text: bytes) -> None:
        end = text.rindex(b"endwtxt")
        told = text[:end] + b'audit by=me note="WTXT-DELTA 2 base_sha256_all="\n' + text[end:]
        put(wtxtgit, with_wrong_character(told))
        assert wtxtgit("recover", "bad.wtxt", "-o", "again.wtxt").code == 0
        assert wtxtgit.folder.joinpath("again.wtxt").read_bytes() == told


def test_a_text_without_its_last_line_feed_is_said_to_be_that(
    wtxtgit: Command, text: bytes
) -> None:
    (wtxtgit.folder / "m.wtxt").write_bytes(text[:-1])
    done = wtxtgit("verify", "m.wtxt")
    assert done.code == 1
    assert b"the text ends in this line, without its line feed" in done.out
    recovered = wtxtgit("recover", "m.wtxt")
    assert recovered.code == 0
    assert recovered.out.startswith(b"undone: missing line feed at the end\n")
    # Within a header's line: cut, too.
    (wtxtgit.folder / "m.wtxt").write_bytes(text[:60])
    assert b"the text ends in this line, without its line feed" in wtxtgit("verify", "m.wtxt").out
