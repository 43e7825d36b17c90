"""Prometheus' alerts and Grafana's board are current, valid, and refer to existing metrics."""

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from memlite.config import load
from memlite.telemetry.metrics.definitions import METRICS
from memlite.telemetry.metrics.proxy_metrics import PROXY_ONLY
from tests.deploy.module import MODULE, agent_config
from tests.support.paths import ROOT

FOLDER = ROOT / "deploy" / "monitoring"
ALERTS = FOLDER / "alerts.yaml"
BOARD = FOLDER / "grafana.json"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool (apt install prometheus)")
BY_NAME = {metric.name: metric for metric in (*METRICS, *PROXY_ONLY)}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return list(group["rules"])


def queries() -> list[str]:
    panels = json.loads(BOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def cloud_alerts() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((MODULE / "monitoring_alerts.json").read_text())
    return found


def cloud_tiles() -> list[dict[str, Any]]:
    dashboard = json.loads((MODULE / "monitoring_dashboard.json").read_text())
    return list(dashboard["mosaicLayout"]["tiles"])


def cloud_queries() -> list[str]:
    return [
        *(alert["query"] for alert in cloud_alerts().values()),
        *(
            part["timeSeriesQuery"]["prometheusQuery"]
            for tile in cloud_tiles()
            for part in tile["widget"]["xyChart"]["dataSets"]
        ),
    ]


def promtool(*arguments: str | Path) -> None:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_files_are_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "docs" / "write_monitoring.py"))
    for path, text in script["files"]().items():
        assert path.read_text() == text, "run scripts/docs/write_monitoring.py"


@pytest.mark.parametrize(
    "query", [*(rule["expr"] for rule in rules()), *queries(), *cloud_queries()]
)
def test_queries_are_about_metrics_and_labels_that_exist(query: str) -> None:
    found = re.findall(r"memlite_\w+", query)
    assert found
    known = {"job", "instance", "le"}
    if query in cloud_queries():
        known = {"deployment", "vm", "le"}  # set by the Ops Agent
        assert len(re.findall(r'memlite_\w+{deployment="DEPLOYMENT"', query)) == len(found)
    for name in found:
        base = name.removesuffix("_bucket")
        assert base in BY_NAME
        assert (base != name) == (BY_NAME[base].kind == "histogram")
        known |= set(BY_NAME[base].labels)
        # Counters are only useful as rates.
        if BY_NAME[base].kind == "counter":
            assert re.search(rf"(rate|increase)\({name}\b", query)
    used = re.findall(r"(?:by|on) \(([\w, ]+)\)", query) + re.findall(r"(\w+)=", query)
    for label in re.findall(r"\w+", " ".join(used)):
        assert label in known, label


def test_the_boards_panels_do_not_overlap() -> None:
    panels = json.loads(BOARD.read_text())["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in panels})
    for panel in panels:
        assert panel["description"]


def test_the_cloud_has_the_same_alerts_and_panels() -> None:
    # The module has another alert for servers that are down.
    assert cloud_alerts().keys() == {rule["alert"] for rule in rules()} - {"MemliteDown"}
    for alert in cloud_alerts().values():
        assert re.fullmatch(r"\d+s", alert["duration"])
        assert alert["severity"] in ("CRITICAL", "WARNING")
    tiles = cloud_tiles()
    panels = json.loads(BOARD.read_text())["panels"]
    assert [tile["widget"]["title"] for tile in tiles] == [panel["title"] for panel in panels]
    places = {(tile["xPos"], tile["yPos"]) for tile in tiles}
    assert len(places) == len(tiles)
    assert all(tile["xPos"] % tile["width"] == tile["yPos"] % tile["height"] == 0 for tile in tiles)
    assert all(tile["xPos"] + tile["width"] <= 48 for tile in tiles)


def test_the_agent_scrapes_the_address_of_servers() -> None:
    (scraped,) = yaml.safe_load(agent_config())["metrics"]["receivers"]["memlite_metrics"][
        "config"
    ]["scrape_configs"]
    (target,) = scraped["static_configs"]
    assert target["targets"] == ["127.0.0.1:9150"]
    assert target["labels"] == {"deployment": "memlite", "vm": "HOSTNAME"}
    text = (MODULE / "monitoring.tf").read_text()
    assert "http_port = 9150\n" in text
    assert load(["--http", "127.0.0.1:9150"], {}).config.http == "127.0.0.1:9150"
    # In a deployment with TLS, the agent scrapes without it.
    assert '"${local.tls ? "notls:" : ""}127.0.0.1:${local.http_port}"' in text
    assert load(["--http", "notls:127.0.0.1:9150"], {}).config.http == "notls:127.0.0.1:9150"


@needs_promtool
def test_promtool_accepts_the_alerts_and_the_boards_queries(tmp_path: Path) -> None:
    promtool("check", "rules", ALERTS)
    recorded = [
        {
            "record": f"panel:{number}",
            "expr": query.replace("$__rate_interval", "5m").replace("$instance", ".*"),
        }
        for number, query in enumerate((*queries(), *cloud_queries()))
    ]
    file = tmp_path / "board.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": recorded}]}))
    promtool("check", "rules", file)


# For each alert: series for which it fires after half an hour, and series for which it does not.
SERIES = {
    "MemliteDown": (
        {"up": "1x10 0x60", "memlite_build_info": "1x10 _x60"},
        {"up": "1x70", "memlite_build_info": "1x70"},
    ),
    "MemliteNotReady": ({"memlite_ready": "0x60"}, {"memlite_ready": "1x60"}),
    "MemliteStoreDown": ({"memlite_backend_up": "0x60"}, {"memlite_backend_up": "1x60"}),
    "MemliteCommandsFail": (
        {"memlite_backend_failed_commands_total": "0+60x60"},
        {"memlite_backend_failed_commands_total": "5x60"},
    ),
    "MemliteConnectionsRejected": (
        {"memlite_connections_rejected_total": "0+1x60"},
        {"memlite_connections_rejected_total": "9x60"},
    ),
    "MemliteStoresRefused": (
        {'memlite_stores_refused_total{reason="no_memory"}': "0+1x60"},
        {'memlite_stores_refused_total{reason="too_large"}': "0+1x60"},
    ),
    "MemliteEvictsRecentItems": (
        {
            'memlite_size_class_evicted_idle_seconds{size_class="1"}': "10x60",
            'memlite_size_class_evictions_total{size_class="1"}': "0+9x60",
        },
        {  # the size class with young items is not the one that evicts now
            'memlite_size_class_evicted_idle_seconds{size_class="1"}': "10x60",
            'memlite_size_class_evictions_total{size_class="1"}': "9x60",
            'memlite_size_class_evicted_idle_seconds{size_class="2"}': "900x60",
            'memlite_size_class_evictions_total{size_class="2"}': "0+9x60",
        },
    ),
    "MemliteSlow": (
        {
            'memlite_command_duration_seconds_bucket{class="get",le="0.067108864"}': "0+90x60",
            'memlite_command_duration_seconds_bucket{class="get",le="0.268435456"}': "0+100x60",
            'memlite_command_duration_seconds_bucket{class="get",le="+Inf"}': "0+100x60",
        },
        {
            'memlite_command_duration_seconds_bucket{class="get",le="0.067108864"}': "0+100x60",
            'memlite_command_duration_seconds_bucket{class="get",le="+Inf"}': "0+100x60",
        },
    ),
    "MemliteJournalSlow": (
        {
            'memlite_journal_fsync_duration_seconds_bucket{le="0.268435456"}': "0+10x60",
            'memlite_journal_fsync_duration_seconds_bucket{le="1.073741824"}': "0+100x60",
            'memlite_journal_fsync_duration_seconds_bucket{le="+Inf"}': "0+100x60",
        },
        {
            'memlite_journal_fsync_duration_seconds_bucket{le="0.001048576"}': "0+100x60",
            'memlite_journal_fsync_duration_seconds_bucket{le="+Inf"}': "0+100x60",
        },
    ),
    "MemliteCertificateOld": (
        {"memlite_tls_certificate_age_seconds": "9000000+60x100"},
        {"memlite_tls_certificate_age_seconds": "0+60x100"},
    ),
    "MemliteProxyNodeDown": (
        {'memlite_proxy_node_up{node="a",role="node"}': "0x60"},
        {'memlite_proxy_node_up{node="a",role="node"}': "1x60"},
    ),
    "MemliteProxyRequestsFail": (
        {"memlite_proxy_failed_requests_total": "0+60x60"},
        {"memlite_proxy_failed_requests_total": "5x60"},
    ),
    "MemliteProxyQueueDiscards": (
        {'memlite_proxy_queue_discarded_total{reason="expired"}': "0+1x60"},
        {'memlite_proxy_queue_discarded_total{reason="dropped"}': "0+1x60"},
    ),
    "MemliteProxyNodeSlow": (
        {
            'memlite_proxy_node_duration_seconds_bucket{node="a",le="0.067108864"}': "0+90x60",
            'memlite_proxy_node_duration_seconds_bucket{node="a",le="0.268435456"}': "0+100x60",
            'memlite_proxy_node_duration_seconds_bucket{node="a",le="+Inf"}': "0+100x60",
        },
        {
            'memlite_proxy_node_duration_seconds_bucket{node="a",le="0.067108864"}': "0+100x60",
            'memlite_proxy_node_duration_seconds_bucket{node="a",le="+Inf"}': "0+100x60",
        },
    ),
}


def case(name: str, series: dict[str, str], alerts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a case that checks one alert, with the labels of one server."""

    def of_a_server(text: str) -> str:
        base, _, labels = text.partition("{")
        return f'{base}{{job="memlite",instance="a:1",{labels or "}"}'.replace(",}", "}")

    return {
        "interval": "1m",
        "input_series": [
            {"series": of_a_server(text), "values": values} for text, values in series.items()
        ],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
                "eval_time": "62m" if "Certificate" in name else "31m",
                "exp_samples": [{"labels": "{}", "value": len(alerts)}],
            }
        ],
    }


@needs_promtool
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    assert set(SERIES) == {rule["alert"] for rule in rules()}
    cases = []
    for name, (bad, good) in SERIES.items():
        cases.append(case(name, bad, [{}]))
        cases.append(case(name, good, []))
    file = tmp_path / "cases.yaml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": cases})
    )
    promtool("test", "rules", file)
