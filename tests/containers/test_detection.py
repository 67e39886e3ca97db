"""Which format a file is told by magic alone; what is known and not cut stays whole."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from tests.containers.samples import check_cut, safetensors, spelled
from wtxtgit.containers.any_format import describe, split
from wtxtgit.containers.registry import detect
from wtxtgit.errors import FormatError


def zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return buffer.getvalue()


def saved(*, many: bool) -> bytes:
    buffer = io.BytesIO()
    if many:
        np.savez(buffer, a=np.arange(3))
    else:
        np.save(buffer, np.arange(3))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"FOLDv1\0\0", "fold"),
        (b"FOLDv2\0\0", "opaque"),
        (b"AERO", "aero"),
        (b"PCLM", "mlcp"),
        (b"MLCP", "opaque"),
        (b"TARIDX\0\0", "taridx"),
        (b"TARIDX\0\1", "taridx"),
        (b"GGUF\3", "gguf"),
        (saved(many=False), "npy"),
        (saved(many=True), "npz"),
        (zipped("model/data.pkl", "model/data/0"), "torch"),
        (zipped("model/.format_version"), "opaque"),
        (zipped("model/.format_version")[:-1], "torch"),
        (zipped("model/.format_version", "model/data.pkl"), "torch"),
        (zipped("hello.txt"), "opaque"),
        (zipped(), "opaque"),
        (b"PK\3\4", "opaque"),
        (safetensors({}), "safetensors"),
        (b"12345678{", "opaque"),
        (b"\2\0\0\0\0\0\0\0", "opaque"),
        (b"", "opaque"),
        (b"WTXT 1\n", "opaque"),
    ],
)
def test_magic(data: bytes, name: str) -> None:
    assert detect(memoryview(data)) == name


def test_shard_files_are_refused_by_name() -> None:
    result = split(memoryview(b"RAHS\1\0\0\0"))
    assert result.layout.format == "opaque"
    assert "RAHS" in (result.reason or "")
    with pytest.raises(FormatError, match="RAHS"):
        describe(memoryview(b"RAHS\1\0\0\0"))


def test_unknown_files_are_opaque() -> None:
    assert describe(memoryview(b"hello")).format == "opaque"
    assert spelled(split(memoryview(b"hello"))) == ["data"]
    assert split(memoryview(b"")).layout.extents == ()


@pytest.mark.parametrize(
    "data", [b"FOLDv1\0\0", b"AERO", b"PCLM", b"TARIDX\0\0", b"GGUF", b"\x93NUMPY"]
)
def test_a_magic_alone_is_opaque_and_can_not_be_described(data: bytes) -> None:
    result = split(memoryview(data))
    check_cut(result, data)
    assert result.layout.format == "opaque"
    with pytest.raises(FormatError) as caught:
        describe(memoryview(data))
    assert caught.value.message == result.reason
    assert caught.value.offset is not None


def test_importing_the_registry_is_light() -> None:
    code = (
        "import sys, wtxtgit.containers.any_format as a; a.split(memoryview(b'AEROx'));"
        "bad = {'msgpack', 'zstandard', 'numpy'} & set(sys.modules); sys.exit(bool(bad))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
