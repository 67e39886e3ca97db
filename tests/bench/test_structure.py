"""What `make structure` counts stays as low as it is."""

from __future__ import annotations

import pytest

from bench.structure import MOST_ENTERED, PACKAGE, Structure, in_circles, structure, with_packages

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def counted() -> Structure:
    return structure()


def test_no_module_leads_back_to_itself(counted: Structure) -> None:
    assert counted.circles == ()


def test_a_package_that_imports_its_own_modules_is_a_circle_for_them() -> None:
    source = {
        PACKAGE / "a" / "__init__.py": "from wtxtgit.a.b import C",
        PACKAGE / "a" / "b.py": "import os\nfrom wtxtgit.io import view",
        PACKAGE / "a" / "c.py": "def f():\n    from wtxtgit.a import b",
        PACKAGE / "io" / "__init__.py": "",
        PACKAGE / "io" / "view.py": "",
    }
    assert {*in_circles(with_packages(source))} == {"wtxtgit.a", "wtxtgit.a.b"}


def test_formats_are_known_by_their_records_alone(counted: Structure) -> None:
    assert counted.formats_from_outside == ()


def test_a_class_name_means_one_thing(counted: Structure) -> None:
    assert counted.class_names == {}


def test_a_reader_of_a_command_can_follow_it(counted: Structure) -> None:
    entered = {name: len(journey.entered) for name, journey in counted.journeys.items()}
    assert entered.keys() == MOST_ENTERED.keys()
    assert {name for name, count in entered.items() if count > MOST_ENTERED[name]} == set()
