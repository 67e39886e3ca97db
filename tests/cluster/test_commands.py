"""Commands on a cluster do what they do here, byte for byte."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.cli.command import Command, Done
from tests.cluster.processes import Processes, busy, with_write_end
from tests.cluster.stores import HTTP, USER, Gate, http_store
from tests.data import FIXTURES

pytestmark = pytest.mark.slow

FOLD, PLAIN = FIXTURES / "fold", FIXTURES / "plain"
SETS = ("aeroset_multi_a", "aeroset_from_sharded_a", "aeroset_onepart_a")
INDEX = "model.aeroset.json"


def same(wtxtgit: Command, cluster: Processes, *arguments: str, code: int) -> Done:
    """Run a command here and there; gives what both came to."""
    here = wtxtgit(*arguments)
    there = wtxtgit(*arguments, "--scheduler", cluster.address)
    assert there == here
    assert here.code == code, here.err
    return here


def flip(file: Path, place: int = -1) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


@pytest.fixture
def files(wtxtgit: Command) -> list[str]:
    """Files of many kinds, some of them damaged; the first is not there."""
    folder = wtxtgit.folder
    for name in SETS:
        shutil.copytree(FIXTURES / "aero" / name, folder / name)
    shutil.copytree(folder / SETS[0], folder / "damaged")
    flip(folder / "damaged" / "part-001.aero")
    (folder / "damaged" / "part-003.aero").unlink()
    for file in (FOLD / "standard_a.fold", PLAIN / "pair_v1.safetensors"):
        shutil.copy(file, folder)
    assert wtxtgit("emit", "standard_a.fold", "-o", "good.wtxt").code == 0
    shutil.copy(folder / "good.wtxt", folder / "bad.wtxt")
    flip(folder / "bad.wtxt", 2000)
    shards = {"a": "pair_v1.safetensors", "b": "gone.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    indexes = [f"{name}/{INDEX}" for name in (*SETS, "damaged")]
    return ["gone", *indexes, *sorted(p.name for p in folder.iterdir() if p.is_file())]


class TestVerify:
    def test_files_and_sets(self, wtxtgit: Command, shared: Processes, files: list[str]) -> None:
        done = same(wtxtgit, shared, "verify", "--json", *files, code=1)
        verdicts = {file["path"]: file for file in json.loads(done.out)["files"]}
        assert list(verdicts) == files
        assert not verdicts[f"damaged/{INDEX}"]["ok"]
        assert verdicts[f"{SETS[0]}/{INDEX}"]["ok"]
        same(wtxtgit, shared, "verify", *files, SETS[0], "damaged", code=1)

    def test_by_paths_from_here(
        self, wtxtgit: Command, shared: Processes, files: list[str]
    ) -> None:
        inner = Command(wtxtgit.folder / "damaged", wtxtgit.folder)
        done = same(inner, shared, "verify", "--json", INDEX, "./part-000.aero", "../gone", code=1)
        assert [file["path"] for file in json.loads(done.out)["files"]] == [
            INDEX,
            "part-000.aero",
            "../gone",
        ]

    def test_nothing_that_can_be_read(self, wtxtgit: Command, shared: Processes) -> None:
        same(wtxtgit, shared, "verify", "gone", code=3)

    def test_urls(self, wtxtgit: Command, shared: Processes, files: list[str]) -> None:
        with http_store(wtxtgit.folder) as host:
            urls = [f"{HTTP}{USER}@{host}/{file}?token=secret" for file in files]
            local = [f"file://{wtxtgit.folder}/{file}" for file in files]
            done = same(wtxtgit, shared, "verify", "--json", *urls, *local, code=1)
        assert b"secret" not in done.out
        assert b"pass-word" not in done.out
        verdicts = json.loads(done.out)["files"]
        assert [file["path"] for file in verdicts[: len(files)]] == [
            f"{HTTP}{host}/{file}" for file in files
        ]
        here = json.loads(wtxtgit("verify", "--json", *files).out)["files"]
        assert [file["ok"] for file in verdicts] == 2 * [file["ok"] for file in here]

    def test_keys_are_not_sent_in_the_clear(self, wtxtgit: Command, shared: Processes) -> None:
        (wtxtgit.folder / "key").write_bytes(bytes(32))
        for option in ("--key", "--hmac-key"):
            done = wtxtgit("verify", "x", option, "key", "--scheduler", shared.address)
            assert done.code == 2
            assert done.complaint().startswith("a key would be sent to the workers unencrypted")

    def test_worker_clone_alone(self, wtxtgit: Command) -> None:
        done = wtxtgit("verify", "x", "--worker-clone", "/x")
        assert (done.code, done.complaint()) == (2, "--worker-clone needs --scheduler")


class TestEmit:
    def test_files(self, wtxtgit: Command, shared: Processes, files: list[str]) -> None:
        for folder in ("here", "there"):
            (wtxtgit.folder / folder).mkdir()
        shutil.copy(FOLD / "pair_none_v1.fold", wtxtgit.folder)
        named = [file for file in files if "/" not in file and file != "gone"]
        here = wtxtgit("emit", *named, "-o", "here/")
        there = wtxtgit("emit", *named, "-o", "there/", "--scheduler", shared.address)
        assert (here.code, there) == (0, here)
        assert "bad.wtxt: not a valid text" in here.err
        made = {file.name: file.read_bytes() for file in (wtxtgit.folder / "here").iterdir()}
        assert set(made) == {f"{name}.wtxt" for name in named}
        assert made == {f.name: f.read_bytes() for f in (wtxtgit.folder / "there").iterdir()}

    def test_a_generation_from_and_to_urls(self, wtxtgit: Command, shared: Processes) -> None:
        shutil.copy(FOLD / "standard_a.fold", wtxtgit.folder)
        about = ("--gen", "7", "--ts", "2026-01-31T12:00:00Z", "--rows-per-chunk", "3")
        assert wtxtgit("emit", "standard_a.fold", *about, "-o", "here.wtxt").code == 0
        with http_store(wtxtgit.folder) as host:
            url = f"{HTTP}{USER}@{host}/standard_a.fold"
            out = f"file://{wtxtgit.folder}/there.wtxt"
            done = wtxtgit("emit", url, *about, "-o", out, "--scheduler", shared.address)
        assert (done.code, done.err) == (0, "")
        made = [(wtxtgit.folder / f"{name}.wtxt").read_bytes() for name in ("here", "there")]
        assert made[0] == made[1]

    def test_what_is_made_here_alone(self, wtxtgit: Command, shared: Processes) -> None:
        (wtxtgit.folder / "x").write_bytes(b"x")
        for options in (["--sign", "k"], ["--hmac-key", "k"], ["--pending"]):
            call = ("emit", "x", "-o", "o", *options, "--scheduler", shared.address)
            done = wtxtgit(*call)
            assert done.code == 2
            assert "can't be made by workers" in done.complaint()
        done = wtxtgit("emit", "x", "--scheduler", shared.address)
        assert (done.code, done.complaint()) == (2, "--scheduler needs -o: workers write the texts")
        assert wtxtgit.names() == ["x"]

    def test_what_a_worker_can_not_read_or_write(self, wtxtgit: Command, shared: Processes) -> None:
        (wtxtgit.folder / "x").write_bytes(b"x")
        same(wtxtgit, shared, "emit", "gone", "-o", "o", code=3)
        there = wtxtgit("emit", "x", "-o", "no/folder/o", "--scheduler", shared.address)
        assert (there.code, wtxtgit.names()) == (5, ["x"])


class TestLostWorkers:
    """A worker is killed while it reads a named pipe, which the other one then reads."""

    @pytest.mark.parametrize("command", ["verify", "emit"])
    def test_the_output_is_the_same(self, wtxtgit: Command, lone: Processes, command: str) -> None:
        folder = wtxtgit.folder
        for name in ("a", "b", "pipe"):
            shutil.copy(FOLD / "standard_a.fold", folder / name)
        more = ("--json",) if command == "verify" else ("-o", "out/")
        (folder / "out").mkdir()
        here = wtxtgit(command, "a", "b", "pipe", *more)
        texts = {file.name: file.read_bytes() for file in (folder / "out").iterdir()}
        shutil.rmtree(folder / "out")
        (folder / "out").mkdir()
        content = (folder / "pipe").read_bytes()
        (folder / "pipe").unlink()
        os.mkfifo(folder / "pipe")

        lone.add_worker()
        lone.add_worker()
        call = (command, "a", "b", "pipe", *more, "--scheduler", lone.address)
        with wtxtgit.start(*call, stdout=-1) as process:
            first = with_write_end(folder / "pipe")
            (reading,) = busy(lone.watcher(), lambda tasks: sum(map(len, tasks.values())) == 1)
            lone.workers[reading].kill()
            # Not closed before: the other worker may have it open, and would find it empty.
            second = with_write_end(folder / "pipe")
            os.write(second, content)
            os.close(second)
            os.close(first)
            out, err = process.communicate()
        assert (process.returncode, err) == (0, b"")
        assert out == here.out
        assert texts == {file.name: file.read_bytes() for file in (folder / "out").iterdir()}

    def test_a_shard_of_a_set(self, wtxtgit: Command, lone: Processes) -> None:
        """A worker is killed while it waits for a shard that a store does not give yet."""
        shutil.copytree(FIXTURES / "aero" / SETS[0], wtxtgit.folder / "set")
        gate = Gate("part-003.aero")
        with http_store(wtxtgit.folder) as host:
            here = wtxtgit("verify", "--json", f"{HTTP}{USER}@{host}/set/{INDEX}")
        lone.add_worker()
        lone.add_worker()
        with http_store(wtxtgit.folder, gate=gate) as there:
            call = ("verify", "--json", f"{HTTP}{USER}@{there}/set/{INDEX}")
            with wtxtgit.start(*call, "--scheduler", lone.address, stdout=-1) as process:
                gate.reached.wait()
                (waiting,) = busy(lone.watcher(), lambda tasks: sum(map(len, tasks.values())) == 1)
                lone.workers[waiting].kill()
                gate.opened.set()
                out, err = process.communicate()
        assert (process.returncode, err) == (0, b"")
        assert out.replace(there.encode(), host.encode()) == here.out

    def test_the_scheduler_is_lost(self, wtxtgit: Command, lone: Processes) -> None:
        os.mkfifo(wtxtgit.folder / "pipe")
        lone.add_worker()
        with wtxtgit.start("verify", "pipe", "--scheduler", lone.address) as process:
            end = with_write_end(wtxtgit.folder / "pipe")
            lone.scheduler.kill()
            _, err = process.communicate()
            os.close(end)
        done = Done(process.returncode, b"", err.decode())
        assert done.code == 5
        assert done.complaint().startswith("the connection to the scheduler at")

    def test_interrupted(self, wtxtgit: Command, lone: Processes) -> None:
        """Tasks that wait are taken back; the one under way ends by itself."""
        folder = wtxtgit.folder
        names = [f"pipe{n}" for n in range(3)]
        for name in names:
            os.mkfifo(folder / name)
        lone.add_worker()
        watcher = lone.watcher()
        with wtxtgit.start("verify", *names, "--scheduler", lone.address) as process:
            end = with_write_end(folder / names[0])
            process.send_signal(signal.SIGINT)
            _, err = process.communicate()
        assert (process.returncode, err) == (130, b"wtxtgit: error: interrupted\n")
        os.close(end)
        assert busy(watcher, lambda tasks: not tasks) == []


class TestEncrypted:
    @pytest.fixture
    def variables(self, tmp_path: Path) -> dict[str, str]:
        """Settings of Dask with a certificate that all share."""
        from distributed import Security

        made = Security.temporary()  # type: ignore[no-untyped-call]
        settings = {}
        for role in ("scheduler", "worker", "client"):
            for what, content in (
                ("cert", getattr(made, f"tls_{role}_cert")),
                ("key", getattr(made, f"tls_{role}_key")),
            ):
                file = tmp_path / f"{role}.{what}"
                file.write_text(content)
                settings[f"DASK_DISTRIBUTED__COMM__TLS__{role.upper()}__{what.upper()}"] = str(file)
        authority = tmp_path / "ca"
        authority.write_text(made.tls_ca_file)
        return {**settings, "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(authority)}

    def test_keys_are_sent(
        self, wtxtgit: Command, tmp_path: Path, variables: dict[str, str]
    ) -> None:
        shutil.copy(FOLD / "hmac_a.fold", wtxtgit.folder)
        (wtxtgit.folder / "key").write_bytes(b"s3cret-a")
        call = ("verify", "--json", "hmac_a.fold", "--hmac-key", "key")
        here = wtxtgit(*call)
        options = ("--protocol", "tls")
        with Processes(tmp_path / "cluster", options, variables) as cluster:
            assert cluster.address.startswith("tls://")
            cluster.add_worker()
            there = wtxtgit(*call, "--scheduler", cluster.address, env=variables)
        assert there == here
        (verdict,) = json.loads(here.out)["files"]
        assert (here.code, verdict["authenticated"]) == (0, True)
