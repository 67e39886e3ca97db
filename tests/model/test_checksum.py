"""CRC-32C: what the package computes, without what its import brings along."""

from __future__ import annotations

import subprocess
import sys

import crc32c as package
import pytest

from wtxtgit.model import checksum

CHECK = 0xE3069283
"""CRC-32C of the ASCII digits 1 to 9, as catalogues of checksums have it."""


def test_it_is_the_packages() -> None:
    assert checksum.crc32c(b"123456789") == CHECK
    assert checksum.crc32c(memoryview(b"6789"), checksum.crc32c(b"12345")) == CHECK
    assert checksum.crc32c(bytes(range(256)), 7) == package.crc32c(bytes(range(256)), 7)


def test_a_package_of_another_form_is_imported_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "_MODULE", "crc32c._not_there")
    assert checksum._loaded() is package.crc32c


def test_little_is_imported_along() -> None:
    code = """if True:
        import sys, numpy
        of_numpy = set(sys.modules)
        import wtxtgit.text.write
        print(*sys.modules.keys() - of_numpy)
    """
    modules = subprocess.check_output((sys.executable, "-c", code), text=True).split()
    assert "wtxtgit.model.checksum" in modules
    assert not {"argparse", "email", "importlib.metadata", "logging", "socket"} & set(modules)
