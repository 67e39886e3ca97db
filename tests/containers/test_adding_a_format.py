"""A format is added by the files that CONTRIBUTING lists, and by no others."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import wtxtgit
from tests.docs.pages import ROOT, tables
from tests.kit import safetensors
from wtxtgit.containers import format as records
from wtxtgit.containers.registry import FORMATS
from wtxtgit.model.array import CONTAINER_FORMATS

TOY = Path(__file__).parent / "toy"
MOST_FILES = 12
LINES = {
    "wtxtgit/containers/registry.py": [
        ("import aero, fold", "import toy, aero, fold"),
        ("    safetensors.FORMAT,\n", "    toy.FORMAT,\n    safetensors.FORMAT,\n"),
    ],
    "wtxtgit/model/array.py": [('    "gguf",\n', '    "gguf",\n    "toy",\n')],
}
"""What is added to files that are there, as the list says."""


def listed_files(*, needed_alone: bool = False) -> list[str]:
    """The files of the list, for a format called toy; those that every format needs, if asked."""
    (table,) = tables("CONTRIBUTING.md", "Adding a format")
    rows = [row for row in table if not (needed_alone and ", if " in row[1])]
    return [row[0].strip("`").replace("<format>", "toy") for row in rows]


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the product that knows TOY1; only files of the list are touched."""
    folder = tmp_path_factory.mktemp("product")
    # With its compiled modules: starts are as fast as ever.
    shutil.copytree(Path(wtxtgit.__file__).parent, folder / "wtxtgit")
    for name in listed_files():
        path = folder / name
        if name in LINES:
            text = path.read_text()
            for old, new in LINES[name]:
                assert old in text
                text = text.replace(old, new, 1)
            path.write_text(text)
        elif name.startswith("wtxtgit/"):
            path.parent.mkdir(exist_ok=True)
            shutil.copy(TOY / path.name, path)
    return folder


def toy(*values: float, name: str = "w") -> bytes:
    head = b"TOY1" + bytes([len(name), 1]) + name.encode()
    return head + struct.pack(f"<Q{len(values)}f", len(values), *values)


def run(
    product: Path, *args: str | Path, ok: Sequence[int] = (0,), stdin: bytes | None = None
) -> bytes:
    """What the product with the format prints, in the folder beside it."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "wtxtgit", *args],
        cwd=product,
        env={"PYTHONPATH": str(product), "PATH": "/usr/bin:/bin", "HOME": str(product)},
        input=stdin,
        capture_output=True,
        check=False,
    )
    assert done.returncode in ok, done.stderr
    return done.stdout


def test_the_list_is_short_and_names_what_is_there() -> None:
    names = listed_files()
    assert len(listed_files(needed_alone=True)) <= MOST_FILES
    assert LINES.keys() <= set(names)
    assert {Path(name).name for name in names if "/toy/" in name} >= {
        path.name for path in TOY.glob("*.py")
    }
    others = [name for name in names if "toy" not in name]
    assert all((ROOT / name).is_file() for name in others)


def test_a_file_is_cleaned_and_smudged(product: Path) -> None:
    data = toy(1, 2, 3)
    text = run(product, "clean", stdin=data)
    assert b" schema=toy/v1 " in text
    assert b"\narr name=w dtype=f32 " in text or b" name=w " in text
    assert run(product, "smudge", stdin=text) == data


def test_a_file_is_inspected_verified_and_converted(product: Path) -> None:
    (product / "a.safetensors").write_bytes(safetensors(1, 2, 3))
    run(product, "convert", "a.safetensors", "a.toy")
    assert (product / "a.toy").read_bytes() == toy(1, 2, 3)
    facts: dict[str, Any] = json.loads(run(product, "inspect", "a.toy", "--json"))
    assert facts["format"] == "toy"
    assert [tensor["name"] for tensor in facts["tensors"]] == ["w"]
    verdict = json.loads(run(product, "verify", "a.toy", "--json"))
    assert verdict["files"][0]["format"] == "toy"
    (product / "long.toy").write_bytes(toy(1) + b"more")
    told = json.loads(run(product, "verify", "long.toy", "--json"))
    assert told["files"][0]["warnings"][0]["message"] == "4 bytes follow the tensor"
    (product / "cut.toy").write_bytes(toy(1, 2)[:-1])
    run(product, "verify", "cut.toy", ok=(1,))
    run(product, "convert", "a.toy", "b.safetensors")
    assert (product / "b.safetensors").read_bytes() == safetensors(1, 2, 3)
    run(product, "diff", "a.toy", "long.toy", "--json", ok=(0, 1))


def test_files_of_a_format_that_is_not_resealed_are_a_conflict(product: Path) -> None:
    """No module that is not there is looked for."""
    for name, value in (("base", 1), ("mine", 2), ("theirs", 3)):
        (product / f"{name}.toy").write_bytes(toy(value))
    told = run(product, "merge-file", "base.toy", "mine.toy", "theirs.toy", ok=(1,))
    assert b"toy files can't be merged by tensor" in told
    taken = run(
        product, "merge-file", "base.toy", "mine.toy", "theirs.toy", "--strategy", "theirs", "-o",
        "out.toy",
    )  # fmt: skip
    assert (product / "out.toy").read_bytes() == toy(3), taken


def test_texts_and_contracts_know_the_formats_of_the_registry() -> None:
    names = {known.name for known in FORMATS}
    assert {*CONTAINER_FORMATS} == {*names, "opaque"}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = {c["type"]: c for c in settings["tool"]["importlinter"]["contracts"]}
    packages = {f"wtxtgit.containers.{name}" for name in names}
    assert set(contracts["independence"]["modules"]) == packages
    assert set(contracts["protected"]["protected_modules"]) == packages
    assert contracts["protected"]["allowed_importers"] == ["wtxtgit.containers.registry"]


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_all_that_a_record_names_is_there(known: records.Format) -> None:
    """Modules are loaded when they are used: each has what its protocol asks for."""
    hints = get_type_hints(records.Format, localns=_types())
    for field, value in zip(known._fields, known, strict=True):
        if isinstance(value, records.Lazy):
            (protocol,) = re.findall(r"Lazy\[\S*?(\w+)\]", str(hints[field]))
            wanted = getattr(records, protocol, None) or _types()[protocol]
            module = value()
            public = [n for n in (*vars(wanted), *wanted.__annotations__) if n[0] != "_"]
            assert public
            assert [name for name in public if not hasattr(module, name)] == [], field
    assert get_args(hints["endings"]) == (str, ...)


def _types() -> dict[str, Any]:
    """What the record's annotations name without importing it."""
    from wtxtgit.containers import ranges, signatures, tar_index
    from wtxtgit.model import findings, tensor

    modules = (ranges, signatures, tar_index, findings, tensor)
    return {name: value for module in modules for name, value in vars(module).items()}
