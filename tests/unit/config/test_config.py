"""Settings from flags, environment variables, a file and defaults."""

import math
import tomllib
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.cli import main as cli
from memlite.config import EXTENDED, OPTIONS, REFUSED, Config, ExtendedOptions, load
from memlite.core.errors import ConfigError

BY_NAME = {option.name: option for option in OPTIONS}

# For each option that takes a value: the value as text, as TOML, and parsed.
VALUES = {
    "port": ("5000", "5000", 5000),
    "udp-port": ("5001", "5001", 5001),
    "unix-socket": ("/tmp/a b.sock", '"/tmp/a b.sock"', "/tmp/a b.sock"),
    "unix-mask": ("755", '"755"', 0o755),
    "listen": ("a,b:5,[::1]:6", '["a", "b:5", "[::1]:6"]', ("a", "b:5", "[::1]:6")),
    "user": ("nobody", '"nobody"', "nobody"),
    "backend": ("file:///x.json", '"file:///x.json"', "file:///x.json"),
    "join": ("gs://bucket/prefix", '"gs://bucket/prefix"', "gs://bucket/prefix"),
    "name": ("one", '"one"', "one"),
    "advertise": ("10.0.0.1:5", '"10.0.0.1:5"', "10.0.0.1:5"),
    "durability": ("none", '"none"', "none"),
    "eviction": ("lru", '"lru"', "lru"),
    "near-cache": ("8m", '"8m"', 8 * 1024 * 1024),
    "near-cache-ttl": ("2.5", "2.5", 2.5),
    "memory-limit": ("128", "128", 128),
    "conn-limit": ("2048", "2048", 2048),
    "pidfile": ("/run/x.pid", '"/run/x.pid"', "/run/x.pid"),
    "slab-growth-factor": ("1.5", "1.5", 1.5),
    "slab-min-size": ("96", "96", 96),
    "prefix-delimiter": ("/", '"/"', "/"),
    "threads": ("8", "8", 8),
    "memory-file": ("/dev/shm/items", '"/dev/shm/items"', "/dev/shm/items"),
    "max-reqs-per-event": ("40", "40", 40),
    "listen-backlog": ("99", "99", 99),
    "protocol": ("ascii", '"ascii"', "ascii"),
    "dialect": ("lite", '"lite"', "lite"),
    "max-item-size": ("2m", '"2m"', 2 * 1024 * 1024),
    "auth-file": ("/etc/memlite/users", '"/etc/memlite/users"', "/etc/memlite/users"),
    "auth-timeout": ("5", "5", 5),
    "extended": (
        "idle_timeout=5,modern",
        '"idle_timeout=5,modern"',
        ExtendedOptions({"idle_timeout": "5", "modern": ""}),
    ),
    "loop": ("asyncio", '"asyncio"', "asyncio"),
    "log-level": ("debug", '"debug"', "debug"),
    "log-format": ("json", '"json"', "json"),
    "stats-interval": ("2.5", "2.5", 2.5),
    "slow-log": ("10ms", '"10ms"', "10ms"),
    "http": ("0.0.0.0:9150", '"0.0.0.0:9150"', "0.0.0.0:9150"),
    "http-token-file": ("/etc/memlite/token", '"/etc/memlite/token"', "/etc/memlite/token"),
    "http-hosts": ("cache,a.example", '["cache", "a.example"]', ("cache", "a.example")),
    "http-metric-names": ("both", '"both"', "both"),
    "otlp": ("https://collector:4318", '"https://collector:4318"', "https://collector:4318"),
    "trace-sample": ("1/1000", '"1/1000"', "1/1000"),
}
SWITCHES = {
    "enable-shutdown", "enable-ssl", "daemon",
    "enable-coredumps", "disable-evictions", "lock-memory",
    "enable-largepages", "disable-cas", "disable-flush-all", "disable-dumping", "disable-watch",
    "debug-commands", "write-back", "enable-sasl", "spare", "http-keys",
    "http-debug",
}  # fmt: skip
COUNTED = {"verbose"}


def value_of(settings, name):
    return getattr(settings.config, BY_NAME[name].field)


def refused(arguments, environment=None):
    """Return the text of the ConfigError that `arguments` raise; it must be one line."""
    with pytest.raises(ConfigError) as error:
        load(arguments, environment or {})
    text = str(error.value)
    assert text
    assert text.isprintable()
    assert error.value.exit_code == 64
    return text


@pytest.fixture
def file(tmp_path):
    """Return a function that writes a settings file and returns its path."""

    def write(text):
        path = tmp_path / "memlite.toml"
        path.write_text(text)
        return str(path)

    return write


def test_the_table_above_contains_every_option():
    assert set(VALUES) | SWITCHES | COUNTED == set(BY_NAME)
    assert {option.name for option in OPTIONS if option.metavar} == set(VALUES)


def test_every_field_has_an_option():
    assert {option.field for option in OPTIONS} == {field.name for field in fields(Config)}


def test_without_settings_all_have_their_defaults():
    settings = load([], {})
    assert settings.config == Config()
    assert settings.sources == dict.fromkeys(BY_NAME, "default")
    assert settings.actions == frozenset()


# Each option from four sources


@pytest.mark.parametrize("name", VALUES)
def test_value_by_flag(name):
    text, _, value = VALUES[name]
    assert value != getattr(Config(), BY_NAME[name].field)
    spellings = [[f"--{name}", text], [f"--{name}={text}"]]
    if letter := BY_NAME[name].short:
        spellings += [[f"-{letter}", text], [f"-{letter}{text}"]]
    for arguments in spellings:
        settings = load(arguments, {})
        assert value_of(settings, name) == value
        flag = f"--{name}" if arguments[0].startswith("--") else f"-{letter}"
        assert settings.sources[name] == f"flag {flag}"


@pytest.mark.parametrize("name", VALUES)
def test_value_by_environment(name):
    text, _, value = VALUES[name]
    variable = "MEMLITE_" + name.upper().replace("-", "_")
    settings = load([], {variable: text})
    assert value_of(settings, name) == value
    assert settings.sources[name] == f"environment {variable}"


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("underscores", [False, True])
def test_value_by_file(name, underscores, file):
    _, toml, value = VALUES[name]
    path = file(f"{name.replace('-', '_') if underscores else name} = {toml}\n")
    settings = load(["--config", path], {})
    assert value_of(settings, name) == value
    assert settings.sources[name] == f"file {path}"


@pytest.mark.parametrize("name", sorted(SWITCHES))
def test_switch_by_flag(name):
    spellings = [[f"--{name}"]]
    if letter := BY_NAME[name].short:
        spellings.append([f"-{letter}"])
    for arguments in spellings:
        settings = load(arguments, {})
        assert value_of(settings, name) is True
        assert settings.sources[name] == f"flag {arguments[0]}"


@pytest.mark.parametrize("name", sorted(SWITCHES))
@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("true", True), ("YES", True), (" on ", True), ("0", False), ("false", False),
     ("No", False), ("off", False), ("", False)],
)  # fmt: skip
def test_switch_by_environment(name, text, value):
    assert value_of(load([], {BY_NAME[name].variable: text}), name) is value


@pytest.mark.parametrize("name", sorted(SWITCHES))
@pytest.mark.parametrize(("toml", "value"), [("true", True), ("false", False)])
def test_switch_by_file(name, toml, value, file):
    assert value_of(load([f"--config={file(f'{name} = {toml}')}"], {}), name) is value


def test_verbose_is_counted():
    assert load(["-v"], {}).config.verbose == 1
    assert load(["-vv"], {}).config.verbose == 2
    assert load(["-v", "-d", "--verbose", "-v"], {}).config.verbose == 3
    assert load([], {"MEMLITE_VERBOSE": "2"}).config.verbose == 2


def test_verbose_by_file(file):
    path = file("verbose = 2")
    assert load(["--config", path], {}).config.verbose == 2
    assert load(["--config", path, "-v"], {}).config.verbose == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-p5000"], {"port": 5000}),
        (["-m64"], {"memory_limit": 64}),
        (["-l::1"], {"listen": ("::1",)}),
        (["-l", "a", "-l", "b,c", "--listen=d"], {"listen": ("a", "b", "c", "d")}),
        (["-l", "a, b"], {"listen": ("a", "b")}),
        (["-dMCp5000"], {"daemon": True, "disable_evictions": True, "disable_cas": True,
                         "port": 5000}),
        (["-p", "1", "-p", "2"], {"port": 2}),
        (["-p", " 5000 "], {"port": 5000}),
        (["-p", "-1"], {"port": -1}),
        (["-p0"], {"port": 0}),
        (["-p65535"], {"port": 65535}),
        (["-U", "5000"], {"udp_port": 5000, "port": 5000}),  # as memcached does
        (["-U", "5000", "-p", "6000"], {"udp_port": 5000, "port": 6000}),
        (["-U0"], {"udp_port": 0, "port": 11211}),
        (["-Y", "f"], {"auth_file": "f", "protocol": "ascii", "asks_for_password": True}),
        (["-S"], {"enable_sasl": True, "protocol": "binary", "asks_for_password": True}),
        (["-S", "-Y", "f"], {"enable_sasl": True, "auth_file": "f", "protocol": "binary"}),
        (["-S", "-Y", "f", "-B", "auto"], {"enable_sasl": True, "protocol": "auto"}),
        ([], {"protocol": "auto", "asks_for_password": False}),
        (["-a", "0700"], {"unix_mask": 0o700}),
        (["-I", "1k"], {"max_item_size": 1024}),
        (["-I", "1024"], {"max_item_size": 1024}),
        (["-I", "512K"], {"max_item_size": 512 * 1024}),
        (["-I", "64m"], {"max_item_size": 64 * 1024 * 1024}),
        (["-I", "1g", "-m", "1024"], {"max_item_size": 1024**3, "memory_limit": 1024}),
        (["-f", "2"], {"slab_growth_factor": 2.0}),
        (["-n", "1"], {"slab_min_size": 1}),
        (["-B", "binary"], {"protocol": "binary"}),
        (["--dialect", "lite"], {"dialect": "lite", "protocol": "ascii"}),
        (["--conn", "5"], {"conn_limit": 5}),  # getopt accepts unambiguous abbreviations
        (["--stats-interval", "0"], {"stats_interval": 0.0}),
    ],
    ids=" ".join,
)  # fmt: skip
def test_flags_in_all_forms(arguments, expected):
    config = load(arguments, {}).config
    assert {name: getattr(config, name) for name in expected} == expected


# Precedence


def test_flags_override_environment_over_file_over_default(file):
    path = file("conn-limit = 11\nthreads = 12\nport = 13\n")
    environment = {"MEMLITE_CONN_LIMIT": "21", "MEMLITE_THREADS": "22", "MEMLITE_CONFIG": path}
    settings = load(["-c", "31"], environment)
    config, sources = settings.config, settings.sources
    assert (config.conn_limit, sources["conn-limit"]) == (31, "flag -c")
    assert (config.threads, sources["threads"]) == (22, "environment MEMLITE_THREADS")
    assert (config.port, sources["port"]) == (13, f"file {path}")
    assert (config.memory_limit, sources["memory-limit"]) == (64, "default")


def test_a_flag_can_turn_off_a_switch_of_the_file(file):
    path = file("disable-cas = true")
    assert load([], {"MEMLITE_CONFIG": path}).config.disable_cas is True
    environment = {"MEMLITE_CONFIG": path, "MEMLITE_DISABLE_CAS": "no"}
    assert load([], environment).config.disable_cas is False


def test_addresses_of_one_source_replace_those_of_another(file):
    path = file('listen = ["file"]')
    assert load(["-l", "flag", "--config", path], {}).config.listen == ("flag",)


def test_extended_options_are_merged_key_by_key(file):
    path = file("[extended]\nidle_timeout = 1\nhashpower = 20\nmodern = true\n")
    environment = {"MEMLITE_EXTENDED": "track_sizes,idle_timeout=2,hashpower=21"}
    settings = load(["--config", path, "-o", "idle_timeout=3"], environment)
    assert settings.config.extended.given == {
        "idle_timeout": "3", "hashpower": "21", "modern": "", "track_sizes": ""
    }  # fmt: skip
    sources = f"file {path}, environment MEMLITE_EXTENDED, flag -o"
    assert settings.sources["extended"] == sources
    assert load(["--config", path], {}).sources["extended"] == f"file {path}"


@pytest.mark.parametrize("text", ["1_0", "\u0661\u0662", "\uff11"])
@pytest.mark.parametrize(
    "flag", ["-c", "-p", "-a", "-I", "-f", "--stats-interval", "-oidle_timeout=",
             "-oslab_automove_ratio="]
)  # fmt: skip
def test_only_plain_ascii_digits_are_numbers(flag, text):
    if "=" in flag:
        assert "must be" in refused([flag + text])
    else:
        assert f"{flag}: must be" in refused([flag, text])


def test_the_flag_for_the_file_overrides_the_environment(file, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text("port = 5")
    environment = {"MEMLITE_CONFIG": str(other)}
    assert load(["--config", file("port = 6")], environment).config.port == 6
    assert load([], environment).config.port == 5
    assert load([], {"MEMLITE_CONFIG": ""}).config.port == 11211


def test_unrelated_variables_are_ignored():
    environment = {
        "PATH": "/bin", "MEMCACHED_PORT_FILENAME": "x", "MEMLITE": "x", "MEMLITE_COMPILED": "1",
        "MEMLITE_TEST_GCS_BUCKET": "b",
    }  # fmt: skip
    assert load([], environment).config == Config()


# Errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-c", "0"], ["-c", "at least 1"]),
        (["-c", "-1"], ["-c", "at least 1"]),
        (["-c", "2147483648"], ["-c", "at most 2147483647"]),
        (["-c", "many"], ["-c", "whole number", "'many'"]),
        (["-c", "1.5"], ["-c", "whole number"]),
        (["-c", ""], ["-c", "whole number"]),
        (["-t", "0"], ["-t", "at least 1"]),
        (["-I", "1000"], ["-I", "between 1k and 1g"]),
        (["-I", "2g"], ["-I", "between 1k and 1g"]),
        (["-I", "0"], ["-I", "between 1k and 1g"]),
        (["-I", "big"], ["-I", "512k"]),
        (["-I", "1.5m"], ["-I", "size"]),
        (["-I", "-1m"], ["-I", "size"]),
        (["-I", "65m"], ["-I", "-m 64"]),
        (["-m", "1", "-I", "2m"], ["-I", "-m 1 "]),
        (["-m", "0"], ["-m", "at least 1"]),
        (["-B", "http"], ["-B", "auto, ascii, binary"]),
        (["--dialect", "redis"], ["--dialect", "memcached, lite"]),
        (["--dialect", "lite", "-Y", "users"], ["--dialect lite", "omit -Y"]),
        (["--dialect", "lite", "-S"], ["--dialect lite", "omit -S"]),
        (["--dialect", "lite", "-U", "11211"], ["--dialect lite", "omit -U"]),
        (["--dialect", "lite", "-B", "auto"], ["--dialect lite", "omit -B auto"]),
        (["--dialect", "lite", "-B", "binary"], ["--dialect lite", "omit -B binary"]),
        (["-R", "0"], ["-R", "at least 1"]),
        (["-b", "0"], ["-b", "at least 1"]),
        (["-f", "1"], ["-f", "more than 1"]),
        (["-f", "0.5"], ["-f", "more than 1"]),
        (["-f", "nan"], ["-f", "more than 1"]),
        (["-f", "inf"], ["-f"]),
        (["-f", "x"], ["-f", "a number"]),
        (["-n", "0"], ["-n", "at least 1"]),
        (["-p", "70000"], ["-p", "at most 65535"]),
        (["-p", "-2"], ["-p", "at least -1"]),
        (["-p", "1" * 5000], ["-p"]),
        (["-U", "65536"], ["-U", "at most 65535"]),
        (["-a", "8"], ["-a", "octal"]),
        (["-a", "1000"], ["-a", "777"]),
        (["-a", "-1"], ["-a"]),
        (["-s", ""], ["-s", "empty"]),
        (["-u", ""], ["-u", "empty"]),
        (["-P", ""], ["-P", "empty"]),
        (["-s", "/x", "-l", "a"], ["-s", "-l"]),
        (["-l", ""], ["-l", "empty address"]),
        (["-l", "a,,b"], ["-l", "empty address"]),
        (["-D", ""], ["-D", "one visible ASCII character"]),
        (["-D", "::"], ["-D", "one visible ASCII character"]),
        (["-D", "ä"], ["-D", "one visible ASCII character"]),
        (["--loop", "twisted"], ["--loop", "uvloop"]),
        (["--log-level", "loud"], ["--log-level", "warning"]),
        (["--log-format", "xml"], ["--log-format", "json"]),
        (["--stats-interval", "-1"], ["--stats-interval", "at least 0"]),
        (["--stats-interval", "nan"], ["--stats-interval"]),
        (["-o", "nonsense"], ["-o", "unknown option 'nonsense'"]),
        (["-p"], ["-p", "memlite -h"]),
        (["--port"], ["--port", "memlite -h"]),
        (["--daemon=1"], ["--daemon"]),
        (["-x"], ["-x", "not recognized", "memlite -h"]),
        (["--bogus"], ["--bogus", "not recognized", "memlite -h"]),
        (["--disable"], ["--disable", "not a unique prefix"]),
        (["start"], ["'start'", "memlite -h"]),
        (["-v", "start", "-v"], ["'start'"]),
        (["--", "-v"], ["'-v'"]),
        (["-l", "a\nb", "-s", "x"], ["-l"]),
        (["st\nart"], ["unexpected"]),
        (["--config", "/no/such/file.toml"], ["/no/such/file.toml", "No such file"]),
        (["--config", "/"], ["/", "directory"]),
    ],
    ids=lambda part: " ".join(part)[:30],
)
def test_invalid_flags(arguments, says):
    text = refused(arguments)
    for words in says:
        assert words in text


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("--conn-limt", "--conn-limit"),
        ("--conn-limt=5", "--conn-limit"),
        ("--unix_socket", "--unix-socket"),
        ("--helpp", "--help"),
        ("--print-conf1g", "--print-config"),
    ],
)
def test_similar_names_are_suggested(wrong, meant):
    assert f"did you mean {meant}?" in refused([wrong])


def test_nothing_is_suggested_without_a_similar_name():
    assert "did you mean" not in refused(["--zzz"])
    assert "did you mean" not in refused(["-x"])


@pytest.mark.parametrize("letter", REFUSED)
def test_unsupported_features_are_refused(letter):
    name, what = REFUSED[letter]
    value = ["x"] if letter in "YeN" else []
    for flag in (f"-{letter}", f"--{name}"):
        assert refused([flag, *value]) == f"{flag}: this version of memlite does not support {what}"


def test_invalid_environment_variables():
    assert "MEMLITE_PORT: must be a whole number" in refused([], {"MEMLITE_PORT": "x"})
    assert "MEMLITE_DAEMON: must be true or false" in refused([], {"MEMLITE_DAEMON": "maybe"})
    assert "unknown environment variable MEMLITE_PROT" in refused([], {"MEMLITE_PROT": "1"})
    assert "MEMLITE_EXTENDED" in refused([], {"MEMLITE_EXTENDED": "x=1"})


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("prot = 1", "unknown setting 'prot'"),
        ("[server]\nport = 1", "unknown setting 'server'"),
        ("config = 'x'", "unknown setting 'config'"),
        ("port = ", "Invalid value"),
        ("port = 1\nport = 2", "overwrite a value"),
        ("port = true", "port: must be a whole number"),
        ("port = 1.5", "port: must be a whole number"),
        ("port = 70000", "port: must be at most 65535"),
        ("port = 1979-05-27", "port: cannot be a date"),
        ("port = {a = 1}", "port: cannot be a dict"),
        ("daemon = 'maybe'", "daemon: must be true or false"),
        ("listen = [{}]", "listen: cannot be a dict"),
        ("listen = []", "listen: has an empty address"),
        ("extended = {nonsense = 1}", "unknown option 'nonsense'"),
        ("extended = {modern = false}", "omit it"),
        ("extended = {modern = 1}", "modern takes no value"),
    ],
)
def test_invalid_files(toml, says, file):
    path = file(toml)
    text = refused(["--config", path])
    assert says in text
    assert path in text


def test_a_file_that_is_not_utf8(tmp_path):
    path = tmp_path / "latin.toml"
    path.write_bytes(b'user = "\xe4"')
    assert str(path) in refused(["--config", str(path)])


# Extended options


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("", {}),
        ("modern", {"modern": ""}),
        ("idle_timeout=5", {"idle_timeout": "5"}),
        (" modern , track_sizes,", {"modern": "", "track_sizes": ""}),
        ("idle_timeout=5,modern", {"idle_timeout": "5", "modern": ""}),
        ("idle_timeout=5,idle_timeout=6", {"idle_timeout": "6"}),
        ("slab_automove", {"slab_automove": ""}),
        ("slab_automove=2", {"slab_automove": "2"}),
        ("slab_automove_ratio=0.8", {"slab_automove_ratio": "0.8"}),
        ("hash_algorithm=murmur3", {"hash_algorithm": "murmur3"}),
        ("slab_sizes=100-200-300", {"slab_sizes": "100-200-300"}),
    ],
)  # fmt: skip
def test_extended(text, given):
    assert ExtendedOptions.parse(text).given == given


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("idle_timeout", "needs a value"),
        ("idle_timeout=", "needs a value"),
        ("idle_timeout=x", "whole number"),
        ("idle_timeout=1.5", "whole number"),
        ("idle_timeout=-1", "between 0"),
        ("hashpower=11", "between 12 and 32"),
        ("hashpower=33", "between 12 and 32"),
        ("slab_automove_ratio=2", "between 0 and 1"),
        ("slab_automove_ratio=nan", "between 0 and 1"),
        ("slab_automove_ratio=x", "must be a number"),
        ("modern=1", "takes no value"),
        ("idle_timeot=5", "did you mean 'idle_timeout'?"),
        ("Modern", "unknown option"),
        ("=5", "unknown option ''"),
        ("zzz", "unknown option 'zzz'"),
        ("ssl_verify_mode=4", "between 0 and 3"),
        ("ssl_min_version=-1", "between 0 and 3"),
        ("ssl_keyformat=2", "ssl_keyformat can only be 1, not 2"),
        ("ssl_chain_cert", "needs a value"),
        ("ssl_chain", "did you mean 'ssl_chain_cert'?"),
        ("ext_path=x", "external storage"),
        ("proxy_config=x", "proxy"),
        ("a\nb", "unknown option"),
    ],
)
def test_invalid_extended_options(text, says):
    assert says in refused(["-o", text])


def test_extended_options_may_be_repeated():
    settings = load(["-o", "idle_timeout=5,modern", "-o", "idle_timeout=7", "-otrack_sizes"], {})
    extended = settings.config.extended
    assert (extended.idle_timeout, extended.track_sizes) == (7, True)
    assert str(extended) == "idle_timeout=7,modern,track_sizes"
    assert (ExtendedOptions().idle_timeout, ExtendedOptions().track_sizes) == (0, False)


def test_extended_options_as_a_table(file):
    path = file("[extended]\nidle_timeout = 5\nmodern = true\nslab_automove_ratio = 0.5\n")
    assert load(["--config", path], {}).config.extended.given == {
        "idle_timeout": "5", "modern": "", "slab_automove_ratio": "0.5",
    }  # fmt: skip


@pytest.mark.parametrize("key", EXTENDED)
def test_every_extended_option_accepts_values_in_its_range(key):
    option = EXTENDED[key]
    if option.low is None:
        text = key
    elif option.text:
        text = f"{key}=text"
    else:
        text = f"{key}={option.low}"
        assert ExtendedOptions.parse(f"{key}={option.high}").given
    assert str(ExtendedOptions.parse(text)) == text


# Actions


@pytest.mark.parametrize(
    ("arguments", "actions"),
    [
        (["-h"], {"help"}), (["--help"], {"help"}), (["-V"], {"version"}),
        (["--version"], {"version"}), (["-i"], {"license"}), (["--license"], {"license"}),
        (["--print-config", "-p", "5"], {"print-config"}), (["-hV"], {"help", "version"}),
    ],
)  # fmt: skip
def test_actions(arguments, actions):
    assert load(arguments, {}).actions == actions


def test_help_is_printed_in_spite_of_invalid_variables():
    assert load(["-h"], {"MEMLITE_PORT": "x"}).actions == {"help"}


# --print-config


def printed(arguments, environment, capsys, monkeypatch):
    monkeypatch.setattr("os.environ", environment)
    assert cli.main(["--print-config", *arguments]) == 0
    return capsys.readouterr().out


# Each of these two settings excludes one of the others.
ALONE = ("unix-socket", "auth-file", "dialect")
ALL_VALUES = [f"--{name}={text}" for name, (text, _, _) in VALUES.items() if name not in ALONE]
ALL_SWITCHES = [f"--{name}" for name in sorted(SWITCHES)]


@pytest.mark.parametrize(
    "arguments",
    [
        # A prefix delimiter that is not set must not be printed as an empty one.
        [],
        ALL_VALUES,
        ALL_SWITCHES,
        ["-vv", "-s", "/tmp/x.sock", "-a", "7"],
        ["-I", "1234567"],
        ["-U", "5000"],
        ["--dialect", "lite"],
        ["-Y", "/etc/users"],
        ["-S", "-Y", "/etc/users", "-B", "auto"],
        ["-p", "-1"],
        ["-D", '"'],
        ["-D", "\\"],
        ["-P", 'a "quoted" \\ path#with=signs'],
        ["-P", "/päth/文"],
        ["-l", "::1", "-l", "[::1]:5,*"],
        ["-o", "slab_automove,slab_automove_ratio=0.25,hash_algorithm=x"],
        ["-f", "1.0625"],
        # Numbers of more than six digits.
        ["-f", "1.23456789"],
        ["--stats-interval", "1234567.5"],
        # Characters that TOML must escape, besides quotes and backslashes, are printed unchanged.
        ["-P", "two\nlines"],
        ["-u", "bell\a"],
    ],
    ids=lambda arguments: " ".join(arguments)[:40],
)
def test_a_printed_config_can_be_loaded_again(arguments, capsys, monkeypatch, file):
    text = printed(arguments, {}, capsys, monkeypatch)
    tomllib.loads(text)
    assert load(["--config", file(text)], {}).config == load(arguments, {}).config


def test_a_printed_config_names_every_option_and_its_source(capsys, monkeypatch):
    text = printed(["-c", "5"], {"MEMLITE_THREADS": "3"}, capsys, monkeypatch)
    rows = [line.rpartition("  # ") for line in text.splitlines()]
    names = [row[0].lstrip("# ").split(" =")[0] for row in rows]
    sources = dict(zip(names, (row[2] for row in rows), strict=True))
    assert names == list(BY_NAME)
    assert sources.pop("conn-limit") == "flag -c"
    assert sources.pop("threads") == "environment MEMLITE_THREADS"
    assert set(sources.values()) == {"default"}


@given(st.floats(1, 100, exclude_min=True))
def test_a_growth_factor_is_read_as_written(factor):
    assert math.isclose(load([f"-f{factor!r}"], {}).config.slab_growth_factor, factor, rel_tol=0)


def test_nul_characters_in_paths_are_refused(tmp_path):
    file = tmp_path / "memlite.toml"
    file.write_text('pidfile = "a\\u0000b"\n')
    with pytest.raises(ConfigError, match="must not contain a NUL"):
        load(["--config", str(file)], {})


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("0", 0), ("500us", 500_000), ("10ms", 10_000_000), (" 1.5s ", 1_500_000_000), ("0s", 0)],
)
def test_times_of_the_slow_log(text, nanoseconds):
    assert load(["--slow-log", text], {}).config.slow_nanoseconds == nanoseconds


@pytest.mark.parametrize("text", ["10", "ms", "-1ms", "1e3s", "10 ms", "1m", "", "٣ms"])
def test_times_without_a_unit_are_refused(text):
    assert refused(["--slow-log", text]) == (
        f"--slow-log: must be a time such as 500us, 10ms or 1.5s, not {text!r}"
    )


def test_times_too_short_to_be_measured_are_refused():
    assert refused(["--slow-log", "0.0001us"]) == (
        "--slow-log: must be at least 1ns, or 0 for none, not 0.0001us"
    )


@pytest.mark.parametrize("path", ["/v1/metrics", "/v1/traces/"])
def test_the_receiver_is_given_without_the_path_of_a_signal(path):
    assert refused(["--otlp", f"http://localhost:4318{path}"]).startswith(
        "--otlp: must be the URL without /v1/metrics or /v1/traces"
    )


def test_times_of_more_than_an_hour_are_refused():
    assert refused(["--slow-log", "3601s"]) == "--slow-log: must be at most 3600s, not 3601s"
