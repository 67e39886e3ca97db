"""What can't be read is never called the same, unchanged or ok: sets of which a file can't be.

All commands that read checkpoints, whatever the cause and wherever it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import wtxtgit as api
from tests.cli.command import Command, Done
from tests.data import FIXTURES
from tests.kit import Repo
from tests.kit.refusals import REFUSED, is_possible
from wtxtgit.containers import any_format
from wtxtgit.errors import FormatError, NotRead, WtxtgitError
from wtxtgit.merge.version import Opener
from wtxtgit.model.tensor import Entry, ReadOptions, Tensor

NAMES = [f"t{n}" for n in range(6)]
INDEXES = {
    ".safetensors": "m.safetensors.index.json",
    ".aero": "m.aeroset.json",
    ".checkpoint": "m.metadata.json",
    ".gguf": "",
}
"""What names a set: its index, or its folder where there is none."""
READ_BACK = b"identical", b"unchanged: 6", b"  ok", b"ok  ", b"all tensors are the same"


def without_rights(path: Path) -> None:
    path.chmod(0)


def gone(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def circular(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def leading_out(path: Path) -> None:
    path.rename(path.parent.parent / f"{path.parent.name}.apart")
    path.symlink_to(f"../{path.parent.name}.apart")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_pointer(path: Path) -> None:
    path.write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{'1' * 64}\nsize 12345\n"
    )


CAUSES = [
    without_rights,
    gone,
    cut,
    emptied,
    dangling,
    circular,
    leading_out,
    a_folder,
    a_pipe,
    a_pointer,
]
Cause = Callable[[Path], None]


@pytest.fixture(params=INDEXES)
def ending(request: pytest.FixtureRequest) -> str:
    ending: str = request.param
    return ending


class Sets:
    """Two sets A and B of the same tensors, but for the values of one in the file that fails."""

    def __init__(self, command: Command, ending: str) -> None:
        self.command, self.folder = command, command.folder
        for side in "AB":
            (self.folder / side).mkdir()
            values = {
                name: np.full((4096,), n + (side == "B" and n == 2), "<f4")
                for n, name in enumerate(NAMES)
            }
            api.dump(values, self.folder / side / f"m{ending}", max_shard=40_000)
        index = INDEXES[ending]
        self.a, self.b = (f"{side}/{index}".rstrip("/") for side in "AB")
        self.victims = [self._holder(side) for side in "AB"]

    def _holder(self, side: str) -> Path:
        """The file that has the values of t2."""
        raw = np.full((4096,), 2 + (side == "B"), "<f4").tobytes()
        (file,) = (one for one in (self.folder / side).iterdir() if raw in one.read_bytes())
        return file

    def __call__(self, *arguments: str) -> Done:
        return self.command(*arguments, env={REFUSED: "rights"})


@pytest.fixture
def sets(wtxtgit: Command, ending: str) -> Sets:
    return Sets(wtxtgit, ending)


pytestmark = pytest.mark.skipif(not is_possible(), reason="rights can't be refused to root here")


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("which", ["both", "before", "after"])
def test_diff(sets: Sets, cause: Cause, which: str) -> None:
    for victim in {"both": sets.victims, "before": sets.victims[:1], "after": sets.victims[1:]}[
        which
    ]:
        cause(victim)
    shown, told = sets("diff", sets.a, sets.b), sets("diff", "--json", sets.a, sets.b)
    assert shown.code == told.code
    assert shown.code in ((5,) if cause is without_rights else (3, 5))
    assert not any(word in shown.out for word in (b"identical", b"unchanged: 6"))
    if told.out:
        (one,) = (t for t in json.loads(told.out)["tensors"] if t["name"] == "t2")
        assert one["status"] == "unread"
        assert one["reason"]


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize(
    "line",
    ["verify {}", "verify --json {}", "inspect {}", "inspect --json {}", "convert {} o.npz",
     "cat {} t2", "diff {} {}"],
)  # fmt: skip
def test_commands(sets: Sets, cause: Cause, line: str) -> None:
    cause(sets.victims[0])
    done = sets(*line.format(sets.a, sets.a).split())
    assert done.code in (1, 3, 5)
    if cause is without_rights:
        assert done.code == 5
    assert not any(word in done.out for word in READ_BACK)
    assert not (sets.folder / "o.npz").exists()


@pytest.mark.parametrize("cause", [one for one in CAUSES if one is not without_rights])
def test_python(sets: Sets, cause: Cause) -> None:
    cause(sets.victims[0])
    path = sets.folder / sets.a
    if cause is not circular:
        assert not api.verify(path).ok
    with pytest.raises(WtxtgitError):
        api.load(path)
    with pytest.raises(WtxtgitError), api.open(path) as opened:
        opened["t2"][:]
    try:
        report = api.diff(path, sets.folder / sets.b)
    except WtxtgitError:
        return
    assert report.exit_code
    assert report.summary.counts["same"] == 5 - len(
        [one for one in report.tensors if one.status == "unread" and one.name != "t2"]
    )


@pytest.mark.parametrize("cause", [gone, cut, a_pointer])
def test_commits(repo: Repo, cause: Cause, tmp_path: Path, ending: str) -> None:
    """Two commits of a set with a file that can't be read in either."""
    sets = Sets(Command(repo.path, tmp_path / "home"), ending)
    index = "m-00001-of-00003.gguf" if ending == ".gguf" else INDEXES[ending]
    for side in "AB":
        cause(sets.victims["AB".index(side)])
        for file in (sets.folder / side).iterdir():
            repo.write(f"model/{file.name}", file.read_bytes())
        repo.git("add", "model")
        repo.commit(side)
    place = "model" if ending == ".gguf" else f"model/{index}"
    compared = sets("diff", "--json", f"HEAD~1:{place}", f"HEAD:{place}")
    assert compared.code
    if compared.out:
        (one,) = (t for t in json.loads(compared.out)["tensors"] if t["name"] == "t2")
        assert one["status"] == "unread"
    told = sets("history", "--json", f"model/{index}")
    if told.code:
        return
    for version in json.loads(told.out)["versions"]:
        assert ending == ".gguf" or version["reason"]
        assert version["changed"] != 0
        assert version["relative_change"] is None


def test_what_is_over_a_limit(wtxtgit: Command) -> None:
    for name, value in (("a", 1), ("b", 2), ("c", 1)):
        arrays = {"w": np.full(1 << 20, value, "<f4"), "x": np.zeros(3)}
        np.savez_compressed(wtxtgit.folder / f"{name}.npz", **arrays)
    done = wtxtgit("diff", "--json", "--max-chunk", "1MiB", "a.npz", "b.npz")
    assert done.code == 5
    told = {one["name"]: one["status"] for one in json.loads(done.out)["tensors"]}
    assert told == {"w": "unread", "x": "same"}
    # Where all bytes are the same, the limit does not matter.
    done = wtxtgit("diff", "--max-chunk", "1MiB", "a.npz", "c.npz")
    assert (done.code, b"2 tensors, all identical" in done.out) == (0, True)


def test_what_is_encrypted(wtxtgit: Command) -> None:
    path = FIXTURES / "fold/encrypted_high_a.fold"
    content = bytearray(path.read_bytes())
    parts = any_format.describe(memoryview(bytes(content))).parts
    (start, *_) = (part.offset for part in parts if part.is_encrypted)
    content[start + 40] ^= 1
    (wtxtgit.folder / "other.fold").write_bytes(content)
    done = wtxtgit("diff", path, "other.fold")
    assert done.code == 3
    assert b"not read: other.fold: parts are encrypted, --key F decrypts them" in done.out
    assert b"are the same" not in done.out


def test_a_merge_takes_nothing_for_unchanged_that_it_can_not_read() -> None:
    """Two tensors of which only dtype and shape are known: one side's change would be lost."""
    tensor = Tensor("w", "f32", (4,), memoryview(b""), None, "f32", absent=NotRead.over("over"))
    entry = Entry("w", "form", None, tensor)
    with pytest.raises(FormatError, match="can't be compared: over"):
        Opener(ReadOptions(), 0).is_same_entry(entry, entry)
