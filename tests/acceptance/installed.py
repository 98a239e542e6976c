"""Programs that a test needs and that are no part of the local stack."""

import os
import shutil

import pytest


def installed(*names: str, package: str) -> str:
    """Where the first of these programs is. In CI there must be one; elsewhere the test is skipped and says so."""
    for found in map(shutil.which, names):
        if found:
            return found
    message = f"{names[0]} is not installed (Debian and Ubuntu: apt-get install {package})"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
