"""Reviews of branches, with real git: what is told, and that nothing ends one."""

from __future__ import annotations

import io
import json
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wtxtgit as api
from tests.containers import aero_files, fold_files, gguf_files, samples, torch_files
from tests.data import FIXTURES
from tests.kit import Repo, text_of
from tests.review.repos import MODEL, file, only, put, reviewed, reviews, risks, started, weights
from wtxtgit.chain.reader import Facts
from wtxtgit.cli.environment import facts_key
from wtxtgit.comparison.compare import MOST_DISTRIBUTIONS
from wtxtgit.comparison.diff import diff
from wtxtgit.model.tensor import ReadOptions
from wtxtgit.report.diff import OTHER_BYTES, Numbers, TensorStatus
from wtxtgit.report.review import Review, Reviewed, Risk, Sealing
from wtxtgit.review.review import MOST_COMMITS, ReviewRequest, review
from wtxtgit.text import file as text_file

pytestmark = pytest.mark.slow

KEYS = {
    "": {"base", "head", "base_commit", "head_commit", "commits", "artifacts", "notes", "summary"},
    "summary": {"artifacts", "flags", "tensors_changed", "parameters_changed"},
    "artifacts": {"path", "change", "base_path", "flags", "seal", "sizes", "commits", "reason",
                  "groups", "diff", "distributions"},
    "flags": {"risk", "message", "tensor"},
    "seal": {"state", "message", "generations"},
    "sizes": {"file_before", "file_after", "text_before", "text_after", "limit"},
    "commits": {"commit", "subject", "author", "date"},
    "groups": {"name", "tensors", "changed", "added", "removed", "elements", "changed_elements",
               "l2", "relative_l2"},
    "distributions": {"before", "after", "change"},
    "before": {"low", "high", "counts", "below", "above"},
}  # fmt: skip


def after(repo: Repo, tensors: dict[str, Any], **options: Any) -> Reviewed:
    """The review of a branch that makes the checkpoint this one."""
    put(repo, tensors)
    repo.commit("change")
    return only(reviewed(repo, **options))


class TestAChange:
    def test_numbers_are_those_of_a_diff(self, repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
        started(repo)
        one = after(repo, weights(layers__2__q=weights()["layers.2.q"] * np.float32(1.5)))
        monkeypatch.chdir(repo.path)
        wanted = diff(f"main:{MODEL}", f"topic:{MODEL}", ReadOptions())
        assert one.diff is not None
        assert one.diff.tensors == wanted.tensors
        assert one.diff.summary == wanted.summary
        assert [tensor.name for tensor in one.changed] == ["layers.2.q"]
        assert [g.name for g in one.groups if g.changed] == ["layers.2"]
        assert risks(one) == {Risk.SINGLE}

    def test_sizes_commits_and_names(self, repo: Repo) -> None:
        started(repo)
        put(repo, weights(layers=2))
        first = repo.commit("fewer layers\n\nbody")
        repo.write("other", "")
        repo.add()
        repo.commit("something else")
        put(repo, weights(layers=3))
        second = repo.commit("one more\nof them")
        found = reviewed(repo)
        one = only(found)
        assert (found.commits, found.base, found.head) == (3, "main", "topic")
        assert [(c.oid, c.subject) for c in one.commits] == [
            (second, "one more of them"), (first, "fewer layers"),
        ]  # fmt: skip
        for commit in one.commits:
            told = repo.git("log", "-1", "--format=%an%n%at", commit.oid)
            author, seconds = told.decode().splitlines()
            assert commit.author == author
            # Git itself ends a time in UTC with Z, or with +00:00 before 2.46.
            assert commit.date.endswith("+00:00")
            assert datetime.fromisoformat(commit.date).timestamp() == int(seconds)
        contents = [file(weights()), file(weights(layers=3))]
        assert [one.sizes.file_before, one.sizes.file_after] == [len(c) for c in contents]
        assert [one.sizes.text_before, one.sizes.text_after] == [len(text_of(c)) for c in contents]
        assert one.sizes.limit == 100 * 1024 * 1024
        assert one.diff is not None
        assert one.diff.a == f"{found.base_commit[:12]}:{MODEL}"

    def test_unchanged_tensors_are_not_decoded(
        self, repo: Repo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started(repo)
        put(repo, weights(head=weights()["head"] * 2))
        repo.commit()
        filled: list[str] = []
        real = text_file.TextFile.fill

        def fill(self: text_file.TextFile, names: Any) -> None:
            wanted = list(names)
            filled.extend(wanted)
            real(self, wanted)

        monkeypatch.setattr(text_file.TextFile, "fill", fill)
        assert len(only(reviewed(repo)).changed) == 1
        assert "head" in filled
        assert not [name for name in filled if name.startswith("layers")]

    def test_distributions_are_made_where_they_are_asked_for(self, repo: Repo) -> None:
        started(repo)
        new = {name: value + np.float32(0.01) for name, value in weights(layers=60).items()}
        put(repo, weights(layers=60))
        repo.commit()
        repo.git("branch", "-f", "main")
        plain = after(repo, new)
        assert plain.distributions == {}
        found = only(reviewed(repo, with_distributions=True)).distributions
        assert list(found) == [t.name for t in plain.changed[:MOST_DISTRIBUTIONS]]
        assert all(sum(d.after.counts) > 900 for d in found.values())

    def test_json(self, repo: Repo) -> None:
        started(repo)
        put(repo, weights(head=np.zeros(3, "f8")))
        repo.commit()
        found = reviewed(repo, with_distributions=True)
        told = json.loads(json.dumps(found.as_dict(), allow_nan=False))
        one = told["artifacts"][0]
        assert set(told) == KEYS[""]
        assert set(told["summary"]) == KEYS["summary"]
        assert set(one) == KEYS["artifacts"]
        for name in ("flags", "groups", "commits"):
            assert set(one[name][0]) == KEYS[name]
        for name in ("seal", "sizes"):
            assert set(one[name]) == KEYS[name]
        put(repo, weights(head=weights()["head"] * 2))
        repo.commit()
        one = only(reviewed(repo, with_distributions=True)).as_dict()
        counted = one["distributions"]["head"]  # type: ignore[index]
        assert set(counted) == KEYS["distributions"]
        assert set(counted["before"]) == KEYS["before"]

    def test_commits_are_bounded(self, repo: Repo) -> None:
        started(repo)
        lines = text_of(file(weights())).splitlines(keepends=True)
        for n in range(MOST_COMMITS + 5):
            repo.write(MODEL, b"".join(lines[: n + 5]))
            repo.add()
            repo.commit(f"{n} {'x' * 1000}")
        one = only(reviewed(repo))
        assert [c.subject.split()[0] for c in one.commits] == [
            str(n) for n in range(MOST_COMMITS + 4, 4, -1)
        ]
        assert all(len(c.subject) < 300 for c in one.commits)


class TestRisks:
    def test_numbers_that_are_none(self, repo: Repo) -> None:
        started(repo)
        bad = weights()["head"].copy()
        bad[0, :2] = np.nan, np.inf
        one = after(repo, weights(head=bad, layers__0__q=weights()["layers.0.q"] * 2))
        assert risks(one) == {Risk.NEW_NAN, Risk.NEW_INF}

    @pytest.mark.parametrize("name", [MODEL, "new.safetensors"])
    def test_numbers_that_are_none_in_new_tensors(self, name: str, repo: Repo) -> None:
        started(repo)
        bad = np.array([1, np.nan, np.inf, -np.inf], "f4")
        put(repo, weights(layers__9__q=bad, layers__9__k=np.zeros(3, "i8")), name)
        repo.commit()
        one = only(reviewed(repo))
        told = [(flag.risk, flag.tensor, flag.message) for flag in one.flags]
        assert (Risk.NEW_NAN, "layers.9.q", "1 of 4 items of a new tensor are NaN") in told
        assert (Risk.NEW_INF, "layers.9.q", "2 of 4 items of a new tensor are Inf") in told
        assert risks(one) == {Risk.NEW_NAN, Risk.NEW_INF}

    def test_dtypes_shapes_and_tensors_that_went(self, repo: Repo) -> None:
        started(repo)
        new = weights(
            head=weights()["head"].astype("f2"),
            layers__0__q=weights()["layers.0.q"].reshape(25, 40),
        )
        del new["layers.1.k"]
        one = after(repo, new)
        assert risks(one) == {Risk.DTYPE, Risk.SHAPE, Risk.REMOVED}

    def test_an_unusual_layer(self, repo: Repo) -> None:
        started(repo)
        new = {name: value * np.float32(1.001) for name, value in weights().items()}
        new["layers.3.q"] = weights()["layers.3.q"] * np.float32(1.3)
        one = after(repo, new)
        (flag,) = [flag for flag in one.flags if flag.risk is Risk.UNUSUAL]
        assert "layers.3" in flag.message
        assert risks(one) == {Risk.UNUSUAL}

    def test_a_negated_tensor_of_a_small_file(self, repo: Repo) -> None:
        started(repo, weights(1))
        one = after(repo, weights(1, head=-weights(1)["head"]))
        assert flags(one) == [(Risk.NEGATED, "all items were negated")]

    def test_most_items_of_a_tensor_negated(self, repo: Repo) -> None:
        started(repo, weights(1))
        head = -1.5 * weights(1)["head"]
        head[0] *= -1
        one = after(repo, weights(1, head=head.astype("f4")))
        ((risk, message),) = flags(one)
        assert risk is Risk.NEGATED
        assert message.startswith("the items point the other way: cosine -0.9")

    def test_swapped_tensors_of_a_small_file(self, repo: Repo) -> None:
        old = weights(1)
        started(repo, old)
        one = after(repo, old | {"head": old["layers.0.q"], "layers.0.q": old["head"]})
        assert {(flag.risk, flag.tensor, flag.message) for flag in one.flags} == {
            (Risk.MOVED, a, f"it has the values that {b} had before")
            for a, b in (("head", "layers.0.q"), ("layers.0.q", "head"))
        }

    @pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i8"])
    def test_two_swapped_rows(self, dtype: str, repo: Repo) -> None:
        rows = (np.random.default_rng(0).standard_normal((900, 20)) * 99).astype(dtype)
        started(repo, {"w": rows})
        swapped = rows.copy()
        swapped[[3, 700]] = rows[[700, 3]]
        one = after(repo, {"w": swapped})
        assert flags(one) == [(Risk.REORDERED, "it has the same items in another order")]

    def test_a_small_change_is_no_other_order(self, repo: Repo) -> None:
        rows = np.random.default_rng(0).standard_normal((900, 20))
        started(repo, {"w": rows})
        other = rows.copy()
        other[3, 3] = np.nextafter(other[3, 3], 9)
        assert flags(after(repo, {"w": other})) == []

    def test_a_copy_of_a_tensor_that_stays(self, repo: Repo) -> None:
        old = weights(1)
        started(repo, old)
        one = after(repo, old | {"head": old["layers.0.q"]})
        assert flags(one) == [(Risk.MOVED, "it has the values that layers.0.q had before")]

    def test_equal_constants_are_no_swap(self, repo: Repo) -> None:
        old = {name: np.full(30, n, "f4") for n, name in enumerate("abc", 1)}
        started(repo, old)
        assert risks(after(repo, old | {"b": old["a"]})) == set()

    @pytest.mark.parametrize(
        ("scale", "risk", "what"),
        [(-0.5, Risk.NEGATED, "negated"), (1.5, Risk.NORM, "multiplied by 3")],
    )
    def test_a_quantised_tensor(self, scale: float, risk: Risk, what: str, repo: Repo) -> None:
        """Of the only layer of a GGUF file, by the scales of its blocks."""
        blocks = np.random.default_rng(0).integers(0, 256, (50, 18), np.uint8)
        files = []
        for one in (0.5, scale):
            blocks[:, :2] = np.array([one], "<f2").view(np.uint8)
            infos = [gguf_files.info("w", [1600], 0, gguf_files.Q4_0)]
            files.append(gguf_files.gguf(infos=infos, data=gguf_files.padded(blocks.tobytes())))
        assert flags(changed(repo, "a.gguf", *files)) == [(risk, f"all items were {what}")]

    def test_large_blobs(self, repo: Repo) -> None:
        started(repo)
        repo.git("config", "wtxtgit.maxBlob", "50k")
        one = after(repo, weights(head=weights()["head"] * 2))
        (flag,) = [flag for flag in one.flags if flag.risk is Risk.LARGE]
        assert "over the limit" in flag.message
        repo.git("config", "wtxtgit.maxBlob", "100m")
        assert Risk.LARGE not in risks(only(reviewed(repo)))

    def test_a_raw_binary(self, repo: Repo) -> None:
        started(repo)
        repo.add_raw(MODEL, file(weights(head=weights()["head"] * 2)))
        repo.commit()
        one = only(reviewed(repo))
        assert risks(one) == {Risk.RAW, Risk.SINGLE}
        assert one.diff is not None, "it is compared all the same"

    def test_a_filter_that_went(self, repo: Repo) -> None:
        started(repo)
        repo.write(".gitattributes", "")
        repo.add()
        repo.commit()
        assert risks(only(reviewed(repo))) == {Risk.RAW}

    def test_a_damaged_text(self, repo: Repo) -> None:
        started(repo)
        damaged = bytearray(text_of(file(weights(head=weights()["head"] * 2))))
        damaged[damaged.index(b"\n", len(damaged) // 2) + 5] ^= 1
        repo.write(MODEL, bytes(damaged))
        repo.add()
        repo.commit()
        one = only(reviewed(repo))
        assert risks(one) == {Risk.DAMAGED}
        assert one.diff is None
        assert one.reason is not None
        assert one.reason.startswith("head: line ")

    def test_a_damaged_text_that_is_new(self, repo: Repo) -> None:
        """Nothing of its tensors is compared, and the damage is found."""
        started(repo)
        damaged = bytearray(text_of(file(weights(layers=2))))
        damaged[damaged.index(b"\n", len(damaged) // 2) + 5] ^= 1
        repo.write("new.safetensors", bytes(damaged))
        repo.add()
        repo.commit()
        assert Risk.DAMAGED in risks(only(reviewed(repo)))

    def test_a_file_of_no_format(self, repo: Repo) -> None:
        started(repo)
        repo.write(MODEL, text_of(b"junk" * 100))
        repo.add()
        repo.commit()
        one = only(reviewed(repo))
        assert risks(one) == {Risk.OPAQUE}
        assert one.sizes.file_after == 400

    def test_a_file_that_is_stored_whole(self, repo: Repo) -> None:
        """A checkpoint that breaks its format's rules: told as far as it reads."""
        started(repo)
        repo.write(MODEL, text_of(file(weights())[:-8]))
        repo.add()
        repo.commit()
        assert risks(only(reviewed(repo))) & {Risk.OPAQUE, Risk.UNREAD}

    def test_a_link(self, repo: Repo) -> None:
        started(repo)
        (repo.path / MODEL).unlink()
        (repo.path / MODEL).symlink_to("elsewhere")
        repo.add()
        repo.commit()
        one = only(reviewed(repo))
        assert risks(one) == {Risk.UNREAD, Risk.CHAIN}
        assert one.reason == "replaced by a link or submodule"

    def test_encrypted_parts(self, repo: Repo) -> None:
        repo.track("*.fold")
        repo.commit()
        repo.git("checkout", "-q", "-b", "topic")
        repo.write("m.fold", text_of((FIXTURES / "fold/encrypted_high_a.fold").read_bytes()))
        repo.add()
        repo.commit()
        one = only(reviewed(repo))
        assert risks(one) == {Risk.UNREAD}
        with_key = only(reviewed(repo, options=ReadOptions(decryption_key=bytes(range(32)))))
        assert risks(with_key) == set()
        assert one.diff is not None
        assert with_key.diff is not None
        assert len(with_key.diff.tensors) > len(one.diff.tensors)

    def test_all_that_is_wrong_at_once_ends_nothing(self, repo: Repo) -> None:
        started(repo)
        put(repo, weights(layers=2), "good.safetensors")
        broken = {
            "cut": text_of(file(weights()))[:500], "empty": b"", "magic": b"WTXT 1\n",
            "header": text_of(b"\xff" * 7 + b"\x7f" + b"{}"), "raw": b"\0" * 100,
        }  # fmt: skip
        for name, content in broken.items():
            repo.write(f"{name}.safetensors", content)
        repo.add()
        repo.commit()
        found = reviewed(repo, with_distributions=True)
        assert len(found.artifacts) == 1 + len(broken)
        for one in found.artifacts:
            is_good = one.path == b"good.safetensors"
            assert (one.diff is not None, one.reason is None) == (is_good, is_good), one.path
            assert bool(risks(one)) != is_good


def test_bytes_that_nobody_lists_are_flagged(repo: Repo) -> None:
    """In a file that changes, and in one that is new."""
    content = (FIXTURES / "fold/none_json_a.fold").read_bytes()
    repo.track("*.fold")
    repo.write("a.fold", text_of(content))
    repo.add()
    repo.commit("base")
    repo.git("checkout", "-q", "-b", "topic")
    for name in ("a.fold", "b.fold"):
        repo.write(name, text_of(content + b"hidden"))
    repo.add()
    repo.commit("more")
    at, after = len(content), "6 bytes follow the end of the file's contents"
    for one in reviewed(repo).artifacts:
        assert flags(one) == [
            (Risk.HIDDEN, f"6 bytes at offset {at} that belong to no tensor or part were added"),
            (Risk.DAMAGED, f"wtxtgit verify: byte {at}: {after}"),
        ]


def changed(repo: Repo, name: str, before: bytes, after: bytes) -> Reviewed:
    """The review of a branch that makes one content of a file another."""
    return reviews(repo, {name: (before, after)})[name]


def of_a_new_one(repo: Repo, name: str, content: bytes) -> list[Risk]:
    """The risks of a new file of this content."""
    repo.write(f"new-{name}", text_of(content))
    repo.add()
    repo.commit("new")
    (one,) = (one for one in reviewed(repo).artifacts if one.path == f"new-{name}".encode())
    return [flag.risk for flag in one.flags]


def flags(one: Reviewed) -> list[tuple[Risk, str]]:
    return [(flag.risk, flag.message) for flag in one.flags]


class TestWhatDecidesHowAModelIsUsed:
    def test_code_that_a_pickle_would_run(self, repo: Repo) -> None:
        """The tensors are the same; torch's own names are no risk."""
        storages = {"0": bytes(8)}
        before = torch_files.archive(torch_files.named(w=torch_files.vector("0", 2)), storages)
        run = torch_files.call(torch_files.name("os", "system"), torch_files.text("echo"))
        after = torch_files.named(w=torch_files.vector("0", 2), x=run)
        one = changed(repo, "a.pt", before, torch_files.archive(after, storages))
        risk, message = flags(one)[0]
        assert (risk, message) == (
            Risk.CODE,
            "unpickling it would import, and may call, os.system",
        )
        assert one.diff is not None
        assert one.diff.imports == ("os.system",)

    def test_a_new_file_that_runs_code(self, repo: Repo) -> None:
        started(repo)
        run = torch_files.call(torch_files.name("os", "system"), torch_files.text("echo"))
        repo.track("*.pt")
        repo.write("a.pt", text_of(torch_files.archive(torch_files.named(x=run))))
        repo.add()
        repo.commit("new")
        (one,) = (one for one in reviewed(repo).artifacts if one.path == b"a.pt")
        assert Risk.CODE in risks(one)

    def test_what_a_zip_hides_while_a_tensor_changes(self, repo: Repo) -> None:
        """Extra fields and comments: no reader of arrays asks for them."""
        files = []
        for n, secret in enumerate((b"", b"secret")):
            made = io.BytesIO()
            with zipfile.ZipFile(made, "w") as archive:
                info = zipfile.ZipInfo("w.npy")
                info.extra = b"\xfe\xca\x06\0" + secret if secret else b""
                info.comment = archive.comment = secret
                array = io.BytesIO()
                np.save(array, np.full(9, n, "f4"))
                archive.writestr(info, array.getvalue())
            files.append(made.getvalue())
        found = flags(changed(repo, "a.npz", *files))
        sizes = [what.split()[0] for risk, what in found if risk is Risk.HIDDEN]
        # The comment follows the extra field in the directory.
        assert sizes == ["10", "16", "6"]

    @pytest.mark.parametrize("first", [0, 1])
    def test_two_members_of_one_name(self, first: int, repo: Repo) -> None:
        """numpy takes the last one, others the first."""
        held = [{"w": np.full(9, 0, "f4")}, {"w": np.full(9, first), "x": np.full(9, 1 - first)}]
        files = []
        for arrays in held:
            made = io.BytesIO()
            np.savez(made, **arrays)
            files.append(made.getvalue().replace(b"x.npy", b"w.npy"))
        one = changed(repo, "a.npz", *files)
        assert flags(one)[0] == (
            Risk.REPEATED,
            "2 tensors or members are named w.npy: which one is loaded depends on the reader",
        )
        assert Risk.REPEATED in of_a_new_one(repo, "a.npz", files[1])

    def test_the_order_of_the_items_of_an_array(self, repo: Repo) -> None:
        """The same bytes, read by columns."""
        made = io.BytesIO()
        np.save(made, np.arange(12.0).reshape(3, 4))
        before = made.getvalue()
        after = before.replace(b"'fortran_order': False", b"'fortran_order': True ")
        one = changed(repo, "a.npy", before, after)
        assert one.diff is not None
        (tensor,) = one.diff.tensors
        assert isinstance(tensor.change, Numbers)
        assert (tensor.change.changed, tensor.change.max_abs) == (10, 6)
        assert flags(one) == [(Risk.REORDERED, "it has the same items in another order")]

    def test_a_value_in_a_pickle(self, repo: Repo) -> None:
        files = []
        for word in ("ab", "cd"):
            inner = torch_files.named(tokens=torch_files.list_of(torch_files.text(word)))
            content = torch_files.named(w=torch_files.vector("0", 2), config=inner)
            files.append(torch_files.archive(content, {"0": bytes(8)}))
        one = changed(repo, "a.pt", *files)
        assert (Risk.METADATA, "1 value: changed /values/config/tokens/0") in flags(one)
        assert one.diff is not None
        assert [(told.before, told.after) for told in one.diff.metadata] == [("ab", "cd")]

    def test_one_token_of_a_vocabulary(self, repo: Repo) -> None:
        """The array is too long to be listed."""
        files = []
        for word in ("yes", "no!"):
            words = gguf_files.string(word) + gguf_files.string("ab") * 99
            tokens = gguf_files.array(gguf_files.STRING, 100, words)
            key = gguf_files.entry("tokenizer.ggml.tokens", gguf_files.ARRAY, tokens)
            files.append(gguf_files.head([key]))
        one = changed(repo, "a.gguf", *files)
        place = "/metadata_kv/tokenizer.ggml.tokens/sha256"
        assert flags(one) == [(Risk.METADATA, f"1 value: changed {place}")]

    def test_a_template_behind_a_flood_of_other_values(self, repo: Repo) -> None:
        many = {f"a{n:05}": "1" for n in range(2000)}
        before = file(weights(1), many | {"chat_template": "x" * 300 + "be honest" + "y" * 300})
        other = dict.fromkeys(many, "2") | {"chat_template": "x" * 300 + "lie" + "y" * 300}
        one = changed(repo, MODEL, before, file(weights(1), other))
        assert flags(one) == [
            (Risk.METADATA, "1 value: changed /__metadata__/chat_template"),
        ]
        assert one.diff is not None
        first = one.diff.metadata[0]
        assert isinstance(first.before, str)
        assert isinstance(first.after, str)
        assert (first.before[13:22], first.after[13:16]) == ("be honest", "lie")

    def test_counters_and_times_are_no_risk(self, repo: Repo) -> None:
        before, after = (file(weights(1), {"step": step}) for step in "12")
        one = changed(repo, MODEL, before, after)
        assert flags(one) == []
        assert one.diff is not None
        assert one.diff.metadata

    def test_what_no_save_sets_anew(self, repo: Repo) -> None:
        """Whatever its name is; and numbers that decide what is computed."""
        sides = [
            {"step": "1", "at": "2025-01-01T10:00Z", "run": "0123456789abcdef0", "note": "a"},
            {"step": "2", "at": "2026-02-03T11:12Z", "run": "fedcba98765432100", "note": "b",
             "rms_norm_eps": "0.1"},
        ]  # fmt: skip
        one = changed(repo, MODEL, *(file(weights(1), side) for side in sides))
        places = "added /__metadata__/rms_norm_eps, changed /__metadata__/note"
        assert flags(one) == [(Risk.METADATA, f"2 values: {places}")]

    def test_a_licence_of_every_format(self, repo: Repo) -> None:
        """With other weights, under which it could be missed."""
        shard = aero_files.shard(bytes(8))
        index = aero_files.tidx(aero_files.entry("w", [2], 0, 8))
        record = samples.count(1) + samples.mlcp_record(b"w", "Float32", [2], 8)
        sides = []
        for licence in ("mit", "none"):
            told = json.dumps({"license": licence, "step": len(licence)}).encode()
            meta = aero_files.Chunk(b"MJSN", b"meta.json", told)
            metadata = {"shards": [{}], "customFields": {"license": licence}}
            aero = aero_files.file([meta, index, shard])
            fold = fold_files.built(("notes", b"JSON", told))
            sides.append((aero, fold, samples.mlcp(metadata, record + told[:8])))
        names = ("a.aero", "a.fold", "a.checkpoint")
        for one in reviews(repo, dict(zip(names, zip(*sides, strict=True), strict=True))).values():
            (message,) = (flag.message for flag in one.flags if flag.risk is Risk.METADATA)
            assert message.startswith("1 value: changed /"), one.path
            assert message.endswith("/license"), one.path

    def test_bytes_that_are_nothing_else(self, repo: Repo) -> None:
        """Times of members of a zip."""
        sides = []
        for year in (1980, 1990):
            held = io.BytesIO()
            np.save(held, np.zeros(3))
            content = io.BytesIO()
            with zipfile.ZipFile(content, "w") as archive:
                archive.writestr(zipfile.ZipInfo("w.npy", (year, 1, 1, 0, 0, 0)), held.getvalue())
            sides.append(content.getvalue())
        repo.track("*.npz")
        one = changed(repo, "model.npz", *sides)
        assert flags(one) == [(Risk.PART, OTHER_BYTES)]

    def test_blanks_after_the_header(self, repo: Repo) -> None:
        before = file(weights(2))
        size = int.from_bytes(before[:8], "little")
        spelled = before[8 : 8 + size] + b" " * 8
        after = len(spelled).to_bytes(8, "little") + spelled + before[8 + size :]
        one = changed(repo, MODEL, before, after)
        message = "part header: values are spelled in another way"
        assert flags(one) == [(Risk.PART, message)]

    def test_the_same_tensors_in_another_order(self, repo: Repo) -> None:
        turned = dict(reversed(weights(2).items()))
        one = changed(repo, MODEL, file(weights(2)), file(turned))
        assert flags(one) == [(Risk.PART, "4 tensors or parts stand in another order")]

    def test_zeros_behind_the_tensors(self, repo: Repo) -> None:
        """A text has them in its layout, and shares all arrays with the one before."""
        one = changed(repo, MODEL, file(weights(2)), file(weights(2)) + bytes(4096))
        assert [flag.risk for flag in one.flags] == [Risk.HIDDEN, Risk.DAMAGED]
        assert flags(one)[0][1].startswith("4,096 zero bytes at offset ")


class TestOneSide:
    def test_a_new_checkpoint_is_listed(self, repo: Repo) -> None:
        started(repo)
        put(repo, weights(layers=2), "new.safetensors")
        repo.commit()
        one = only(reviewed(repo))
        assert one.diff is not None
        assert {tensor.status for tensor in one.diff.tensors} == {TensorStatus.ADDED}
        assert [tensor.name for tensor in one.diff.tensors] == list(weights(layers=2))
        assert (one.diff.a, one.sizes.file_before, one.sizes.text_before) == ("", None, None)
        assert one.flags == (), "nobody seals here: that it is not sealed is no risk"
        assert one.seal.state is Sealing.UNSEALED

    def test_one_that_is_gone(self, repo: Repo) -> None:
        started(repo)
        repo.git("rm", "-q", MODEL)
        repo.commit()
        one = only(reviewed(repo))
        assert one.diff is not None
        assert {tensor.status for tensor in one.diff.tensors} == {TensorStatus.REMOVED}
        assert {flag.risk for flag in one.flags} == {Risk.REMOVED}
        assert one.seal.state is Sealing.UNSEALED
        assert one.sizes.file_after is None

    def test_a_native_text(self, repo: Repo, tmp_path: Path) -> None:
        started(repo)
        api.dump({"w": np.zeros((4, 4), "f4")}, tmp_path / "a.wtxt")
        repo.write("w.wtxt", (tmp_path / "a.wtxt").read_bytes())
        repo.add()
        repo.commit()
        repo.git("branch", "-f", "main")
        api.dump({"w": np.ones((4, 4), "f4")}, tmp_path / "a.wtxt")
        repo.write("w.wtxt", (tmp_path / "a.wtxt").read_bytes())
        repo.add()
        repo.commit()
        one = only(reviewed(repo))
        assert [tensor.name for tensor in one.changed] == ["w"]
        assert one.sizes.file_after == one.sizes.text_after


class TestWhatIsBelieved:
    def test_no_file_of_the_work_tree_stands_for_a_blob(
        self, repo: Repo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started(repo)
        put(repo, weights(head=weights()["head"] * 2))
        head = repo.commit()
        base = repo.git("rev-parse", "main").decode().strip()
        for commit in (head, base, head[:12], base[:12], "main", "topic", "base", "head"):
            repo.write(f"{commit}:{MODEL}", file(weights()))
        repo.write("base", b"junk")
        monkeypatch.chdir(repo.path)
        assert [t.name for t in only(reviewed(repo)).changed] == ["head"]

    def test_files_of_a_set_are_the_commits(self, repo: Repo) -> None:
        repo.track("*.safetensors", "*.index.json")
        repo.commit()
        repo.git("checkout", "-q", "-b", "topic")
        index = {"metadata": {}, "weight_map": {"w": "shard.safetensors"}}
        for step in (1.0, 2.0):
            repo.git("branch", "-f", "main")
            put(repo, {"w": np.full(4, step, "f4")}, "m/shard.safetensors")
            index["metadata"] = {"total_size": 16, "step": step}
            repo.write("m/model.safetensors.index.json", text_of(json.dumps(index).encode()))
            repo.add()
            repo.commit()
        repo.write("m/shard.safetensors", b"junk")
        found = {one.path: one for one in reviewed(repo).artifacts}
        one = found[b"m/model.safetensors.index.json"]
        assert [tensor.name for tensor in one.changed] == ["w"]
        assert not risks(one)

    def test_a_set_that_leads_out(self, repo: Repo) -> None:
        repo.track("*.index.json")
        repo.commit()
        repo.git("checkout", "-q", "-b", "topic")
        index = {"metadata": {}, "weight_map": {"w": "../x.safetensors", "\ud800": "a\udcff"}}
        repo.write("m/model.safetensors.index.json", text_of(json.dumps(index).encode()))
        repo.add()
        repo.commit()
        assert risks(only(reviewed(repo)))


def test_worst_first(repo: Repo) -> None:
    started(repo)
    put(repo, weights(), "a.safetensors")
    put(repo, weights(), "b.safetensors")
    put(repo, weights(), "c.safetensors")
    repo.commit()
    repo.git("branch", "-f", "main")
    new = {name: value * np.float32(1.001) for name, value in weights().items()}
    bad = weights()["head"].copy()
    bad[0, 0] = np.nan
    put(repo, new, "a.safetensors")
    put(repo, new | {"head": bad, "layers.0.q": weights()["head"]}, "b.safetensors")
    put(repo, {name: value * 2 for name, value in weights().items()}, "c.safetensors")
    repo.commit()
    assert [one.path[:1] for one in reviewed(repo).artifacts] == [b"b", b"c", b"a"]


def test_from_a_bare_repository_and_from_below(repo: Repo, tmp_path: Path) -> None:
    started(repo)
    put(repo, weights(head=weights()["head"] * 2), MODEL)
    repo.commit()
    repo.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    found: Review = reviewed(Repo(tmp_path / "bare.git"))
    assert [tensor.name for tensor in only(found).changed] == ["head"]


def test_a_second_review_verifies_nothing(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    started(repo)
    put(repo, weights(layers=2), "new.safetensors")
    repo.commit("a checkpoint more")
    here, request = repo.repository, ReviewRequest("main...topic")
    plain = reviewed(repo)
    assert review(here, request, Facts(here, 1, key_file=facts_key()), threads=1) == plain
    monkeypatch.setattr("wtxtgit.chain.reader.read_facts", None)
    assert review(here, request, Facts(here, 1, key_file=facts_key()), threads=1) == plain
    with pytest.raises(TypeError):
        reviewed(repo)
