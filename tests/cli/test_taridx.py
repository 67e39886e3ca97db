"""`wtxtgit taridx`: build, ls, cat, verify as a user calls them."""

from __future__ import annotations

import io
import json
import shutil
import struct
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command, Done
from tests.cluster.stores import HTTP, USER, http_store
from tests.data import FIXTURES, entries, fixture
from wtxtgit.checkpoint.taridx import fold_of
from wtxtgit.cli.taridx_rows import json_lines
from wtxtgit.containers.taridx.read import read

ENTRIES = [entry for entry in entries() if entry["format"] == "TARIDX"]


@pytest.fixture
def shards(wtxtgit: Command) -> Path:
    """Two shards of a fold in the command's folder."""
    for number in range(2):
        with tarfile.open(wtxtgit.folder / f"t_{number}.tar", "w") as archive:
            for name in ("d/a.txt", "e/a.txt", f"only{number}.json"):
                content = f"{name} of {number}".encode()
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return wtxtgit.folder


def complaint(done: Done, code: int) -> str:
    assert (done.code, done.out) == (code, b"")
    return done.complaint()


def test_build_gives_the_bytes_of_the_original_writer(wtxtgit: Command) -> None:
    folder = FIXTURES / "taridx/three_shards_a"
    shards = sorted(folder.glob("*.tar"), reverse=True)
    done = wtxtgit("taridx", "build", *shards, "-o", "train.taridx")
    assert (done.code, done.out, done.err) == (0, b"", "")
    wanted = fixture("taridx/three_shards_a/train.taridx")
    assert (wtxtgit.folder / "train.taridx").read_bytes() == wanted
    piped = wtxtgit("taridx", "build", *shards, "-o", "-")
    assert (piped.code, piped.out, piped.err) == (0, wanted, "")


def test_build_contiguous(wtxtgit: Command) -> None:
    shards = sorted((FIXTURES / "taridx/enforced_a").glob("*.tar"))
    done = wtxtgit("taridx", "build", "--contiguous", *shards, "-o", "-")
    assert done.out == fixture("taridx/enforced_a/train.taridx")


def test_what_was_built_verifies_and_gives_its_members(wtxtgit: Command, shards: Path) -> None:
    assert wtxtgit("taridx", "build", "t_1.tar", "t_0.tar", "-o", "t.taridx").err == ""
    done = wtxtgit("taridx", "verify", "t.taridx")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(b"ok      t.taridx  (taridx)\n")
    done = wtxtgit("taridx", "cat", "t.taridx", "only1.json")
    assert (done.code, done.out, done.err) == (0, b"only1.json of 1", "")


def test_of_several_members_the_first_or_the_one_with_the_folder(
    wtxtgit: Command, shards: Path
) -> None:
    wtxtgit("taridx", "build", "t_0.tar", "t_1.tar", "-o", "t.taridx")
    done = wtxtgit("taridx", "cat", "t.taridx", "a.txt")
    assert (done.code, done.out) == (0, b"d/a.txt of 0")
    warning = '3 more members match "a.txt", this is "d/a.txt" of t_0.tar'
    assert done.err == f"wtxtgit: warning: {warning}\n"
    done = wtxtgit("taridx", "cat", "t.taridx", "e/a.txt")
    assert (done.code, done.out) == (0, b"e/a.txt of 0")


def test_a_member_after_an_empty_shard_of_an_older_writers_index(wtxtgit: Command) -> None:
    path = FIXTURES / "taridx/empty_middle_a/train.taridx"
    done = wtxtgit("taridx", "cat", path, "b0000.json")
    assert (done.code, len(done.out)) == (0, 23)
    warning = "taken from train_002.tar, because older writers skip empty shards when counting"
    assert done.err == f"wtxtgit: warning: {warning}\n"


def test_cat_without_such_a_member(wtxtgit: Command, shards: Path) -> None:
    wtxtgit("taridx", "build", "t_0.tar", "-o", "t.taridx")
    done = wtxtgit("taridx", "cat", "t.taridx", "a.json")
    assert complaint(done, 1) == 't.taridx: no member "a.json"'
    (shards / "t_0.tar").write_bytes(bytes(10240))
    done = wtxtgit("taridx", "cat", "t.taridx", "a.txt")
    assert complaint(done, 1).startswith('t.taridx: no row for "a.txt" leads to it')


def test_cat_takes_names_that_are_no_unicode(wtxtgit: Command) -> None:
    path, form = wtxtgit.folder / "t_0.tar", tarfile.GNU_FORMAT
    with tarfile.open(path, "w", format=form, encoding="latin-1") as archive:
        info = tarfile.TarInfo("é.txt")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"1"))
    wtxtgit("taridx", "build", "t_0.tar", "-o", "t.taridx")
    done = wtxtgit("taridx", "cat", "t.taridx", "\udce9.txt")
    assert (done.code, done.out, done.err) == (0, b"1", "")


@pytest.mark.parametrize("folder", ["two_folds_a", "empty_middle_a", "collisions_multi_a"])
def test_fixtures_verify(folder: str, wtxtgit: Command) -> None:
    for path in sorted((FIXTURES / "taridx" / folder).glob("*.taridx")):
        done = wtxtgit("taridx", "verify", "--json", path)
        assert (done.code, done.err) == (0, "")
        (record,) = json.loads(done.out)["files"]
        assert (record["format"], record["ok"], record["errors"]) == ("taridx", True, [])


def test_verify_tells_rows_that_do_not_fit(wtxtgit: Command, shards: Path) -> None:
    wtxtgit("taridx", "build", "t_0.tar", "t_1.tar", "-o", "t.taridx")
    data = bytearray((shards / "t.taridx").read_bytes())
    (off_arr,) = struct.unpack_from("<Q", data, 48)
    data[off_arr + 32 + 10] += 1
    (shards / "moved").mkdir()
    (shards / "moved" / "t.taridx").write_bytes(data)
    done = wtxtgit("taridx", "verify", "moved/t.taridx", "--shards", ".", "--json")
    assert (done.code, done.err) == (1, "")
    (record,) = json.loads(done.out)["files"]
    (error,) = record["errors"]
    assert error.pop("message").startswith("a row whose size differs from the tar header's")
    assert error.pop("field", "size") == "size"
    assert error == {"kind": "structure", "offset": off_arr + 32, "chunk": "t_0.tar"}
    done = wtxtgit("taridx", "verify", "moved/t.taridx", "--shards", ".")
    assert done.code == 1
    assert done.out.startswith(b"FAILED  moved/t.taridx")


def test_verify_tells_an_index_that_can_not_be_read(wtxtgit: Command, shards: Path) -> None:
    (shards / "t.taridx").write_bytes(b"TARIDX\0\0" + bytes(99))
    done = wtxtgit("taridx", "verify", "t.taridx", "--json")
    assert done.code == 1
    (error,) = json.loads(done.out)["files"][0]["errors"]
    assert (error["kind"], error["offset"]) == ("structure", 8)
    for command in (["ls"], ["cat", "--shards", "."]):
        done = wtxtgit("taridx", command[0], "t.taridx", *["x"][: len(command) // 3], *command[1:])
        assert complaint(done, 3).startswith("t.taridx: major is 0")


def test_what_is_no_index(wtxtgit: Command, shards: Path) -> None:
    for arguments in (["ls", "t_0.tar"], ["cat", "t_0.tar", "x"], ["verify", "t_0.tar"]):
        assert "not an index of tars" in complaint(wtxtgit("taridx", *arguments), 3)
        missing = [argument.replace("t_0.tar", "missing") for argument in arguments]
        assert "no such file" in complaint(wtxtgit("taridx", *missing), 3)


def test_shards_are_not_followed_out_of_their_folder(wtxtgit: Command, shards: Path) -> None:
    wtxtgit("taridx", "build", "t_0.tar", "t_1.tar", "-o", "t.taridx")
    (shards / "inner").mkdir()
    shutil.copy(shards / "t_0.tar", shards / "inner")
    (shards / "inner/t_1.tar").symlink_to(shards / "t_1.tar")
    for arguments in (["cat", "t.taridx", "only0.json"], ["verify", "t.taridx"]):
        done = wtxtgit("taridx", *arguments, "--shards", "inner")
        assert "inner/t_1.tar: a shard has to be a regular file" in complaint(done, 3)


def test_a_folder_without_shards(wtxtgit: Command, shards: Path) -> None:
    wtxtgit("taridx", "build", "t_0.tar", "-o", "t.taridx")
    (shards / "empty").mkdir()
    done = wtxtgit("taridx", "verify", "t.taridx", "--shards", "empty")
    assert complaint(done, 3) == "empty: no tars"
    done = wtxtgit("taridx", "verify", "t.taridx", "--shards", "missing")
    assert complaint(done, 3) == "missing: no such file or directory"


def test_a_blob_has_no_shards_beside_it(wtxtgit: Command) -> None:
    done = wtxtgit("taridx", "verify", "HEAD:d/t.taridx")
    assert "--shards says where the tars are" in complaint(done, 2)
    assert fold_of("HEAD:d/t.taridx") == fold_of("d/t.taridx") == fold_of("t.taridx.wtxt") == "t"


def test_an_index_at_a_url_has_no_shards_beside_it(wtxtgit: Command, shards: Path) -> None:
    assert wtxtgit("taridx", "build", "t_0.tar", "t_1.tar", "-o", "t.taridx").code == 0
    with http_store(shards) as host:
        url = f"{HTTP}{USER}@{host}/t.taridx"
        for arguments in (["verify", url], ["cat", url, "only0.json"]):
            told = complaint(wtxtgit("taridx", *arguments), 2)
            assert told == f"{HTTP}{host}/t.taridx is at a URL: --shards says where the tars are"
        done = wtxtgit("taridx", "verify", url, "--shards", ".")
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith(f"ok      {HTTP}{host}/t.taridx  (taridx)\n".encode())
        assert wtxtgit("taridx", "cat", url, "only0.json", "--shards", ".").out
    done = wtxtgit("taridx", "verify", f"file://{shards}/t.taridx")
    assert (done.code, done.err) == (0, "")


def test_an_index_with_another_name_takes_all_tars_and_says_so(
    wtxtgit: Command, shards: Path
) -> None:
    done = wtxtgit("taridx", "build", "t_0.tar", "t_1.tar", "-o", "other.taridx")
    assert done.code == 0
    assert done.err.startswith("wtxtgit: warning: readers look for other_*.tar")
    done = wtxtgit("taridx", "verify", "other.taridx")
    assert done.code == 0
    assert b"no shard is named other_*.tar" in done.out
    assert wtxtgit("taridx", "cat", "other.taridx", "only1.json").out == b"only1.json of 1"


def test_build_refuses_what_it_can_not_index(wtxtgit: Command, shards: Path) -> None:
    (shards / "t.taridx").write_bytes(b"mine")
    for name, content, words in (
        ("x.tar", b"junk" * 200, "x.tar: not a tar"),
        ("x.tar", b"\x1f\x8b" + bytes(600), "x.tar: compressed with gzip"),
        ("x.tar", (shards / "t_0.tar").read_bytes()[:1024] + b"x" * 512, "x.tar: a damaged"),
    ):
        (shards / name).write_bytes(content)
        done = wtxtgit("taridx", "build", "t_0.tar", name, "-o", "t.taridx")
        assert complaint(done, 3).startswith(words)
        assert (shards / "t.taridx").read_bytes() == b"mine"
    (shards / "d").mkdir()
    shutil.copy(shards / "t_0.tar", shards / "d")
    done = wtxtgit("taridx", "build", "t_0.tar", "d/t_0.tar", "-o", "t.taridx")
    assert complaint(done, 2) == "two shards are named t_0.tar"
    assert wtxtgit("taridx", "build", "-o", "t.taridx").code == 2
    assert wtxtgit("taridx", "build", "t_0.tar").code == 2


def test_ls_as_json(wtxtgit: Command) -> None:
    path = FIXTURES / "taridx/three_shards_a/train.taridx"
    done = wtxtgit("taridx", "ls", "--json", path)
    assert (done.code, done.err) == (0, "")
    index = read(memoryview(path.read_bytes()))
    assert done.out == b"".join(json_lines(index, str(path)))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e["file"])
def test_the_rows_of_each_fixture_as_json(entry: dict[str, Any]) -> None:
    index = read(memoryview(fixture(entry["file"])))
    listed = json.loads(b"".join(json_lines(index, "é.taridx")))
    assert listed["path"] == "é.taridx"
    assert (listed["format"], listed["version"]) == ("taridx", "1.0")
    assert listed["contiguous"] == bool(entry["header"]["flags"])
    assert (listed["n_stems"], listed["n_rows"]) == (
        entry["header"]["n_stems"],
        len(entry["rows"]),
    )
    assert listed["extensions"] == entry["ext_table"]
    assert listed["crash_stems"] == entry["crash_table"]
    assert listed["rows"] == [
        {
            "fid": row["fid"],
            "offset": row["offset"],
            "size": row["size"],
            "crash": row["crashid"],
            "keyhash": row["keyhash"],
            "ext": row["ext"],
            "stem": entry["crash_table"][row["crashid"] - 1] if row["crashid"] else None,
        }
        for row in entry["rows"]
    ]


def test_ls_as_a_table(wtxtgit: Command) -> None:
    done = wtxtgit("taridx", "ls", FIXTURES / "taridx/collision_space_unicode_a/train.taridx")
    assert (done.code, done.err) == (0, "")
    lines = done.out.decode().splitlines()
    assert lines[:3] == [
        "fid  offset  size  crash  keyhash           ext  stem",
        "  0       0     1      0  0000000000000000  txt",
        "  0    1024     1      1  0000000000000000  txt  my stem 1",
    ]
    assert len(lines) == 1 + 7
    assert lines[-1].endswith("txt  ключ2")


def test_ls_escapes_names_and_shows_ids_that_are_in_no_table(wtxtgit: Command) -> None:
    extensions, stems = b"a\x1b[31mb", b"c\rd"
    rows = b"".join(
        struct.pack("<HQQHIQ", 65_535, 2**64 - 1, 0, extid, crashid, 2**64 - 1)
        for extid, crashid in ((0, 1), (9, 2), (65_535, 2**32 - 1))
    )
    head = struct.pack(
        "<8sHHHHQQIIQQB7s",
        *(b"TARIDX", 1, 0, 32, 64, 1, 3, 1, 1),
        *(64 + len(extensions), 64 + len(extensions) + len(stems), 0, b""),
    )
    (wtxtgit.folder / "x.taridx").write_bytes(head + extensions + stems + rows)
    done = wtxtgit("taridx", "ls", "x.taridx")
    number = "65535  18446744073709551615     0"
    assert done.out.decode().splitlines()[1:] == [
        f"{number}           1  ffffffffffffffff  a\\x1b[31mb  c\\x0dd",
        f"{number}           2  ffffffffffffffff  ?           ?",
        f"{number}  4294967295  ffffffffffffffff  ?           ?",
    ]
    listed = json.loads(wtxtgit("taridx", "ls", "--json", "x.taridx").out)["rows"]
    assert [(row["ext"], row["stem"]) for row in listed] == [
        ("a\x1b[31mb", "c\rd"),
        (None, None),
        (None, None),
    ]


def test_ls_takes_the_text_of_an_index(wtxtgit: Command) -> None:
    path = FIXTURES / "taridx/dots_a/train.taridx"
    assert wtxtgit("emit", path, "-o", "train.taridx.wtxt").code == 0
    assert wtxtgit("taridx", "ls", "train.taridx.wtxt").out == wtxtgit("taridx", "ls", path).out
    done = wtxtgit("taridx", "verify", "train.taridx.wtxt", "--shards", path.parent)
    assert done.code == 0


def test_help_of_each_command(wtxtgit: Command) -> None:
    for name in ("build", "ls", "cat", "verify"):
        done = wtxtgit("taridx", name, "--help")
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith(f"Usage: wtxtgit taridx {name} [OPTIONS]".encode())


def test_a_shard_is_not_replaced_by_its_index(shards: Path, wtxtgit: Command) -> None:
    before = (shards / "t_0.tar").read_bytes()
    done = wtxtgit("taridx", "build", "t_1.tar", "t_0.tar", "-o", "t_0.tar")
    assert "one of the shards" in complaint(done, 2)
    assert (shards / "t_0.tar").read_bytes() == before
