"""Connecting to a scheduler, and what tasks come to."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import tasks
from tests.cluster.processes import Processes
from wtxtgit import __version__
from wtxtgit.cluster import client
from wtxtgit.cluster.client import connected
from wtxtgit.errors import EnvironmentFailure, FormatError, UsageError, WtxtgitError


def refused(address: str) -> WtxtgitError:
    with pytest.raises(WtxtgitError) as raised, connected(address):
        pass
    return raised.value


@pytest.mark.parametrize("address", ["", "host", "tcp://", "foo://host:1", "inproc://1/2/3"])
def test_no_address(address: str) -> None:
    error = refused(address)
    assert type(error) is UsageError
    assert error.message.startswith(f"{address!r} is not the address of a scheduler")


def test_the_extra_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    error = refused("tcp://127.0.0.1:1")
    assert (error.exit_code, error.hint) == (5, "pip install 'wtxtgit[dask]'")


def test_no_certificates() -> None:
    error = refused("tls://127.0.0.1:1")
    assert (error.exit_code, error.message) == (
        5,
        "tls://127.0.0.1:1: no certificates are configured",
    )


@pytest.mark.slow
class TestNobodyThere:
    @pytest.fixture(autouse=True)
    def _soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(client, "SECONDS", 1)
        monkeypatch.setattr(client, "_ANSWER", 1)

    def test_a_closed_port(self) -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{held.getsockname()[1]}"
            error = refused(address)
        assert (error.exit_code, error.message) == (5, f"no Dask scheduler answers at {address}")

    def test_a_server_of_another_kind(self) -> None:
        """It takes the connection and never says a word."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            error = refused(f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        assert error.exit_code == 5
        assert "no Dask scheduler answers" in error.message

    def test_a_server_that_says_anything(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:

            def answer() -> None:
                taken, _ = silent.accept()
                with taken:
                    taken.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n" * 10)

            thread = threading.Thread(target=answer)
            thread.start()
            error = refused(f"tcp://127.0.0.1:{silent.getsockname()[1]}")
            thread.join()
        assert error.exit_code == 5


@pytest.mark.slow
def test_no_workers(lone: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_FIRST_WORKER", 1)
    error = refused(lone.address)
    assert error.exit_code == 5
    assert error.message == f"the scheduler at {lone.address} has no workers"


@pytest.mark.slow
class TestOtherWorkers:
    def preloaded(self, cluster: Processes, code: str) -> WtxtgitError:
        script = cluster.folder / "preload.py"
        script.write_text(code)
        cluster.add_worker()
        cluster.add_worker("--preload", str(script))
        return refused(cluster.address)

    def test_another_version(self, lone: Processes) -> None:
        code = "from wtxtgit.cluster import client\nclient.__version__ = '0.0.1'\n"
        error = self.preloaded(lone, code)
        assert error.exit_code == 5
        assert error.message == (
            f"workers of {lone.address} run wtxtgit 0.0.1, but this is {__version__}"
        )

    def test_no_wtxtgit(self, lone: Processes) -> None:
        error = self.preloaded(lone, "import sys\nsys.modules['wtxtgit'] = None\n")
        assert error.exit_code == 5
        assert error.message.startswith("1 worker can't run wtxtgit: tcp://")

    def test_a_worker_in_the_place_of_a_scheduler(self, shared: Processes) -> None:
        error = refused(next(iter(shared.workers)))
        assert type(error) is UsageError
        assert "is a Dask worker, not a scheduler" in error.message


@pytest.mark.slow
class TestTasks:
    def test_results_and_progress(self, shared: Processes) -> None:
        done: list[int] = []
        with connected(shared.address) as cluster:
            assert cluster.threads == 2
            found = dict(cluster.run(tasks.double, range(200), int, done.append))
        assert found == {number: 2 * number for number in range(200)}
        assert sorted(done) == list(range(200))

    def test_an_error_of_ours(self, shared: Processes) -> None:
        with connected(shared.address) as cluster, pytest.raises(FormatError) as raised:
            list(cluster.run(tasks.refuse, [3], int))
        assert (raised.value.message, raised.value.offset) == ("no 3", 3)

    @pytest.mark.parametrize(
        ("task", "wanted"),
        [
            (tasks.run_out, "on a worker: out of memory"),
            (tasks.lack_room, "on a worker: no space left on device"),
            (tasks.fail, "a task failed: KeyError: 'a bug'"),
            (tasks.as_text, "a worker returned str"),
        ],
    )
    def test_other_failures(self, shared: Processes, task: Callable[..., Any], wanted: str) -> None:
        with connected(shared.address) as cluster, pytest.raises(EnvironmentFailure) as raised:
            list(cluster.run(task, [1], int))
        assert raised.value.message == wanted

    def test_a_task_that_ends_its_workers(self, tmp_path: Path) -> None:
        variables = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
        with Processes(tmp_path / "cluster", variables=variables) as lone:
            for _ in range(3):
                lone.add_worker()
            with connected(lone.address) as cluster, pytest.raises(EnvironmentFailure) as raised:
                list(cluster.run(tasks.die, [1], int))
        assert raised.value.message == "a task was given up: 2 workers died while running it"

    def test_no_worker_is_left(self, lone: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(client, "MAX_WORKERLESS", 1)
        lone.add_worker()
        with connected(lone.address) as cluster:
            monkeypatch.setattr(client, "SECONDS", 1)
            with pytest.raises(EnvironmentFailure) as raised:
                list(cluster.run(tasks.die, [1], int))
        assert raised.value.message == f"the scheduler at {lone.address} has no workers left"

    def test_the_scheduler_is_lost(self, lone: Processes) -> None:
        lone.add_worker()
        with connected(lone.address) as cluster:
            found = cluster.run(tasks.double, range(10_000), int)
            next(found)
            lone.scheduler.kill()
            with pytest.raises(EnvironmentFailure) as raised:
                list(found)
        assert raised.value.message == f"the connection to the scheduler at {lone.address} was lost"
