"""A bad setting says which variable, what is wrong and an example; a secret is never shown (issue 3 section 8, D21)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError
from pydantic_settings import BaseSettings

import chessboard.settings as chessboard
import settings
from settings import Settings

SECRET = "hunter2hunter2"  # noqa: S105 # the word that must never be seen
GOOD = {"DATABASE_URL": f"postgresql://worker:{SECRET}@db.example:5432/crm", "KAFKA_BOOTSTRAP_SERVERS": "kafka.example:9092"}
OURS = "BOOKING_EXPIRATION_"
REFUSALS = {
    "missing database": ({"DATABASE_URL": None}, "DATABASE_URL: is not set; for example postgresql://"),
    "empty database": ({"DATABASE_URL": " "}, "DATABASE_URL: "),
    "other database": ({"DATABASE_URL": f"mysql://u:{SECRET}@h/d"}, "DATABASE_URL: must start with postgresql://"),
    "@ in password": (
        {"DATABASE_URL": f"postgresql://u:{SECRET}@{SECRET}@h/d"},
        "DATABASE_URL: a host must be written host:port",
    ),
    "/ in password": ({"DATABASE_URL": f"postgresql://u:{SECRET}/x@h/d"}, "percent-encoded, @ as %40, / as %2F"),
    "# in password": ({"DATABASE_URL": f"postgresql://u:{SECRET}#x@h/d"}, "DATABASE_URL: contains #"),
    "[ in password": ({"DATABASE_URL": f"postgresql://u:[{SECRET}@h/d"}, "DATABASE_URL: is not a URL"),
    "sign in password": ({"DATABASE_URL": f"postgresql://u:{SECRET}\u2100@h/d"}, "DATABASE_URL: is not a URL"),
    "broken query": ({"DATABASE_URL": f"postgresql://u:p@h/d?{SECRET}"}, "DATABASE_URL: is not a URL"),
    "port": ({"DATABASE_URL": "postgresql://u:p@h:70000/d"}, "DATABASE_URL: a host must be written host:port"),
    "sslmode": ({"DATABASE_URL": "postgresql://u:p@h/d?sslmode=on"}, "DATABASE_URL: sslmode must be one of disable"),
    "sslrootcert": ({"DATABASE_URL": "postgresql://h/d?sslrootcert=/no/ca"}, "DATABASE_URL: the file /no/ca cannot be read"),
    "missing kafka": ({"KAFKA_BOOTSTRAP_SERVERS": None}, "KAFKA_BOOTSTRAP_SERVERS: is not set; for example kafka-1"),
    "no kafka": ({"KAFKA_BOOTSTRAP_SERVERS": ","}, "KAFKA_BOOTSTRAP_SERVERS: "),
    "kafka as URL": ({"KAFKA_BOOTSTRAP_SERVERS": "kafka://h:9092"}, "KAFKA_BOOTSTRAP_SERVERS: a host must be written host:port"),
    "no number": ({OURS + "BATCH_SIZE": "many"}, "BATCH_SIZE: Input should be a valid integer"),
    "too many": ({OURS + "BATCH_SIZE": "100000"}, "BATCH_SIZE: Input should be less than or equal to 1000; for example 200"),
    "too seldom": ({OURS + "GAUGES_INTERVAL": "75"}, "GAUGES_INTERVAL: Input should be less than or equal to 20; for example 10"),
    "topic": ({OURS + "TOPIC": "with space"}, "TOPIC: String should match"),
    "log level": ({OURS + "LOG_LEVEL": "LOUD"}, "LOG_LEVEL: Input should be 'DEBUG', 'INFO'"),
    "protocol": ({OURS + "KAFKA_SECURITY_PROTOCOL": "TLS"}, "KAFKA_SECURITY_PROTOCOL: Input should be 'PLAINTEXT'"),
    "sasl alone": ({OURS + "KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}, "=SASL_SSL needs BOOKING_EXPIRATION_KAFKA_SASL_USERNAME and"),
    "sasl unused": ({OURS + "KAFKA_SASL_PASSWORD": SECRET}, "KAFKA_SASL_* is set, but"),
    "tls unused": ({OURS + "KAFKA_SSL_CAFILE": __file__}, "KAFKA_SSL_* is set, but"),
    "no such file": ({OURS + "KAFKA_SSL_CAFILE": "/no/ca"}, "KAFKA_SSL_CAFILE: the file /no/ca cannot be read: No such file"),
    "folder": ({OURS + "KAFKA_SSL_CERTFILE": "/"}, "KAFKA_SSL_CERTFILE: the file / cannot be read: Is a directory"),
    "key alone": (
        {OURS + "KAFKA_SECURITY_PROTOCOL": "SSL", OURS + "KAFKA_SSL_KEYFILE": __file__},
        "KAFKA_SSL_KEYFILE needs BOOKING_EXPIRATION_KAFKA_SSL_CERTFILE",
    ),
    "build alone": (
        {OURS + "BUILD_ID": "0.2.0"},
        "BOOKING_EXPIRATION_DEPLOYMENT_NAME and BOOKING_EXPIRATION_BUILD_ID go together",
    ),
    "deployment alone": ({OURS + "DEPLOYMENT_NAME": "crm"}, "DEPLOYMENT_NAME and BOOKING_EXPIRATION_BUILD_ID go together"),
    "deployment with a dot": (
        {OURS + "DEPLOYMENT_NAME": "a.b", OURS + "BUILD_ID": "1"},
        "BOOKING_EXPIRATION_DEPLOYMENT_NAME: String",
    ),
    "misspelt": ({OURS + "BATCHSIZE": "20"}, "BATCHSIZE: there is no such setting; did you mean BOOKING_EXPIRATION_BATCH_SIZE?"),
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment with just the two variables that have no default, and no profile file of the machine's user."""
    for name in list(os.environ):
        if name.startswith((OURS, "TEMPORAL_", "KAFKA_", "DATABASE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "temporal.toml"))
    (tmp_path / "temporal.toml").touch()
    for name, value in GOOD.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def change(environment: pytest.MonkeyPatch, changes: dict[str, str | None]) -> None:
    """Set what has a value and unset what has none."""
    for name, value in changes.items():
        if value is None:
            environment.delenv(name)
        else:
            environment.setenv(name, value)


@pytest.mark.parametrize(("changes", "says"), REFUSALS.values(), ids=REFUSALS)
def test_refusal_says_what_to_do(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], changes: dict[str, str | None], says: str
) -> None:
    """Issue 3 section 8: exit code 2, one line that names the variable and what is wrong, never the secret."""
    change(environment, changes)
    with pytest.raises(SystemExit) as ended:
        settings.load()
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert says in printed.err
    assert all(line.startswith("settings: ") for line in printed.err.splitlines())
    assert SECRET not in printed.err + printed.out


def test_every_bad_variable_is_named_at_once(environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 3 section 8: three mistakes need one start to be found, not three."""
    change(environment, {"DATABASE_URL": None, OURS + "BATCH_SIZE": "0", OURS + "HTTP_PORT": "x"})
    with pytest.raises(SystemExit):
        settings.load()
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_no_traceback_from_a_real_process() -> None:
    """Issue 3 section 8: a process with no settings at all ends with code 2 and plain lines."""
    program = [sys.executable, "-c", "import settings; settings.load()"]
    ended = subprocess.run(program, env={}, capture_output=True, text=True, check=False, cwd=Path(settings.__file__).parent)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Traceback" not in ended.stderr
    assert [line.split(":")[1].strip() for line in ended.stderr.splitlines()] == ["DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///crm?host=/var/run/postgresql",
        "postgres://u:p%40%2F%23@h1:5432,h2:5433/crm?sslmode=require&target_session_attrs=read-write",
        "postgresql://u@[::1]:5432/crm",
        "postgresql://u@%2Frun%2Fpostgresql/crm",
        f"postgresql://u:p@h/crm?sslmode=verify-full&sslrootcert={__file__}",
    ],
)
def test_urls_of_every_kind_are_taken(environment: pytest.MonkeyPatch, url: str) -> None:
    """Issue 3 section 8: sockets, several hosts, IPv6, quoted characters and TLS can all be said."""
    environment.setenv("DATABASE_URL", url)
    assert settings.load().database_url.get_secret_value() == url


@pytest.mark.usefixtures("environment")
def test_defaults_are_the_fixed_names() -> None:
    """Decisions, "Names that are fixed": what is not set has the documented value."""
    loaded = settings.load()
    assert (loaded.task_queue, loaded.schedule_id) == ("booking-expiration", "booking-expiration")
    assert (loaded.batch_size, loaded.topic, loaded.http_port) == (200, "pin.crm.booking-expired.v1", 8000)
    assert (loaded.kafka_security_protocol, loaded.log_level, loaded.http_host) == ("PLAINTEXT", "INFO", "127.0.0.1")


def test_fixed_variables_are_read(environment: pytest.MonkeyPatch) -> None:
    """Decisions, "Names that are fixed": every documented variable reaches its setting, white space dropped."""
    given = {"TASK_QUEUE": " q ", "SCHEDULE_ID": "s", "BATCH_SIZE": " 7\n", "TOPIC": "t", "HTTP_PORT": "0"}
    change(environment, {OURS + name: value for name, value in given.items()})
    environment.setenv("KAFKA_BOOTSTRAP_SERVERS", " a:1 , b ,")
    loaded = settings.load()
    assert (loaded.task_queue, loaded.schedule_id, loaded.batch_size, loaded.topic, loaded.http_port) == ("q", "s", 7, "t", 0)
    assert loaded.kafka_bootstrap_servers == "a:1,b"


def test_empty_variable_is_not_set(environment: pytest.MonkeyPatch) -> None:
    """A compose file's `${X:-}` gives an empty variable, which means the default."""
    change(environment, {OURS + "BATCH_SIZE": "", OURS + "KAFKA_SASL_USERNAME": "", OURS + "KAFKA_SSL_CAFILE": ""})
    loaded = settings.load()
    assert (loaded.batch_size, loaded.kafka_sasl_username, loaded.kafka_ssl_cafile) == (200, None, None)


def test_sasl_over_tls(environment: pytest.MonkeyPatch) -> None:
    """Issue 3 section 8: SASL/SSL can be configured whole, and a secret with a last line break works."""
    given = {
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SASL_MECHANISM": "SCRAM-SHA-512",
        "SASL_USERNAME": "u",
        "SASL_PASSWORD": f"{SECRET}\n",
    }
    change(environment, {f"{OURS}KAFKA_{name}": value for name, value in {**given, "SSL_CAFILE": __file__}.items()})
    loaded = settings.load()
    assert loaded.kafka_sasl_password is not None
    assert loaded.kafka_sasl_password.get_secret_value() == SECRET


def test_other_programs_variables_are_left_alone(environment: pytest.MonkeyPatch) -> None:
    """The owner's and the administrator's URLs, and what Kubernetes sets for a service of our name, are no mistakes."""
    names = ["MIGRATION_DATABASE_URL", "ADMIN_DATABASE_URL", "SERVICE_HOST", "SERVICE_PORT", "PORT", "PORT_8000_TCP_ADDR"]
    change(environment, {OURS + name: "tcp://10.0.0.1:8000" for name in names})
    assert settings.load().batch_size == 200


def test_secrets_are_never_shown(environment: pytest.MonkeyPatch) -> None:
    """Issue 3 section 8: no secret in `repr`, `str`, a dump or JSON."""
    given = {"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "SASL_USERNAME": "u", "SASL_PASSWORD": SECRET}
    change(environment, {f"{OURS}KAFKA_{name}": value for name, value in given.items()})
    loaded = settings.load()
    shown = [repr(loaded), str(loaded), loaded.model_dump_json(), str(loaded.model_dump()), f"{loaded.database_url}"]
    assert SECRET not in "".join(shown)


def test_validation_errors_hide_the_input(environment: pytest.MonkeyPatch) -> None:
    """Issue 3 section 8: even pydantic's own error, should it ever be printed, shows no value."""
    environment.setenv("DATABASE_URL", f"postgresql://u:{SECRET}#@h/d")
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert SECRET not in str(refused.value) + repr(refused.value)


def test_settings_are_frozen(environment: pytest.MonkeyPatch) -> None:
    """Issue 3 section 8: nobody changes a setting while the process runs."""
    loaded = settings.load()
    environment.setenv(OURS + "BATCH_SIZE", "1")
    with pytest.raises(ValidationError, match="frozen"):
        loaded.batch_size = 1  # type: ignore[misc] # the point of the test
    assert loaded.batch_size == 200


def test_every_setting_has_an_example() -> None:
    """Issue 3 section 8: the message can always show how it is done."""
    assert [name for name, field in Settings.model_fields.items() if not field.examples] == []


@pytest.mark.parametrize("model", [Settings, chessboard.Settings])
def test_every_upper_bound_counts(environment: pytest.MonkeyPatch, model: type[BaseSettings]) -> None:
    """Issue 3 section 8: one more than the least bound that a setting declares is refused."""
    environment.setenv("CHESSBOARD_DATABASE_URL", GOOD["DATABASE_URL"])
    for name, field in model.model_fields.items():
        if bounds := [bound.le for bound in field.metadata if hasattr(bound, "le")]:
            environment.setenv(variable := settings._variable(name, model), str(min(bounds) + 1))
            with pytest.raises(ValidationError, match="less than or equal"):
                model()
            environment.delenv(variable)


def test_gauges_are_read_often_enough_for_the_alerts() -> None:
    """Issue 5 section 3: with a reading lost at the longest interval, the newest one scraped is not yet dropped by the rules."""
    prometheus = Path(settings.__file__).parent / "ops" / "prometheus"
    rules = (prometheus / "rules.yml").read_text(encoding="utf-8")
    scraped = yaml.safe_load((prometheus / "prometheus.yml").read_text(encoding="utf-8"))["global"]["scrape_interval"]
    ages = re.findall(r"time\(\) - last_over_time\(\w+_last_read_timestamp_seconds{[^)]*\)\)? < (\d+)", rules)
    longest = min(bound.le for bound in Settings.model_fields["gauges_interval"].metadata if hasattr(bound, "le"))
    assert len(ages) == 2
    assert all(2 * longest + int(scraped.removesuffix("s")) < int(age) for age in ages)


def test_temporal_default_address(environment: pytest.MonkeyPatch) -> None:
    """D21: without any setting the worker talks to the dev server's address, like the Temporal CLI."""
    environment.delenv("DATABASE_URL")
    assert settings.temporal() == {"target_host": "localhost:7233"}


def test_temporal_by_variables(environment: pytest.MonkeyPatch) -> None:
    """D21: address, namespace and API key come from the `TEMPORAL_*` variables; a key brings TLS with it."""
    change(environment, {"TEMPORAL_ADDRESS": "t:7233", "TEMPORAL_NAMESPACE": "crm", "TEMPORAL_API_KEY": "k"})
    assert settings.temporal() == {"target_host": "t:7233", "namespace": "crm", "api_key": "k", "tls": True}


def test_temporal_by_profile_file(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """D21: a profile of the file is used, and a variable overrides it."""
    (tmp_path / "temporal.toml").write_text('[profile.prod]\naddress = "file:7233"\nnamespace = "file"\n')
    change(environment, {"TEMPORAL_PROFILE": "prod", "TEMPORAL_NAMESPACE": "variable"})
    assert settings.temporal() == {"target_host": "file:7233", "namespace": "variable"}


@pytest.mark.parametrize(
    ("text", "profile", "says"),
    [
        ('[profile.default]\naddress = "a:1"\n', "other", "Profile 'other' not found"),
        (f"[profile.default]\napi_key = {SECRET}\n", "default", "TOML parse error at line 2"),
    ],
)
def test_temporal_refusal(
    environment: pytest.MonkeyPatch, *, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, profile: str, says: str
) -> None:
    """D21: a bad profile ends the process with one line, which never quotes the file: the line may hold the API key."""
    (tmp_path / "temporal.toml").write_text(text)
    environment.setenv("TEMPORAL_PROFILE", profile)
    with pytest.raises(SystemExit) as ended:
        settings.temporal()
    printed = capsys.readouterr().err
    assert ended.value.code == 2
    assert says in printed
    assert SECRET not in printed
    assert len(printed.splitlines()) == 1
