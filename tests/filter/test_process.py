"""The filter's answers: made while git sends; the file in the tree decides nothing."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from io import BytesIO, FileIO
from pathlib import Path

import pytest

from tests.kit import Repo, safetensors, text_of
from wtxtgit.errors import EnvironmentFailure
from wtxtgit.filter import clean as clean_module
from wtxtgit.filter.clean import Cleaned, clean
from wtxtgit.filter.process import FilterSettings, serve
from wtxtgit.git.filter_protocol import (
    MAX_PAYLOAD,
    FilterProcess,
    PacketReader,
    PacketWriter,
    ProtocolError,
)
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.io import progress
from wtxtgit.io.view import ByteView, Windowed
from wtxtgit.text.write import TextWriter

NAME = "model.safetensors"
MODEL = safetensors(*range(300_000))
OTHER = safetensors(*range(1, 300_001))
PATIENCE = 60
"""Seconds after which a test that hangs fails."""

Called = list[tuple[type, bytes]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that git starts a filter in: the top of a work tree."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cleans(monkeypatch: pytest.MonkeyPatch) -> Called:
    """What is cleaned: whether it still came (a `Windowed`), and its bytes."""
    called: Called = []

    def recorded(data: ByteView, *, threads: int | None = None) -> Cleaned:
        made = clean(data, threads=threads)
        called.append((type(data), bytes(data)))
        return made

    monkeypatch.setattr(clean_module, "clean", recorded)
    return called


def greeting() -> bytes:
    return packets(b"git-filter-client\n", b"version=2\n") + packets(
        b"capability=clean\n", b"capability=smudge\n"
    )


def packets(*payloads: bytes) -> bytes:
    return b"".join(b"%04x%b" % (len(text) + 4, text) for text in payloads) + b"0000"


def request(content: bytes, *, command: bytes = b"clean", path: str = NAME) -> bytes:
    parts = [content[at : at + MAX_PAYLOAD] for at in range(0, len(content), MAX_PAYLOAD)]
    asked = packets(b"command=" + command + b"\n", b"pathname=" + os.fsencode(path) + b"\n")
    return asked + packets(*parts)


def warn(message: str, hint: str | None) -> None:
    raise AssertionError(message)


def answers(*requests: bytes, settings: FilterSettings | None = None) -> Iterator[bytes]:
    """Have requests answered, one after another, all of them successes."""
    answered = BytesIO()
    process = FilterProcess(
        PacketReader(BytesIO(greeting() + b"".join(requests))), PacketWriter(answered)
    )
    serve(process, settings or FilterSettings(), warn)
    replies = PacketReader(BytesIO(answered.getvalue()))
    assert list(replies.lines()) == [b"git-filter-server", b"version=2"]
    list(replies.lines())
    for _ in requests:
        assert list(replies.lines()) == [b"status=success"]
        yield b"".join(map(bytes, replies.content()))
        assert list(replies.lines()) == []


def test_what_is_sent_is_cleaned_once_while_it_comes(here: Path, cleans: Called) -> None:
    (here / NAME).write_bytes(MODEL)
    assert list(answers(request(MODEL))) == [text_of(MODEL)]
    assert cleans == [(Windowed, MODEL)]


def test_hashing_begins_before_all_is_sent(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / NAME).write_bytes(MODEL)
    begun = threading.Event()
    digest = TextWriter._digest

    def recorded(self: TextWriter, place: object) -> object:
        begun.set()
        return digest(self, place)  # type: ignore[arg-type]

    monkeypatch.setattr(TextWriter, "_digest", recorded)
    receive, send = os.pipe()
    sent = greeting() + request(MODEL)
    were_early = []

    def git() -> None:
        # All but what a full pipe would hold back as well.
        with FileIO(send, "wb") as stream:
            for part in (sent[:-100_000], sent[-100_000:]):
                rest = memoryview(part)
                while rest:
                    rest = rest[stream.write(rest) :]
                were_early.append(begun.wait(PATIENCE))

    sender = threading.Thread(target=git)
    sender.start()
    answered = BytesIO()
    with FileIO(receive) as stream:
        serve(FilterProcess(PacketReader(stream), PacketWriter(answered)), FilterSettings(), warn)
    sender.join()
    assert were_early == [True, True]
    assert text_of(MODEL)[:1000] in answered.getvalue()


@pytest.mark.parametrize("in_memory", [0, 64 * 1024 * 1024])
@pytest.mark.parametrize(
    "in_tree",
    [OTHER, MODEL[:-4], MODEL[:1_100_000], MODEL + b"more", MODEL * 3, b"", bytes(len(MODEL))],
    ids=["other", "short", "shorter", "long", "longer", "empty", "zeros"],
)
def test_what_git_sends_counts_not_the_file(in_tree: bytes, in_memory: int, here: Path) -> None:
    """A file that changes while it is sent, and another content for its path."""
    (here / NAME).write_bytes(in_tree)
    found = list(answers(request(MODEL), settings=FilterSettings(in_memory=in_memory)))
    assert found == [text_of(MODEL)]


def test_no_file_a_link_or_a_folder_is_nothing_to_expect(here: Path, cleans: Called) -> None:
    (here / "target").write_bytes(MODEL)
    (here / "link").symlink_to("target")
    (here / "folder").mkdir()
    os.mkfifo(here / "pipe")
    with (here / "vast").open("wb") as file:
        file.truncate(1 << 42)
    names = ["missing", "link", "folder", "pipe", "vast", "folder/../../x", "n" * 5000]
    found = list(answers(*(request(MODEL, path=name) for name in names)))
    assert found == [text_of(MODEL)] * len(names)
    assert cleans == [(memoryview, MODEL)] * len(names)


def test_files_of_different_kinds_follow_each_other(here: Path) -> None:
    text = text_of(MODEL)
    damaged = bytearray(OTHER)
    damaged[8:40] = bytes(32)
    contents = [MODEL, text, bytes(damaged), OTHER, b"", bytes(2_000_000)]
    for number, content in enumerate(contents):
        (here / f"{number}.safetensors").write_bytes(content)
    asked = [request(each, path=f"{n}.safetensors") for n, each in enumerate(contents)]
    assert list(answers(*asked)) == [text_of(each) for each in contents]
    assert text_of(text) == text


def test_a_content_that_is_cut_short_leaves_no_thread(here: Path) -> None:
    (here / NAME).write_bytes(MODEL)
    before = threading.active_count()
    sent = BytesIO(greeting() + request(MODEL)[:-200_000])
    with pytest.raises(ProtocolError):
        serve(FilterProcess(PacketReader(sent), PacketWriter(BytesIO())), FilterSettings(), warn)
    assert threading.active_count() == before


def test_where_no_store_can_be_found_is_told_when_it_is_needed(here: Path) -> None:
    (here / NAME).write_bytes(MODEL)
    said = []

    def store() -> None:
        raise EnvironmentFailure("no such place")

    answered = BytesIO()
    process = FilterProcess(
        PacketReader(BytesIO(greeting() + request(MODEL))), PacketWriter(answered)
    )
    serve(process, FilterSettings(store=store), lambda message, _hint: said.append(message))
    assert said == [f"{NAME}: no such place"]
    assert answered.getvalue().endswith(packets(b"status=error\n"))


def test_what_became_of_a_content_is_learnt_when_git_has_it(repo: Repo, here: Path) -> None:
    """Git hashes then, and need not wait for it; the object is there before."""
    (here / NAME).write_bytes(MODEL)
    store = ObjectStore(repo.repository)
    answered = BytesIO()
    learnt = []

    def learn(data: ByteView, text: TextWriter, oid: str) -> None:
        assert answered.getvalue().endswith(b"00000000")
        assert store.find(oid) is not None
        learnt.append((bytes(data), text.size, oid))

    process = FilterProcess(
        PacketReader(BytesIO(greeting() + request(MODEL))), PacketWriter(answered)
    )
    serve(process, FilterSettings(store=lambda: store, learn=learn), warn)
    text = text_of(MODEL)
    oid = repo.git("hash-object", "--stdin", "--no-filters", stdin=text).decode().strip()
    assert learnt == [(MODEL, len(text), oid)]


def test_what_can_not_be_learnt_is_no_reason_to_fail(repo: Repo, here: Path) -> None:
    (here / NAME).write_bytes(MODEL)
    store = ObjectStore(repo.repository)

    def learn(data: ByteView, text: TextWriter, oid: str) -> None:
        raise EnvironmentFailure("nowhere to keep it")

    settings = FilterSettings(store=lambda: store, learn=learn)
    assert list(answers(request(MODEL), request(OTHER), settings=settings)) == [
        text_of(MODEL),
        text_of(OTHER),
    ]


def test_what_comes_and_what_goes_is_counted_where_somebody_looks(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: dict[tuple[str, int | None], int] = {}

    @contextlib.contextmanager
    def how(name: str, total: int | None) -> Iterator[Callable[[int], None]]:
        counts[name, total] = 0

        def advance(count: int) -> None:
            counts[name, total] += count

        yield advance

    monkeypatch.setattr(progress, "how", how)
    content = safetensors(*range(300_000))
    made = text_of(content)
    (here / NAME).write_bytes(content)
    assert list(answers(request(content), request(made, command=b"smudge"))) == [made, content]
    # In bytes of the file, half of them for what comes and half for what goes.
    assert counts == {
        (f"adding {NAME}", len(content)): pytest.approx(len(content), rel=0.01),
        (f"restoring {NAME}", None): pytest.approx(len(content), rel=0.01),
    }
