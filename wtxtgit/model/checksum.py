"""CRC-32C by the `crc32c` package, without the modules that importing the package would load.

The package asks `importlib.metadata` for its own version and has a command line, which
imports `email`, `socket` and `argparse`. That takes a quarter of the time that numpy's import
takes, in a filter that git starts for every command. The package's compiled module needs
none of them.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any

_MODULE = "crc32c._crc32c"


def _loaded() -> Any:
    package = PathFinder.find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    compiled = None if places is None else PathFinder.find_spec(_MODULE, places)
    if compiled is None or compiled.loader is None:
        # The package is of another version, or lies inside an archive.
        import crc32c as whole

        return whole.crc32c
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    return module.crc32c


if TYPE_CHECKING:
    from crc32c import crc32c as crc32c
else:
    crc32c = _loaded()
