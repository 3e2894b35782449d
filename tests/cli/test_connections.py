"""evalflows connections: a table without keys, and calls that tell what works."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from endpoint import Endpoint, Reply, Request, completion, error, serving

from evalflows.cli.main import cli

KEY = "sk-proj-AbC123dEf456"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, and an environment that knows no provider but has one key."""
    monkeypatch.chdir(tmp_path)
    for name in ("EVALFLOWS_CONNECTIONS", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "OTHER_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OUR_KEY", KEY)
    return tmp_path


def share(**connections: dict[str, Any]) -> None:
    Path("connections.yaml").write_text(yaml.safe_dump(connections))


def spec(**connections: dict[str, Any]) -> str:
    python = {"kind": "python", "function": "mine:upper"}
    content = {"name": "x", "dataset": {"name": "d"}, "targets": [python], "connections": connections}
    Path("spec.yaml").write_text(yaml.safe_dump(content))
    return "spec.yaml"


def connections(*arguments: str) -> Result:
    done = CliRunner().invoke(cli, ["connections", *arguments])
    assert KEY not in done.output
    return done


def line(done: Result, name: str) -> str:
    (found,) = (line for line in done.stdout.splitlines() if line.startswith((f"{name} ", f"{name}:")))
    return " ".join(found.split())


# The table


def test_without_a_file_those_that_come_with_us_are_listed() -> None:
    done = connections()
    assert done.exit_code == 0
    assert line(done, "openai") == (
        "openai https://api.openai.com/v1 OPENAI_API_KEY: not set 64 by the model json_schema"
    )
    assert line(done, "local") == "local this machine none needed 1 0, 0 json_schema"
    assert line(done, "auto") == "auto this machine none needed 1 0, 0 json_schema"


def test_all_that_can_be_named_are_listed_with_their_limits_and_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    limits = {"max_in_flight": 8, "provider_limit": "cap", "requests_per_minute": 500, "tokens_per_minute": 2000000}
    prices = {"usd_per_million_input_tokens": 1.5, "usd_per_million_output_tokens": 6}
    url = "http://gate:8000/v1?api-version=2"
    share(
        limited={"base_url": url, "model": "m", "api_key_env": "OUR_KEY", "answer_form": "text", **limits, **prices},
        hidden={"base_url": "https://api.openai.com/v1", "model": "gpt-4o-mini", "api_key_block": "prod-key"},
        twice={"base_url": "http://shared/v1"},
    )
    done = connections(spec(twice={"kind": "endpoint", "base_url": "http://own/v1", "model": "m"}))
    assert line(done, "limited") == (
        "limited http://gate:8000/v1 m OUR_KEY: set 8; in total: cap 500 requests, 2000000 tokens 1.5, 6 text"
    )
    assert line(done, "hidden") == (
        "hidden https://api.openai.com/v1 gpt-4o-mini Secret block 'prod-key' 64 0.15, 0.6 json_schema"
    )
    assert line(done, "twice") == "twice http://own/v1 m none needed 64 not known json_schema"
    assert line(done, "auto").startswith("auto https://api.openai.com/v1 gpt-4o-mini OPENAI_API_KEY: set")


def test_bad_arguments_are_one_line_and_exit_2() -> None:
    share(broken={"base_url": "http://x/v1"})
    for arguments, message in (
        (("--test", "--only", "nothing"), "connection 'nothing': wanted one of broken"),
        (("nowhere.yaml",), "nowhere.yaml: cannot be read: No such file"),
    ):
        done = connections(*arguments)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"evalflows: {message}")
    share(ours={"base_url": "http://x/v1", "api_key": KEY})
    said = "connections.yaml: ours: api_key: no such field, wanted one of: api_key_env, api_key_block, "
    assert connections().stderr.startswith(f"evalflows: {said}")
    assert "Traceback" in connections("--verbose").stderr, "without the key in it"


# --test


def test_each_is_really_asked_and_says_who_answered() -> None:
    with serving(Endpoint(latency_s=0.02)) as one, serving(Endpoint()) as other:
        share(first={"base_url": one.base_url, "model": "a", "api_key_env": "OUR_KEY"})
        done = connections(spec(second={"kind": "endpoint", "base_url": other.base_url, "model": "b"}), "--test")
    assert (done.exit_code, done.stderr) == (0, "")
    assert line(done, "first").startswith("first: ok, 0.") and line(done, "first").endswith(" s, mock-1 answered")
    assert line(done, "second").startswith("second: ok, 0.")
    assert line(done, "openai") == "openai: not tried: OPENAI_API_KEY: not set"
    assert "local" not in done.stdout and "auto" not in done.stdout
    assert (one.keys, other.keys) == ([f"bearer {KEY}".lower()], [None])
    question = {"model": "a", "messages": [{"role": "user", "content": "Answer with the one word OK."}]}
    assert one.requests == [question | {"max_tokens": 5}]


def test_one_that_does_not_work_is_told_in_one_line_and_ends_with_2(store_root: Path) -> None:
    with serving(Endpoint()) as works, serving(Endpoint(answer=lambda request: error(503, "down\nfor now"))) as down:
        with serving(Endpoint()) as gone:
            addresses = {"works": works.base_url, "down": down.base_url, "gone": gone.base_url}
        share(**{name: {"base_url": address, "model": "m"} for name, address in addresses.items()})
        done = connections("--test")
    assert done.exit_code == 2
    assert line(done, "down") == "down: HTTP 503: down for now" and line(done, "works").startswith("works: ok")
    assert line(done, "gone").startswith(f"gone: {gone.base_url}: Connect")
    assert done.stderr == "evalflows: connections: 2 of 4 did not answer: down, gone\n"
    assert down.calls == 1, "no attempt is repeated"
    assert not store_root.exists()


def test_a_provider_that_quotes_the_key_is_not_repeated() -> None:
    for before in ("", "x" * 480):
        reply = error(401, f"{before} no such key: {KEY}")
        with serving(Endpoint(answer=lambda request, reply=reply: reply)) as endpoint:
            share(ours={"base_url": endpoint.base_url, "model": "m", "api_key_env": "OUR_KEY"})
            done = connections("--test", "--only", "ours", "--verbose")
        assert done.exit_code == 2 and "…" in done.stdout
        assert KEY[:8] not in done.output, "nor is what is left of it where the message was cut"


def test_an_answer_that_bears_the_key_is_told_without_it() -> None:
    def answer(request: Request) -> Reply:
        return Reply(completion("OK").body | {"model": f"m-{KEY}"})

    with serving(Endpoint(answer=answer)) as endpoint:
        share(ours={"base_url": endpoint.base_url, "model": "m", "api_key_env": "OUR_KEY"})
        assert line(connections("--test"), "ours").endswith("s, m-… answered")


def test_a_model_that_takes_no_max_tokens_is_asked_by_the_later_name() -> None:
    def answer(request: Request) -> Reply:
        if "max_tokens" in request:
            return error(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        return completion("OK")

    with serving(Endpoint(answer=answer)) as endpoint:
        share(ours={"base_url": endpoint.base_url, "model": "m"})
        done = connections("--test")
    assert (done.exit_code, endpoint.calls) == (0, 2)


def test_two_at_one_address_are_each_asked_with_their_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", "other-key")
    with serving(Endpoint()) as endpoint:
        share(
            a={"base_url": endpoint.base_url, "model": "m", "api_key_env": "OUR_KEY"},
            b={"base_url": endpoint.base_url, "model": "m", "api_key_env": "OTHER_KEY"},
        )
        assert connections("--test").exit_code == 0
    assert sorted(key or "" for key in endpoint.keys) == ["bearer other-key", f"bearer {KEY}".lower()]


def test_who_is_named_and_cannot_be_asked_is_a_failure_else_it_is_told_and_no_more() -> None:
    with serving(Endpoint()) as endpoint:
        share(
            works={"base_url": endpoint.base_url, "model": "m"},
            keyless={"base_url": endpoint.base_url, "model": "m", "api_key_env": "OTHER_KEY"},
            modelless={"base_url": endpoint.base_url},
        )
        done = connections("--test")
        assert done.exit_code == 0
        assert line(done, "keyless") == "keyless: not tried: OTHER_KEY: not set"
        assert line(done, "modelless") == "modelless: not tried: no model configured, wanted one to ask"
        assert endpoint.calls == 1
        named = connections("--test", "--only", "works", "--only", "keyless")
        assert named.exit_code == 2 and named.stderr.endswith("1 of 2 did not answer: keyless\n")
    Path("connections.yaml").unlink()
    nothing = connections("--test")
    assert nothing.exit_code == 2 and "none could be tested" in nothing.stderr


def test_a_file_that_is_no_model_is_told() -> None:
    Path("bad.gguf").write_text("no model")
    share(lost={"kind": "local", "gguf": "nowhere.gguf"}, bad={"kind": "local", "gguf": "bad.gguf"})
    done = connections("--test")
    assert done.exit_code == 2
    assert line(done, "lost") == "lost: connection: gguf: got 'nowhere.gguf', wanted an existing file"
    assert line(done, "bad") == "bad: Failed to init server, please check the input params."


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_a_connection_with_a_block_is_asked_with_its_key() -> None:
    from prefect.blocks.system import Secret

    Secret(value=KEY).save("cli-key", overwrite=True)
    with serving(Endpoint()) as endpoint:
        share(
            ours={"base_url": endpoint.base_url, "model": "m", "api_key_block": "cli-key"},
            lost={"base_url": endpoint.base_url, "model": "m", "api_key_block": "lost-key"},
        )
        done = connections("--test")
    assert done.exit_code == 2
    assert "ours: ok, " in done.stdout and "lost: no Prefect Secret block called 'lost-key'\n" in done.stdout
    assert endpoint.keys == [f"bearer {KEY}".lower()]
