"""Fixtures that the gateway's tests have too."""

from tests.gateway.conftest import short_folder as short_folder
