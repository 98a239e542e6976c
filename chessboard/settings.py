"""What the chessboard's process can be told: variables with the prefix `CHESSBOARD_`, and `KAFKA_BOOTSTRAP_SERVERS`."""

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from settings import KafkaSettings, Name, PostgresUrl, Seconds, load_model


class Settings(KafkaSettings):
    """Everything the consumer and its command line can be told. Times in seconds, sizes in records."""

    model_config = SettingsConfigDict(env_prefix="CHESSBOARD_")

    database_url: PostgresUrl = Field(
        examples=["postgresql://chessboard:secret@db.example:5432/crm?sslmode=verify-full"],
        description="the role chessboard",
    )
    database_pool_size: int = Field(3, ge=2, le=50, examples=[3])
    database_statement_cache_size: int = Field(100, ge=0, le=10_000, examples=[0], description="0 behind pgbouncer")
    database_command_timeout: Seconds = Field(4, examples=[4], description="well below the shutdown timeout")

    group: Name = Field("chessboard", examples=["chessboard"], description="consumer group: its offsets are the progress")
    batch_size: int = Field(500, ge=1, le=5000, examples=[500], description="records per poll, and per transaction at most")
    session_timeout: float = Field(
        10.0,
        ge=6,
        le=300,
        examples=[10],
        description="after this long without a sign of life the partitions go to another member",
    )

    http_host: Name = Field("127.0.0.1", examples=["0.0.0.0"])  # noqa: S104 # an example: what a container's probes need
    http_port: int = Field(8001, ge=0, le=65535, examples=[8001], description="/livez, /readyz, /metrics; 0 takes a free port")
    startup_timeout: Seconds = Field(30, examples=[30], description="how long to wait for the database at start")
    shutdown_timeout: float = Field(14, gt=0, le=60, examples=[14], description="after SIGTERM; then a watchdog ends the process")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", examples=["INFO"])

    @property
    def database_address(self) -> str:
        """Where the database is, without user and password: for messages."""
        parts = urlsplit(self.database_url.get_secret_value())
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}"


def load() -> Settings:
    """The settings of this process. Ends it with exit code 2 and one line per bad variable, which says what to do."""
    return load_model(Settings)
