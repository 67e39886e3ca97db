"""Every error that wtxtgit raises on purpose.

An error says what is wrong in one line, in lower case, without a full stop,
with input quoted. `hint`, where there is one, is a command or a step that
helps. Only `cli` turns errors into exit codes; `exit_code` is the table of
the command line's contract.
"""

from __future__ import annotations

from typing import Any, Self

MAX_MESSAGE = 500
MAX_NAME = 80
"""Characters that messages show of what came out of a file."""
_UNDECODED = range(0xDC80, 0xDD00)
"""What os.fsdecode gives for bytes that are no UTF-8."""


def clipped(text: str, most: int) -> str:
    """`text`, its middle left out where it has over `most` characters."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}...{text[-half:]}"


def escaped(text: str) -> str:
    """Text in which nothing controls a terminal, a line or the order of letters."""
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def phrase(message: str) -> str:
    """A message of somebody else's in our words' form: one line, lower case, no full stop."""
    line = " ".join(message.split())
    return (line[:1].lower() + line[1:]).rstrip(".")


def _escape(c: str) -> str:
    code = ord(c)
    if code in _UNDECODED:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def counted(count: int, noun: str) -> str:
    """`1 part`, `2,000 parts`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def place(
    line: int | None = None,
    array: str | None = None,
    chunk: int | str | None = None,
    offset: int | None = None,
) -> str:
    """Say where something is wrong: `line 12, array "W", chunk 3`."""
    named = f'"{clipped(chunk, MAX_NAME)}"' if isinstance(chunk, str) else chunk
    parts = [
        f"line {line}" if line is not None else "",
        f'array "{clipped(array, MAX_NAME)}"' if array is not None else "",
        f"chunk {named}" if chunk is not None else "",
        f"byte {offset}" if offset is not None else "",
    ]
    return ", ".join(part for part in parts if part)


class WtxtgitError(Exception):
    """Base of all expected errors.

    `exit_code` is the process's exit code when the error ends a command.
    """

    exit_code = 70

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        # What is quoted may come out of a file, and be as long as the file.
        self.message = clipped(message, MAX_MESSAGE)
        self.hint = hint
        super().__init__(self.message)

    @classmethod
    def because(cls, message: str, cause: object, **fields: Any) -> Self:
        """Return an error that ends a command with the `exit_code` of its cause.

        What the system refuses, an OSError, is a failure of the environment.
        """
        error = cls(message, **fields)
        # Python 3.11 raises RuntimeError for links in a circle.
        is_refused = isinstance(cause, OSError | RuntimeError)
        otherwise = EnvironmentFailure.exit_code if is_refused else cls.exit_code
        error.exit_code = getattr(cause, "exit_code", otherwise)
        return error

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Subclasses are made of other arguments than the message: by default a process
        # that gets an error from another one could not make it again.
        return _again, (type(self), self.args, self.__dict__)


def _again(
    kind: type[WtxtgitError], args: tuple[object, ...], state: dict[str, object]
) -> WtxtgitError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class CheckError(WtxtgitError):
    """Something was checked and does not hold (exit code 1)."""

    exit_code = 1


ADDRESS_SPACE = "ulimit -v shows how much address space a process may use"
FETCHES_PAYLOAD = "wtxtgit fetch, in the file's repository, fetches its payload"

MENDS_STORE = (
    "wtxtgit store repack sets damaged packs aside, then wtxtgit fetch fetches the lost chunks"
)
ASKS_HELPERS = "leave them out, and git asks its helpers for them: git help credentials"


class LacksPayload(CheckError):
    """Not all data of a detached text are at hand, and some of those were needed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint=FETCHES_PAYLOAD)


class UsageError(WtxtgitError):
    """The command or the call was not meant like this (exit code 2)."""

    exit_code = 2


class InputError(WtxtgitError):
    """Input is not what it claims to be (exit code 3)."""

    exit_code = 3


class TextError(InputError):
    """A WTXT text, or part of it, can't be read or written.

    `kind` is one of the kinds of `docs/spec/wtxt.md`, section "Verdict". `line` is 1-based. `file`
    is the name of the text, where it was read of a file and is not told by whoever shows this.
    """

    file: str | None = None

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        line: int | None = None,
        array: str | None = None,
        chunk: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.line = line
        self.array = array
        self.chunk = chunk

    def __str__(self) -> str:
        where = place(self.line, self.array, self.chunk)
        return ": ".join(filter(None, (self.file, where, self.message)))


class DamageWarning(UserWarning):
    """A file is damaged, and what is intact of it is given all the same."""


PICKLE = "pickle"
"""The kind of error of what could be read by running a pickle alone, which nothing here does."""


class FormatError(InputError):
    """A container's structure can't be read.

    `kind` is "structure", "limit" or PICKLE, `offset` the byte in the file where the
    reading stopped, `field` the name of the field in the format's spec. `needs` is how many bytes
    the file has to have at least, if it ends too early for what it says.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "structure",
        offset: int | None = None,
        field: str | None = None,
        needs: int | None = None,
    ) -> None:
        super().__init__(message)
        self.needs = needs
        self.kind = kind
        self.offset = offset
        self.field = field

    def within(self, where: str) -> Self:
        """Return the error with the file that it is about before its message."""
        return type(self).because(
            f"{where}: {self.message}", self, kind=self.kind, offset=self.offset, field=self.field
        )


class NotRead(str):
    """Why something was not read, in words; a command that needed it ends with `exit_code`.

    What was not read is never called the same, unchanged or ok.
    """

    exit_code: int

    def __new__(cls, why: str, exit_code: int = InputError.exit_code) -> Self:
        made = super().__new__(cls, why)
        made.exit_code = exit_code
        return made

    @classmethod
    def because(cls, error: WtxtgitError, where: str = "") -> Self:
        """Return the reason that an error gives, with `where` before it."""
        is_limit = isinstance(error, FormatError) and error.kind == "limit"
        code = EnvironmentFailure.exit_code if is_limit else error.exit_code
        return cls(f"{where}{error.message}", code)

    @classmethod
    def over(cls, why: str) -> Self:
        """Return the reason for what is over a limit, which says nothing about the file."""
        return cls(why, EnvironmentFailure.exit_code)

    def within(self, where: str) -> Self:
        """Return the reason with `where` before it."""
        return type(self)(f"{where}{self}", self.exit_code)


class AgeError(InputError):
    """An age file is damaged, or none of the keys at hand opens it."""


class TrustError(WtxtgitError):
    """A signature or a policy does not hold (exit code 4)."""

    exit_code = 4


class EnvironmentFailure(WtxtgitError):
    """Git, the repository, a driver, a permission or the disk (exit code 5)."""

    exit_code = 5


class PayloadError(WtxtgitError):
    """The payload of a detached text can't be had: `name` is the chunk's SHA-256 (exit code 5)."""

    exit_code = 5

    def __init__(self, name: bytes, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"chunk {name.hex()}: {message}", hint=hint)
        self.name = name


class PayloadMissing(PayloadError):
    """No store at hand has the chunk (exit code 5)."""


class PayloadDamaged(PayloadError):
    """Every copy of the chunk that is at hand is damaged (exit code 3)."""

    exit_code = 3


class RemoteUnavailable(EnvironmentFailure):
    """A place elsewhere can't be used now: no network, it is busy, it limits the rate.

    `retry_after` is the number of seconds for which it asked to be left alone; None where it
    said nothing.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class RemoteRefused(EnvironmentFailure):
    """A place elsewhere will not do what it was asked for, now or later.

    It is not there, or the user may not, or what is there already stands against it.
    """


def expected(error: BaseException) -> WtxtgitError | None:
    """An error that a user is told of as it is: see `lacking`; None for a bug."""
    return error if isinstance(error, WtxtgitError) else lacking(error)


def explain(error: BaseException) -> str:
    """Say in a line what an exception means to a user."""
    return str(expected(error) or f"this is a bug in wtxtgit: {type(error).__name__}: {error}")


def lacking(error: BaseException) -> EnvironmentFailure | None:
    """What the system does not give, where that is what an exception of Python's means.

    None for all others, which are bugs.
    """
    if isinstance(error, MemoryError):
        return EnvironmentFailure("out of memory")
    # CPython's words (`thread_PyThread_start_new_thread`), which has no type of its own for it.
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return EnvironmentFailure(
            "the system has no more threads", hint="ulimit -u shows how many a user may have"
        )
    if isinstance(error, ImportError):
        about = f"can't load {error.name or 'a module'}: {why_unloaded(error)}"
        hint = ADDRESS_SPACE if lacks_room(error) else "wtxtgit doctor lists what is broken"
        return EnvironmentFailure(about, hint=hint)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return EnvironmentFailure(f"{where}{(error.strerror or str(error)).lower()}")
    return None


def why_unloaded(error: BaseException) -> str:
    """Say in a line why a module could not be imported."""
    # numpy wraps a page of advice around the error that it met.
    first = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    if isinstance(first, MemoryError):
        return "out of memory"
    return " ".join(str(first).split()) or type(first).__name__


def lacks_room(error: BaseException) -> bool:
    """Whether a module could not be imported because memory or address space ran out."""
    # glibc's words of a library for which there is no room.
    return isinstance(error, MemoryError) or "failed to map segment" in why_unloaded(error)


def __dir__() -> list[str]:
    """Return what completion shows: errors, and no helpers of messages."""
    kinds = (Exception, Warning)
    named = [k for k, v in globals().items() if isinstance(v, type) and issubclass(v, kinds)]
    return [*named, "__doc__"]
