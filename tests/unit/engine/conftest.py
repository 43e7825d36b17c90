"""The engine that the tests in this folder share as a fixture."""

import pytest

from tests.unit.engine.fixture import Fixture


@pytest.fixture
def one():
    return Fixture()
