"""`wtxtgit.finalize` and `wtxtgit finalize`: the root of a text that was written before it."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacl.signing import SigningKey

import wtxtgit
from tests.data import FIXTURES
from tests.kit import Repo
from wtxtgit.checkpoint.emit import NewGeneration, emit, write_text
from wtxtgit.checkpoint.finalize import prev_of
from wtxtgit.checkpoint.wsum import wsum_path
from wtxtgit.errors import CheckError, InputError, TextError, UsageError
from wtxtgit.model.array import Meta, Signature
from wtxtgit.text import digest
from wtxtgit.text.digest import SignatureState
from wtxtgit.text.verify import verify

SEED = bytes(range(32))
PUBLIC = bytes(SigningKey(SEED).verify_key)
ARRAYS = {"W": np.arange(600.0).reshape(20, 30), "b": np.zeros(0), "layers.0": np.ones(3, "f2")}
META = Meta("weights/v1", 7, "2026-01-31T12:00:00Z", "abc")
MODEL = FIXTURES / "plain" / "mixed_meta_a.safetensors"
PREV = bytes(range(32))


def sign(message: bytes) -> Signature:
    return digest.sign(SEED, message)


def dump_pending(path: Path, **more: Any) -> Path:
    wtxtgit.dump(ARRAYS, path, meta=META, pending=True, **more)
    return path


def merkle(path: Path) -> bytes:
    this = wtxtgit.verify(path).merkle_this
    assert this is not None
    return this


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return dump_pending(tmp_path / "p.wtxt")


class TestInline:
    @pytest.mark.parametrize(
        "more", [{}, {"prev": PREV}, {"sign": sign}, {"prev": PREV, "sign": sign}]
    )
    @pytest.mark.parametrize("options", [{}, {"hmac_key": b"k", "audit": 'a="b c"'}])
    def test_is_what_would_have_been_written_at_once(
        self, options: dict[str, Any], more: dict[str, Any], tmp_path: Path
    ) -> None:
        text = dump_pending(tmp_path / "p.wtxt", **options)
        text.chmod(0o640)
        wtxtgit.finalize(text, **more, inline=True)
        assert text.read_bytes() == wtxtgit.dumps(ARRAYS, meta=META, **options, **more)
        assert [path.name for path in tmp_path.iterdir()] == ["p.wtxt"]
        assert text.stat().st_mode & 0o777 == 0o640

    def test_of_a_container_is_what_emit_gives(self, tmp_path: Path) -> None:
        made = NewGeneration(gen=3, build="x", prev=PREV)
        whole, text = tmp_path / "whole.wtxt", tmp_path / "p.wtxt"
        write_text(emit(MODEL, made), whole)
        write_text(emit(MODEL, NewGeneration(gen=3, build="x", pending=True)), text)
        wtxtgit.finalize(text, prev=PREV, inline=True)
        assert text.read_bytes() == whole.read_bytes()

    def test_keeps_what_the_wsum_said_of_the_chain(self, text: Path) -> None:
        wtxtgit.finalize(text, prev=PREV)
        wtxtgit.finalize(text, inline=True)
        assert text.read_bytes() == wtxtgit.dumps(ARRAYS, meta=META, prev=PREV)
        assert not wsum_path(text).exists()

    def test_loses_no_signature(self, text: Path) -> None:
        wtxtgit.finalize(text, sign=sign)
        wtxtgit.finalize(text, inline=True)
        assert wtxtgit.verify(text, public_keys=[PUBLIC]).signature is SignatureState.VALID
        assert wsum_path(text).exists()

    def test_takes_a_wsum_away_that_its_own_signature_replaces(self, text: Path) -> None:
        wtxtgit.finalize(text, sign=sign)
        wtxtgit.finalize(text, sign=sign, inline=True)
        assert not wsum_path(text).exists()

    def test_goes_on_where_it_was_ended(self, text: Path) -> None:
        """The text had its root, and its WSUM was not taken away yet."""
        wtxtgit.finalize(text, prev=PREV)
        wsum = wsum_path(text).read_bytes()
        wtxtgit.finalize(text, inline=True)
        wsum_path(text).write_bytes(wsum)
        wtxtgit.finalize(text, inline=True)
        assert not wsum_path(text).exists()
        with pytest.raises(InputError):
            wtxtgit.finalize(text, inline=True)

    def test_a_signer_that_fails_leaves_all_as_it_was(self, text: Path) -> None:
        def fail(_: bytes) -> Signature:
            raise KeyboardInterrupt

        before = text.read_bytes()
        with pytest.raises(KeyboardInterrupt):
            wtxtgit.finalize(text, sign=fail, inline=True)
        assert text.read_bytes() == before
        assert [path.name for path in text.parent.iterdir()] == ["p.wtxt"]


class TestBeside:
    @pytest.mark.parametrize("more", [{}, {"prev": PREV}, {"sign": sign}])
    def test_holds_with_its_text_alone(self, more: dict[str, Any], text: Path) -> None:
        before = text.read_bytes()
        with pytest.raises(TextError) as caught:
            wtxtgit.load(text)
        assert caught.value.kind == "pending"
        wtxtgit.finalize(str(text), **more)
        assert text.read_bytes() == before
        once = wtxtgit.loads(wtxtgit.dumps(ARRAYS, meta=META, **more)).report
        report = wtxtgit.verify(text, public_keys=[PUBLIC])
        assert report.ok
        assert report.merkle_this == once.merkle_this
        wanted = SignatureState.VALID if "sign" in more else SignatureState.ABSENT
        assert report.signature is wanted
        np.testing.assert_array_equal(wtxtgit.load(text)["W"], ARRAYS["W"])

    def test_a_second_time_nothing_changes(self, text: Path) -> None:
        wtxtgit.finalize(text, prev=PREV, sign=sign)
        before = wsum_path(text).stat()
        wtxtgit.finalize(text)
        wtxtgit.finalize(text, prev=PREV)
        after = wsum_path(text).stat()
        assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)

    def test_one_of_another_text_is_replaced(self, text: Path) -> None:
        wtxtgit.finalize(text, prev=PREV)
        wtxtgit.dump({"W": np.ones(3)}, text, pending=True)
        assert [p.kind for p in wtxtgit.verify(text).problems] == ["root", "merkle"]
        wtxtgit.finalize(text)
        assert wtxtgit.verify(text).ok

    @pytest.mark.parametrize(
        "content", [b"WLEDGER 1 repo=", b"notes\n", b"", b"WSUM 1 " + b"x" * 70_000]
    )
    def test_what_is_no_wsum_is_neither_read_nor_written_over(
        self, content: bytes, text: Path
    ) -> None:
        wsum_path(text).write_bytes(content)
        assert [p.kind for p in wtxtgit.verify(text).problems] == ["pending"]
        with pytest.raises(UsageError):
            wtxtgit.finalize(text)
        assert wsum_path(text).read_bytes() == content

    @pytest.mark.parametrize("content", [b"WSUM 1 nonsense\n", b"WSUM "])
    def test_one_that_is_not_well_formed_is_an_error(self, content: bytes, text: Path) -> None:
        wsum_path(text).write_bytes(content)
        assert [p.kind for p in wtxtgit.verify(text).problems] == ["syntax"]

    def test_of_a_text_with_a_root_it_has_to_say_the_same(self, text: Path) -> None:
        wtxtgit.finalize(text)
        wtxtgit.dump(ARRAYS, text, meta=META)
        assert wtxtgit.verify(text).ok
        wtxtgit.dump({"W": np.ones(3)}, text, meta=META)
        assert [p.kind for p in wtxtgit.verify(text).problems] == ["root"]

    def test_another_one_that_is_given_counts_instead(self, text: Path) -> None:
        wsum_path(text).write_bytes(b"WSUM 1 nonsense\n")
        other = dump_pending(text.parent / "q.wtxt")
        wtxtgit.finalize(other)
        assert wtxtgit.verify(text, wsum=wsum_path(other).read_bytes()).ok


class TestRefused:
    def test_a_text_with_a_root(self, text: Path) -> None:
        wtxtgit.dump(ARRAYS, text)
        for inline in (False, True):
            with pytest.raises(InputError):
                wtxtgit.finalize(text, inline=inline)

    def test_a_damaged_text(self, text: Path) -> None:
        content = text.read_bytes().replace(b"endarr", b"endarr ", 1)
        text.write_bytes(content)
        for inline in (False, True):
            with pytest.raises(CheckError):
                wtxtgit.finalize(text, inline=inline)
        assert text.read_bytes() == content
        assert not wsum_path(text).exists()

    def test_what_is_no_text(self, text: Path) -> None:
        text.write_bytes(MODEL.read_bytes())
        with pytest.raises(InputError):
            wtxtgit.finalize(text)

    def test_a_prev_that_is_no_hash(self, text: Path) -> None:
        with pytest.raises(UsageError):
            wtxtgit.finalize(text, prev=b"short")


class TestPrev:
    def test_may_be_a_hash_a_text_or_a_wsum(self, text: Path, tmp_path: Path) -> None:
        assert prev_of(PREV.hex(), text) == PREV
        whole = tmp_path / "whole.wtxt"
        wtxtgit.dump(ARRAYS, whole, prev=PREV)
        assert prev_of(str(whole), text) == merkle(whole)
        wtxtgit.finalize(text, prev=PREV)
        assert prev_of(str(text), text) == merkle(text)
        assert prev_of(str(wsum_path(text)), text) == merkle(text)

    def test_is_proved(self, text: Path, tmp_path: Path) -> None:
        with pytest.raises(CheckError):
            prev_of(str(text), text)
        wsum_path(text).write_bytes(b"WSUM 1 nonsense\n")
        with pytest.raises(InputError):
            prev_of(str(wsum_path(text)), text)
        with pytest.raises(InputError):
            prev_of(str(MODEL), text)

    def test_may_be_a_revision(
        self, repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(repo.path)
        text = dump_pending(repo.path / "p.wtxt")
        wtxtgit.finalize(text)
        repo.git("add", "--all")
        repo.commit()
        before = merkle(text)
        wtxtgit.dump({"W": np.ones(3)}, text, pending=True)
        wsum_path(text).unlink()
        assert prev_of("HEAD", Path("p.wtxt")) == before
        assert prev_of("HEAD:p.wtxt", Path("p.wtxt")) == before
        wtxtgit.finalize(text, prev=before)
        assert wtxtgit.verify(text).ok


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    """Of 64 MiB no more is held at a time than blocks under way."""
    text = tmp_path / "p.wtxt"
    wtxtgit.dump({"W": np.zeros(64 << 20, "u1")}, text, pending=True)
    tracemalloc.start()
    try:
        wtxtgit.finalize(text, inline=True, threads=1)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 24 << 20
    assert verify(memoryview(text.read_bytes())).ok
