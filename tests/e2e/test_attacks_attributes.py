"""Attacks by attributes: the blobs are as sealed, and what a checkout writes is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e import hostile
from tests.e2e.hostile import (
    DATA,
    NEW,
    SECOND,
    assert_refused,
    at_once,
    attributes,
    git_gives,
    stage,
    unstage,
)
from tests.e2e.sealed import MODEL, OTHER, Sealed, checkpoint, text

pytestmark = pytest.mark.slow

ALTERED = ("altered-checkout",)
LOST = ("untracked-artifact", "content-mismatch", "altered-checkout")
EVIL = checkpoint(66.0)
ALTERING = [
    "ident",
    "working-tree-encoding=UTF-16",
    "working-tree-encoding=UTF-16LE-BOM",
    "text eol=crlf",
    "text",
    "text=auto",
    "export-subst",
]


class TestOthers:
    """Without a key: attributes of git's own that change bytes on their way out."""

    @pytest.mark.parametrize("line", ALTERING)
    def test_of_a_checkpoint(self, base: Sealed, line: str) -> None:
        attributes(base, f"{MODEL} {line}")
        assert_refused(base, at_once(base), *ALTERED, was=SECOND)

    @pytest.mark.parametrize("line", ["ident", "-filter"])
    def test_where_patterns_are_compared_without_case(self, base: Sealed, line: str) -> None:
        attributes(base, f"{MODEL.upper()} {line}")
        assert_refused(base, at_once(base), *ALTERED, was=SECOND)

    def test_in_a_file_that_some_systems_open(self, base: Sealed) -> None:
        stage(base, ".GitAttributes", f"{MODEL} ident\n".encode())
        assert_refused(base, at_once(base), *ALTERED, was=SECOND)

    @pytest.mark.parametrize("line", [*ALTERING, "eol=crlf", "filter=lfs", "filter=evil"])
    def test_of_a_file_without_a_filter(self, base: Sealed, line: str) -> None:
        attributes(base, f"{DATA} {line}")
        assert_refused(base, at_once(base), *LOST, was=SECOND)

    def test_of_a_word_that_git_replaces(self, base: Sealed) -> None:
        """`ident` writes the blob's id where the sealed program says something else."""
        base.write("run.py", 'print("$Id$")\n')
        base.add("run.py")
        base.seal("run.py")
        base.commit("a program")
        main = hostile.honest(base)
        attributes(base, "run.py ident")
        tip = at_once(base)
        assert git_gives(base, tip, "run.py") != base.blob("run.py", tip)
        assert_refused(base, tip, *ALTERED, was=main)

    def test_in_a_folder_of_its_own(self, base: Sealed) -> None:
        base.generation(5.0, name=f"sub/{MODEL}")
        main = hostile.honest(base)
        attributes(base, "*.safetensors working-tree-encoding=UTF-16", file="sub/.gitattributes")
        assert_refused(base, at_once(base), *ALTERED, was=main)

    def test_by_a_macro(self, base: Sealed) -> None:
        attributes(base, "[attr]plain text eol=crlf", f"{MODEL} plain")
        assert_refused(base, at_once(base), *ALTERED, was=SECOND)

    def test_by_a_macro_that_git_knows(self, base: Sealed) -> None:
        """`binary` stands for other attributes from then on."""
        attributes(base, "[attr]binary filter=lfs", f"{MODEL} binary")
        assert_refused(base, at_once(base), *LOST, was=SECOND)

    def test_for_everything(self, base: Sealed) -> None:
        attributes(base, "* text=auto eol=crlf")
        assert_refused(base, at_once(base), *ALTERED, was=SECOND)

    def test_that_came_before_the_artifact(self, base: Sealed) -> None:
        """A line about a file that is not there yet, which nobody looks at."""
        attributes(base, "new.* text eol=crlf")
        at_once(base)
        base.generation(5.0, name=NEW)
        assert_refused(base, "HEAD", *ALTERED, was=SECOND)

    def test_put_in_and_taken_out_by_a_merge(self, base: Sealed) -> None:
        """The merge has them; no branch that is looked at does."""
        base.git("read-tree", SECOND)
        attributes(base, f"{MODEL} text eol=crlf")
        tip = hostile.commit_of(base, SECOND, hostile.commit_of(base, SECOND, tree=SECOND))
        assert_refused(base, tip, *ALTERED, was=SECOND)


class TestLost:
    """Without a key: the filter is gone, so a checkout writes texts, or whatever stands there."""

    @pytest.mark.parametrize(
        "line",
        [
            "-filter",
            "!filter",
            "filter",
            "filter=",
            "filter=lfs",
            "filter=WTXT",
            "filter=wtxt2",
            'filter="wtxt"',
        ],
    )
    def test_by_a_line(self, base: Sealed, line: str) -> None:
        attributes(base, f"{MODEL} {line}")
        assert_refused(base, at_once(base), *LOST, was=SECOND)
        stage(base, MODEL, EVIL)
        assert_refused(base, at_once(base), *LOST, was=SECOND)

    def test_the_file_is_gone(self, base: Sealed) -> None:
        unstage(base, ".gitattributes")
        assert_refused(base, at_once(base), *LOST, was=SECOND)

    @pytest.mark.parametrize("mode", ["120000", "160000"])
    def test_the_file_is_none(self, base: Sealed, mode: str) -> None:
        """Git reads no attributes through a link."""
        lines = base.blob(".gitattributes")
        unstage(base, ".gitattributes")
        stage(base, "attributes", lines)
        oid = base.head if mode == "160000" else hostile.store(base, b"attributes")
        hostile.stage_id(base, ".gitattributes", oid, mode)
        assert_refused(base, at_once(base), *LOST, was=SECOND)

    def test_the_file_is_a_folder(self, base: Sealed) -> None:
        lines = base.blob(".gitattributes")
        unstage(base, ".gitattributes")
        stage(base, ".gitattributes/.gitattributes", lines)
        assert_refused(base, at_once(base), *LOST, was=SECOND)

    @pytest.mark.parametrize(
        "change",
        [
            lambda _: b"\xef\xbb\xbf" + f"{MODEL} -filter\n".encode(),
            lambda lines: lines.replace(b"\n", b"\r\n") + f"{MODEL} -filter\r\n".encode(),
            lambda lines: lines.replace(b"*.safetensors ", b'"*.safetensors ', 1),
            lambda lines: lines.rstrip(b"\n") + b" " * 3000 + b"x\n",
            lambda lines: lines + f"*.safetensors -filter {'x' * 1900}\n".encode(),
            lambda lines: lines + b"*.[s]afetensors -filter\n",
            lambda lines: lines + b"\\model.safetensors -filter\n",
            lambda lines: lines + b'"mod\\145l.safetensors" -filter\n',
            lambda lines: lines + b"/model.safetensors -filter\n",
            lambda lines: lines + b"**/model.safetensors -filter\n",
            lambda lines: lines + b"model.safetensors -filter",
            lambda lines: lines + b"\tmodel.safetensors\t-filter\n",
        ],
        ids=[
            "bom", "crlf", "quote", "long-line", "longish-line", "class", "escape", "octal",
            "anchored", "stars", "no-newline", "tabs",
        ],
    )  # fmt: skip
    def test_by_spellings(self, base: Sealed, change: Callable[[bytes], bytes]) -> None:
        """As git reads them, whatever a reader of ours would."""
        stage(base, ".gitattributes", change(base.blob(".gitattributes")))
        tip = at_once(base)
        said = base.git("check-attr", "--cached", "filter", MODEL, env={"HOME": "/nonexistent"})
        assert not said.endswith(b": wtxt\n"), said
        assert_refused(base, tip, *LOST, was=SECOND)

    def test_by_a_file_that_git_does_not_read(self, base: Sealed) -> None:
        """Over 100 MiB git passes it over; its lines are as they were."""
        lines = base.blob(".gitattributes")
        stage(base, ".gitattributes", lines + b"#" * 99 + b"\n" + b"#\n" * (50 << 20))
        assert_refused(base, at_once(base), *LOST, was=SECOND)

    def test_by_a_macro_of_a_macro(self, base: Sealed) -> None:
        lines = ("[attr]one two", "[attr]two -filter", f"{MODEL} one")
        attributes(base, *lines)
        assert_refused(base, at_once(base), *LOST, was=SECOND)

    def test_in_a_folder_between(self, base: Sealed) -> None:
        base.generation(5.0, name=f"a/b/c/{MODEL}")
        main = hostile.honest(base)
        attributes(base, "c/*.safetensors -filter", file="a/b/.gitattributes")
        assert_refused(base, at_once(base), *LOST, was=main)

    def test_and_found_again_in_a_later_commit(self, base: Sealed) -> None:
        """Off for one commit that puts a model there, and on again."""
        stage(base, MODEL, EVIL)
        attributes(base, f"{MODEL} -filter")
        at_once(base)
        stage(base, ".gitattributes", base.blob(".gitattributes", SECOND))
        kinds = ("raw-binary", *LOST)
        assert_refused(base, at_once(base), *kinds, was=SECOND)

    def test_of_one_that_was_deleted_before(self, base: Sealed) -> None:
        unstage(base, MODEL)
        main = at_once(base)
        attributes(base, f"{MODEL} -filter")
        between = at_once(base)
        stage(base, MODEL, EVIL)
        tip = at_once(base)
        assert_refused(base, tip, *LOST, was=main)
        assert_refused(base, tip, *LOST, was=between)


class TestOfAMachine:
    """What a clone has of its own changes no verdict, in neither direction."""

    @pytest.fixture(params=["info", "global", "config", "environment"])
    def local(
        self, request: pytest.FixtureRequest, base: Sealed, home: Path
    ) -> Callable[[str], None]:
        """Sets attributes of a machine."""
        monkeypatch = request.getfixturevalue("monkeypatch")

        def put(line: str) -> None:
            if request.param == "info":
                (base.path / ".git/info").mkdir(exist_ok=True)
                (base.path / ".git/info/attributes").write_text(line)
                return
            if request.param == "global":
                folder = home / ".config/git"
                folder.mkdir(parents=True)
                (folder / "attributes").write_text(line)
                return
            (home / "attributes").write_text(line)
            if request.param == "config":
                base.git("config", "core.attributesFile", str(home / "attributes"))
                return
            stage(base, ".gitattributes", line.encode())
            monkeypatch.setenv("GIT_ATTR_SOURCE", at_once(base))
            base.git("reset", "-q", "--hard", "HEAD~1")

        return put

    def test_that_rescue_nothing(self, base: Sealed, local: Callable[[str], None]) -> None:
        local(f"{MODEL} filter=wtxt -text\n{OTHER} filter=wtxt -text\n")
        unstage(base, ".gitattributes")
        assert_refused(base, at_once(base), *LOST, was=SECOND)

    def test_that_harm_nothing(self, base: Sealed, local: Callable[[str], None]) -> None:
        local("* -filter text eol=crlf\n")
        hostile.honest(base)

    def test_that_hide_nothing(self, base: Sealed, local: Callable[[str], None]) -> None:
        local("* -filter\n")
        base.git("update-index", "--add", "--cacheinfo",
                 f"100644,{hostile.store(base, text(66.0))},{NEW}")  # fmt: skip
        assert_refused(base, at_once(base), "unsealed", was=SECOND)
