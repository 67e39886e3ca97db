"""The worked examples of the specifications, byte for byte."""

from __future__ import annotations

import base64
import functools
import hashlib
import operator
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import wtxtgit
from tests.docs.pages import Block, blocks, lines, prose, spans, tables
from tests.docs.test_python import execute
from wtxtgit.model.array import ArrayNames, default_rows
from wtxtgit.text import grammar
from wtxtgit.text.arrays import read
from wtxtgit.text.native import item_size

WTXT, CONTAINERS = "docs/spec/wtxt.md", "docs/spec/containers.md"
EXAMPLE = "A worked example in bytes"


def printed_text(page: str) -> bytes:
    (block,) = [b for b in blocks(page, "", EXAMPLE) if b.text.startswith("WTXT 1\n")]
    return block.text.encode("ascii")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def layout_of(text: bytes) -> bytes:
    """The bytes of a text's array _layout, which the Python interface keeps to itself."""
    held = text.partition(b"arr name=_layout ")[2].partition(b" lines=")[2]
    armored = held.partition(b"endch\n")[0].splitlines()[1:]
    body = b"".join(line[:76] for line in armored).rstrip(b"=")
    return base64.b64decode(body + b"=" * (-len(body) % 4))


def number(spelled: str) -> int:
    return int(spelled.replace(",", ""))


class TestNativeText:
    def test_the_printed_text_is_what_we_write(self) -> None:
        text = printed_text(WTXT)
        assert wtxtgit.dumps({"a": np.array([1, 2, 3, 4, 5], "u1")}) == text
        assert wtxtgit.loads(text)["a"].tolist() == [1, 2, 3, 4, 5]

    def test_the_last_sentence_holds(self) -> None:
        (said,) = [s for line in lines(WTXT, EXAMPLE) for s in line.spans if "dumps" in s]
        made = eval(said, {"wtxtgit": wtxtgit, "numpy": np})  # noqa: S307
        assert made == printed_text(WTXT)

    def test_size_and_hash_are_those_it_gives(self) -> None:
        text = printed_text(WTXT)
        assert f"The text has {len(text)} bytes (SHA-256 `{sha256(text)}`)" in prose(WTXT, EXAMPLE)

    def test_the_program_makes_it(self) -> None:
        assert execute(WTXT, EXAMPLE)["text"] == printed_text(WTXT)

    def test_the_program_needs_the_standard_library_alone(self, tmp_path: Path) -> None:
        (block,) = blocks(WTXT, "python", EXAMPLE)
        code = "\n" * (block.line - 1) + block.text
        subprocess.run(
            [sys.executable, "-I", "-S", "-W", "error", "-c", code], check=True, cwd=tmp_path
        )

    def test_the_table_of_lines(self) -> None:
        text = printed_text(WTXT)
        starts, position = [], 0
        for line in text.splitlines(keepends=True):
            starts.append((position, len(line)))
            position += len(line)
        covered: list[int] = []
        (table,) = tables(WTXT, EXAMPLE)
        for which, start, length, _ in table:
            first, _, last = which.partition("-")
            held = range(int(first), int(last or first) + 1)
            covered.extend(held)
            assert starts[held[0] - 1][0] == int(start)
            assert sum(starts[n - 1][1] for n in held) == int(length)
        assert covered == list(range(1, len(starts) + 1))

    def test_what_the_table_says_of_hashes(self) -> None:
        text, said = printed_text(WTXT), prose(WTXT, EXAMPLE)
        raw = bytes([1, 2, 3, 4, 5])
        every = text.splitlines()
        root = re.search(rb"sha256_all=(\w+) merkle_prev=(\w+) merkle_this=(\w+)", text)
        assert root
        assert "a signature would cover bytes 0 to 421" in said
        assert text.index(b"arr ") == 422
        assert "takes its 207 bytes without LF" in said
        assert len(every[4]) == 207
        assert sha256(every[4] + raw).encode() == root[1]
        chain = re.search(r"`(1970\S+)`\.", said)
        assert chain
        previous, this = bytes.fromhex(root[2].decode()), bytes.fromhex(root[1].decode())
        assert previous == bytes(32)
        assert sha256(previous + this + chain[1].encode()).encode() == root[3]

    def test_what_it_says_of_the_armor(self) -> None:
        said = prose(WTXT, EXAMPLE)
        found = re.search(
            r"Base64 of `([\d ]+)` is `(\w+=)`; without padding (\d+) characters, filled to (\d+)",
            said,
        )
        assert found
        assert base64.b64encode(bytes.fromhex(found[1])).decode() == found[2]
        assert len(found[2].rstrip("=")) == int(found[3])
        parity = re.search(
            r"of `(\w+)` is 0x(\w\w); (\d+) times `=` \(0x(\w\w)\), an odd count, adds 0x\w\w: "
            r"0x(\w\w), low nibble `(\w)`",
            said,
        )
        assert parity
        body, fill = parity[1].encode(), int(parity[3])
        assert functools.reduce(operator.xor, body) == int(parity[2], 16)
        assert functools.reduce(operator.xor, body + b"=" * fill) == int(parity[5], 16)
        line = parity[1] + "=" * fill + " " + parity[6]
        assert line.encode() in printed_text(WTXT).splitlines()

    def test_fastxor(self) -> None:
        found = re.search(
            r"`([\d ]+)` as one little-endian word is 0x(\w{16})\.", prose(WTXT, EXAMPLE)
        )
        assert found
        assert int.from_bytes(bytes.fromhex(found[1]), "little") == int(found[2], 16)
        assert b"fastxor=%b\n" % found[2].encode() in printed_text(WTXT)


class TestTablesOfTheText:
    def test_row_blocking(self) -> None:
        (table,) = tables(WTXT, "Row blocking")
        assert len(table) >= 9
        for array, row_size, rows_per_chunk, size in table:
            dtype, shape = array.split()
            dims = () if shape == "scalar" else tuple(map(int, shape.split(",")))
            rows = default_rows(dtype, dims)
            wanted = (number(row_size.split()[0]), number(rows_per_chunk), number(size))
            assert (rows.row_size, rows.rows_per_chunk, grammar.chunk_size(rows)) == wanted, array

    @pytest.mark.parametrize("dtype", ["f4"])
    @pytest.mark.parametrize("shape", [(10,), (), (4, 0), (8, 3, 3, 512)])
    def test_row_blocking_as_it_is_written(self, dtype: str, shape: tuple[int, ...]) -> None:
        spelled = f"f32 {','.join(map(str, shape)) or 'scalar'}"
        (row,) = [row for row in tables(WTXT, "Row blocking")[0] if row[0] == spelled]
        text = wtxtgit.dumps({"a": np.zeros(shape, dtype)})
        row_size, rows_per_chunk = number(row[1].split()[0]), number(row[2])
        wanted = f"\nidx rows_per_chunk={rows_per_chunk} row_size={row_size} row_blocking=on\n"
        assert wanted.encode() in text

    def test_armor(self) -> None:
        (table,) = tables(WTXT, "Armor")
        for raw, characters, fill in table:
            held = int(raw.split()[0])
            text = wtxtgit.dumps({"a": np.arange(held, dtype="u1")})
            (line,) = re.findall(rb"\n([A-Za-z0-9+/]*)(=*) [0-9a-f]\n", text)
            assert tuple(map(len, line)) == (int(characters), int(fill)), raw
            assert grammar.characters(held) == int(characters)

    def test_lines_of_a_full_chunk(self) -> None:
        said = prose(WTXT, "Armor")
        assert "A full chunk of 65,536 bytes has 1,150 lines (57 x 1,149 + 43)" in said
        assert "one of 32,768 has 575" in said
        assert (grammar.line_count(65_536), grammar.line_count(32_768)) == (1150, 575)
        assert 57 * 1149 + 43 == 65_536

    def test_array_names(self) -> None:
        names = ArrayNames()
        (table,) = tables(WTXT, "Array names")
        for row in table:
            name = "" if row[0].endswith("(empty)") else spans(row[0])[0]
            assert names.for_name(name) == spans(row[1])[0]

    def test_native_dtypes(self) -> None:
        carried = {row[0]: row[1] for row in tables(WTXT, "Native arrays")[1]}
        for spelled, dtype, wanted in (
            (r"`\|b1`", "?", b"dtype=u8 shape=3 "),
            ("`<f2`", "<f2", b"dtype=u16 shape=3 "),
            ("`<c8`, `<c16`", "<c8", b"dtype=f32 shape=3,2 "),
            ("`<c8`, `<c16`", "<c16", b"dtype=f64 shape=3,2 "),
        ):
            assert spelled in carried
            assert wanted in wtxtgit.dumps({"a": np.zeros(3, dtype)})

    def test_sizes_of_native_dtypes(self) -> None:
        said = prose(WTXT, "Native arrays")
        units = re.search(r"u is one of `([A-Za-z ]+)`", said)
        assert units
        for row in tables(WTXT, "Native arrays")[0]:
            for spelled in spans(row[0]):
                descr = spelled.replace("\\|", "|")
                if descr in ("[u]", "[nu]"):
                    descrs = [f"<{kind}8{descr}" for kind in "Mm"]
                else:
                    descrs = [descr]
                for one in descrs:
                    n = "12" if one.endswith(("Sn", "Vn", "Un")) else ""
                    name = one.replace("[nu]", "[25u]").replace("u]", f"{units[1].split()[-1]}]")
                    found = item_size(name[:-1] + n if n else name)
                    wanted = {"n": 12, "4n": 48}.get(row[1]) or int(row[1])
                    assert found == wanted, one
        for descr in (">f4", "<i1", "f4", "<f16", "|O", "|S0", "<M8[]", "<M8[x]"):
            assert item_size(descr) is None

    def test_the_extents_of_native_arrays(self) -> None:
        (block,) = blocks(WTXT, "", "Native arrays")
        text = wtxtgit.dumps({"layers.0.q": np.zeros((64, 64), "<f2")})
        assert layout_of(text).decode() == block.text.rstrip("\n")


class TestContainerText:
    def file(self) -> bytes:
        (dump,) = [b for b in blocks(CONTAINERS, "", EXAMPLE) if b.text.startswith("00000000: ")]
        return bytes.fromhex("".join(line[10:49] for line in dump.text.splitlines()))

    def layout(self) -> bytes:
        (block,) = [b for b in blocks(CONTAINERS, "", EXAMPLE) if b.text.startswith("{")]
        return block.text.rstrip("\n").encode()

    def test_the_dump_shows_its_characters(self) -> None:
        (dump,) = [b for b in blocks(CONTAINERS, "", EXAMPLE) if b.text.startswith("00000000: ")]
        data = self.file()
        for index, line in enumerate(dump.text.splitlines()):
            piece = data[index * 16 : index * 16 + 16]
            assert int(line[:8], 16) == index * 16
            assert line[51:] == "".join(chr(c) if 32 <= c < 127 else "." for c in piece)

    def test_sizes_and_hashes_are_those_it_gives(self) -> None:
        said, data, text = prose(CONTAINERS, EXAMPLE), self.file(), printed_text(CONTAINERS)
        assert f"A safetensors file of {len(data)} bytes" in said
        assert f"(SHA-256 `{sha256(data)}`)" in said
        assert f"`_layout` is these {len(self.layout())} bytes" in said
        assert f"The text, {len(text):,} bytes (SHA-256 `{sha256(text)}`)" in said

    def test_emit_and_clean_give_the_printed_text(self, command: Path, tmp_path: Path) -> None:
        file = tmp_path / "tiny.safetensors"
        file.write_bytes(self.file())
        for arguments, stdin in ((["emit", file], b""), (["clean", "x"], self.file())):
            done = subprocess.run(
                [command, *arguments], input=stdin, capture_output=True, check=True
            )
            assert done.stdout == printed_text(CONTAINERS)

    def test_restore_and_smudge_give_the_printed_file(self, command: Path, tmp_path: Path) -> None:
        text = tmp_path / "tiny.safetensors.wtxt"
        text.write_bytes(printed_text(CONTAINERS))
        subprocess.run([command, "restore", text], check=True, cwd=tmp_path)
        assert (tmp_path / "tiny.safetensors").read_bytes() == self.file()
        smudged = subprocess.run(
            [command, "smudge", "x"], input=text.read_bytes(), capture_output=True, check=True
        )
        assert smudged.stdout == self.file()

    def test_the_arrays_are_those_it_names(self) -> None:
        text = printed_text(CONTAINERS)
        assert "their names: `_header`, `_layout`, `w`." in prose(CONTAINERS, EXAMPLE)
        assert re.findall(rb"^arr name=(\w+)", text, re.M) == [b"_header", b"_layout", b"w"]
        assert layout_of(text) == self.layout()
        arrays = read(memoryview(text))
        assert arrays["_header"].tobytes() == self.file()[:72]
        assert "1.0, -2.0, 0.5, 0.0" in prose(CONTAINERS, EXAMPLE)
        assert arrays["w"].tolist() == [[1.0, -2.0], [0.5, 0.0]]

    def test_the_lines_it_points_at(self) -> None:
        said, text = prose(CONTAINERS, EXAMPLE), printed_text(CONTAINERS).splitlines()
        assert "Line 9 of the text is 15 raw bytes (72 - 57) in 20 characters" in said
        assert len(text[8].split()[0].rstrip(b"=")) == 20
        assert base64.b64decode(text[8].split()[0].rstrip(b"=")) == self.file()[57:72]
        found = re.search(r"`(\w+/\w+)` are the 16 bytes of the tensor in 22\.", said)
        assert found
        assert len(found[1]) == 22
        assert base64.b64decode(found[1] + "==") == self.file()[72:]

    def test_the_program_makes_file_and_text(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        left = execute(CONTAINERS, EXAMPLE)
        assert (left["data"], left["text"]) == (self.file(), printed_text(CONTAINERS))


def test_every_block_of_python_is_run() -> None:
    """Those of the specifications are all in the worked examples."""
    found: list[Block] = [b for page in (WTXT, CONTAINERS) for b in blocks(page, "python")]
    assert {(b.page, b.section) for b in found} == {(WTXT, EXAMPLE), (CONTAINERS, EXAMPLE)}
