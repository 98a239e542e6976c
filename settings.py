"""The settings: one frozen model. The environment is read here and nowhere else (D21: Temporal's part by envconfig)."""

import dataclasses
import difflib
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NoReturn, Self, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import AfterValidator, AliasChoices, Field, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict
from temporalio.envconfig import ClientConfig

_PREFIX: Final = "BOOKING_EXPIRATION_"
_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_PORT: Final = r"(?a:[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])"
_ADDRESS: Final = rf"(\[[0-9a-fA-F:.]+\]|[^\s:/?#@%<>|^\[\]]+)(:{_PORT})?"
_HTTP_URL: Final = rf"https?://([^\s/?#@]+@)?{_ADDRESS}(/\S*)?"
_DATABASE: Final = "db.example:5432/crm?sslmode=verify-full&sslrootcert=/etc/ssl/certs/db-ca.pem"
_QUOTE: Final = "write special characters of user and password percent-encoded, @ as %40, / as %2F, # as %23"


def _hosts(hosts: str, *, quoted: bool = False) -> str:
    """The comma-separated `host:port` list without white space; raises ValueError for what is none."""
    addresses = [address.strip() for address in hosts.split(",") if address.strip()]
    if not all(re.fullmatch(_ADDRESS, address) for address in addresses):
        raise ValueError(f"a host must be written host:port{f'; {_QUOTE}' if quoted else ''}")
    return ",".join(addresses)


def _file(path: str) -> str:
    """The path, if the file can be read; raises ValueError otherwise."""
    try:
        with Path(path).open("rb"):
            return path
    except OSError as error:
        raise ValueError(f"the file {path} cannot be read: {error.strerror}") from None


def _postgres(value: SecretStr) -> SecretStr:
    """What the driver would refuse much later, refused here; no message repeats any part of the secret."""
    url = value.get_secret_value()
    if not url.startswith(("postgresql://", "postgres://")):
        raise ValueError("must start with postgresql://")
    if "#" in url or re.search(r"\s", url):
        raise ValueError(f"contains # or white space; {_QUOTE}")
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        raise ValueError(f"is not a URL; {_QUOTE}") from None
    _hosts(unquote(parts.netloc.partition("@")[2] or parts.netloc).replace("/", ""), quoted=True)
    if query.get("sslmode", "prefer") not in _SSL_MODES:
        raise ValueError(f"sslmode must be one of {', '.join(_SSL_MODES)}")
    for name in ("sslrootcert", "sslcert", "sslkey"):
        if name in query:
            _file(query[name])
    return value


PostgresUrl = Annotated[SecretStr, AfterValidator(_postgres)]
Hosts = Annotated[str, AfterValidator(_hosts), Field(min_length=1)]
Seconds = Annotated[float, Field(gt=0, le=600)]  # a smaller `le` beside it would count for nothing
Name = Annotated[str, Field(min_length=1)]
ReadableFile = Annotated[str, AfterValidator(_file)]


class KafkaSettings(BaseSettings):
    """How to reach the brokers and the topic, for any process of ours; each has a prefix of its own.

    An empty variable counts as not set, and white space around a value is dropped: compose files, charts and secrets that were
    read from a file bring both.
    """

    # Built when used: a command needs one of these models and does not wait for the others.
    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_ignore_empty=True, frozen=True, extra="ignore", hide_input_in_errors=True,
        str_strip_whitespace=True, defer_build=True,
    )  # fmt: skip

    kafka_bootstrap_servers: Hosts = Field(
        validation_alias=AliasChoices("KAFKA_BOOTSTRAP_SERVERS"), examples=["kafka-1.example:9092,kafka-2.example:9092"]
    )
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field("PLAINTEXT", examples=["SASL_SSL"])
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field("PLAIN", examples=["SCRAM-SHA-512"])
    kafka_sasl_username: Name | None = Field(None, examples=["booking-expiration"])
    kafka_sasl_password: SecretStr | None = Field(None, examples=["secret"])
    kafka_ssl_cafile: ReadableFile | None = Field(None, examples=["/etc/ssl/certs/kafka-ca.pem"])
    kafka_ssl_certfile: ReadableFile | None = Field(None, examples=["/etc/ssl/certs/client.pem"])
    kafka_ssl_keyfile: ReadableFile | None = Field(None, examples=["/etc/ssl/private/client.key"])
    topic: str = Field("pin.crm.booking-expired.v1", pattern=r"^[A-Za-z0-9._-]{1,249}$", examples=["pin.crm.booking-expired.v1"])

    @model_validator(mode="after")
    def _kafka_security_is_whole(self) -> Self:
        """Half a security setting is a mistake: better no start than a connection in the clear."""
        protocol, name = self.kafka_security_protocol, f"{self.model_config['env_prefix']}KAFKA_"
        sasl = (self.kafka_sasl_username, self.kafka_sasl_password)
        files = (self.kafka_ssl_cafile, self.kafka_ssl_certfile, self.kafka_ssl_keyfile)
        if "SASL" in protocol and None in sasl:
            raise ValueError(f"{name}SECURITY_PROTOCOL={protocol} needs {name}SASL_USERNAME and {name}SASL_PASSWORD")
        if "SASL" not in protocol and any(sasl):
            raise ValueError(f"{name}SASL_* is set, but {name}SECURITY_PROTOCOL={protocol}; for example SASL_SSL")
        if "SSL" not in protocol and any(files):
            raise ValueError(f"{name}SSL_* is set, but {name}SECURITY_PROTOCOL={protocol}; for example SSL")
        if self.kafka_ssl_keyfile and not self.kafka_ssl_certfile:
            raise ValueError(f"{name}SSL_KEYFILE needs {name}SSL_CERTFILE, the certificate that belongs to the key")
        return self


class ScheduleSettings(BaseSettings):
    """What the schedule is made from; all that its commands need beside Temporal."""

    model_config = KafkaSettings.model_config

    task_queue: Name = Field("booking-expiration", examples=["booking-expiration"])
    schedule_id: Name = Field("booking-expiration", examples=["booking-expiration"])
    batch_size: int = Field(200, ge=1, le=1000, examples=[200], description="rows per phase and cycle (L3, I2)")


class OperatorSettings(ScheduleSettings):
    """What the operators' commands need beside Temporal: the schedule's names and the database as the operators' role."""

    operator_database_url: PostgresUrl = Field(
        examples=[f"postgresql://booking_expiration_operator:secret@{_DATABASE}"],
        description="the operators' role; for the command line only",
    )
    # The length apart from the pattern: as a count of \w in it, it takes longer to compile than the command to answer.
    actor: str | None = Field(
        None, pattern=r"^[\w@.+ -]+$", max_length=100, examples=["anna"], description="who acts; the login name else"
    )


class Settings(KafkaSettings, ScheduleSettings):
    """Everything the worker can be told. Times in seconds, sizes in rows or bytes."""

    database_url: PostgresUrl = Field(
        validation_alias=AliasChoices("DATABASE_URL"),
        examples=[f"postgresql://booking_expiration_worker:secret@{_DATABASE}"],
        description="the worker's role; sslmode=verify-full&sslrootcert=… verifies the server (trap 30)",
    )
    database_pool_size: int = Field(4, ge=2, le=50, examples=[4])
    database_statement_cache_size: int = Field(100, ge=0, le=10_000, examples=[0], description="0 behind pgbouncer (trap 29)")
    database_command_timeout: Seconds = Field(10, examples=[10])

    hold_above: int = Field(0, ge=0, examples=[5000], description="bookings due above which a cycle expires nothing; 0: never")
    drain_limit: int = Field(50_000, ge=1, examples=[50_000], description="bookings that one drain may expire at most (D14)")

    deployment_name: str | None = Field(None, pattern=r"^[A-Za-z0-9_-]{1,200}$", examples=["booking-expiration"])
    build_id: str | None = Field(None, pattern=r"^[A-Za-z0-9._-]{1,200}$", examples=["0.2.0"], description="docs/versioning.md")

    http_host: Name = Field("127.0.0.1", examples=["0.0.0.0"])  # noqa: S104 # an example: what a container's probes need
    http_port: int = Field(8000, ge=0, le=65535, examples=[8000], description="/livez, /readyz, /metrics; 0 takes a free port")
    gauges_interval: float = Field(10, gt=0, le=20, examples=[10], description="between two readings for /metrics")
    startup_timeout: Seconds = Field(30, examples=[30], description="how long to wait for the database and Temporal at start")
    shutdown_timeout: float = Field(12, gt=0, le=60, examples=[12], description="after SIGTERM; then a watchdog ends the process")
    runbook_url: str | None = Field(None, pattern=r"^https?://[^\s()]+$", examples=["https://git.example/booking-expiration"])
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", examples=["INFO"])

    @model_validator(mode="after")
    def _version_is_whole(self) -> Self:
        """Half a version is a mistake: the worker would start unversioned, silently (trap 16)."""
        if (self.deployment_name is None) != (self.build_id is None):
            raise ValueError(f"{_PREFIX}DEPLOYMENT_NAME and {_PREFIX}BUILD_ID go together: set both or neither")
        return self

    @property
    def database_address(self) -> str:
        """Where the worker's database is, without user and password: for messages."""
        return address_of(self.database_url)


def address_of(url: SecretStr) -> str:
    """Where a database is, without user and password: for messages."""
    parts = urlsplit(url.get_secret_value())
    return f"{parts.netloc.rpartition('@')[2]}{parts.path}"


Model = TypeVar("Model", bound=BaseSettings)


def load() -> Settings:
    """The settings of this process. Ends it with exit code 2 and one line per bad variable, which says what to do."""
    return load_model(Settings)


def load_model(model: type[Model]) -> Model:
    """The same for the settings of another process of ours."""
    mistyped = _mistyped(os.environ, model)
    try:
        loaded = model()
    except ValidationError as error:
        details = error.errors(include_input=False, include_url=False)
        _refuse([*sorted(_advice(detail, model) for detail in details), *mistyped])
    if mistyped:
        _refuse(mistyped)
    return loaded


def temporal() -> dict[str, Any]:
    """Arguments for `Client.connect` from the profile file and the `TEMPORAL_*` variables (D21)."""
    try:
        found: dict[str, Any] = {"target_host": "localhost:7233", **ClientConfig.load_client_connect_config()}
        return {**found, "target_host": _hosts(found["target_host"])}
    except (RuntimeError, ValueError, OSError) as error:
        # A parse error quotes the offending line of the profile file, which may be the API key's.
        what = "; ".join(line for line in str(error).splitlines() if not re.match(r"\s*\d*\s*\|", line))
        _refuse([f"TEMPORAL_*: {what}; see `temporal config list`, for example TEMPORAL_ADDRESS=localhost:7233"])


# Variables, what they may be, and how to say that. The SDKs take much for the default; over gRPC or no URL the core ends.
_OTEL_FORMS: Final = (
    ("OTEL_EXPORTER_OTLP_(TRACES_|METRICS_)?PROTOCOL", "http/protobuf", "http/protobuf, usually on port 4318; leave it out"),
    ("OTEL_EXPORTER_OTLP_(TRACES_|METRICS_)?ENDPOINT", _HTTP_URL, "a URL; for example http://collector:4318"),
    ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "cumulative|delta|lowmemory", "cumulative, delta or lowmemory"),
    ("OTEL_METRICS_EXPORTER", "((otlp|prometheus|none)(,|$))+", "of otlp, prometheus, none; for example otlp"),
    ("OTEL_TRACES_EXPORTER", "((otlp|none)(,|$))+", "of otlp, none; for example otlp"),
    ("OTEL_METRIC_EXPORT_INTERVAL", r"0*[1-9]\d*", "milliseconds; for example 60000"),
)
# Its exporter knows no certificate and no compression, and counts a timeout in milliseconds where ours counts it in seconds.
_BEYOND_THE_CORE: Final = re.compile("OTEL_EXPORTER_OTLP_(METRICS_)?((CLIENT_)?CERTIFICATE|CLIENT_KEY|COMPRESSION|TIMEOUT)")


@dataclasses.dataclass(frozen=True, slots=True)
class Push:
    """What is pushed to a collector by OTLP. The SDK reads the other OTEL_* variables itself; here is what its core cannot."""

    traces: bool
    metrics: bool
    metrics_url: str
    metrics_headers: dict[str, str] = dataclasses.field(repr=False)
    metrics_interval: float
    metrics_delta: bool
    beyond_the_core: list[str]  # variables that keep the SDK core from pushing its own


def opentelemetry() -> Push:
    """What the standard OTEL_* variables ask to push: signals whose exporter is `otlp`, or unnamed while there is an endpoint."""
    given = {name: value.strip() for name, value in os.environ.items() if name.startswith("OTEL_") and value.strip()}
    if given.get("OTEL_SDK_DISABLED", "").lower() == "true":
        given = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}
    if wrong := [
        f"{name}: must be {words}"
        for variable, form, words in _OTEL_FORMS
        for name in sorted(filter(re.compile(variable).fullmatch, given))
        if not re.fullmatch(form, given[name].lower())
    ]:
        _refuse(wrong)
    base = given.get("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318").rstrip("/")
    headers = given.get("OTEL_EXPORTER_OTLP_METRICS_HEADERS", given.get("OTEL_EXPORTER_OTLP_HEADERS", ""))
    pairs = [pair.split("=", 1) for pair in headers.split(",") if "=" in pair]
    return Push(
        traces=_pushed("TRACES", given),
        metrics=_pushed("METRICS", given),
        metrics_url=given.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{base}/v1/metrics"),
        metrics_headers={unquote(name.strip()): unquote(value.strip()) for name, value in pairs},
        metrics_interval=int(given.get("OTEL_METRIC_EXPORT_INTERVAL", "60000")) / 1000,
        metrics_delta=given.get("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "").lower() in ("delta", "lowmemory"),
        beyond_the_core=sorted(filter(_BEYOND_THE_CORE.fullmatch, os.environ)),  # an empty one ends the core too
    )


def _pushed(signal: str, given: dict[str, str]) -> bool:
    exporter = given.get(f"OTEL_{signal}_EXPORTER", "").lower()
    endpoints = {"OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"}
    return "otlp" in exporter.split(",") if exporter else not endpoints.isdisjoint(given)


def _variable(name: str, model: type[BaseSettings] = Settings) -> str:
    alias = model.model_fields[name].validation_alias
    return str(alias.choices[0]) if isinstance(alias, AliasChoices) else model.model_config["env_prefix"] + name.upper()


def _mistyped(environment: Any, model: type[BaseSettings]) -> list[str]:
    """A line for each variable that looks like one of ours, misspelt: a setting that silently does nothing is worse."""
    prefix, variables = model.model_config["env_prefix"], [_variable(name, model) for name in model.model_fields]
    ours = {variable.removeprefix(prefix): variable for variable in variables if prefix in variable}
    lines = []
    for given in sorted(variable for variable in environment if variable.startswith(prefix)):
        word = given.removeprefix(prefix)
        if word.upper() not in ours and (close := difflib.get_close_matches(word.upper(), ours, n=1, cutoff=0.85)):
            lines.append(f"{given}: there is no such setting; did you mean {ours[close[0]]}?")
    return lines


def _advice(detail: ErrorDetails, model: type[BaseSettings]) -> str:
    what = "is not set" if detail["type"] == "missing" else detail["msg"].removeprefix("Value error, ")
    location = str(detail["loc"][0]).upper() if detail["loc"] else ""
    for name, field in model.model_fields.items():
        if location in (name.upper(), _variable(name, model)):
            return f"{_variable(name, model)}: {what}; for example {(field.examples or [''])[0]}"
    return f"{location}: {what}" if location else what


def _refuse(lines: list[str]) -> NoReturn:
    for line in lines:
        print(f"settings: {line}", file=sys.stderr)
    raise SystemExit(2)
