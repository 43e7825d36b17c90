"""The emulator's reference page covers every flag, fault, public name and operation."""

import dataclasses
import re
from pathlib import Path

import pytest

from memlite.cli.help import help_text
from memlite.cli.subcommands import SUBCOMMANDS
from memlite.testing import gcs_emulator
from memlite.testing.gcs_emulator import FaultPlan, Store, command
from memlite.testing.gcs_emulator.api import Api

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "gcs-emulator.md").read_text()


def test_flags():
    parser = command.command_line()
    flags = {flag for action in parser._actions for flag in action.option_strings}
    named = set(re.findall(r"`(--?[a-z-]+)", PAGE.partition("## The control endpoint")[0]))
    assert named == flags


def test_faults():
    for field in dataclasses.fields(FaultPlan):
        assert f"`{field.name}`" in PAGE


def test_public_names():
    example = PAGE.partition("## From Python")[2].partition("## ")[0]
    imported = re.findall(r"import \((.*?)\)", example, re.DOTALL)[0].replace(",", "").split()
    assert imported
    assert set(imported) <= set(gcs_emulator.__all__)


@pytest.mark.parametrize("operation", sorted(Api(Store())._methods))
def test_operations(operation):
    word = {
        "buckets.testPermissions": "testIamPermissions", "objects.cancel": "resumable",
        "objects.resume": "resumable", "batch": "batches", "token": "token",
    }.get(operation, operation.partition(".")[2])  # fmt: skip
    assert word.lower() in PAGE.lower()


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_the_programs_help_lists_the_subcommands(name):
    assert f"   {name} " in help_text()
    assert SUBCOMMANDS[name].help in " ".join(help_text().split())
