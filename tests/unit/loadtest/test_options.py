"""The command line of ``memlite bench``."""

import os
import subprocess
import sys

import pytest

from memlite.core.errors import ConfigError
from memlite.loadtest.options import parse
from memlite.loadtest.program import main


def test_lists_of_numbers():
    def clients(text):
        return parse(["run", "h:1", "--clients", text]).clients

    assert clients("50") == [50]
    assert clients("1,10,100") == [1, 10, 100]
    assert clients("10:50:20") == [10, 30, 50]
    assert clients("1:3") == [1, 2, 3]
    assert clients("1:3,2,1k") == [1, 2, 3, 1000]
    assert parse(["compare"]).clients == list(range(10, 101, 10))


def test_sizes_times_and_rates():
    options = parse(
        ["run", "h:1", "--value-size", "0,100,1k,2M", "--duration", "250ms", "--timeout", "1.5s",
         "--rate", "500,20k", "--slo", "900us", "--warm-up", "2", "--mix", "get=10, set=0.5"]
    )  # fmt: skip
    assert options.value_size == [0, 100, 1024, 2 * 1024**2]
    assert (vars(options)["load.duration"], options.timeout, options.slo) == (0.25, 1.5, 0.0009)
    assert vars(options)["load.warm_up"] == 2
    assert options.rate == [500, 20_000]
    assert options.mix == {"get": 10, "set": 0.5}


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--clients", "0"),
        ("--clients", ""),
        ("--clients", "5:1"),
        ("--clients", "1:2:3:4"),
        ("--clients", "ten"),
        ("--rate", "0"),
        ("--value-size", "1x"),
        ("--duration", "1 hour"),
        ("--duration", "-1"),
        ("--mix", "get"),
        ("--mix", "get=many"),
        ("--theta", "big"),
        ("--client", "other"),
        ("--dialect", "other"),
        ("--seed", "1.5"),
        ("--workers", "0"),
        ("--arrivals", "never"),
    ],
)
def test_an_invalid_value_names_its_flag(flag, value):
    with pytest.raises(ConfigError) as raised:
        parse(["run", "h:1", flag, value])
    assert flag in str(raised.value)
    assert "\n" not in str(raised.value)


def test_abbreviated_flags_are_refused():
    with pytest.raises(ConfigError, match="--client-"):
        parse(["run", "h:1", "--client-", "5"])


@pytest.mark.parametrize("words", [["--help"], ["compare", "--help"], ["report", "-h"]])
def test_help_fits_80_columns(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert parse(words) is None
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize(
    "words",
    [
        ["--client", "pymemcache"],
        ["--user", "ada"],
        ["--multiget", "2"],
        ["--noreply"],
        ["--ttl", "60"],
    ],
    ids=" ".join,
)
def test_options_the_lite_dialect_does_not_support(words):
    with pytest.raises(ConfigError, match=f"--dialect lite cannot be combined with {words[0]}"):
        main(["run", "h:1", "--dialect", "lite", *words])


def test_the_lite_dialect_has_only_get_and_set(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("time,operation,key,size\n0,get,a,1\n")
    with pytest.raises(ConfigError, match="--trace"):
        main(["run", "h:1", "--dialect", "lite", "--trace", str(trace)])
    with pytest.raises(ConfigError, match="cas, gets in the mix"):
        main(["run", "h:1", "--dialect", "lite", "--mix", "get=1,gets=1,cas=1,incr=0"])
    with pytest.raises(ConfigError, match="rmw in the mix"):
        main(["run", "h:1", "--dialect", "lite", "--workload", "ycsb-f"])
    with pytest.raises(ConfigError, match="--target"):
        main(["compare", "--dialect", "lite"])


def test_help_needs_no_packages(tmp_path):
    """Users may read the help before they install the extra."""
    (tmp_path / "psutil.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'psutil'\", name='psutil')"
    )

    def bench(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "memlite", "bench", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )

    assert "--find-knee" in bench("run", "--help").stdout
    refused = bench("run", "localhost:1")
    assert refused.returncode == 71
    assert refused.stderr == (
        "memlite: bench: psutil is not installed: pip install 'memlite-cache[bench]'\n"
    )


@pytest.mark.parametrize(
    ("arguments", "clients"),
    [
        (["compare"], list(range(10, 101, 10))),
        (["run", "localhost"], [50]),
        (["run", "localhost", "--find-knee"], [1]),
        (["compare", "--find-knee"], [1]),
        (["run", "localhost", "--find-knee", "--rate", "100"], [50]),
        (["run", "localhost", "--find-knee", "--clients", "7"], [7]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_the_search_for_the_knee_starts_at_one_client(arguments, clients):
    options = parse(arguments)
    assert options is not None
    assert list(options.clients) == clients


def test_prices_are_checked_before_anything_is_measured(tmp_path):
    (tmp_path / "prices.toml").write_text("nonsense = 1\n")
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match=r"prices\.toml"):
        main(["run", "127.0.0.1:1", "--prices", str(tmp_path / "prices.toml"), "--out", str(out)])
    assert not out.exists()


def test_parsing_a_command_line_does_not_affect_the_next() -> None:
    """Studies and experiments parse hundreds of command lines with one parser."""
    words = ["compare", "--cluster=2", "--paths=proxied", "--in-flight=8"]
    for number in (1, 2):
        options = parse([*words, f"--server-option=threads={number}"])
        assert options is not None
        assert options.proxy_option == [("in-flight", "8")]
        assert options.server_option == [("threads", str(number))]
    options = parse(["compare"])
    assert options is not None
    assert options.proxy_option == options.server_option == []
