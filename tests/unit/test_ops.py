"""ops/ and deploy/: alerts, dashboard, Alertmanager, collector, Kubernetes (issue 5 sections 3 to 5).

What promtool and amtool check is checked by `ops/check.sh`, which `make lint` runs; here is what no tool knows.
"""

import json
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from settings import Settings
from tests.unit.test_architecture import ROOT

BIN = Path(sysconfig.get_path("scripts"))
RULES_TEXT = (ROOT / "ops/prometheus/rules.yml").read_text(encoding="utf-8")
GROUPS: list[dict[str, Any]] = yaml.safe_load(RULES_TEXT)["groups"]
ALERTS: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"] if "alert" in rule]
NAMES = sorted({alert["alert"] for alert in ALERTS})
CASES = {path: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(ROOT.glob("ops/prometheus/tests/*/*.yml"))}
DASHBOARD: dict[str, Any] = json.loads((ROOT / "ops/grafana/dashboards/pin-crm.json").read_text(encoding="utf-8"))
ALERTMANAGER: dict[str, Any] = yaml.safe_load((ROOT / "ops/alertmanager/alertmanager.yml").read_text(encoding="utf-8"))
KUBERNETES = ROOT / "deploy/kubernetes"
OBJECTS: list[dict[str, Any]] = [
    document for path in sorted(KUBERNETES.glob("*.yaml")) for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
RUNBOOKS = "https://git.example/booking-expiration/runbooks/"
METRIC = re.compile(r"\bcrm_[a-z_]+")
SUFFIX = re.compile(r"_(?:bucket|sum|count)$")


def expected(case: dict[str, Any]) -> list[set[str]]:
    """What fires at each moment that a case looks at."""
    return [
        {name for sample in check["exp_samples"] for name in re.findall(r'alertname="(\w+)"', sample["labels"])}
        for check in case["tests"][0]["promql_expr_test"]
    ]


def one(kind: str, name: str = "booking-expiration") -> dict[str, Any]:
    """The manifest of this kind and name."""
    (found,) = [each for each in OBJECTS if each["kind"] == kind and each.get("metadata", {}).get("name") == name]
    return found


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: f"{alert['alert']}-{alert['labels']['severity']}")
def test_every_alert_says_how_bad_how_much_and_what_to_do(alert: dict[str, Any]) -> None:
    """Issue 5 section 3: severity, a summary with numbers, the runbook's link."""
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert alert["labels"]["service"] == "booking-expiration"
    assert set(alert["annotations"]) == {"summary", "runbook_url"}
    assert re.search(r"\{\{ [^}]*value|\d", alert["annotations"]["summary"])


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_is_seen_to_fire_and_to_be_silent(name: str) -> None:
    """Issue 5 section 3: a case in the alert's own folder sees it fire with its text, another one sees nothing at all."""
    folder = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[a-z])(?=\d)", "-", name.removeprefix("BookingExpiration")).lower()
    own = [case for path, case in CASES.items() if path.parent.name == folder]
    assert any(name in firing for case in own for firing in expected(case))
    assert any(not firing for case in own for moment in [expected(case)] for firing in moment if not any(moment))
    assert any(check["alertname"] == name for case in own for check in case["tests"][0].get("alert_rule_test", []))


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_case_has_its_files_name(path: Path) -> None:
    """The output of promtool names the file only, so a file is one case and has its name."""
    (test,) = CASES[path]["tests"]
    assert test["name"] == f"{path.parent.name}: {path.stem.replace('-', ' ')}"
    assert path.stem.split("-")[0] in {"fires", "silent", "goes", "says"}
    assert all(
        any(firing) if not path.stem.startswith("silent") else not firing for firing in [set().union(*expected(CASES[path]))]
    )


def test_o5_word_for_word() -> None:
    """O5: its four alerts with its own numbers."""
    rules = {(alert["alert"].removeprefix("BookingExpiration"), alert.get("for")): alert["expr"] for alert in ALERTS}
    assert rules["NoSuccessfulCycle", None].endswith("> 300")
    assert rules["BacklogOver100", "5m"] == "crm:booking_expiration_backlog:max > 100"
    assert rules["ErrorsSustained", "10m"] == "60 * sum by (kind) (rate(crm_booking_expiration_errors_total[5m])) > 0"
    assert rules["OutboxBacklogOver1000", None] == "crm:outbox_backlog:max > 1000"


def test_no_gauge_is_added_up() -> None:
    """Issue 5 section 1: database gauges are the same from every worker, so rules and dashboard take the largest."""
    gauges = r"backlog|oldest_\w+|last_\w+|poison_bookings|paused|missed_ticks_total|outbox_parked"
    texts = [RULES_TEXT, *(target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", []))]
    assert [text for text in texts if re.search(rf"sum[^()]*\([^()]*(?:{gauges})", text)] == []


def test_rules_and_dashboard_know_only_metrics_that_exist() -> None:
    """O2: every name is one of telemetry.py's table, spelled as there."""
    known = set(re.findall(r"^\| `(crm_[a-z_]+)` \|", (ROOT / "telemetry.py").read_text(encoding="utf-8"), re.MULTILINE))
    used = {SUFFIX.sub("", name) for name in METRIC.findall(RULES_TEXT + json.dumps(DASHBOARD))}
    assert known
    assert sorted(used - known) == []


def test_the_dashboard_knows_only_metrics_of_the_sdk_that_exist() -> None:
    """O4: names and labels of Temporal's own metrics are those that a worker showed, a workflow is one of ours."""
    shown = (ROOT / "docs/observability/metrics-after-demo.txt").read_text(encoding="utf-8")
    contract = (ROOT / "tests/golden/temporal_contract.json").read_text(encoding="utf-8")
    used = re.findall(r'\b(temporal_\w+)(?:\{(\w+)=~?\\"(\w+)\\"\})?', json.dumps(DASHBOARD))
    assert used
    assert [(name, label) for name, label, _ in used if not re.search(rf"^{name}\{{.*\b{label}=", shown, re.MULTILINE)] == []
    assert [workflow for _, label, workflow in used if label == "workflow_type" and f'"{workflow}"' not in contract] == []


def test_late_is_found_however_a_bucket_is_written() -> None:
    """X8: a bound is `90` by one exposition and `90.0` by another; the dashboard finds both, as the rules do."""
    written = re.compile(r'le=~"(?:90\|90|60\|60)\\\\\.0"')
    texts = [RULES_TEXT, *(target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", []))]
    assert [bound for text in texts for bound in re.findall(r'le=~?"[^"]*"', text) if not written.fullmatch(bound)] == []


def test_the_dashboard_shows_every_metric() -> None:
    """O4: what is measured is shown, by itself or by its recording rule; the schema's version is for `doctor` and searches."""
    known = set(re.findall(r"^\| `(crm_[a-z_]+)` \|", (ROOT / "telemetry.py").read_text(encoding="utf-8"), re.MULTILINE))
    used = {SUFFIX.sub("", name) for name in METRIC.findall(json.dumps(DASHBOARD).replace("crm:", "crm_"))}
    assert known - used <= {"crm_booking_expiration_schema_info"}


def test_dashboard() -> None:
    """O4: `pin-crm` has the row "Background jobs", every panel says what it is for, and none covers another."""
    assert (DASHBOARD["uid"], DASHBOARD["title"]) == ("pin-crm", "pin-crm")
    row, *panels = DASHBOARD["panels"]
    assert (row["type"], row["title"]) == ("row", "Background jobs")
    assert all(panel["description"] and panel["datasource"]["uid"] == "prometheus" for panel in panels)
    taken = [(x, y) for grid in (p["gridPos"] for p in DASHBOARD["panels"]) for x in range(grid["x"], grid["x"] + grid["w"])
             for y in range(grid["y"], grid["y"] + grid["h"])]  # fmt: skip
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) == 23
    assert {each["name"] for each in DASHBOARD["annotations"]["list"]} == {"Paused or held", "Draining", "Alerts"}


def test_alertmanager_mutes_only_what_exists_and_never_liveness() -> None:
    """Issue 5 section 3, issue 4 section 4: inhibition names real alerts; nothing mutes "no successful cycle"."""
    matchers = [text for rule in ALERTMANAGER["inhibit_rules"] for text in (*rule["source_matchers"], *rule["target_matchers"])]
    short = {name.removeprefix("BookingExpiration") for name in NAMES}
    mentioned = {
        word
        for text in matchers
        if "alertname" in text
        for word in re.findall(r"[A-Z]\w+", text.replace("BookingExpiration", ""))
    }
    assert mentioned <= short
    targets = [text for rule in ALERTMANAGER["inhibit_rules"] for text in rule["target_matchers"]]
    assert not any("NoSuccessfulCycle" in text for text in targets)


def test_collector_pipelines_use_what_is_configured() -> None:
    """Issue 5 section 5: every component that a pipeline names is there, and none is there for nothing."""
    collector: dict[str, Any] = yaml.safe_load((ROOT / "ops/otel/collector.yml").read_text(encoding="utf-8"))
    for kind in ("receivers", "processors", "exporters"):
        assert {name for pipeline in collector["service"]["pipelines"].values() for name in pipeline[kind]} == set(
            collector[kind]
        )


@pytest.mark.parametrize("manifest", OBJECTS, ids=lambda each: f"{each['kind']}-{each.get('metadata', {}).get('name', '')}")
def test_manifests_fit_their_schemas(manifest: dict[str, Any], tmp_path: Path) -> None:
    """Trap 44: the Kubernetes API's own schemas, strictly; the operator's resources by its CRDs."""
    custom = ROOT / f"tests/schemas/{manifest['kind'].lower()}.json"
    if manifest["kind"] == "Kustomization":
        files = {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml", "migrate-job.yaml"}
        assert set(manifest["resources"]) == files
    elif custom.exists():
        copy = tmp_path / "manifest.json"
        copy.write_text(json.dumps(manifest))
        command = [str(BIN / "check-jsonschema"), "--schemafile", str(custom), str(copy)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        kubernetes_validate.validate(manifest, "1.37", strict=True)


def test_a_wrong_manifest_is_refused() -> None:
    """Trap 44: the check above is one, down to a misspelt field of a probe."""
    manifest = json.loads(json.dumps(one("Deployment")).replace("failureThreshold", "failureTreshold"))
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, "1.37", strict=True)


def test_prometheus_rule_is_the_rules_file() -> None:
    """Issue 5 section 5: one source. After a change: ops/prometheus/as-resource.sh >deploy/kubernetes/prometheus-rule.yaml."""
    made = subprocess.run([ROOT / "ops/prometheus/as-resource.sh"], capture_output=True, text=True, check=True).stdout
    assert (KUBERNETES / "prometheus-rule.yaml").read_text(encoding="utf-8") == made
    assert one("PrometheusRule")["spec"]["groups"] == GROUPS


def test_probes() -> None:
    """Issue 5 section 5, D13: liveness asks nobody else, readiness does; a start may take as long as it waits for servers."""
    (worker,) = one("Deployment")["spec"]["template"]["spec"]["containers"]
    paths = {kind: worker[kind]["httpGet"]["path"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    start = worker["startupProbe"]
    assert start["periodSeconds"] * start["failureThreshold"] > 2 * Settings.model_fields["startup_timeout"].default
    assert worker["readinessProbe"]["timeoutSeconds"] > 3  # what health.py gives each server


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_pods_are_closed(kind: str) -> None:
    """Issue 5 section 5: no root, read-only root file system, no capability, memory bounded, no token of the API."""
    pod = one(kind, "booking-expiration" if kind == "Deployment" else "booking-expiration-migrate")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    for container in (*pod["containers"], *pod.get("initContainers", [])):
        closed = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        assert container["securityContext"] == closed
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]


def test_pods_may_finish_and_one_is_always_left() -> None:
    """L5, issue 5 section 5: the grace period exceeds the watchdog's time; a roll-out or a drained node leaves a worker."""
    deployment = one("Deployment")["spec"]
    assert (
        deployment["template"]["spec"]["terminationGracePeriodSeconds"] > 15 > Settings.model_fields["shutdown_timeout"].default
    )
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert deployment["replicas"] > one("PodDisruptionBudget")["spec"]["minAvailable"] == 1


def test_manifests_name_real_variables() -> None:
    """docs/configuration.md: every variable that the manifests set is read by somebody."""
    documented = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    (worker,) = one("Deployment")["spec"]["template"]["spec"]["containers"]
    variables = {*one("ConfigMap")["data"], *(each["name"] for each in worker["env"])}
    assert sorted(name for name in variables if f"`{name}`" not in documented and not name.startswith("OTEL_")) == []


def test_everything_finds_the_same_pods() -> None:
    """Selectors of Deployment, budget, network policy, Service and ServiceMonitor are the pods' own labels."""
    labels = one("Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        one("Deployment")["spec"]["selector"]["matchLabels"],
        one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        one("Service")["spec"]["selector"],
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)
    assert one("ServiceMonitor")["spec"]["selector"]["matchLabels"].items() <= one("Service")["metadata"]["labels"].items()
    assert one("ServiceMonitor")["spec"]["endpoints"][0]["port"] == one("Service")["spec"]["ports"][0]["name"]


def test_every_alert_is_in_the_deployments_table() -> None:
    """Issue 5 section 5: docs/deploy.md lists each alert with its severities and the link that the alert itself has."""
    rows = re.findall(
        r"^\| \[`(\w+)`\]\(\.\./runbooks/(\S+)\) \| ([a-z, ]+) \|",
        (ROOT / "docs/deploy.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    real: dict[tuple[str, str], set[str]] = {}
    for alert in ALERTS:
        link = alert["annotations"]["runbook_url"].removeprefix(RUNBOOKS)
        real.setdefault((alert["alert"], link), set()).add(alert["labels"]["severity"])
    assert {(name, link): set(severities.split(", ")) for name, link, severities in rows} == real
