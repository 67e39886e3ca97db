"""ISA-L only saves time: without it zlib writes and reads the same objects."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from tests.kit import Repo, safetensors
from wtxtgit.git import run
from wtxtgit.git.store.reader import ObjectStore

WITHOUT = "import sys; sys.modules['isal'] = None; "
MODEL = safetensors(*range(700_000))
"""2.7 MiB, whose text is stored before git would deflate it."""

BOTH_WAYS = """
import os
from pathlib import Path
from wtxtgit.git.repository import Repository
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.git.store.streams import PlainContent
from wtxtgit.git.store.writing import PackWriter
repo = Repository.discover(Path(sys.argv[1]))
content = os.urandom(300_000) * 10
with ObjectStore(repo) as store, PackWriter(store, 2, 2) as pack:
    oids = [pack.add(PlainContent(memoryview(content))), pack.add(PlainContent(memoryview(b"")))]
    pack.finish()
with ObjectStore(repo) as store:
    for threads in (1, 2):
        assert b"".join(store.blob(oids[0], threads)) == content
print(*oids)
"""


def without_isal(code: str, *arguments: str) -> bytes:
    called = [sys.executable, "-c", WITHOUT + code, *arguments]
    return subprocess.run(called, check=True, capture_output=True).stdout


def test_what_zlib_writes_git_reads_and_so_do_we(repo: Repo) -> None:
    large, empty = without_isal(BOTH_WAYS, str(repo.path)).decode().split()
    repo.git("fsck", "--strict", "--full")
    assert repo.git("cat-file", "-s", large) == b"3000000\n"
    assert repo.git("cat-file", "-s", empty) == b"0\n"
    # And with ISA-L.
    assert len(b"".join(ObjectStore(repo.repository).blob(large, 2))) == 3_000_000


@pytest.mark.slow
def test_git_add_of_a_large_file_does_not_need_it(repo: Repo, driver: None) -> None:
    repo.track("*.safetensors")
    repo.write("model.safetensors", MODEL)
    repo.add("model.safetensors")
    wanted = repo.git("ls-files", "-s")
    repo.git("rm", "-q", "--cached", "model.safetensors")
    main = "from wtxtgit.__main__ import main; sys.argv[1:] = ['filter-process']; sys.exit(main())"
    command = shlex.join([sys.executable, "-c", WITHOUT + main])
    run.git("config", "--global", "filter.wtxt.process", command, cwd=repo.path)
    repo.add("model.safetensors")
    assert repo.git("ls-files", "-s") == wanted
    repo.git("fsck", "--strict")
