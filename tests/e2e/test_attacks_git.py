"""Attacks on git's own store: a name stands for bytes whose hash it is, and for nothing else."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from tests.e2e import hostile
from tests.e2e.hostile import (
    DATA,
    SECOND,
    assert_refused,
    at_once,
    audit,
    commit_of,
    entries,
    loose,
    overwrite,
    stage,
    store,
    tree_of,
)
from tests.e2e.sealed import LEDGER, MODEL, OTHER, ROOT, SIGNERS, Sealed, text

pytestmark = pytest.mark.slow

FILE, FOLDER, LINK = b"100644", b"40000", b"120000"


def evil(repo: Sealed) -> str:
    repo.put(66.0)
    return at_once(repo, "evil")


def commit_tree(repo: Sealed, tree: str, *parents: str) -> str:
    named = [word for parent in parents for word in ("-p", parent)]
    return repo.git("commit-tree", *named, "-m", "c", tree).decode().strip()


class TestReplaced:
    """Objects that git gives in the place of others, where it is told to."""

    @pytest.mark.parametrize("kind", ["commit", "tree", "blob"])
    def test_by_a_ref(self, base: Sealed, kind: str) -> None:
        """Whoever fetched refs/replace judges what is good, and builds what is not."""
        evil(base)
        suffix = {"commit": "", "tree": "^{tree}", "blob": f":{MODEL}"}[kind]
        base.git("replace", f"HEAD{suffix}", f"{SECOND}{suffix}")
        assert_refused(base, "HEAD", "shallow", "content-mismatch", was=SECOND)

    def test_a_blob_that_is_good_by_one_that_is_not(self, base: Sealed) -> None:
        """What the clone checks out is the attacker's, and what is judged is not."""
        base.git("replace", f"HEAD:{MODEL}", store(base, text(66.0)))
        assert audit(base).code != 0

    def test_parents_by_a_graft(self, base: Sealed) -> None:
        """The rollback's history never had the second generation."""
        base.take(ROOT, MODEL, LEDGER)
        tip = at_once(base)
        (base.path / ".git/info").mkdir(exist_ok=True)
        (base.path / ".git/info/grafts").write_text(f"{tip} {base.oid(ROOT)}\n")
        assert_refused(base, tip, "shallow", "ledger-rewritten")

    def test_parents_by_a_shallow_file(self, base: Sealed) -> None:
        base.take(ROOT, MODEL, LEDGER)
        tip = at_once(base)
        merged = commit_of(base, ROOT, tip, tree=tip)
        (base.path / ".git/shallow").write_text(f"{tip}\n")
        assert_refused(base, merged, "shallow", "ledger-rewritten")

    def test_by_an_environment(self, base: Sealed, monkeypatch: pytest.MonkeyPatch) -> None:
        """The refs of replacements stand elsewhere, where an environment says so."""
        bad = evil(base)
        base.git("update-ref", f"refs/mine/{bad}", SECOND)
        monkeypatch.setenv("GIT_REPLACE_REF_BASE", "refs/mine/")
        assert_refused(base, bad, "shallow", "content-mismatch", was=SECOND)


class TestCommitGraphs:
    """A file that says what commits say, so that git need not read them."""

    def chunk(self, graph: bytes, name: bytes) -> int:
        count = graph[6]
        for number in range(count):
            at = 8 + 12 * number
            if graph[at : at + 4] == name:
                (offset,) = struct.unpack_from(">Q", graph, at + 4)
                return int(offset)
        raise AssertionError(name)

    def data_of(self, graph: bytes, oid: str) -> int:
        """Where the line of a commit begins: tree, two parents, generation and date."""
        names = self.chunk(graph, b"OIDL")
        number = (graph.index(bytes.fromhex(oid), names) - names) // 20
        return self.chunk(graph, b"CDAT") + 36 * number

    def lie(self, repo: Sealed, oid: str, offset: int, content: bytes) -> None:
        repo.git("commit-graph", "write", "--reachable")
        file = repo.path / ".git/objects/info/commit-graph"
        graph = bytearray(file.read_bytes())
        at = self.data_of(bytes(graph), oid) + offset
        graph[at : at + len(content)] = content
        file.chmod(0o644)
        file.write_bytes(graph)
        repo.git("config", "core.commitGraph", "true")

    def test_of_a_tree(self, base: Sealed) -> None:
        bad = evil(base)
        good = base.git("rev-parse", f"{SECOND}^{{tree}}").decode().strip()
        self.lie(base, bad, 0, bytes.fromhex(good))
        assert_refused(base, bad, "content-mismatch", was=SECOND)

    @pytest.mark.parametrize("first", [ROOT, SECOND])
    def test_of_a_second_parent(self, base: Sealed, first: str) -> None:
        """The merge has one parent, it says: what the other knew is not asked for."""
        base.branch("pr", ROOT)
        base.generation(3.0, name=OTHER)
        base.switch("main")
        parents = (ROOT, SECOND) if first == ROOT else (SECOND, "pr")
        bad = commit_of(base, *parents, tree=first)
        base.git("update-ref", "refs/heads/evil", bad)
        self.lie(base, bad, 24, struct.pack(">I", 0x70000000))
        assert_refused(base, bad, "ledger-rewritten", "ledger-removed", was=first)

    def test_of_generations(self, base: Sealed) -> None:
        """The numbers by which git walks: a commit seems to be no ancestor of another."""
        base.take(ROOT, MODEL, LEDGER)
        bad = at_once(base)
        self.lie(base, bad, 28, struct.pack(">II", 1 << 2, 0))
        assert_refused(base, bad, "ledger-rewritten", was=SECOND)


class TestCrookedTrees:
    """Trees that git's own commands would not make, and that git checks out all the same."""

    def rows(self, repo: Sealed) -> list[tuple[bytes, bytes, str]]:
        return entries(repo, f"{SECOND}^{{tree}}")

    def refused(self, repo: Sealed, rows: list[tuple[bytes, bytes, str]]) -> None:
        tip = commit_tree(repo, tree_of(repo, rows), SECOND)
        assert_refused(repo, tip, was=SECOND, unjudged=True)

    def with_evil(self, repo: Sealed) -> list[tuple[bytes, bytes, str]]:
        bad = store(repo, text(66.0))
        return [(m, n, bad if n == MODEL.encode() else o) for m, n, o in self.rows(repo)]

    def test_an_order_that_hides_a_model(self, base: Sealed) -> None:
        self.refused(base, self.with_evil(base)[::-1])

    @pytest.mark.parametrize("name", [MODEL, LEDGER, DATA, ".gitattributes"])
    @pytest.mark.parametrize("order", ["evil-first", "evil-last"])
    def test_a_name_twice(self, base: Sealed, name: str, order: str) -> None:
        """A reader takes one of them, a checkout the other."""
        bad = FILE, name.encode(), store(base, b"evil\n")
        rows = []
        for row in self.rows(base):
            if row[1] == name.encode():
                rows += [bad, row] if order == "evil-first" else [row, bad]
            else:
                rows.append(row)
        self.refused(base, rows)

    def test_a_name_twice_as_a_folder(self, base: Sealed) -> None:
        """A file and a folder of one name, in the order in which git wants them."""
        inner = tree_of(base, [(FILE, b"data.pkl", store(base, b"evil\n"))])
        rows = [*self.rows(base), (FOLDER, MODEL.encode(), inner)]
        self.refused(base, sorted(rows, key=lambda row: row[1] + b"/" * (row[0] == FOLDER)))

    def test_the_folder_of_the_signers_twice(self, base: Sealed) -> None:
        inner = tree_of(base, [(FILE, b"signers", store(base, b"evil\n"))])
        rows = self.rows(base)
        at = next(number for number, row in enumerate(rows) if row[1] == b".wtxt")
        for place in (at, at + 1):
            self.refused(base, [*rows[:place], (FOLDER, b".wtxt", inner), *rows[place:]])

    @pytest.mark.parametrize("name", [b"x/../model.safetensors", b"./model.safetensors", b"/model"])
    def test_a_name_that_is_a_path(self, base: Sealed, name: bytes) -> None:
        rows = [*self.rows(base), (FILE, name, store(base, b"evil\n"))]
        self.refused(base, sorted(rows, key=lambda row: row[1]))

    def test_a_path_that_is_a_name(self, base: Sealed) -> None:
        """A sealed file of a folder, and an entry of that path in the tree above."""
        base.generation(5.0, name=f"sub/{MODEL}")
        main = hostile.honest(base)
        rows = entries(base, f"{main}^{{tree}}")
        rows.append((FILE, f"sub/{MODEL}".encode(), store(base, text(66.0))))
        tip = commit_tree(base, tree_of(base, sorted(rows, key=lambda row: row[1])), main)
        assert_refused(base, tip, was=main, unjudged=True)

    @pytest.mark.parametrize("mode", [b"100664", b"0100644", b"100600", b"644", b"100777"])
    def test_a_mode_that_is_none(self, base: Sealed, mode: bytes) -> None:
        """Git takes them for files; a reader that does not passes a model over."""
        rows = [(mode if n == MODEL.encode() else m, n, o) for m, n, o in self.with_evil(base)]
        self.refused(base, rows)

    @pytest.mark.parametrize("mode", [FOLDER, LINK, b"160000"])
    def test_a_mode_of_something_else(self, base: Sealed, mode: bytes) -> None:
        """The sealed blob, called a folder, a link or a submodule."""
        rows = [(mode if n == MODEL.encode() else m, n, o) for m, n, o in self.rows(base)]
        self.refused(base, rows)

    def test_a_folder_that_is_a_commit(self, base: Sealed) -> None:
        rows = [(m, n, base.head if n == b".wtxt" else o) for m, n, o in self.rows(base)]
        self.refused(base, rows)


class TestCrookedCommits:
    def made(self, repo: Sealed, *lines: str) -> str:
        end = ["author a <a@x> 1700000000 +0000", "committer a <a@x> 1700000000 +0000"]
        content = "\n".join([*lines, *end, "", "c", ""])
        return store(repo, content.encode(), "commit")

    def test_two_trees(self, base: Sealed) -> None:
        """A reader takes the last line, git the first."""
        bad = base.git("rev-parse", f"{evil(base)}^{{tree}}").decode().strip()
        good = base.git("rev-parse", f"{SECOND}^{{tree}}").decode().strip()
        main = base.oid(SECOND)
        for lines in ((bad, good), (good, bad)):
            heads = [f"tree {tree}" for tree in lines]
            tip = self.made(base, heads[0], heads[1], f"parent {main}")
            given = base.git("rev-parse", f"{tip}^{{tree}}").decode().strip()
            if given == bad:
                assert_refused(base, tip, unjudged=True)

    def test_parents_behind_the_author(self, base: Sealed) -> None:
        """Git sees one parent, another reader two: that which main had is not asked."""
        tree = base.git("rev-parse", f"{ROOT}^{{tree}}").decode().strip()
        lines = [f"tree {tree}", f"parent {base.oid(ROOT)}", "author a <a@x> 1700000000 +0000"]
        lines += [f"parent {base.oid(SECOND)}"]
        tip = self.made(base, *lines)
        said = audit(base, tip, "--was", SECOND)
        assert said.code != 0

    def test_parents_in_the_message(self, base: Sealed) -> None:
        tree = base.git("rev-parse", f"{ROOT}^{{tree}}").decode().strip()
        message = f"c\n\nparent {base.oid(SECOND)}\ntree {tree}\n"
        made = ("commit-tree", "-p", ROOT, "-m", message, tree)
        tip = base.git(*made).decode().strip()
        assert audit(base, tip, "--was", SECOND).code != 0


class TestLies:
    """Objects whose bytes are not those that their names are the hashes of."""

    def id_of(self, repo: Sealed, what: str) -> str:
        return repo.git("rev-parse", what).decode().strip()

    @pytest.mark.parametrize("path", [MODEL, DATA, SIGNERS, ".gitattributes"])
    def test_a_blob(self, base: Sealed, path: str) -> None:
        """A mirror, or a shared disk: git checks out what is there without a question."""
        content = {
            MODEL: text(66.0),
            DATA: b'{"eos": 2}\n',
            SIGNERS: base.blob(SIGNERS) + b"# more\n",
            ".gitattributes": base.blob(".gitattributes") + b"# more\n",
        }[path]
        overwrite(base, self.id_of(base, f"HEAD:{path}"), content)
        assert hostile.git_gives(base, "HEAD", path) == content
        assert_refused(base, "HEAD", unjudged=True)

    def test_a_ledger(self, base: Sealed) -> None:
        """The ledger of a good name is an evil one, and so is the model of another."""
        made = hostile.appended(base.blob(LEDGER), text(66.0), "alice")
        overwrite(base, self.id_of(base, f"HEAD:{LEDGER}"), made)
        overwrite(base, self.id_of(base, f"HEAD:{MODEL}"), text(66.0))
        assert_refused(base, "HEAD", unjudged=True)

    def test_a_tree(self, base: Sealed) -> None:
        bad = evil(base)
        content = base.run("git", "cat-file", "tree", f"{bad}^{{tree}}").stdout
        base.git("reset", "-q", "--hard", SECOND)
        overwrite(base, self.id_of(base, "HEAD^{tree}"), content, "tree")
        assert_refused(base, "HEAD", unjudged=True)

    def test_a_commit(self, base: Sealed) -> None:
        """Main's tip says that its only parent is the root."""
        content = base.run("git", "cat-file", "commit", SECOND).stdout
        tree = self.id_of(base, f"{ROOT}^{{tree}}").encode()
        lines = [b"tree " + tree, *content.splitlines()[1:]]
        overwrite(base, base.oid(SECOND), b"\n".join(lines) + b"\n", "commit")
        said = audit(base, "main")
        assert said.code != 0

    def test_a_good_blob_under_an_evil_name(self, base: Sealed) -> None:
        """In this clone the name gives the sealed text; in others it does not."""
        bad = evil(base)
        overwrite(base, self.id_of(base, f"HEAD:{MODEL}"), text(2.0))
        assert_refused(base, bad, unjudged=True)

    def test_two_streams_in_one_file(self, base: Sealed) -> None:
        """A reader inflates the first one, or all; git the first, or nothing."""
        oid = self.id_of(base, f"{evil(base)}:{MODEL}")
        file = loose(base, oid)
        good, bad = text(2.0), text(66.0)
        streams = [zlib.compress(b"blob %d\0" % len(good) + good), zlib.compress(bad)]
        for made in (streams[0] + streams[1], streams[1] + streams[0]):
            file.unlink()
            file.write_bytes(made)
            assert_refused(base, "HEAD", unjudged=True)

    @pytest.mark.parametrize("more", [b"", b"evil"])
    def test_a_size_that_is_another(self, base: Sealed, more: bytes) -> None:
        """The head says how much of the stream counts."""
        oid = self.id_of(base, f"HEAD:{MODEL}")
        good = text(2.0)
        file = loose(base, oid)
        file.unlink()
        size = len(good) if more else len(good) - 1
        file.write_bytes(zlib.compress(b"blob %d\0" % size + good + more))
        assert_refused(base, "HEAD", unjudged=True)

    def test_another_kind(self, base: Sealed) -> None:
        """The sealed bytes, as an object that is no blob."""
        oid = self.id_of(base, f"HEAD:{MODEL}")
        overwrite(base, oid, text(2.0), "tag")
        assert_refused(base, "HEAD", unjudged=True)

    @pytest.mark.parametrize("path", [MODEL, LEDGER, SIGNERS, ".gitattributes", DATA])
    def test_nothing(self, base: Sealed, path: str) -> None:
        """What is not there was not judged."""
        loose(base, self.id_of(base, f"HEAD:{path}")).unlink()
        assert_refused(base, "HEAD", unjudged=True)

    def test_an_old_tree_is_not_there(self, base: Sealed) -> None:
        """A commit between can't be read: what it knew can't be said."""
        base.write("readme", "x")
        base.add("readme")
        at_once(base)
        base.git("rm", "-q", "readme")
        at_once(base)
        loose(base, self.id_of(base, "HEAD~1^{tree}")).unlink()
        assert audit(base).code != 0

    def test_a_store_beside_it(self, base: Sealed, tmp_path: Path) -> None:
        """Alternates: objects of a folder that somebody else may write to."""
        other = tmp_path / "objects"
        oid = self.id_of(base, f"HEAD:{MODEL}")
        loose(base, oid).unlink()
        (other / oid[:2]).mkdir(parents=True)
        content = text(66.0)
        made = zlib.compress(b"blob %d\0" % len(content) + content)
        (other / oid[:2] / oid[2:]).write_bytes(made)
        (base.path / ".git/objects/info/alternates").write_text(f"{other}\n")
        assert_refused(base, "HEAD", unjudged=True)

    def test_an_index_of_a_pack_that_lies(self, base: Sealed) -> None:
        """Two blobs of a pack change places in its index."""
        evil(base)
        base.git("tag", "evil")
        base.git("reset", "-q", "--hard", SECOND)
        base.git("repack", "-adq", "--depth=0", "--window=0")
        base.git("prune", "--expire=now")
        (index,) = (base.path / ".git/objects/pack").glob("*.idx")
        data = bytearray(index.read_bytes())
        (count,) = struct.unpack_from(">I", data, 8 + 255 * 4)
        names = 8 + 256 * 4
        offsets = names + 24 * count
        places = []
        for what in (f"HEAD:{MODEL}", f"evil:{MODEL}"):
            at = data.index(bytes.fromhex(self.id_of(base, what)), names)
            places.append((at - names) // 20)
        one, other = (offsets + 4 * place for place in places)
        data[one : one + 4], data[other : other + 4] = (
            data[other : other + 4],
            data[one : one + 4],
        )
        index.chmod(0o644)
        index.write_bytes(data)
        assert hostile.git_gives(base, "HEAD", MODEL) == text(66.0)
        assert_refused(base, "HEAD", unjudged=True)

    def test_what_is_known_of_a_blob_is_of_its_bytes(self, base: Sealed) -> None:
        """An audit has seen it whole; later other bytes are there, and what is known is asked."""
        given = ("audit", "--json", "--trust-root", ROOT, "HEAD")
        assert base.call(*given).code == 0
        overwrite(base, self.id_of(base, f"HEAD:{LEDGER}"), b"WLEDGER 1\n")
        assert base.call(*given, ok=(0, 1, 3, 4, 5)).code != 0


def test_a_link_out_of_the_repository(base: Sealed, tmp_path: Path) -> None:
    """The store's own file is a link to one that changes."""
    oid = base.git("rev-parse", f"HEAD:{MODEL}").decode().strip()
    file = loose(base, oid)
    content = text(66.0)
    (tmp_path / "moving").write_bytes(zlib.compress(b"blob %d\0" % len(content) + content))
    file.unlink()
    file.symlink_to(tmp_path / "moving")
    assert_refused(base, "HEAD", unjudged=True)


def test_an_executable_bit_is_no_attack(base: Sealed) -> None:
    """The bytes are as sealed: this is the control of what modes are refused."""
    stage(base, MODEL, text(2.0), "100755")
    hostile.honest(base, at_once(base))
