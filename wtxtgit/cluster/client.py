"""The client's side (connect, submit tasks, collect answers as they come) and the worker's answer.

If a worker is lost, the scheduler gives its task to another one; after several workers were lost
with the same task, that task is given up. No wait is endless: the scheduler, and then a first
worker, have 10 seconds each, and a run fails after MAX_WORKERLESS such periods without any worker.
A task never raises because of what it reads: errors are returned as data, since Dask logs the
arguments of tasks that raise, and retries them. https://distributed.dask.org/
"""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from wtxtgit.errors import EnvironmentFailure, UsageError, WtxtgitError, counted
from wtxtgit.io.files import reason
from wtxtgit.io.progress import Progress
from wtxtgit.version import __version__

SECONDS = 10
MAX_WORKERLESS = 6
"""Periods of SECONDS without a worker after which a run fails."""
ENCRYPTED = "tls://"
_ANSWER = 5
"""Seconds for a scheduler that was reached to say that it is one."""
_FIRST_WORKER = 10
"""Seconds for a scheduler that was reached to have a worker."""
_VERSION_SECONDS = 60
"""Seconds for all workers to state their version."""
_RESULT = 600
"""Seconds for the result of a finished task to arrive."""
_AHEAD = 4
"""Tasks that are submitted for each thread of the workers."""
_LEAST_AHEAD = 64
_LOGS = ("distributed", "distributed.client", "distributed.gc", "tornado.application")
"""Loggers that would print on standard error, in many lines, what we report in one."""
_ADDRESS = "--scheduler tcp://HOST:8786, which dask scheduler prints when it starts"
_INSTALL = f"pip install 'wtxtgit[dask]=={__version__}' on their machines"
_SHOWN = 3
"""Most workers that a message names."""

_Item = TypeVar("_Item")
_Value = TypeVar("_Value")
Task = Callable[[Any, Progress], Any]
"""A function of a module; its arguments are an item, and a function to call with finished bytes."""


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """Connect to the scheduler at `address`, whose workers must have this version of wtxtgit.

    A context manager. When the context ends, remaining tasks are cancelled. Raises UsageError if
    `address` is not an address, and EnvironmentFailure if Dask is not installed, there is no
    scheduler or no worker, or a worker has another version.
    """
    client = _client(address)
    try:
        yield Cluster(client, address, _check_workers(client, address))
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=SECONDS)


class Cluster:
    """A connected cluster; `threads` is the number of its workers' threads at connection time."""

    def __init__(self, client: Any, address: str, threads: int) -> None:
        self._client = client
        self._address = address
        self.threads = threads

    def refuse_secrets(self, what: str) -> None:
        """Raise UsageError if `what`, a secret, would go over the network in the clear."""
        if not self._address.startswith(ENCRYPTED):
            raise UsageError(
                f"{what} would be sent to the workers unencrypted: {self._address} is not "
                f"{ENCRYPTED}"
            )

    def run(
        self,
        task: Callable[[_Item, Progress], _Value],
        items: Sequence[_Item],
        kind: type[_Value],
        progress: Progress | None = None,
    ) -> Iterator[tuple[int, _Value]]:
        """Run a task on each item.

        Yield the item's number and the result, which must be of type `kind`. `task` is a function
        of a module. Results come in any order. Raises those of our own errors that a task raised,
        and EnvironmentFailure for anything else that prevents a result.
        """
        finished: SimpleQueue[int] = SimpleQueue()
        futures: dict[int, Any] = {}
        remaining = iter(range(len(items)))
        # Not all tasks at once: while the caller works on one answer, all others would wait in
        # memory.
        limit = max(_LEAST_AHEAD, _AHEAD * self.threads)
        try:
            while True:
                for number in remaining:
                    futures[number] = self._submit(task, items[number], number, finished)
                    if len(futures) >= limit:
                        break
                if not futures:
                    return
                number = self._next(finished)
                result = self._answer_of(futures.pop(number))
                if result.error is not None:
                    raise result.error
                if not isinstance(result.value, kind):
                    raise EnvironmentFailure(f"a worker returned {type(result.value).__name__}")
                if progress is not None:
                    progress(result.done)
                yield number, result.value
        finally:
            if futures:
                # A task that a thread has begun runs to its end: Python's threads can't be
                # interrupted.
                with contextlib.suppress(Exception):
                    self._client.cancel(list(futures.values()), force=True)

    def _submit(
        self,
        task: Callable[[_Item, Progress], _Value],
        item: _Item,
        number: int,
        finished: SimpleQueue[int],
    ) -> Any:
        with self._failures():
            # Not pure: the content of a file may have changed since the last time.
            future = self._client.submit(answer, task, item, pure=False)
        future.add_done_callback(lambda _: finished.put(number))
        return future

    def _next(self, finished: SimpleQueue[int]) -> int:
        """Wait for a finished task and return its number.

        Raises EnvironmentFailure if no worker is left.
        """
        workerless = 0
        while True:
            try:
                return finished.get(timeout=SECONDS)
            except Empty:
                with self._failures():
                    workerless = 0 if _threads(self._client) else workerless + 1
            if workerless >= MAX_WORKERLESS:
                raise EnvironmentFailure(f"the scheduler at {self._address} has no workers left")

    def _answer_of(self, future: Any) -> TaskAnswer:
        with self._failures():
            result = future.result(timeout=_RESULT)
            future.release()
        if not isinstance(result, TaskAnswer):
            raise EnvironmentFailure(f"a worker returned {type(result).__name__}")
        # Workers come and go: one that joined later may have another version.
        _check_version([result.version], self._address)
        return result

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn exceptions of Dask into our errors; a context manager."""
        from concurrent.futures import CancelledError

        from distributed.scheduler import KilledWorker

        try:
            yield
        except KilledWorker as error:
            raise EnvironmentFailure(
                f"a task was given up: {counted(error.allowed_failures + 1, 'worker')} died "
                "while running it",
                hint="workers usually die for lack of memory: "
                f"dask worker {self._address} --memory-limit SIZE",
            ) from error
        except (CancelledError, OSError) as error:
            raise EnvironmentFailure(
                f"the connection to the scheduler at {self._address} was lost"
            ) from error
        except Exception as error:
            raise EnvironmentFailure(f"a task failed: {type(error).__name__}: {error}") from error


def import_distributed() -> Any:
    """Import Dask's client, configured not to log anything itself.

    Raises EnvironmentFailure if it is not installed.
    """
    try:
        import dask

        # Before `distributed` is imported: it reads this only once.
        dask.config.set(logging=dict.fromkeys(_LOGS, "critical"))
        import distributed
    except ImportError:
        raise EnvironmentFailure(
            "--scheduler needs dask.distributed", hint="pip install 'wtxtgit[dask]'"
        ) from None
    return distributed


def _client(address: str) -> Any:
    distributed = import_distributed()
    _check_address(address)
    try:
        # Dask's client would wait forever for a server of another kind to say something.
        kind = asyncio.run(_identity(address))
        if kind != "Scheduler":
            raise UsageError(f"{address} is a Dask {kind.lower()}, not a scheduler", hint=_ADDRESS)
        with warnings.catch_warnings():
            # We check instead that all workers have our own version.
            warnings.simplefilter("ignore", distributed.versions.VersionMismatchWarning)
            return distributed.Client(address, timeout=SECONDS, set_as_default=False)
    except WtxtgitError:
        raise
    except OSError as error:
        raise EnvironmentFailure(f"no Dask scheduler answers at {address}") from error
    except Exception as error:
        raise EnvironmentFailure(f"{address}: {type(error).__name__}: {error}") from error


def _check_address(address: str) -> None:
    from distributed.comm.addressing import parse_address, parse_host_port
    from distributed.comm.registry import get_backend

    try:
        scheme, place = parse_address(address)
        get_backend(scheme)
        parse_host_port(place)
    except (ValueError, ImportError) as error:
        message = f"{address!r} is not the address of a scheduler: {error}"
        raise UsageError(message, hint=_ADDRESS) from error


async def _identity(address: str) -> str:
    """Return what kind of server a Dask server says it is.

    Raises OSError if none answers in time.
    """
    import distributed
    from distributed import core

    # Dask's own functions have no types.
    typed: Any = distributed
    arguments = typed.Security().get_connection_args("client")
    if address.startswith(ENCRYPTED) and arguments.get("ssl_context") is None:
        raise EnvironmentFailure(
            f"{address}: no certificates are configured",
            hint="name them under distributed.comm.tls in Dask's configuration",
        )
    rpc: Any = core.rpc
    async with rpc(address, timeout=SECONDS, connection_args=arguments) as server:
        identity = await asyncio.wait_for(server.identity(), SECONDS + _ANSWER)
    return str(identity.get("type"))


def _check_workers(client: Any, address: str) -> int:
    """Wait for a first worker and ask all workers for their version.

    Return the number of their threads.
    """
    try:
        client.wait_for_workers(1, timeout=_FIRST_WORKER)
    except TimeoutError:
        raise EnvironmentFailure(
            f"the scheduler at {address} has no workers", hint=f"dask worker {address}"
        ) from None
    try:
        versions = client.run(version, on_error="return", callback_timeout=_VERSION_SECONDS)
        threads = _threads(client)
    except TimeoutError:
        raise EnvironmentFailure(f"not all workers of {address} answered") from None
    except Exception as error:
        raise EnvironmentFailure(f"{address}: {type(error).__name__}: {error}") from error
    lacking = sorted(worker for worker, reply in versions.items() if not isinstance(reply, str))
    if lacking:
        more = ", ..." if len(lacking) > _SHOWN else ""
        raise EnvironmentFailure(
            f"{counted(len(lacking), 'worker')} can't run wtxtgit: "
            f"{', '.join(lacking[:_SHOWN])}{more}",
            hint=_INSTALL,
        )
    _check_version(versions.values(), address)
    return threads


def _check_version(versions: Any, address: str) -> None:
    other_versions = sorted({one for one in versions if one != __version__})
    if other_versions:
        raise EnvironmentFailure(
            f"workers of {address} run wtxtgit {', '.join(map(str, other_versions))}, "
            f"but this is {__version__}",
            hint=_INSTALL,
        )


def _threads(client: Any) -> int:
    """Return the number of threads of all workers."""
    return sum(client.nthreads().values())


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """The outcome of a task: a value or an error; `done` counts bytes."""

    version: str
    value: object = None
    error: WtxtgitError | None = None
    done: int = 0


def version() -> str:
    """Return the version of wtxtgit that a worker has."""
    return __version__


def answer(task: Task, item: object) -> TaskAnswer:
    """Run a task on a worker.

    Errors of ours, of the system, and of lack of memory are returned as data.
    """
    counter = _Counter()
    try:
        value = task(item, counter.add)
    except WtxtgitError as error:
        return TaskAnswer(__version__, error=error)
    except OSError as error:
        return TaskAnswer(__version__, error=EnvironmentFailure(f"on a worker: {reason(error)}"))
    except MemoryError:
        return TaskAnswer(__version__, error=EnvironmentFailure("on a worker: out of memory"))
    return TaskAnswer(__version__, value, done=counter.done)


class _Counter:
    def __init__(self) -> None:
        self.done = 0

    def add(self, count: int) -> None:
        self.done += count
