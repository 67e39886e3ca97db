"""`docs/schemas` is what `--json` prints: made of the reports, and held against each test's."""

from __future__ import annotations

import json
import re

import pytest
from jsonschema_rs import ValidationError, meta

from tests.docs import schemas
from tests.docs.pages import spans, tables
from tests.kit.json_output import SCHEMAS, assert_as_specified, schema_name, validator

FILES = sorted(SCHEMAS.glob("*.json"))


def test_each_command_has_the_schema_that_its_report_makes() -> None:
    made = {schemas.file_of(command): schemas.spelled(command) for command in schemas.REPORTS}
    assert {file.name for file in FILES} == {file.name for file in made}, "make schemas"
    for file, text in made.items():
        assert file.read_text() == text, f"{file.name}: make schemas"


def test_they_are_of_their_dialect_and_closed() -> None:
    opened = 0
    for file in FILES:
        schema = json.loads(file.read_text())
        assert schema["$schema"] == schemas.DIALECT
        meta.validate(schema)
        for one in schema["$defs"].values():
            assert one["description"]
            assert all(re.fullmatch("[a-z][a-z0-9_-]*", key) for key in one["properties"])
            opened += one["additionalProperties"] is not False
    assert opened == 0, "a report has keys that nobody knows"


def test_the_page_names_them() -> None:
    rows = [row for table in tables("docs/json.md", "Schemas") for row in table]
    named = {spans(row[0])[0]: row[1] for row in rows}
    assert set(named) == set(schemas.REPORTS)
    for command, cell in named.items():
        assert f"(schemas/{schemas.file_of(command).name})" in cell


class TestTheCheck:
    """What is printed otherwise is noticed, in every test that asks for it."""

    def printed(self, value: object, *words: str, code: int = 0) -> None:
        assert_as_specified(words or ("key", "list", "--json"), code, json.dumps(value).encode())

    def test_as_the_schema_says(self) -> None:
        self.printed({"keys": []})

    @pytest.mark.parametrize("value", [{}, {"keys": [{}]}, {"keys": [], "more": 1}, {"keys": 1}])
    def test_otherwise(self, value: object) -> None:
        with pytest.raises(ValidationError):
            self.printed(value)
        with pytest.raises(ValidationError):
            self.printed(value, code=1)

    def test_what_is_no_json_of_a_report(self) -> None:
        self.printed([], "key", "list")
        self.printed([], "key", "list", "--", "--json")
        self.printed([], "key", "list", "--json", code=5)

    def test_a_command_without_a_schema(self) -> None:
        with pytest.raises(AssertionError, match="make schemas"):
            self.printed([], "no-such-command", "--json")

    def test_names(self) -> None:
        assert schema_name(["key", "list"]) == "key-list"
        assert schema_name(["audit", "key", "list"]) == "audit"
        assert validator("key-list") is validator("key-list")
