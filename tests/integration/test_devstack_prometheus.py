"""The local stack's Prometheus (issue 5 section 5)."""

import json
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from devstack import prometheus
from devstack.launcher import Launcher
from tests.acceptance.process import soon
from tests.acceptance.prometheus import binary


async def test_it_starts_with_the_rules(tmp_path: Path) -> None:
    """Issue 5 section 5: where it is installed it knows every alert, and looks for a worker where `make worker` listens."""
    binary()
    launcher = Launcher()
    try:
        address = prometheus.start(launcher, tmp_path, tmp_path)
        assert address is not None
        api = address.removesuffix("alerts") + "api/v1/"

        async def loaded() -> set[str]:
            try:
                with urlopen(f"{api}rules?type=alert") as answer:  # noqa: S310, ASYNC210 # our own server on this machine
                    return {rule["name"] for group in json.load(answer)["data"]["groups"] for rule in group["rules"]}
            except OSError:
                return set()

        wanted = yaml.safe_load(prometheus.RULES.read_text())["groups"]
        assert await soon(loaded, "loaded rules") == {
            rule["alert"] for group in wanted for rule in group["rules"] if "alert" in rule
        }
        assert prometheus.WORKER in (tmp_path / "prometheus.yml").read_text()
    finally:
        launcher.close()


def test_without_it_the_stack_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 5 section 5: where it is not installed nothing is started and nothing is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    launcher = Launcher()
    try:
        assert prometheus.start(launcher, tmp_path, tmp_path) is None
    finally:
        launcher.close()
