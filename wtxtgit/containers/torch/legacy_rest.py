"""What a legacy file holds besides its tensors and the saved value: hashes, for comparisons."""

from __future__ import annotations

from hashlib import sha256

from wtxtgit.containers.torch import PICKLE, legacy_reseal
from wtxtgit.containers.torch.legacy import Legacy
from wtxtgit.containers.torch.pickle_shape import shape_of
from wtxtgit.containers.torch.read import STORAGE
from wtxtgit.io.view import hashed, mapped, pieces
from wtxtgit.model.tensor import ReadOptions

TAIL, KEYS = "behind the last storage", "storage keys"


def rest(container: Legacy, options: ReadOptions) -> dict[str, object]:
    """Return hashes of what the file says of the writing machine, of the pickle besides its
    numbers, of bytes of storages that are in no tensor, and of what follows the storages; and the
    devices of storages. Raises FormatError.
    """
    # The description has the values of the pickle.
    others = {
        name: value
        for name, value in legacy_reseal.values(container, options).items()
        if name == legacy_reseal.FACTS or name.startswith(STORAGE)
    }
    others |= legacy_reseal.rest(container, options)
    *_, keys = container.others
    value = mapped(container.data[container.start : container.pickle.end])
    others[PICKLE] = shape_of(value) or sha256(value).digest()
    listed = mapped(container.data[container.pickle.end : keys.end])
    if shape_of(listed) is None:
        others[KEYS] = sha256(listed).digest()
    if container.end < len(container.data):
        tail = pieces(container.data[container.end :])
        others[TAIL] = hashed(sha256(), tail).digest()
    return others
