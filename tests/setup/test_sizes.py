from __future__ import annotations

import tarfile
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit import Repo, safetensors
from wtxtgit.filter.status import tracked as tracked_entries
from wtxtgit.setup import diagnosis, doctor, sizes
from wtxtgit.setup.diagnosis import CheckResult, Level
from wtxtgit.setup.sizes import MAX_FORGE_BLOB, BlobSettings, Machine, TextSize

MIB, GIB = 1 << 20, 1 << 30
LARGE = Machine(64 * GIB, 2)
DEFAULTS = BlobSettings(sizes.DEFAULT_THRESHOLD, 0, 2)


def of(*texts: int) -> list[TextSize]:
    found = [TextSize(b"%d.fold" % n, text, text * 3 // 4) for n, text in enumerate(texts)]
    return sorted(found, key=lambda size: -size.text)


def test_small_texts_need_no_settings() -> None:
    assert sizes.suited([], DEFAULTS, LARGE) == DEFAULTS
    assert sizes.suited(of(40 * MIB, 512 * MIB), DEFAULTS, LARGE) == DEFAULTS


def test_a_threshold_above_the_largest_text() -> None:
    assert sizes.suited(of(600 * MIB), DEFAULTS, LARGE).threshold == GIB
    assert sizes.suited(of(900 * MIB), DEFAULTS, LARGE).threshold == 2 * GIB
    tuned = BlobSettings(2 * GIB, 0, 2)
    assert sizes.suited(of(600 * MIB), tuned, LARGE).threshold == 2 * GIB


def test_no_deltas_of_what_the_memory_does_not_hold() -> None:
    small = Machine(4 * GIB, 1)
    assert sizes.suited(of(600 * MIB), DEFAULTS, small).threshold == 819 * MIB
    assert sizes.suited(of(900 * MIB), DEFAULTS, small).threshold == 512 * MIB
    assert sizes.suited(of(900 * MIB, 600 * MIB), DEFAULTS, small).threshold == 819 * MIB


def test_no_deltas_of_what_their_offsets_do_not_reach() -> None:
    assert sizes.suited(of(4 * GIB + 1), DEFAULTS, LARGE) == DEFAULTS
    assert sizes.suited(of(4 * GIB), DEFAULTS, LARGE).threshold == 4 * GIB


def test_the_window_is_bound_where_the_memory_would_not_do() -> None:
    wanted = sizes.suited(of(500 * MIB), DEFAULTS, Machine(16 * GIB, 2))
    assert wanted == BlobSettings(512 * MIB, 2000 * MIB, 2)
    # One thread with its window and what it holds beside it, in half of the memory.
    assert sizes.suited(of(500 * MIB), DEFAULTS, Machine(8 * GIB, 2)) == BlobSettings(
        512 * MIB, 2000 * MIB, 1
    )
    assert sizes.suited(of(500 * MIB), DEFAULTS, Machine(5 * GIB, 2)) == BlobSettings(
        512 * MIB, 560 * MIB, 1
    )
    many = BlobSettings(512 * MIB, 0, 64)
    assert sizes.suited(of(500 * MIB), many, Machine(16 * GIB, 64)).threads == 3


def test_a_window_that_is_set_stays() -> None:
    now = BlobSettings(512 * MIB, 7, 2)
    assert sizes.suited(of(500 * MIB), now, Machine(2 * GIB, 2)) == now


@given(
    st.lists(st.integers(0, 6 * GIB), max_size=4),
    st.integers(64 * MIB, 256 * GIB),
    st.integers(1, 128),
)
def test_settings_fit_the_memory_and_are_settled(texts: list[int], memory: int, cores: int) -> None:
    here = Machine(memory, cores)
    now = BlobSettings(sizes.DEFAULT_THRESHOLD, 0, cores)
    wanted = sizes.suited(of(*texts), now, here)
    assert wanted.threshold >= now.threshold
    assert wanted.threads <= cores
    assert sizes.suited(of(*texts), wanted, here) == wanted
    if wanted.threshold > now.threshold:
        assert wanted.threshold * sizes.REPACK_LEAST <= memory + sizes.REPACK_LEAST * MIB
    if wanted.window:
        assert wanted.window % MIB == 0


@pytest.mark.parametrize(
    ("size", "spelled"),
    [(0, "0"), (1, "1"), (1024, "1k"), (1536 * MIB, "1536m"), (2 * GIB, "2g"), (1025, "1025")],
)
def test_sizes_are_spelled_as_git_reads_them(repo: Repo, size: int, spelled: str) -> None:
    assert sizes.spelled(size) == spelled
    repo.git("config", "a.b", spelled)
    assert int(repo.git("config", "--type=int", "a.b")) == size


def test_settings_are_read_as_git_reads_them(repo: Repo) -> None:
    assert sizes.settings(repo.repository, LARGE) == DEFAULTS
    repo.git("config", "core.bigFileThreshold", "1G")
    repo.git("config", "pack.windowMemory", "3k")
    repo.git("config", "pack.threads", "5")
    assert sizes.settings(repo.repository, LARGE) == BlobSettings(GIB, 3072, 5)


@pytest.mark.slow
def test_files_that_are_staged_changed_or_about_to_be(tracked: Repo) -> None:
    staged = len(tracked.blob("model.safetensors"))
    tracked.write("new.safetensors", safetensors(*range(5000)))
    tracked.write("ignored.safetensors", safetensors(*range(5000)))
    tracked.write("other.bin", bytes(99999))
    tracked.write(".gitignore", "ignored*\n")
    found = sizes.text_sizes(tracked.repository, tracked_entries(tracked.repository))
    assert [size.path for size in found] == [b"new.safetensors", b"model.safetensors"]
    assert found[1].text == staged
    tracked.add()
    estimate = found[0].text
    (there, _) = sizes.text_sizes(tracked.repository, tracked_entries(tracked.repository))
    assert 0.95 < there.text / estimate < 1.1
    tracked.write("model.safetensors", safetensors(*range(9000)))
    (changed, _) = sizes.text_sizes(tracked.repository, tracked_entries(tracked.repository))
    assert changed.path == b"model.safetensors"
    assert changed.text > changed.binary


def test_what_is_too_large_is_better_kept_detached() -> None:
    check = diagnosis.forge(of(200 * MIB), MAX_FORGE_BLOB)
    assert check.fix is not None
    assert check.fix.startswith("wtxtgit track --detached ")


def test_nothing_is_told_where_nothing_is_large() -> None:
    found = of(MIB)
    assert diagnosis.forge(found, MAX_FORGE_BLOB).message == (
        "all texts are small enough for forges"
    )
    assert diagnosis.forge(of(2 * MIB), MAX_FORGE_BLOB).message == (
        "all texts are small enough for forges; pull requests may not show a diff of 1 text, but "
        "wtxtgit review does"
    )
    assert diagnosis.deltas(found, DEFAULTS, DEFAULTS, LARGE).level is Level.OK
    assert diagnosis.memory(found, DEFAULTS, DEFAULTS, LARGE).level is Level.OK


def test_what_can_be_raised_and_what_is_too_large_are_told_apart() -> None:
    found = of(900 * MIB, 600 * MIB)
    small = Machine(4 * GIB, 1)
    wanted = sizes.suited(found, DEFAULTS, small)
    check = diagnosis.deltas(found, DEFAULTS, wanted, small)
    assert check.fixable
    assert check.fix is not None
    assert check.fix.startswith("git config core.bigFileThreshold 819m")
    assert (
        "deltas would need 4.39 GiB of memory, this machine has 4 GiB: wtxtgit track --detached"
        in check.fix
    )
    only = diagnosis.deltas(of(900 * MIB), DEFAULTS, DEFAULTS, small)
    assert not only.fixable
    assert only.fix is not None
    assert only.fix.startswith("deltas would need")
    longer = diagnosis.deltas(of(5 * GIB), DEFAULTS, DEFAULTS, LARGE)
    assert longer.fix is not None
    assert longer.fix.startswith("git makes no deltas of texts over 4 GiB")


def test_memory_is_told_of_where_a_command_would_not_have_it() -> None:
    found = of(500 * MIB)
    for memory, words in ((GIB // 2, "git checkout"), (2 * GIB, "git diff --no-ext-diff")):
        check = diagnosis.memory(found, DEFAULTS, DEFAULTS, Machine(memory, 2))
        assert check.level is Level.WARN
        assert check.message.startswith(words)
        assert check.paths == (b"0.fold",)
    here = Machine(16 * GIB, 2)
    check = diagnosis.memory(found, DEFAULTS, sizes.suited(found, DEFAULTS, here), here)
    assert check.fixable
    assert check.fix == "git config pack.windowMemory 2000m"


@pytest.mark.slow
def test_archives_have_texts_of_blobs_over_the_threshold(tracked: Repo, tmp_path: Path) -> None:
    """Git streams them, through no filter; what doctor advises gives the files."""
    file = safetensors(*range(2000))
    tracked.write("model.safetensors", file)
    tracked.add()
    tracked.commit()

    def archived(*options: str) -> bytes:
        packed = tracked.git(*options, "archive", "HEAD")
        with tarfile.open(fileobj=BytesIO(packed)) as tar:
            member = tar.extractfile("model.safetensors")
            assert member is not None
            return member.read()

    def found() -> CheckResult:
        checks = doctor.examine(tracked.repository).checks
        return next(check for check in checks if check.name == "archive")

    assert archived() == file
    assert found().level is Level.OK
    tracked.git("config", "core.bigFileThreshold", "4k")
    assert archived() == tracked.blob("model.safetensors", "HEAD")
    told = found()
    assert told.level is Level.WARN
    assert told.paths == (b"model.safetensors",)
    assert told.fix is not None
    command = told.fix.partition(" archive HEAD")[0].split()
    assert command[0] == "git"
    assert archived(*command[1:]) == file
    # Out of an archive the file comes back without git.
    text = tmp_path / "model.safetensors.wtxt"
    text.write_bytes(archived())
    tracked.wtxtgit("restore", str(text))
    assert (tmp_path / "model.safetensors").read_bytes() == file
