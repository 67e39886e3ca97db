"""The first page of the help, which is laid out without click, against click."""

from __future__ import annotations

import os
import signal
import subprocess
from unittest.mock import patch

import click
import pytest

from tests.cli.command import Command, Done
from tests.kit.starts import PYTHON
from wtxtgit import __version__
from wtxtgit.cli import front_page
from wtxtgit.cli.front_page import ABOUT, SECTIONS
from wtxtgit.cli.main import cli


def laid_out_by_click(columns: int) -> str:
    with patch.dict(os.environ, COLUMNS=str(columns)):
        context = click.Context(cli, info_name="wtxtgit", **cli.context_settings)
        formatter = context.make_formatter()
    cli.format_usage(context, formatter)
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(ABOUT)
    click.Command.format_options(cli, context, formatter)
    for title, commands in SECTIONS.items():
        with formatter.section(title):
            formatter.write_dl([(name, about) for name, (_, about) in commands.items()])
    return formatter.getvalue().rstrip("\n")


def test_the_page_is_laid_out_as_click_does_it() -> None:
    for columns in range(40, 201):
        assert front_page.page(columns) == laid_out_by_click(columns), columns


@pytest.mark.parametrize("arguments", [("-h",), ("--help",), ("-h", "-V"), ("--help", "status")])
def test_help_is_the_page(wtxtgit: Command, arguments: tuple[str, ...]) -> None:
    for columns, taken in (("60", 60), ("130", 130), ("0", 80), ("x", 80)):
        done = wtxtgit(*arguments, env={"COLUMNS": columns})
        assert done == Done(0, f"{front_page.page(taken)}\n".encode(), "")


def test_no_arguments_are_a_wrong_call(wtxtgit: Command) -> None:
    assert wtxtgit(stdin=b" ") == Done(2, f"{front_page.page(80)}\n".encode(), "")


@pytest.mark.parametrize("arguments", [("-V",), ("--version",), ("-V", "-h"), ("-Vh",)])
def test_the_version(wtxtgit: Command, arguments: tuple[str, ...]) -> None:
    done = wtxtgit(*arguments, stdin=b" ")
    assert done == Done(0, f"wtxtgit {__version__}\n".encode(), "")


@pytest.mark.parametrize("arguments", [("status", "--help"), ("--hel",), ("",)])
def test_what_asks_for_more_than_the_first_page(
    wtxtgit: Command, arguments: tuple[str, ...]
) -> None:
    assert wtxtgit(*arguments, stdin=b" ").out != f"{front_page.page(80)}\n".encode()


def test_a_closed_pipe_is_no_news() -> None:
    """`| head` has enough of it."""
    reader, writer = os.pipe()
    # Before the command starts: what it writes earlier would be taken.
    os.close(reader)
    done = subprocess.run(
        [PYTHON, "-m", "wtxtgit", "--help"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")
