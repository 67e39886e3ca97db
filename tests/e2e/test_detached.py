"""The driver wtxt-detached in real repositories: git has hashes, the store has the data."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from pathlib import Path

import pytest

from tests.e2e.conftest import assert_clean_when_touched
from tests.kit import LAUNCHER, Repo, safetensors, text_of
from tests.kit.templates import Templates, copyable
from tests.text.naive_detached import detached, judge
from wtxtgit.store.place import store_of

ATTRIBUTES = "*.safetensors filter=wtxt-detached diff=wtxt merge=wtxt -text\n"
RANDOM = random.Random(1)  # noqa: S311 - the same in every run
VALUES = [RANDOM.gauss(0, 1) for _ in range(40_000)]
MODEL = safetensors(*VALUES)
CHANGED = safetensors(*VALUES[:-1], 7.0)
SMALL = safetensors(1.0, 2.0)
NAME = "model.safetensors"


@pytest.fixture
def kept(templates: Templates, tmp_path: Path, driver: None) -> Repo:
    """A repository with a committed checkpoint whose data are in the store."""

    def make(folder: Path) -> None:
        repo = copyable(folder)
        repo.write(".gitattributes", ATTRIBUTES)
        repo.write(NAME, MODEL)
        repo.write("small.safetensors", SMALL)
        repo.add()
        repo.commit()
        assert_clean_when_touched(repo, (".gitattributes", NAME, "small.safetensors"))

    return Repo(templates.copy("kept", make, tmp_path / "repo"))


def drop_store(repo: Repo) -> Path:
    """Take the store away; gives where it is now."""
    aside = repo.path.parent / "aside"
    shutil.move(repo.path / ".git/wtxt/store", aside)
    return aside


def bring_back(repo: Repo, aside: Path) -> None:
    # What git looked at meanwhile may have begun another one.
    shutil.copytree(aside, repo.path / ".git/wtxt/store", dirs_exist_ok=True)


@pytest.mark.parametrize("program", [("git",), LAUNCHER.arguments], ids=["git", "wtxtgit"])
def test_a_checkout_asks_git_nothing_twice(
    kept: Repo, tmp_path: Path, program: tuple[str, ...]
) -> None:
    (kept.path / NAME).unlink()
    trace = tmp_path / "trace"
    kept.run(*program, "checkout", "--", NAME, env={"GIT_TRACE2_EVENT": os.fspath(trace)})
    assert (kept.path / NAME).read_bytes() == MODEL
    events = [json.loads(line) for line in trace.read_bytes().splitlines()]
    asked = [tuple(event["argv"]) for event in events if event["event"] == "start"]
    assert ("config", "--list", "-z") in [words[1:] for words in asked]
    assert len(asked) == len(set(asked))


class TestClean:
    def test_git_has_the_detached_text_and_the_store_its_payload(self, kept: Repo) -> None:
        text, payload = detached(text_of(MODEL))
        assert kept.blob(NAME) == text
        store = store_of(kept.repository)
        assert {name: bytes(store.read(bytes.fromhex(name))) for name in payload} == payload
        # Little ones stay whole: git can show them.
        assert kept.blob("small.safetensors") == text_of(SMALL)
        assert kept.status() == b""

    @pytest.mark.parametrize("count", [23_200, 23_300])
    def test_texts_up_to_a_size_stay_whole(self, kept: Repo, count: int) -> None:
        file = safetensors(*range(count))
        whole = text_of(file)
        kept.write("edge.safetensors", file)
        kept.add("edge.safetensors")
        wanted = whole if len(whole) <= 131_072 else detached(whole)[0]
        assert (len(whole) <= 131_072) == (count == 23_200)
        assert kept.blob("edge.safetensors") == wanted

    def test_add_of_ours_stores_the_same(self, kept: Repo) -> None:
        kept.write("other.safetensors", CHANGED)
        kept.wtxtgit("add", "other.safetensors")
        text, payload = detached(text_of(CHANGED))
        assert kept.blob("other.safetensors") == text
        assert store_of(kept.repository).has(map(bytes.fromhex, payload)) == set(
            map(bytes.fromhex, payload)
        )
        assert kept.status() == b"A  other.safetensors\0"
        os.utime(kept.path / "other.safetensors", (1, 1))
        assert kept.status() == b"A  other.safetensors\0"

    @pytest.mark.slow
    def test_what_is_known_is_kept_again_where_the_store_lost_it(self, kept: Repo) -> None:
        kept.write("other.safetensors", CHANGED)
        kept.wtxtgit("add", "other.safetensors")
        kept.git("rm", "-q", "--cached", "other.safetensors")
        shutil.rmtree(kept.path / ".git/wtxt/store")
        kept.wtxtgit("add", "other.safetensors")
        assert judge_at_hand(kept, "other.safetensors") == "complete"

    def test_a_detached_text_is_stored_as_it_is(self, kept: Repo) -> None:
        text = kept.blob(NAME)
        for content, is_valid in ((text, True), (text[:-9], False)):
            kept.write("given.safetensors", content)
            done = kept.run("git", "add", "--", "given.safetensors")
            assert kept.blob("given.safetensors") == content
            assert (b"not a valid detached text" in done.stderr) == (not is_valid)

    @pytest.mark.slow
    def test_a_native_text_is_detached_only_with_a_layout(self, kept: Repo) -> None:
        import numpy as np

        import wtxtgit

        plain = wtxtgit.dumps({"w": np.arange(40_000, dtype="f4")})
        laid = wtxtgit.dumps({"w.0": np.arange(40_000, dtype="f4")})
        for name, text in (("p.safetensors", plain), ("l.safetensors", laid)):
            kept.write(name, text)
        kept.add("p.safetensors", "l.safetensors")
        assert kept.blob("p.safetensors") == plain
        assert kept.blob("l.safetensors") == detached(laid)[0]
        kept.commit()
        for name in ("p.safetensors", "l.safetensors"):
            (kept.path / name).unlink()
        kept.git("checkout", "--", ".")
        assert (kept.path / "l.safetensors").read_bytes() == laid
        assert (kept.path / "p.safetensors").read_bytes() == plain
        assert kept.status() == b""

    def test_a_full_store_refuses_the_file(self, kept: Repo) -> None:
        shutil.rmtree(kept.path / ".git/wtxt/store")
        (kept.path / ".git/wtxt/store").write_bytes(b"no folder")
        kept.write("other.safetensors", CHANGED)
        done = kept.run("git", "add", "--", "other.safetensors", ok=(128,))
        assert b"other.safetensors" in done.stderr
        assert kept.git("ls-files", "other.safetensors") == b""


def judge_at_hand(repo: Repo, name: str) -> str | None:
    """How much of a staged text's payload is in the store, by the second reader."""
    store = store_of(repo.repository)
    text = repo.blob(name)
    names = {line.split(b" sha256=")[1][:64].decode() for line in text.split(b"\nch ")[1:]}
    there = store.has(map(bytes.fromhex, names))
    return judge(text, {one.hex(): bytes(store.read(one)) for one in there})[1]


class TestSmudge:
    def test_a_checkout_gives_the_file(self, kept: Repo) -> None:
        kept.write(NAME, CHANGED)
        kept.add(NAME)
        kept.commit()
        kept.git("checkout", "-q", "HEAD~1")
        assert (kept.path / NAME).read_bytes() == MODEL
        kept.git("checkout", "-q", "main")
        assert (kept.path / NAME).read_bytes() == CHANGED
        assert kept.status() == b""

    def test_without_payload_the_text_stands_there_and_is_clean(self, kept: Repo) -> None:
        kept.write("b.safetensors", CHANGED)
        kept.add()
        kept.commit()
        text = kept.blob(NAME)
        aside = drop_store(kept)
        (kept.path / NAME).unlink()
        (kept.path / "b.safetensors").unlink()
        done = kept.run("git", "checkout", "--", ".")
        assert (kept.path / NAME).read_bytes() == text
        assert kept.status() == b""
        assert done.stderr.count(b"wtxtgit: warning: ") == 1
        assert b"and 1 more file" in done.stderr
        os.utime(kept.path / NAME, (1, 1))
        assert kept.status() == b""
        kept.git("commit", "-q", "-a", "--allow-empty", "-m", "nothing")
        assert kept.git("diff", "HEAD~1", "--stat") == b""
        listed = kept.wtxtgit("status").stdout
        assert b"detached" in listed
        # Once the payload is there the files come.
        bring_back(kept, aside)
        kept.wtxtgit("checkout")
        assert (kept.path / NAME).read_bytes() == MODEL
        assert (kept.path / "b.safetensors").read_bytes() == CHANGED
        assert kept.status() == b""

    def test_checkout_of_ours_without_payload(self, kept: Repo) -> None:
        aside = drop_store(kept)
        (kept.path / NAME).unlink()
        done = kept.wtxtgit("checkout")
        assert done.stderr.count(b"wtxtgit: warning: ") == 1
        assert (kept.path / NAME).read_bytes() == kept.blob(NAME)
        assert kept.status() == b""
        bring_back(kept, aside)
        kept.wtxtgit("checkout", NAME)
        assert (kept.path / NAME).read_bytes() == MODEL

    def test_a_lost_chunk_and_a_damaged_one_leave_the_text(self, kept: Repo) -> None:
        (pack,) = (kept.path / ".git/wtxt/store/packs").glob("*.pack")
        content = bytearray(pack.read_bytes())
        content[len(content) // 3] ^= 1
        pack.chmod(0o600)
        pack.write_bytes(content)
        (kept.path / NAME).unlink()
        done = kept.run("git", "checkout", "--", NAME)
        assert (kept.path / NAME).read_bytes() == kept.blob(NAME)
        assert b"left as a detached text" in done.stderr
        assert kept.status() == b""

    def test_the_other_driver_reads_it_too(self, kept: Repo) -> None:
        kept.write(".gitattributes", ATTRIBUTES.replace("wtxt-detached", "wtxt"))
        (kept.path / NAME).unlink()
        kept.git("checkout", "--", NAME)
        assert (kept.path / NAME).read_bytes() == MODEL

    def test_nothing_of_a_text_that_lies_gets_out(self, kept: Repo) -> None:
        text = kept.blob(NAME)
        at = text.index(b" sha256=", text.index(b"\nch ix=000001"))
        first = text.index(b" sha256=", text.index(b"\nch ix=000000", text.index(b"arr name=w")))
        # Two chunks change places: each is what its name says.
        lying = bytearray(text)
        lying[at : at + 72] = text[first : first + 72]
        lying[first : first + 72] = text[at : at + 72]
        oid = kept.git("hash-object", "-w", "--stdin", stdin=bytes(lying)).decode().strip()
        kept.git("update-index", "--cacheinfo", f"100644,{oid},{NAME}")
        (kept.path / NAME).unlink()
        kept.run("git", "checkout", "--", NAME)
        assert (kept.path / NAME).read_bytes() == bytes(lying)


class TestCommands:
    def test_track_writes_the_line(self, repo: Repo, driver: None) -> None:
        repo.wtxtgit("track", "--detached", "*.safetensors")
        lines = (repo.path / ".gitattributes").read_text()
        assert ATTRIBUTES in lines
        assert b"detached" in repo.wtxtgit("track").stdout
        assert b"already tracked" in repo.wtxtgit("track", "--detached", "*.safetensors").stdout
        repo.wtxtgit("track", "*.safetensors")
        assert (
            ATTRIBUTES.replace("wtxt-detached", "wtxt")
            in (repo.path / ".gitattributes").read_text()
        )
        repo.wtxtgit("track", "--detached", "*.safetensors")
        assert (repo.path / ".gitattributes").read_text() == lines
        repo.wtxtgit("untrack", "*.safetensors")
        assert not (repo.path / ".gitattributes").exists()

    @pytest.mark.slow
    def test_both_forms_in_one_history(self, kept: Repo) -> None:
        kept.wtxtgit("track", "*.safetensors")
        kept.git("add", "--renormalize", ".")
        assert kept.blob(NAME) == text_of(MODEL)
        kept.commit()
        for revision in ("HEAD~1", "main"):
            kept.git("checkout", "-q", revision)
            assert (kept.path / NAME).read_bytes() == MODEL
            assert kept.status() == b""
        report = kept.wtxtgit("diff", f"HEAD~1:{NAME}", f"HEAD:{NAME}").stdout
        assert b"all identical" in report

    @pytest.mark.slow
    def test_install_and_doctor_know_both(self, repo: Repo) -> None:
        repo.wtxtgit("install", "--local")
        config = repo.git("config", "--local", "--list")
        assert b"filter.wtxt-detached.required=true" in config
        repo.git("config", "--local", "--unset", "filter.wtxt-detached.process")
        done = repo.wtxtgit("doctor", ok=(1,))
        assert b"filter.wtxt-detached.process" in done.stdout
        repo.wtxtgit("doctor", "--fix")
        repo.wtxtgit("uninstall", "--local")
        assert b"wtxt" not in repo.git("config", "--local", "--list")

    def test_ls_files_names_the_format(self, kept: Repo) -> None:
        listed = kept.wtxtgit("ls-files").stdout
        assert listed.count(b"safetensors  ") >= 2
        assert b"raw" not in listed

    @pytest.mark.slow
    def test_git_diff_shows_the_weights(self, kept: Repo) -> None:
        kept.write(NAME, CHANGED)
        shown = kept.git("diff", NAME)
        assert b"1 changed" in shown
        kept.add(NAME)
        kept.commit()
        assert b"1 changed" in kept.git("diff", "HEAD~1", "HEAD", "--", NAME)
        assert b"arr name=w" in kept.git("diff", "--no-ext-diff", "HEAD~1", "HEAD", "--", NAME)


class TestMerge:
    def branches(self, kept: Repo) -> tuple[bytes, bytes, bytes]:
        """Two branches that change different ends of the tensor, and what both make of it."""

        def model(first: float, last: float) -> bytes:
            return safetensors(first, *VALUES[1:-1], last, name="w")

        kept.git("checkout", "-q", "-b", "theirs")
        kept.write(NAME, model(VALUES[0], -1.0))
        kept.add(NAME)
        kept.commit()
        kept.git("checkout", "-q", "main")
        kept.write(NAME, model(-2.0, VALUES[-1]))
        kept.add(NAME)
        kept.commit()
        return model(-2.0, VALUES[-1]), model(VALUES[0], -1.0), model(-2.0, -1.0)

    @pytest.mark.slow
    def test_rows_are_merged_into_a_detached_text(self, kept: Repo) -> None:
        _, _, merged = self.branches(kept)
        kept.git("merge", "-q", "--no-edit", "theirs")
        assert (kept.path / NAME).read_bytes() == merged
        assert kept.blob(NAME) == detached(text_of(merged))[0]
        assert kept.status() == b""

    @pytest.mark.slow
    def test_without_payload_it_is_a_conflict_that_loses_nothing(self, kept: Repo) -> None:
        ours, _, merged = self.branches(kept)
        aside = drop_store(kept)
        kept.run("git", "merge", "-q", "theirs", ok=(1,))
        assert kept.status().startswith(b"UU ")
        bring_back(kept, aside)
        kept.git("checkout", "--ours", "--", NAME)
        assert (kept.path / NAME).read_bytes() == ours
        kept.wtxtgit("resolve", NAME)
        assert (kept.path / NAME).read_bytes() == merged
        assert kept.blob(NAME) == detached(text_of(merged))[0]


def test_a_version_that_is_much_the_same_takes_little_room(kept: Repo) -> None:
    def size() -> int:
        return sum(f.stat().st_size for f in (kept.path / ".git/wtxt/store/packs").iterdir())

    before = size()
    # Every value a little larger: no chunk is the same.
    raw = bytearray(MODEL)
    start = len(raw) - 4 * len(VALUES)
    for i in range(0, len(VALUES), 97):
        at = start + 4 * i
        raw[at : at + 4] = struct.pack("<f", VALUES[i] * 1.0001)
    kept.write(NAME, bytes(raw))
    kept.add(NAME)
    assert kept.blob(NAME) != kept.blob(NAME, "HEAD")
    assert size() - before < before / 10
    (kept.path / NAME).unlink()
    kept.git("checkout", "--", NAME)
    assert (kept.path / NAME).read_bytes() == bytes(raw)


@pytest.mark.parametrize("program", [("git",), LAUNCHER.arguments], ids=["git", "wtxtgit"])
def test_many_files_are_one_pack(kept: Repo, program: tuple[str, ...]) -> None:
    folder = kept.path / ".git/wtxt/store/packs"
    before = set(folder.iterdir())
    contents = {
        f"many/{number}.safetensors": safetensors(*range(number, 30_000 + number), name="w")
        for number in range(12)
    }
    for name, content in contents.items():
        kept.write(name, content)
    kept.run(*program, "add", "many")
    assert len(set(folder.iterdir()) - before) == 1
    assert kept.wtxtgit("store", "verify").returncode == 0
    kept.commit()
    there = kept.path.parent / "there"
    kept.git("init", "-q", "--bare", os.fspath(there))
    kept.git("remote", "add", "origin", os.fspath(there))
    kept.wtxtgit("push", "origin", "HEAD")
    assert len(list((there / "refs/wtxt/store").iterdir())) <= 2 * 2
    drop_store(kept)
    kept.wtxtgit("fetch", "HEAD")
    shutil.rmtree(kept.path / "many")
    kept.git("checkout", "--", "many")
    for name, content in contents.items():
        assert (kept.path / name).read_bytes() == content
