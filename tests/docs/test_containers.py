"""docs/containers.md: its commands, and its tables."""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.data import FIXTURES
from tests.docs.pages import ROOT, blocks, lines, spans, tables
from tests.docs.shell import Done, Step, assert_as_shown, run, steps
from wtxtgit.cli.front_page import SECTIONS
from wtxtgit.containers import registry
from wtxtgit.model.tensor import ITEM_BYTES, MAX_CHUNK

PAGE = "docs/containers.md"
DAMAGED = FIXTURES / "fold/none_rs16_flipped_a.fold"
WORDS = {
    "complex128": {"c128"},
    "complex numbers": {"c64", "c128"},
    "bf16": {"bf16"},
    "8-bit floats": {element for element in ITEM_BYTES if element.startswith("f8_")},
    "booleans": {"bool"},
    "unsigned integers": {"u8", "u16", "u32", "u64"},
}
"""What the page calls elements that a format lacks."""
OTHER_REASONS = {"two tensors", "over 4 dimensions"}


def call(command: str, folder: Path) -> Done:
    (done,) = run([Step(PAGE, command, ())], folder)
    return done


@pytest.mark.slow
def test_the_examples_do_what_the_page_shows(tmp_path: Path) -> None:
    """All but those of "Repack", which have a test of their own."""
    models = tmp_path / "models"
    models.mkdir()
    shutil.copy(DAMAGED, models / "damaged.fold")
    printed = [block for block in blocks(PAGE, "console") if block.section != "Repack"]
    done = run(steps(*printed), tmp_path)
    assert_as_shown(done)
    assert sum(bool(one.step.output) for one in done) >= 15
    assert sum(one.step.fails for one in done) == 1

    shown = {one.step.command.split()[1] for one in done if "wtxtgit" in one.step.command}
    assert {"inspect", "verify", "convert", "recover", *SECTIONS["Containers"]} <= shown
    assert (models / "copy.fold").read_bytes() == (models / "model.fold").read_bytes()
    (exact,) = [one for one in done if one.step.command.endswith("--json")]
    assert [len(found["sha256"]) for found in json.loads(exact.output)["tensors"]] == [64] * 3

    refused = call("wtxtgit recover --ecc bad.fold -o no.fold", models)
    assert refused.code == 1, refused
    assert "torch_state" in refused.output
    refused = call("wtxtgit convert bad.fold bad.pt", models)
    assert refused.code == 1, refused
    refused = call("wtxtgit convert model.npz model.gguf", models)
    assert refused.code == 3, refused
    assert "mask" in refused.output
    assert not any((models / name).exists() for name in ("no.fold", "bad.pt", "model.gguf"))


@pytest.mark.slow
def test_what_repacking_saves(tmp_path: Path) -> None:
    first = blocks(PAGE, "console", "Checkpoint formats")
    done = run(steps(*first, *blocks(PAGE, "console", "Repack")), tmp_path)
    assert_as_shown(done)
    printed = [re.search(r"^size-pack: (\d+)$", one.output, re.MULTILINE) for one in done]
    real = [int(found[1]) for found in printed if found]
    (table,) = tables(PAGE, "Repack")
    told = [int(row[1].replace(",", "")) for row in table]
    assert real == pytest.approx(told, rel=0.02), "zlibs differ a little"
    for row, (before, after) in zip(table[1:], pairwise(told), strict=True):
        assert int(row[2].replace(",", "")) == after - before
    assert real[1] - real[0] > 900, "a compressed file is stored anew"
    assert real[3] - real[2] < 10, "of a repacked one the row that changed"
    assert "one of its 4,224 rows" in " ".join(line.text for line in lines(PAGE, "Repack"))
    with np.load(tmp_path / "packed/model.npz") as arrays:
        assert sum(len(array) for array in arrays.values()) == 4224


class TestFormats:
    table = tables(PAGE, "Checkpoint formats")[0]

    def test_all_formats_are_listed(self) -> None:
        listed = {re.sub(r"\[(\w+)\].*", r"\1", row[0]).lower() for row in self.table}
        assert listed == {f.name for f in registry.FORMATS}

    def test_each_has_its_page(self) -> None:
        pages = {re.sub(r".*\((.*)\)", r"\1", row[0]) for row in self.table}
        assert pages == {f"spec/{f.name}.md" for f in registry.FORMATS}
        assert all((ROOT / "docs" / page).is_file() for page in pages)

    def test_those_that_are_repacked(self) -> None:
        told = {re.sub(r"\[(\w+)\].*", r"\1", r[0]).lower() for r in self.table if "repack" in r[3]}
        assert told == {f.name for f in registry.FORMATS if f.repack}

    def test_those_that_are_converted_to(self) -> None:
        told = {
            re.sub(r"\[(\w+)\].*", r"\1", r[0]).lower() for r in self.table if "`convert`" in r[3]
        }
        assert told == {f.name for f in registry.FORMATS if f.write}


class TestConvert:
    table = tables(PAGE, "Convert")[0]

    def test_all_endings_are_listed(self) -> None:
        listed = {ending: row[1] for row in self.table for ending in spans(row[0])}
        assert listed == {e: f.name for f in registry.FORMATS if f.write for e in f.endings}

    @pytest.mark.parametrize("row", table, ids=[row[1] for row in table])
    def test_what_is_refused_and_left_behind(self, row: list[str]) -> None:
        known = registry.by_name(row[1])
        assert known is not None
        assert known.write is not None
        writer = known.write()
        words = {word for word in re.split(", |; ", row[2]) if word} - OTHER_REASONS
        lacked = set[str]().union(*(WORDS[word] for word in words))
        assert lacked == set(ITEM_BYTES) - set(writer.DTYPES)
        assert ("tags" in row[3]) != (known.keeps_tag is not None)

    def test_the_text_of_a_full_shard_is_under_the_limit_of_forges(self) -> None:
        (line,) = [line for line in lines(PAGE, "Sets") if "--max-shard 64MiB" in line.text]
        assert "89 MiB" in line.text
        assert round(64 * 1.39) == 89


class TestVerify:
    """What the page says of options, on files that it does not make."""

    @pytest.fixture
    def here(self, tmp_path: Path) -> Path:
        for name in ("encrypted_high_a.fold", "hmac_a.fold", "none_json_a.fold"):
            shutil.copy(FIXTURES / "fold" / name, tmp_path)
        (tmp_path / "aes.key").write_text(bytes(range(32)).hex() + "\n")
        (tmp_path / "raw.key").write_bytes(bytes(range(32)))
        (tmp_path / "hmac.key").write_text("s3cret-a")
        (tmp_path / "other.key").write_text("another")
        (tmp_path / "notes.txt").write_text("no checkpoint")
        return tmp_path

    @pytest.mark.parametrize(
        ("arguments", "code", "said"),
        [
            ("encrypted_high_a.fold", 0, "note: "),
            ("encrypted_high_a.fold --key aes.key", 0, "ok "),
            ("encrypted_high_a.fold --key raw.key", 0, "ok "),
            ("hmac_a.fold", 0, "note: "),
            ("hmac_a.fold --hmac-key hmac.key", 0, "authenticated"),
            ("hmac_a.fold --hmac-key other.key", 1, "hmac: "),
            ("none_json_a.fold --hmac-key hmac.key", 1, "hmac: "),
            ("none_json_a.fold --hmac-key hmac.key --allow-unauthenticated", 0, "ok "),
            ("none_json_a.fold --max-chunk 1", 5, "limit: "),
            ("none_json_a.fold --require-signed", 4, "signature: "),
            ("none_json_a.fold notes.txt", 3, "unknown "),
            ("hmac_a.fold notes.txt --hmac-key other.key", 1, "FAILED "),
        ],
    )
    def test_options_and_exit_codes(self, here: Path, arguments: str, code: int, said: str) -> None:
        done = call(f"wtxtgit verify {arguments}", here)
        assert done.code == code, done
        assert said in done.output, done

    def test_with_the_key_there_is_no_warning(self, here: Path) -> None:
        done = call("wtxtgit verify encrypted_high_a.fold --key aes.key", here)
        assert "note" not in done.output, done

    def test_the_table_has_the_codes_of_the_help(self) -> None:
        formats, codes, options = tables(PAGE, "Verify")
        assert {row[0] for row in formats} >= {"FOLD", "AERO", "AEROSET", "MLCP", "TARIDX"}
        assert [row[0] for row in codes] == ["0", "1", "3", "4", "5"]
        assert {span.split()[0] for row in options for span in spans(row[0])} == {
            "--key",
            "--hmac-key",
            "--public-key",
            "--signers",
            "--max-chunk",
            "--require-signed",
            "--strict",
        }

    def test_the_default_of_max_chunk(self) -> None:
        assert MAX_CHUNK == 1024**3


@pytest.mark.slow
def test_files_outside_of_a_sets_folder_are_not_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / "model.npz", a=np.ones(64), b=np.zeros(64))
    made = call("wtxtgit convert model.npz model.safetensors --max-shard 512", tmp_path)
    assert made.code == 0, made
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    inside = tmp_path / "inside"
    inside.mkdir()
    for name in index["weight_map"].values():
        (inside / name).symlink_to(tmp_path / name)
    (inside / "link.safetensors.index.json").write_text(json.dumps(index))
    index["weight_map"] = {key: f"../{name}" for key, name in index["weight_map"].items()}
    (inside / "path.safetensors.index.json").write_text(json.dumps(index))
    assert call("wtxtgit verify model.safetensors.index.json", tmp_path).code == 0
    for name in ("link", "path"):
        found = call(f"wtxtgit verify {name}.safetensors.index.json", inside)
        assert found.code == 1, found
        assert found.output.count("structure: ") == 2, found
