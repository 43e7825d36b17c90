"""Tab completion, the history, and the command line of the shell."""

import stat

import pytest

from memlite.client import Address
from memlite.core.errors import ConfigError
from memlite.shell.completion import candidates, hint
from memlite.shell.options import PASSWORD_VARIABLE, parse, password_from, tls_context


def words(before):
    return [one.word for one in candidates(before)]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("ver", ["version", "verbosity"]),
        ("help to", ["touch"]),
        ("stats se", ["settings"]),
        ("stats detail ", ["on", "off", "dump"]),
        ("lru_crawler metadump ", ["all", "hash"]),
        ("watch fetchers m", ["mutations"]),
        ("watch fetchers f", []),
        ("shutdown g", ["graceful"]),
        ("get ", []),
        ("mg ", []),
        ("mg key", []),
        ("mg key T", ["T"]),
        ("mg key T60 T", []),
        ('ms key "a b" M', ["M"]),
        ('ms key "a ', []),
        ("ms key ", []),
        ("me key ", ["b"]),
        ("nonsense ", []),
    ],
)
def test_completion(before, expected):
    assert sorted(words(before)) == sorted(expected)


def test_completions_have_descriptions():
    assert len(words("")) > 30
    (one,) = candidates("mg key N")
    assert (one.word, one.shown) == ("N", "N(ttl)")
    assert "on a miss" in one.meaning
    assert hint("set k") == 'set KEY "VALUE" [FLAGS [EXPTIME]]'
    assert hint("nonsense") == ""


# History


@pytest.fixture
def history(tmp_path):
    pytest.importorskip("prompt_toolkit")
    from memlite.shell.history import FileHistory

    return lambda: FileHistory(tmp_path / "state" / "memlite" / "shell_history")


def test_history_is_private_and_omits_secrets(history, tmp_path):
    for line in ("get a", "get é", " get secret", 'set auth "ada secret"', "set auth 0 0 5",
                 "set a 0 0 6\nsecret", "get " + "k" * 5000):  # fmt: skip
        history().store_string(line)
    assert list(history().load_history_strings()) == ["get é", "get a"]
    file = tmp_path / "state" / "memlite" / "shell_history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert b"secret" not in file.read_bytes()


def test_history_does_not_grow_without_bound(history, tmp_path):
    history().store_string("get a")
    file = tmp_path / "state" / "memlite" / "shell_history"
    file.write_text("".join(f"get {number:06}\n" for number in range(120_000)))
    lines = list(history().load_history_strings())
    assert lines[0] == "get 119999"
    assert file.stat().st_size < 600_000
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(history().load_history_strings()) == lines


def test_an_unusable_history_file_is_not_an_error(tmp_path, monkeypatch):
    pytest.importorskip("prompt_toolkit")
    from memlite.shell.history import FileHistory, history_path

    (tmp_path / "file").write_text("")
    broken = FileHistory(tmp_path / "file" / "history")
    broken.store_string("get a")
    assert list(broken.load_history_strings()) == []
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_path() == tmp_path / "memlite" / "shell_history"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert history_path().parts[-4:] == (".local", "state", "memlite", "shell_history")


# Command line


@pytest.mark.parametrize(
    ("arguments", "address", "given"),
    [
        ([], Address(), ()),
        (["cache:1"], Address("cache", 1), ()),
        (["get", "a"], Address(), ("get", "a")),
        (["cache:1", "get", "--raw"], Address("cache", 1), ("get", "--raw")),
        (["--raw", "cache:1", "--timeout", "2", "incr", "n", "-1"], Address("cache", 1),
         ("incr", "n", "-1")),
        (["stats:1", "stats"], Address("stats", 1), ("stats",)),
    ],
)  # fmt: skip
def test_the_command_follows_the_address(arguments, address, given):
    options = parse(arguments)
    assert (options.address, options.words) == (address, given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nonsense"], "--nonsense"),
        (["--timeout", "-1"], "--timeout: must be from 0 to 86400"),
        (["--timeout", "nan"], "--timeout"),
        (["--max-value", "lots"], "--max-value: not a size"),
        (["--cacert", "x"], "--cacert requires --tls"),
        (["--tls-skip-verify"], "--tls-skip-verify requires --tls"),
        (["--tls", "--key", "x"], "--key requires --cert"),
        (["--password-file", "x"], "--password-file requires --user"),
        (["--user", "a b"], "--user must not contain spaces"),
        (["-x", "cache:1"], "-x requires a command"),
        (["cache:0", "version"], "shell: not HOST:PORT"),
    ],
)
def test_invalid_command_lines(arguments, message):
    with pytest.raises(ConfigError) as caught:
        parse(arguments)
    assert message in str(caught.value)


def test_sizes_and_times():
    options = parse(["--max-value", "2k", "--timeout", "0"])
    assert (options.value_length, options.timeout) == (2048, None)


def test_password_sources(tmp_path, monkeypatch):
    file = tmp_path / "password"
    file.write_bytes(b"from a file\r\nnot this\n")
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
    assert password_from(parse(["--user", "a"])) is None
    monkeypatch.setenv(PASSWORD_VARIABLE, "from the environment")
    assert password_from(parse(["--user", "a"])) == b"from the environment"
    both = ["--user", "a", "--password-file", str(file)]
    assert password_from(parse(both)) == b"from a file"
    file.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        password_from(parse(both))


def test_invalid_tls_files(tmp_path):
    wrong = tmp_path / "wrong"
    wrong.write_text("no certificate")
    assert tls_context(parse([])) is None
    assert tls_context(parse(["--tls"])).check_hostname
    assert not tls_context(parse(["--tls", "--tls-skip-verify"])).check_hostname
    for flag in ("--cacert", "--cert"):
        with pytest.raises(ConfigError, match=f"{flag} .*wrong: "):
            tls_context(parse(["--tls", flag, str(wrong)]))
        with pytest.raises(ConfigError, match=f"{flag} .*No such file"):
            tls_context(parse(["--tls", flag, str(tmp_path / "none")]))


def test_the_server_ignores_the_shells_password_variable(monkeypatch):
    from memlite.config import load

    assert load([], {PASSWORD_VARIABLE: "secret"}).config is not None
