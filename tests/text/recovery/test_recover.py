"""A damaged text comes back as it was, byte for byte, or is told to be lost."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.containers import samples
from tests.data import DATA, LEDGERS, VECTORS, case_named, seeded, valid_cases
from tests.kit.resident import growth_of
from tests.text.recovery.damage import (
    MORE_TRANSPORTS,
    OF_LINES,
    TRANSPORTS,
    is_mendable,
    marked,
    recovered,
    texts,
    unended,
    wide,
    wide_then_crlf,
    wrapped,
    wrong_characters,
)
from wtxtgit import dumps
from wtxtgit.errors import TextError
from wtxtgit.filter.clean import clean
from wtxtgit.text.recovery import ledgers
from wtxtgit.text.recovery.rebuilding import recover, text_of
from wtxtgit.text.recovery.transport import undone
from wtxtgit.text.verify import verify

CORPUS = int(os.environ.get("WTXTGIT_RECOVERIES", "60"))
"""How many texts are damaged; 1,000 are the promise, which the nightly run tries."""
SHORT = min(texts(), key=len)


def test_what_is_whole_stays_as_it_is() -> None:
    for text in texts()[::5]:
        assert recovered(text) == text


@pytest.mark.slow
def test_four_wrong_characters() -> None:
    rng = seeded("four wrong characters")
    tried = 0
    while tried < CORPUS:
        text = rng.choice(texts())
        places = rng.sample(range(len(text)), 4)
        if not is_mendable(text, places):
            continue
        tried += 1
        damaged = wrong_characters(text, places, rng)
        assert recovered(damaged) == text, places


def test_each_single_character_of_the_lines_that_say_what_a_text_is() -> None:
    """Of the shortest text, wherever a hash covers what is there or it has one usual form."""
    text = SHORT
    rng = seeded("each")
    armored = {
        at
        for at in range(len(text))
        if text[text.rfind(b"\n", 0, at) + 1 :].find(b"\n") == 78 and at % 7
    }
    for at in range(0, len(text), 7):
        if at not in armored:
            assert recovered(wrong_characters(text, [at], rng)) == text, at


@pytest.mark.parametrize("transport", TRANSPORTS + MORE_TRANSPORTS, ids=lambda one: one.__name__)
def test_what_a_transport_does_is_undone(transport: Callable[[bytes], bytes]) -> None:
    for text in texts()[:: 9 if transport in TRANSPORTS else 25]:
        done = recover(memoryview(transport(text)))
        assert done.undone
        assert done.snapshot is not None
        assert b"".join(map(bytes, text_of(done.snapshot))) == text


@pytest.mark.parametrize("transport", OF_LINES, ids=lambda one: one.__name__)
def test_what_a_transport_does_to_many_lines_is_undone(
    transport: Callable[[bytes], bytes],
) -> None:
    """Random bytes, whose base64 has all of its characters."""
    text = dumps({"w": np.frombuffer(seeded("lines").randbytes(20_000), np.uint8)})
    assert transport(text) != text
    assert recovered(transport(text)) == text


DELTA = VECTORS / "delta/scattered.wtxtdelta"
LEDGER = LEDGERS / "detached_co_signed.wsum"
DETACHED = DATA / "detached/mixed.wtxt"


@pytest.mark.parametrize("transport", TRANSPORTS + MORE_TRANSPORTS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("path", [DELTA, LEDGER, DETACHED], ids=lambda one: one.suffix)
def test_so_is_it_of_other_forms(path: Path, transport: Callable[[bytes], bytes]) -> None:
    whole = path.read_bytes()
    plain, changes = undone(memoryview(transport(whole)))
    if path is LEDGER:
        # It has no last line: what stands behind it is none of its lines.
        done, notes = ledgers.mended(bytes(plain))
        assert (done, notes) == (whole, ())
    else:
        assert changes or transport is unended
        assert bytes(plain).removesuffix(b"\n") == whole.removesuffix(b"\n")


def test_an_audit_line_whose_blanks_are_gone_is_told() -> None:
    text = case_named("valid/audit_line.wtxt").text
    done = recover(memoryview(wrapped(text)))
    assert done.snapshot is not None
    assert any("audit" in note for note in done.notes)


def test_wide_characters_of_which_bytes_are_wrong_or_gone() -> None:
    text = sorted(texts(), key=len)[len(texts()) // 2]
    sent = wide(text)
    at = len(sent) // 2 & ~1
    for damaged in (sent[:at] + sent[at + 1 :], sent[:at] + b"x" + sent[at:]):
        assert recovered(damaged) == text
    assert recovered(sent[: at + 1] + b"x" + sent[at + 2 :]) == text
    damaged = wide_then_crlf(text)
    assert recovered(damaged[:at] + b"?" + damaged[at + 1 :]) == text


@pytest.mark.parametrize(
    "hostile",
    [
        b"WTXT 1\n" + b" " * 2_000_000 + b"x\n",
        b">WTXT 1" + b" " * 2_000_000 + b"x\n",
        b"WTXT 1\r\n" + b"\t " * 1_000_000 + b"x\n",
        b"> WTXT 1\n" + b"sha256= endian=LE host=a cuda=b " * 60_000,
        b"WTXT 1\nmeta schema=agen=1ts=12345678901234567890build=a"
        + b"endian=LEhost=a" * 60_000 + b"cuda=b" * 60_000 + b"\nsha256=",
        b"WTXT 1 |\n" + b"|    " * 400_000 + b"x\n",
        b"<pre>WTXT 1\n" + b"<br" * 600_000,
        b"\x1b[WTXT 1\n" + b"\x1b]" * 600_000,
        b"x" * 300 + b"WTXT 1\n" * 200_000,
    ],
    ids=["blanks", "quoted", "tabs", "fields", "keys", "bars", "tags", "colours", "first lines"],
)  # fmt: skip
def test_what_takes_the_square_of_its_size_would_not_end(hostile: bytes) -> None:
    with contextlib.suppress(TextError):
        recover(memoryview(hostile))


@pytest.mark.parametrize(
    "hostile",
    [b"WTXT 1\r\n" + b">" * 2_000_000, b"WTXT 1\r\nmeta sha256=" + b"ab " * 700_000],
    ids=["marks", "blanks"],
)
def test_what_is_taken_out_takes_little_memory(hostile: bytes) -> None:
    def run() -> None:
        with contextlib.suppress(TextError):
            recover(memoryview(hostile))

    assert growth_of(run) < 24 * len(hostile)


@pytest.mark.parametrize(
    "audit",
    [
        b"k=schema&#61; note=&quot;finalize l=<b>1</b>",
        b'k="<b>WTXT 1<br> a&amp;b"',
        b'k="WTXT%201%0A" l=a+b%20c',
        b'k="WTXT 1" l=a\\nb',
        b'k="schema=3D=3D"',
    ],
    ids=["references", "tags", "percent", "escapes", "quoted-printable"],
)
def test_an_audit_line_is_no_sign_of_a_transport(audit: bytes) -> None:
    text = SHORT.replace(b"\nendwtxt\n", b"\naudit " + audit + b"\nendwtxt\n")
    assert verify(memoryview(text)).ok
    for sent in (text, b"Hello,\n" + text.replace(b"\n", b"\r\n")):
        assert recovered(sent) == text


PLAIN_TRANSPORTS = [one for one in TRANSPORTS if one is not wide]
"""Those that bytes of ASCII go through, whatever came before."""


@pytest.mark.parametrize("first", PLAIN_TRANSPORTS, ids=lambda one: one.__name__)
def test_what_two_transports_do_is_undone(first: Callable[[bytes], bytes]) -> None:
    once = first(SHORT)
    for second in TRANSPORTS:
        if not (second is wide and first is marked):
            assert recovered(second(once)) == SHORT, second.__name__


@pytest.mark.parametrize("transport", TRANSPORTS[:6], ids=lambda one: one.__name__)
def test_a_transport_and_wrong_characters(transport: Callable[[bytes], bytes]) -> None:
    rng = seeded(transport.__name__)
    text = sorted(texts(), key=len)[len(texts()) // 2]
    start, end = text.index(b"\nch ") + 200, text.rindex(b"\nendch")
    places = [rng.randrange(start, end)]
    damaged = transport(wrong_characters(text, places, rng).replace(b"=\n", b"-\n"))
    done = recovered(damaged)
    assert done is None or done == text


@pytest.mark.slow
def test_lines_in_another_order() -> None:
    rng = seeded("order")
    text = max(texts(), key=len)
    lines = text.splitlines(keepends=True)
    armored = [at for at, line in enumerate(lines) if len(line) == 79 and b"=" not in line]
    for _ in range(3):
        damaged = lines.copy()
        one, two = rng.sample(armored, 2)
        damaged[one], damaged[two] = damaged[two], damaged[one]
        assert recovered(b"".join(damaged)) == text
    one = rng.choice(armored)
    assert recovered(b"".join([*lines[:one], lines[one], *lines[one:]])) == text


def test_what_is_lost_is_told() -> None:
    text = max(texts(), key=len)
    start = text.index(b"\nch ") + 1
    end = text.index(b"endch\n", start)
    gone = text[: start + 400] + text[end - 400 :]
    done = recover(memoryview(gone))
    assert done.snapshot is None
    lost = [slot for array in done.arrays for slot in array.slots if slot.raw is None]
    assert len(lost) == 1
    assert lost[0].size > 0


def test_texts_of_every_kind() -> None:
    for case in valid_cases():
        text = case.path.read_bytes()
        assert recovered(text) == text, case.path


@pytest.mark.parametrize("file", ["invalid/b64_off.wtxt", "invalid/no_parity.wtxt"])
def test_lines_of_another_version_are_no_lines_of_a_chunk(file: str) -> None:
    assert recover(memoryview(case_named(file).text)).snapshot is None


def test_a_ledger_proves_what_the_root_line_does_not() -> None:
    text = sorted(texts(), key=len)[3]
    root = text.index(b"root sha256_all=") + len(b"root sha256_all=")
    wanted = bytes.fromhex(text[root : root + 64].decode())
    end = text.index(b"\n", root)
    damaged = text[:root] + b"#" * (end - root) + text[end:]
    assert recover(memoryview(damaged)).snapshot is None
    assert recover(memoryview(damaged), known=[wanted]).snapshot is not None


def test_a_size_that_one_line_of_two_still_tells() -> None:
    text = next(text for text in texts() if b"arr name=layers_3_w " in text)
    start = text.index(b"arr name=layers_3_w ")
    hash_at = text.index(b" sha256=", start) + 20
    size_at = text.index(b" len=", start) + 6
    for wrong in b"~9":
        damaged = bytearray(text)
        damaged[hash_at], damaged[size_at] = ord("~"), wrong
        assert recovered(bytes(damaged)) == text


@pytest.mark.parametrize("content", [b"", b"\n", b"WTXT 1\n", b"hello\n" * 9, bytes(1000)])
def test_what_is_no_text(content: bytes) -> None:
    with pytest.raises(TextError):
        recover(memoryview(content))


def test_hostile_claims_take_no_memory() -> None:
    text = sorted(texts(), key=len)[3].replace(b" len=", b" len=9999999", 1)
    recover(memoryview(text))
    recover(memoryview(text.replace(b"rows_per_chunk=", b"rows_per_chunk=1", 1)))
    recover(memoryview(b"arr name=" * 5000 + b"\n" + b"ch ix=" * 5000))


@pytest.mark.parametrize(
    ("before", "wrong"),
    [(b"\nendch\n", b"\n ndch\n"), (b"\nendch\n", b"\n>ndch\n"), (b" 0\nendch", b"  \nendch")],
    ids=["indented", "quoted", "spaced"],
)
def test_what_a_transport_does_to_all_lines_is_damage_of_one(before: bytes, wrong: bytes) -> None:
    for text in [text for text in texts() if before in text][:4]:
        done = recover(memoryview(text.replace(before, wrong, 1)))
        assert not done.undone
        assert recovered(text.replace(before, wrong, 1)) == text


def test_wrong_digits_in_the_zeros_of_several_arrays() -> None:
    text = next(text for text in texts() if text.count(b" hmac=" + b"0" * 64) > 4)
    damaged = text.replace(b" hmac=0", b" hmac=7").replace(b" salt=00", b" salt=0a")
    assert recovered(damaged) == text


def test_chunks_behind_a_missing_one_stay_where_they_were() -> None:
    values = np.arange(100_000, dtype="f4")
    text = dumps({"w": values})
    start = text.index(b"ch ix=000002 ")
    end = text.index(b"ch ix=000003 ")
    body = text.index(b"\n", start) + 1
    for gone in (text[:start] + text[end:], text[:body] + text[body + 79 :]):
        (array,) = recover(memoryview(gone)).arrays
        lost = [slot.ix for slot in array.slots if slot.raw is None]
        assert lost == [2]
        for slot in array.slots:
            if slot.raw is not None:
                wanted = values.tobytes()[slot.ix * 65_536 :][: slot.size]
                assert bytes(slot.raw) == wanted


def test_wrong_characters_in_names_that_are_alike() -> None:
    text = next(text for text in texts() if b"arr name=layers_3_w " in text)
    damaged = text.replace(b"arr name=layers_3_w ", b"arr name=laMers_3_w ", 1)
    damaged = damaged.replace(b"arr name=layers_4_w ", b"arr name=layvrs_4_w ", 1)
    assert recovered(damaged) == text


@pytest.mark.parametrize("damage", ["gone", "struck out"])
def test_a_line_that_says_what_follows_is_lost(damage: str) -> None:
    """All but the root, which nothing else proves: see the ledger for that."""
    text = next(text for text in texts() if b"arr name=layers_3_w " in text)
    lines = text.splitlines(keepends=True)
    told = [at for at, line in enumerate(lines) if len(line) != 79 and line[:4] != b"root"]
    assert {lines[at][:3] for at in told} >= {
        b"WTX",
        b"met",
        b"cap",
        b"arr",
        b"idx",
        b"ch ",
        b"end",
    }
    for at in told:
        there = b"" if damage == "gone" else b"#" * (len(lines[at]) - 1) + b"\n"
        assert recovered(b"".join([*lines[:at], there, *lines[at + 1 :]])) == text, lines[at]


@pytest.mark.parametrize(
    "shape", [(6, 4, 5), (8, 3, 3, 3), (2, 2, 33_000), (3, 90, 400), (7, 1, 1)]
)
def test_an_array_of_many_dimensions_whose_line_is_lost(shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape), dtype="f2").reshape(shape)
    item = b'{"conv":{"dtype":"F16","shape":[%b],"data_offsets":[0,%d]}}'
    spelled = item % (",".join(map(str, shape)).encode(), values.nbytes)
    raw = samples.safetensors(spelled, values.tobytes())
    text = b"".join(map(bytes, clean(memoryview(raw)).pieces()))
    (line,) = re.findall(rb"arr name=conv .*\n", text)
    assert b" shape=%b " % ",".join(map(str, shape)).encode() in line
    assert recovered(text.replace(line, b"")) == text


def test_a_chunk_without_its_line_has_to_be_proved() -> None:
    """Where its array's SHA-256 does not hold, what stands there counts as lost."""
    text = dumps({"w": np.arange(100_000, dtype="f4")})
    start = text.index(b"ch ix=000002 ")
    lines = text[text.index(b"\n", start) + 1 :]
    other = (b"B" if lines[100:101] != b"B" else b"C").join((lines[:100], lines[101:]))
    (array,) = recover(memoryview(text[:start] + lines)).arrays
    assert [slot.ix for slot in array.slots if slot.raw is None] == []
    (array,) = recover(memoryview(text[:start] + other)).arrays
    assert [slot.ix for slot in array.slots if slot.raw is None] == [2]
