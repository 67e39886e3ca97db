"""Arrays by name, as a notebook shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import wraps
from itertools import islice
from typing import Any, ParamSpec, Protocol, Self, TypeVar

from wtxtgit.errors import MAX_NAME, WtxtgitError, clipped, counted, escaped


class Shaped(Protocol):
    """What numpy arrays and lazily read arrays have in common."""

    @property
    def dtype(self) -> Any: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


_T = TypeVar("_T", bound=Shaped)
_P = ParamSpec("_P")
_R = TypeVar("_R")
_GUESSES = 3
_MOST_GUESSED = 20_000
_MOST_NAME = 256
"""Most characters of a name that is compared with an unknown one."""


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """Return a few of the names that an unknown one may stand for, for a message."""
    # Imported here: only who got a name wrong waits for it.
    from difflib import get_close_matches

    listed = list(islice((one for one in names if len(one) <= _MOST_NAME), _MOST_GUESSED))
    inside = [other for other in listed if name and name.lower() in other.lower()]
    guesses = (inside or get_close_matches(name[:_MOST_NAME], listed, _GUESSES))[:_GUESSES]
    return [escaped(clipped(guess, MAX_NAME)) for guess in guesses]


def with_hints(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Add the hints of errors to them as notes, which tracebacks and notebooks show.

    It is for what programs call; the command line prints hints itself.
    """

    @wraps(function)
    def noted(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except WtxtgitError as error:
            # One of these functions may call another.
            if error.hint is not None and not getattr(error, "__notes__", None):
                error.add_note(f"hint: {error.hint}")
            raise

    return noted


class NamedArrays(Mapping[str, _T]):
    """A mapping of arrays by name whose repr is one line, and a table in a notebook."""

    def __init__(self, arrays: Mapping[str, _T]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> _T:
        try:
            return self._arrays[name]
        except KeyError as error:
            near = near_names(name, self._arrays) if isinstance(name, str) else []
            meant = f"did you mean {', '.join(near)}?" if near else "list() of it gives the names"
            error.add_note(f"hint: {meant}")
            raise

    def __contains__(self, name: object) -> bool:
        # Mapping's own would look for similar names.
        return name in self._arrays

    def get(self, name: str, default: Any = None) -> Any:
        return self._arrays.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._title()}, {counted(len(self), 'array')}>"

    def _title(self) -> str:
        """Return a few words that say where the arrays are from."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """Return a table of the first arrays as HTML, for IPython."""
        from wtxtgit.model.notebook import shape_of, table

        rows = ((name, one.dtype, shape_of(one.shape)) for name, one in self._arrays.items())
        return table(self._title(), ("name", "dtype", "shape"), rows, len(self))

    def _ipython_key_completions_(self) -> list[str]:
        """Return what IPython completes `arrays["` with."""
        return list(self._arrays)


class OpenFile:
    """Something that reads from a file that stays open: use it in `with`, or call `close`.

    It closes itself when it is no longer referenced.
    """

    _until: ExitStack | None = None

    def keep(self, until: ExitStack) -> None:
        """Take over what has to be closed."""
        self._until = until

    def close(self) -> None:
        """Close the file; arrays that were read remain valid."""
        until, self._until = self._until, None
        if until is not None:
            until.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
