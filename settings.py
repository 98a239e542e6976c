"""The settings: one frozen model. The environment is read here and nowhere else (D21: Temporal's part by envconfig)."""

import sys
from typing import Annotated, Any, Literal, NoReturn

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from temporalio.envconfig import ClientConfig

_PREFIX = "BOOKING_EXPIRATION_"
Seconds = Annotated[float, Field(gt=0, le=600)]


def _plain(name: str) -> AliasChoices:
    """A variable that the whole company knows by this name, without our prefix."""
    return AliasChoices(name)


class Settings(BaseSettings):
    """Everything the worker and the command line can be told. Times in seconds, sizes in rows or bytes."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="ignore", hide_input_in_errors=True)

    database_url: SecretStr = Field(
        validation_alias=_plain("DATABASE_URL"),
        examples=["postgresql://booking_expiration_worker:secret@db.example:5432/crm?sslmode=verify-full"],
        description="the worker's role; sslmode=verify-full&sslrootcert=… verifies the server (trap 30)",
    )
    database_pool_size: int = Field(4, ge=2, le=50, examples=[4])
    database_statement_cache_size: int = Field(
        100, ge=0, le=10_000, examples=[0], description="0 behind pgbouncer in transaction mode (trap 29)"
    )
    database_command_timeout: Seconds = Field(10, examples=[10])

    kafka_bootstrap_servers: str = Field(
        validation_alias=_plain("KAFKA_BOOTSTRAP_SERVERS"), min_length=1, examples=["kafka-1.example:9092,kafka-2.example:9092"]
    )
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field("PLAINTEXT", examples=["SASL_SSL"])
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field("PLAIN", examples=["SCRAM-SHA-512"])
    kafka_sasl_username: str | None = Field(None, examples=["booking-expiration"])
    kafka_sasl_password: SecretStr | None = Field(None, examples=["secret"])
    kafka_ssl_cafile: str | None = Field(None, examples=["/etc/ssl/certs/kafka-ca.pem"])
    kafka_ssl_certfile: str | None = Field(None, examples=["/etc/ssl/certs/client.pem"])
    kafka_ssl_keyfile: str | None = Field(None, examples=["/etc/ssl/private/client.key"])

    task_queue: str = Field("booking-expiration", min_length=1, examples=["booking-expiration"])
    schedule_id: str = Field("booking-expiration", min_length=1, examples=["booking-expiration"])
    batch_size: int = Field(200, ge=1, le=1000, examples=[200], description="rows per phase and cycle (L3, I2)")
    topic: str = Field(
        "pin.crm.booking-expired.v1", pattern=r"^[A-Za-z0-9._-]{1,249}$", examples=["pin.crm.booking-expired.v1"]
    )
    http_host: str = Field("127.0.0.1", examples=["0.0.0.0"])
    http_port: int = Field(8000, ge=0, le=65535, examples=[8000], description="/livez and /readyz; 0 takes a free port")
    startup_timeout: Seconds = Field(30, examples=[30], description="how long to wait for the database and Temporal at start")
    shutdown_timeout: Seconds = Field(12, le=60, examples=[12], description="after SIGTERM; then the watchdog ends the process")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", examples=["INFO"])

    @field_validator("database_url")
    @classmethod
    def _is_postgres(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("must start with postgresql://")
        return value


def load() -> Settings:
    """The settings of this process. Ends it with exit code 2 and one line per bad variable, which says what to do."""
    try:
        return Settings()  # type: ignore[call-arg] # the environment gives what has no default
    except ValidationError as error:
        _refuse([_advice(detail) for detail in error.errors(include_input=False, include_url=False)])


def temporal() -> dict[str, Any]:
    """Arguments for `Client.connect` from the profile file and the `TEMPORAL_*` variables (D21)."""
    try:
        return {"target_host": "localhost:7233", **ClientConfig.load_client_connect_config()}
    except (RuntimeError, ValueError, OSError) as error:
        _refuse([f"TEMPORAL_*: {error}; see `temporal config list`, for example TEMPORAL_ADDRESS=localhost:7233"])


def _advice(detail: Any) -> str:
    location = str(detail["loc"][0])
    for name, field in Settings.model_fields.items():
        variable = field.validation_alias.choices[0] if isinstance(field.validation_alias, AliasChoices) else None
        if location in (name, variable, _PREFIX + name.upper(), (_PREFIX + name).lower()):
            example = (field.examples or [""])[0]
            return f"{variable or _PREFIX + name.upper()}: {detail['msg']}; for example {example}"
    return f"{location}: {detail['msg']}"


def _refuse(lines: list[str]) -> NoReturn:
    for line in lines:
        print(f"settings: {line}", file=sys.stderr)
    raise SystemExit(2)
