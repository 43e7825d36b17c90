"""Metrics as text, as Prometheus's own tool reads it."""

import re
import shutil
import subprocess

import pytest

from memlite.telemetry.metrics.definitions import METRICS
from memlite.telemetry.metrics.exporter_names import EXPORTER_METRICS
from memlite.telemetry.metrics.exposition import render, wants_openmetrics
from memlite.telemetry.metrics.metric import Metric, Sample
from memlite.telemetry.metrics.proxy_metrics import PROXY_METRICS
from memlite.telemetry.snapshot import DURATION_LIMITS, Durations, Exemplar
from memlite.telemetry.spans import SpanName
from tests.unit.telemetry.samples import full_proxy_snapshot, full_snapshot, snapshot

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool (apt install prometheus)")


def text(metrics, found, *, openmetrics=False):
    return render(metrics, found, openmetrics=openmetrics).decode()


ODD = Metric(
    "memlite_odd",
    "gauge",
    'A "meaning" with\na line end and a \\.',
    lambda found: (Sample(0.5, ('a"b\\c\nd',)), Sample(2, ("é",))),
    labels=("name",),
)


def test_escapes():
    assert text([ODD], None) == (
        '# HELP memlite_odd A "meaning" with\\na line end and a \\\\.\n'
        "# TYPE memlite_odd gauge\n"
        'memlite_odd{name="a\\"b\\\\c\\nd"} 0.5\n'
        'memlite_odd{name="é"} 2\n'
    )


def test_metrics_without_samples_are_left_out():
    nothing = Metric("memlite_nothing", "gauge", "Nothing.", lambda found: ())
    assert text([nothing], None) == "\n"
    assert text([nothing], None, openmetrics=True) == "# EOF\n"


def test_histograms():
    lines = text(METRICS, full_snapshot()).splitlines()
    found = [line for line in lines if line.startswith("memlite_journal_fsync_duration_seconds")]
    # The durations are 500, 1023, 1024, 80,000 and 2^40 ns.
    name = "memlite_journal_fsync_duration_seconds"
    assert found[0] == f'{name}_bucket{{le="1.024e-06"}} 2'
    assert found[1] == f'{name}_bucket{{le="2.048e-06"}} 3'
    assert f'{name}_bucket{{le="0.000131072"}} 4' in found
    assert found[-3:] == [
        f'{name}_bucket{{le="+Inf"}} 5',
        f"{name}_sum {(500 + 1023 + 1024 + 80_000 + 2**40) / 1e9!r}",
        f"{name}_count 5",
    ]


def test_exemplars_appear_only_in_openmetrics():
    exemplar = Exemplar(SpanName(0xAB, 0xCD), 1500, 1_800_000_000_123_000_000)
    durations = Durations(1, 1500, (0, *(1,) * (len(DURATION_LIMITS) - 1)), {1: exemplar})
    found = snapshot(commands={"get": durations})
    start = 'memlite_command_duration_seconds_bucket{class="get",le="2.048e-06"} 1'
    named = f'trace_id="{0xAB:032x}",span_id="{0xCD:016x}"'
    lines = text(METRICS, found, openmetrics=True).splitlines()
    assert f"{start} # {{{named}}} 1.5e-06 1800000000.123" in lines
    assert sum(" # {" in line for line in lines) == 1
    assert start in text(METRICS, found).splitlines()


def test_openmetrics_names_families_and_units():
    lines = text((*METRICS, *EXPORTER_METRICS), full_snapshot(), openmetrics=True).splitlines()
    assert "# TYPE memlite_network_bytes counter" in lines
    assert "# UNIT memlite_network_bytes bytes" in lines
    assert 'memlite_network_bytes_total{direction="sent"} 0' in lines
    # A counter of the exporter, whose name OpenMetrics does not allow for counters.
    assert "# TYPE memcached_uptime_seconds unknown" in lines
    assert lines[-1] == "# EOF"


@pytest.mark.parametrize("openmetrics", [False, True])
def test_every_line_matches_the_grammar(openmetrics):
    head = r"# (HELP|TYPE|UNIT) [a-z_]+ .+"
    pair = r'[a-z_]+="[^"\n]*"'
    sample = rf"[a-z_]+(\{{{pair}(,{pair})*\}})? [0-9][0-9.e+-]*"
    written = text((*METRICS, *EXPORTER_METRICS), full_snapshot(), openmetrics=openmetrics)
    seen = set()
    for line in written.removesuffix("# EOF\n").splitlines():
        assert re.fullmatch(f"{head}|{sample}", line), line
        assert line not in seen
        seen.add(line)


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4;q=0.3,*/*;q=0.2", False),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2", True),
        ("text/html, application/OpenMetrics-text", True),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-textual", False),
    ],
)
def test_the_accept_header_selects_the_format(accept, wanted):
    assert wants_openmetrics(accept) == wanted


@needs_promtool
@pytest.mark.parametrize(
    ("metrics", "found"),
    [
        (METRICS, snapshot(udp_sockets=1)),
        (METRICS, full_snapshot()),
        (PROXY_METRICS, full_proxy_snapshot()),
    ],
)
def test_promtool_reports_no_problems(metrics, found):
    checked = subprocess.run(
        [PROMTOOL, "check", "metrics"],
        input=render(metrics, found, openmetrics=False),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
