"""docker-compose.yml and the Dockerfile, checked without a Docker engine (trap 40)."""

import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from chessboard import settings as chessboard
from contracts import topic as contract
from devstack import kafka, temporal
from settings import Settings

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sysconfig.get_path("scripts"))
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PINNED = re.compile(r"^[a-z0-9./-]+:v?\d+\.\d+[\w.-]*$")


def test_compose_file_fits_its_schema() -> None:
    """Issue 3 §2, trap 40: the file is valid for the specification that docker compose implements."""
    command = [str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(ROOT / "docker-compose.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_dockerfile_is_clean() -> None:
    """Issue 3 §2, trap 40: hadolint has nothing to say."""
    done = subprocess.run([BIN / "hadolint", ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned(name: str) -> None:
    """Issue 3 §2: a tag names at least a minor version; the worker is built here, from pinned images too."""
    images = [SERVICES[name]["image"]] if "image" in SERVICES[name] else re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert images
    assert all(PINNED.match(image) for image in images), images


@pytest.mark.parametrize("name", SERVICES)
def test_what_others_wait_for_can_be_waited_for(name: str) -> None:
    """Issue 3 §2: a service is awaited healthy (then it has a check) or finished (then nothing restarts it for ever).

    Only what loses nothing by waiting, the collector, starts beside what it needs.
    """
    for other, wait in SERVICES[name].get("depends_on", {}).items():
        if wait["condition"] == "service_healthy":
            assert SERVICES[other]["healthcheck"]["test"], other
        elif wait["condition"] == "service_started":
            assert name == "otel-collector", name
        else:
            assert wait["condition"] == "service_completed_successfully"
            assert SERVICES[other]["restart"] == "on-failure", other


def test_worker_waits_for_schema_namespace_and_topic() -> None:
    """D28 and layout rule 13: it starts after migrations, search attributes and topic are there."""
    assert set(SERVICES["worker"]["depends_on"]) == {"migrate", "temporal-setup", "kafka-topic"}


def test_the_chessboard_is_beside_it() -> None:
    """S4, P3: the consumer has its own migrations and role, and waits for the topic; the worker does not wait for it."""
    consumer, migrations = SERVICES["chessboard"], SERVICES["chessboard-migrate"]
    assert set(consumer["depends_on"]) == {"chessboard-migrate", "kafka-topic"}
    assert migrations["environment"]["DBMATE_MIGRATIONS_TABLE"] == "chessboard.schema_migrations"
    assert consumer["environment"]["CHESSBOARD_DATABASE_URL"].startswith("postgresql://chessboard:")
    assert int(consumer["stop_grace_period"].removesuffix("s")) > chessboard.Settings.model_fields["shutdown_timeout"].default


def test_grace_period_exceeds_the_workers_own() -> None:
    """Issue 3 §8: the container is not killed while the worker still finishes its batch, nor before its watchdog."""
    grace = int(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))
    assert grace > 15 > Settings.model_fields["shutdown_timeout"].default


def test_every_mounted_file_exists() -> None:
    """Issue 3 §2: what is mounted from the checkout is in the checkout; what is not is a declared volume."""
    mounts = [mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])]
    assert mounts
    assert all((ROOT / mount).exists() if mount.startswith("./") else mount in COMPOSE["volumes"] for mount in mounts)


def test_servers_keep_their_data() -> None:
    """Issue 3 §2: PostgreSQL and Kafka write to named volumes."""
    assert SERVICES["postgres"]["volumes"] == ["postgres:/var/lib/postgresql"]
    assert SERVICES["kafka"]["volumes"] == [f"kafka:{SERVICES['kafka']['environment']['KAFKA_LOG_DIRS']}"]


def test_same_names_as_the_local_stack() -> None:
    """D28: search attributes, topic and partitions are those of devstack."""
    script = SERVICES["temporal-setup"]["command"][0]
    assert all(attribute.replace("=", ":") in script for attribute in temporal.SEARCH_ATTRIBUTES)
    topic = SERVICES["kafka-topic"]["command"]
    assert topic[topic.index("--topic") + 1] == kafka.TOPIC
    assert topic[topic.index("--partitions") + 1] == str(contract.PARTITIONS)
    one_broker = {name: value for name, value in contract.CONFIGURATION.items() if name != "min.insync.replicas"}
    assert {word for word in topic if "=" in word} == {f"{name}={value}" for name, value in one_broker.items()}


def test_ports_are_open_on_this_machine_only() -> None:
    """The defaults' passwords are public, so nothing listens on the network."""
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_image_has_what_the_worker_imports() -> None:
    """A package that worker.py or cli.py may import is copied, and let through by .dockerignore."""
    elsewhere = {"tests", "bench", "devstack", "traffic", "chessboard"}
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - elsewhere
    for name in (*packages, "migrations"):
        assert f"COPY {name}/ {name}/" in DOCKERFILE
        assert f"!{name}\n" in (ROOT / ".dockerignore").read_text()


def test_image_runs_unprivileged_and_stops_politely() -> None:
    """Issue 3 §2: hashes, no root, SIGTERM to the process itself and not to a shell."""
    assert "--require-hashes -r requirements.lock" in DOCKERFILE
    assert re.search(r"^USER (?!0\b|root\b)\S+$", DOCKERFILE, re.MULTILINE)
    assert "STOPSIGNAL SIGTERM" in DOCKERFILE
    assert 'CMD ["python", "worker.py"]' in DOCKERFILE


def test_observability_is_a_profile_of_its_own() -> None:
    """Issue 5 section 5: without the profile nothing of it starts, and no service waits for it."""
    watching = {name for name, service in SERVICES.items() if service.get("profiles") == ["observability"]}
    assert watching == {"prometheus", "alertmanager", "grafana", "otel-collector", "jaeger"}
    assert all(service.get("profiles") in (None, ["observability"]) for service in SERVICES.values())
    assert not any(watching & set(SERVICES[name].get("depends_on", {})) for name in SERVICES.keys() - watching)


def test_observability_finds_its_parts() -> None:
    """Issue 5 section 5: targets, data sources, dashboards and collector are named as the services are."""
    prometheus = yaml.safe_load((ROOT / "ops/prometheus/prometheus.yml").read_text())
    (worker, port), (manager,) = (
        (prometheus["scrape_configs"][0]["dns_sd_configs"][0][key] for key in ("names", "port")),
        prometheus["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"],
    )
    assert (worker, port, manager) == (["worker"], Settings.model_fields["http_port"].default, "alertmanager:9093")
    sources = yaml.safe_load((ROOT / "ops/grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert {source["url"] for source in sources} == {"http://prometheus:9090", "http://jaeger:16686"}
    (provider,) = yaml.safe_load((ROOT / "ops/grafana/provisioning/dashboards/pin-crm.yml").read_text())["providers"]
    assert f"./ops/grafana/dashboards:{provider['options']['path']}:ro" in SERVICES["grafana"]["volumes"]
    collector = yaml.safe_load((ROOT / "ops/otel/collector.yml").read_text())
    assert collector["exporters"]["otlp/jaeger"]["endpoint"].split(":")[0] in SERVICES
