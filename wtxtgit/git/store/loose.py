"""Writing a loose object: a file of its own, for git to find before it writes one itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.git.store.zlib_stream import Content, deflated
from wtxtgit.io.view import Buffer
from wtxtgit.io.writing import write_on


def stored(
    store: ObjectStore,
    content: Content,
    threads: int,
    made: Callable[[str], None] = lambda _oid: None,
) -> Iterator[Buffer]:
    """Give a content's bytes in order; once they are taken, it is an object of the repository.

    `made` gets the object's id then. A store that can't be written is no reason
    to give nothing: whoever takes the bytes stores them then as if nobody had.
    """
    places = store.places
    head = b"blob %d\0" % content.size
    digest = places.new_hash()
    digest.update(head)
    with contextlib.ExitStack() as closing:
        try:
            # `tmp_obj_`: git removes what a process that died left so, git-prune(1).
            opened = places.temporary(places.folder, "tmp_obj_")
            descriptor, path = closing.enter_context(opened)
        except EnvironmentFailure:
            yield from content.stream()
            return
        is_whole = True

        def put(data: bytes) -> None:
            nonlocal is_whole
            if is_whole:
                try:
                    write_on(descriptor, data)
                except OSError:
                    is_whole = False

        for piece in deflated(content.stream(), put, threads, head):
            digest.update(piece)
            yield piece
        oid = digest.hexdigest()
        with contextlib.suppress(EnvironmentFailure):
            if not store.keep(oid):
                if not is_whole:
                    return
                places.put(path, places.make_folder(oid[:2]) / oid[2:])
            made(oid)
