"""Writing a loose object: a file of its own, for git to find before it writes one itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from wtxtgit.errors import EnvironmentFailure
from wtxtgit.git.store.reader import ObjectStore
from wtxtgit.git.store.zlib_stream import Content, ZlibStream
from wtxtgit.model import Buffer


def stored(
    store: ObjectStore, content: Content, made: Callable[[str], None] = lambda _oid: None
) -> Iterator[Buffer]:
    """Give a content's bytes in order; once they are taken, it is an object of the repository.

    `made` gets the object's id then. A store that can't be written is no reason
    to give nothing: whoever takes the bytes stores them then as if nobody had.
    """
    places = store.places
    head = b"blob %d\0" % content.size
    with contextlib.ExitStack() as closing:
        try:
            # `tmp_obj_`: git removes what a process that died left so, git-prune(1).
            opened = places.temporary(places.folder, "tmp_obj_")
            descriptor, path = closing.enter_context(opened)
            stream = ZlibStream(descriptor, 0, content.spans, head)
            content.render(stream.place)
            stream.finish()
        except (EnvironmentFailure, OSError):
            yield from content.stream()
            return
        digest = places.new_hash()
        digest.update(head)
        for data in content.stream():
            digest.update(data)
            yield data
        oid = digest.hexdigest()
        with contextlib.suppress(EnvironmentFailure):
            if store.find(oid) is None:
                places.put(path, places.make_folder(oid[:2]) / oid[2:])
            made(oid)
