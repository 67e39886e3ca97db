"""Man pages say what the help says, and troff takes none of it for a request."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from docs.site.man import main, pages
from tests.docs.test_commands import COMMANDS, options_of

PAGES = dict(pages())
_REQUESTS = {"TH", "SH", "PP", "TP", "B", "nf", "fi", "RS", "RE"}


def test_each_command_has_a_page() -> None:
    named = {f"wtxtgit-{'-'.join(command)}.1" for command in COMMANDS}
    assert set(PAGES) == named | {"wtxtgit.1"}


@pytest.mark.parametrize("called", [("seal",), ("key", "new"), ("migrate", "import"), ("emit",)])
def test_all_options_are_there(called: tuple[str, ...]) -> None:
    page = PAGES[f"wtxtgit-{'-'.join(called)}.1"].replace("\\-", "-")
    terms = re.findall(r"^\.TP\n\.B (.*)$", page, re.MULTILINE)
    named = {word for term in terms for word in re.findall(r"(?<!\S)--?[\w-]+", term)}
    assert named == options_of(*called)


def test_no_line_of_help_is_a_request() -> None:
    for name, page in PAGES.items():
        assert page.isascii()
        for line in page.splitlines():
            if line.startswith((".", "'")):
                assert line[1:].split(" ")[0] in _REQUESTS, f"{name}: {line}"


def test_groff_warns_of_nothing(tmp_path: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    main(tmp_path)
    command = ["groff", "-man", "-Tascii", "-ww", *sorted(tmp_path.glob("*.1"))]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stderr == b""
    shown = re.sub(rb"\x1b\[\d+m|.\x08", b"", done.stdout)
    # An example keeps its line, and a path its dot.
    assert b"\n           wtxtgit seal --countersign --key alice\n" in shown
    assert b" .wtxt/signers" in shown
