"""What a legacy file holds besides its tensors and the saved value: hashes, for comparisons."""

from __future__ import annotations

from hashlib import sha256

from wtxtgit.containers.torch import legacy_reseal
from wtxtgit.containers.torch.legacy import Legacy
from wtxtgit.containers.torch.read import STORAGE
from wtxtgit.io.view import hashed, pieces
from wtxtgit.model.tensor import ReadOptions

TAIL = "behind the last storage"


def rest(container: Legacy, options: ReadOptions) -> dict[str, object]:
    """Return hashes of what the file says of the writing machine, of bytes of storages that are in
    no tensor, and of what follows the storages; and the devices of storages. Raises FormatError.
    """
    # The description has the values of the pickle.
    others = {
        name: value
        for name, value in legacy_reseal.values(container, options).items()
        if name == legacy_reseal.FACTS or name.startswith(STORAGE)
    }
    others |= legacy_reseal.rest(container, options)
    if container.end < len(container.data):
        tail = pieces(container.data[container.end :])
        others[TAIL] = hashed(sha256(), tail).digest()
    return others
