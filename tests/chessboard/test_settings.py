"""The chessboard's own settings: as strict, and as silent about secrets, as the worker's (D17)."""

import os
import re
from pathlib import Path

import pytest

import settings as shared
from chessboard.settings import Settings, load

SECRET = "hunter2hunter2"  # noqa: S105 # the word that must never be seen
GOOD = {"CHESSBOARD_DATABASE_URL": f"postgresql://chessboard:{SECRET}@db.example/crm", "KAFKA_BOOTSTRAP_SERVERS": "kafka:9092"}
README = Path(__file__).parent.parent.parent / "chessboard" / "README.md"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment with just the two variables that have no default."""
    for name in [name for name in os.environ if name.startswith(("CHESSBOARD_", "KAFKA_", "DATABASE_", "BOOKING_EXPIRATION_"))]:
        monkeypatch.delenv(name)
    for name, value in GOOD.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_defaults(environment: pytest.MonkeyPatch) -> None:
    """D17: group, topic and prefix; what the worker is told does not matter here."""
    environment.setenv("BOOKING_EXPIRATION_TOPIC", "another")
    loaded = load()
    assert (loaded.group, loaded.topic, loaded.database_address) == ("chessboard", "pin.crm.booking-expired.v1", "db.example/crm")
    assert SECRET not in repr(loaded)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("CHESSBOARD_DATABASE_URL", "", "CHESSBOARD_DATABASE_URL: is not set; for example postgresql://chessboard:"),
        ("CHESSBOARD_DATABASE_URL", f"mysql://{SECRET}", "CHESSBOARD_DATABASE_URL: must start with postgresql://"),
        ("KAFKA_BOOTSTRAP_SERVERS", "", "KAFKA_BOOTSTRAP_SERVERS: is not set"),
        ("CHESSBOARD_SESSION_TIMEOUT", "1", "CHESSBOARD_SESSION_TIMEOUT: Input should be greater than or equal to 6"),
        ("CHESSBOARD_KAFKA_SASL_PASSWORD", SECRET, "CHESSBOARD_KAFKA_SASL_* is set, but CHESSBOARD_KAFKA_SECURITY_PROTOCOL"),
        ("CHESSBOARD_BATCHSIZE", "7", "CHESSBOARD_BATCHSIZE: there is no such setting; did you mean CHESSBOARD_BATCH_SIZE?"),
    ],
)
def test_a_refusal_says_what_to_do(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, says: str
) -> None:
    """D17: exit code 2, the variable by its own prefix, an example, never the secret."""
    environment.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        load()
    printed = capsys.readouterr().err
    assert (ended.value.code, says in printed, SECRET in printed) == (2, True, False)


def test_every_setting_is_documented() -> None:
    """Issue 6 section 2: chessboard/README.md has exactly the variables of `Settings`, with their defaults and examples."""
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.+?) \| `(.+?)` \|$", README.read_text(encoding="utf-8"), re.MULTILINE)
    real = set()
    for name, field in Settings.model_fields.items():
        default = "none, required" if field.is_required() else "none" if field.default is None else f"`{field.default}`"
        real.add((shared._variable(name, Settings), default, str((field.examples or [None])[0])))
    assert set(rows) == real
