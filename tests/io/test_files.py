"""Files whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wtxtgit.checkpoint.inspect import inspect
from wtxtgit.errors import EnvironmentFailure, UsageError
from wtxtgit.io.files import replace_file, view_file, write_output
from wtxtgit.io.view import AT_ONCE, BLOCK, NEAR, mapped, pieces, write_all
from wtxtgit.model.tensor import ReadOptions


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="not a regular file"):
        replace_file(pipe, lambda fd: write_all(fd, (b"x",)))
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_new_file_replaces_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    replace_file(file, lambda fd: write_all(fd, (b"first",)), is_new=True)
    with pytest.raises(EnvironmentFailure, match="file exists"):
        replace_file(file, lambda fd: write_all(fd, (b"second",)), is_new=True)
    assert file.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [file]


def test_an_output_that_is_a_device_or_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_output(pipe, lambda fd: write_all(fd, (b"a", b"b")))
        assert os.read(reader, 10) == b"ab"
    finally:
        os.close(reader)
    write_output(Path(os.devnull), lambda fd: write_all(fd, (b"x",)))
    assert Path(os.devnull).is_char_device()
    assert list(tmp_path.iterdir()) == [pipe]


def test_an_output_is_given_whole_or_not_at_all(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def write(descriptor: int) -> None:
        write_all(descriptor, (b"half",))
        raise UsageError("no more")

    try:
        with pytest.raises(UsageError):
            write_output(pipe, write)
        assert os.read(reader, 10) == b""
    finally:
        os.close(reader)


def test_an_output_may_be_written_anywhere_and_read_again(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def write(descriptor: int) -> None:
        os.pwrite(descriptor, b"second", 5)
        os.pwrite(descriptor, b"first", 0)
        assert os.pread(descriptor, 20, 0) == b"firstsecond"

    try:
        write_output(pipe, write)
        assert os.read(reader, 20) == b"firstsecond"
    finally:
        os.close(reader)


def test_an_output_that_is_a_file_or_nothing_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name in ("file", "none", "link"):
        write_output(tmp_path / name, lambda fd: write_all(fd, (b"new",)))
        assert (tmp_path / name).read_bytes() == b"new"
        assert not (tmp_path / name).is_symlink()
    with pytest.raises(EnvironmentFailure, match="directory"):
        write_output(tmp_path, lambda fd: write_all(fd, (b"x",)))


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"kept")
    link.symlink_to(target)
    replace_file(link, lambda fd: write_all(fd, (b"new",)))
    assert (target.read_bytes(), link.read_bytes(), link.is_symlink()) == (b"kept", b"new", False)


def test_tensors_that_all_span_a_file_are_not_all_hashed(tmp_path: Path) -> None:
    size = 1_000_000
    header = json.dumps(
        {
            f"t{n}": {"dtype": "U8", "shape": [size - n], "data_offsets": [n, size]}
            for n in range(99)
        }
    ).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))
    listed = inspect(str(path), ReadOptions()).tensors
    assert len(listed) == 99
    hashed = [tensor for tensor in listed if tensor.sha256 is not None]
    assert 0 < sum(tensor.size for tensor in hashed) <= 64 * 2**20
    assert len(hashed) < 99


def test_small_and_large_pieces_are_written_in_order(tmp_path: Path) -> None:
    """Also where what gives them uses the same memory for all."""
    sizes = [1, 0, 70_000, 3, 65_536, 60_000, 60_000, 5]
    memory = bytearray(max(sizes))

    def pieces() -> Iterator[memoryview]:
        for number, size in enumerate(sizes):
            memory[:] = bytes([number]) * len(memory)
            yield memoryview(memory)[:size]

    replace_file(tmp_path / "out", lambda descriptor: write_all(descriptor, pieces()))
    wanted = b"".join(bytes([number]) * size for number, size in enumerate(sizes))
    assert (tmp_path / "out").read_bytes() == wanted


CONTENT = os.urandom(BLOCK) * 7 + b"end"


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file that is read in parts, and was written some time ago."""
    path = tmp_path / "large"
    path.write_bytes(CONTENT)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return path


def test_parts_of_a_file_are_those_of_its_content(large: Path) -> None:
    assert len(CONTENT) > AT_ONCE
    view = view_file(large)
    for start in (0, 1, NEAR, BLOCK - 1, BLOCK, len(CONTENT) - 3):
        for length in (0, 1, 3, NEAR, NEAR + 1, BLOCK, 3 * BLOCK):
            assert mapped(view[start : start + length]) == CONTENT[start : start + length]
    assert b"".join(pieces(view)) == CONTENT
    assert mapped(view).readonly


def _shorter(path: Path) -> None:
    os.truncate(path, BLOCK)


def _longer(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def _other(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"other")


@pytest.mark.parametrize(
    ("change", "words"), [(_shorter, "became shorter"), (_longer, "changed"), (_other, "changed")]
)
@pytest.mark.parametrize("length", [1, BLOCK])
def test_a_file_that_changes_while_it_is_read_is_not_read_on(
    large: Path, change: Callable[[Path], None], words: str, length: int
) -> None:
    view = view_file(large)
    assert mapped(view[:1]) == CONTENT[:1]
    change(large)
    with pytest.raises(EnvironmentFailure, match=f"/large: {words} while it was read"):
        mapped(view[4 * BLOCK : 4 * BLOCK + length])


def test_another_file_in_its_place_does_not_matter(large: Path) -> None:
    view = view_file(large)
    replace_file(large, lambda fd: write_all(fd, (b"another",)))
    assert mapped(view) == CONTENT


def _descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_views_give_their_descriptors_back(large: Path) -> None:
    before = _descriptors()
    view = view_file(large)
    assert _descriptors() == before + 1
    part = view[:10]
    del view
    assert mapped(part) == CONTENT[:10]
    del part
    assert _descriptors() == before
