"""Fixtures that other folders have too."""

from tests.e2e.conftest import launch as launch
from tests.gateway.conftest import short_folder as short_folder
