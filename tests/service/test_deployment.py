"""The service as the guides run it: behind nginx and Caddy, with settings, backups and curl."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import evenhand as eh
from evenhand.cli import serve as serve_module
from evenhand.cli.serve import serve_command
from evenhand.errors import BadInput, shown_address
from evenhand.service.auth import WRONG_KEYS
from evenhand.service.keys import Keys
from evenhand.service.path_prefix import checked_prefix
from tests.service.service_process import STUDY, Running, free_port

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
DEPLOY = Path(__file__).parents[2] / "deploy"
BASE = "pid {folder}/nginx.pid; error_log {folder}/error.log; daemon off; worker_processes 1;\n"


def block(guide: str, language: str) -> str:
    """The first block of this language in a guide."""
    found = re.search(rf"```{language}\n(.*?)```", (GUIDES / guide).read_text(), re.DOTALL)
    assert found is not None
    return found[1]


# ---------------------------------------------------------------- proxies

Send = Callable[..., tuple[int, dict[str, str], str]]
ALONE, SHARED = "", "/trials"  # a host name of its own, and a path on a shared one


def certificate(folder: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is needed")
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-keyout", str(folder / "trials.key"), "-out", str(folder / "trials.pem")],
        check=True, capture_output=True,
    )  # fmt: skip


def replaced(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def nginx_of_the_guide(folder: Path, port: int, to: int, path: str) -> list[str]:
    """The command that runs nginx as the guide configures it, with a certificate made here."""
    changes = {
        "listen 443": f"listen 127.0.0.1:{port}", "/etc/ssl/": f"{folder}/",
        "127.0.0.1:8765": f"127.0.0.1:{to}",
    } | ({"location /": f"location {path}/"} if path else {})  # fmt: skip
    return nginx(folder, replaced(block("service.md", "nginx"), changes))


def nginx(folder: Path, server: str) -> list[str]:
    program = shutil.which("nginx")
    if program is None:
        pytest.skip("nginx is needed, as from the Debian package nginx-light")
    paths = " ".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = BASE.format(folder=folder) + f"events {{}}\nhttp {{ access_log off; {paths}\n{server}}}\n"
    (folder / "nginx.conf").write_text(text)
    return [program, "-p", str(folder), "-c", str(folder / "nginx.conf")]


def caddy_of_the_guide(folder: Path, port: int, to: int, path: str) -> list[str]:
    """The command that runs Caddy as the guide configures it, with the certificate made here."""
    program = shutil.which("caddy")
    if program is None:
        pytest.skip("caddy is needed, as from the Debian package caddy")
    changes = {
        "trials.example.org {": f"https://127.0.0.1:{port}, https://trials.example.org:{port} {{\n"
        f"tls {folder}/trials.pem {folder}/trials.key",
        "reverse_proxy 127.0.0.1:8765": f"reverse_proxy {path + '/* ' if path else ''}127.0.0.1:{to}",
    }
    first = f"{{\nadmin off\nauto_https off\ndefault_sni localhost\nstorage file_system {folder}/caddy\n}}\n"
    (folder / "Caddyfile").write_text(first + replaced(block("service.md", "caddy"), changes))
    return [program, "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


@contextmanager
def running(command: list[str], folder: Path, port: int, path: str = "", tls: bool = True) -> Iterator[Send]:
    """A proxy, and a function that sends requests through it."""
    with (folder / "proxy.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)

    def send(method: str, to: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], str]:
        return ask(port, method, path + to, body, tls, **headers)

    try:
        while True:
            assert process.poll() is None, (folder / "proxy.log").read_text()
            try:
                if send("GET", "/healthz")[0] == 200:
                    break
            except OSError:
                time.sleep(0.05)
        yield send
    finally:
        process.terminate()
        process.wait(60)


def ask(
    port: int, method: str, path: str, body: Any = None, tls: bool = True, **headers: str
) -> tuple[int, dict[str, str], str]:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    sent = {"Content-Type": "application/json", "Host": f"trials.example.org:{port}"} | headers
    opened = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    if tls:
        opened = http.client.HTTPSConnection("127.0.0.1", port, timeout=120, context=trusting)
    with closing(opened) as wire:
        wire.request(method, path, None if body is None else json.dumps(body), sent)
        answer = wire.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()


@pytest.mark.parametrize("path", [ALONE, SHARED])
@pytest.mark.parametrize("proxy", [nginx_of_the_guide, caddy_of_the_guide])
def test_the_proxies_of_the_guide_in_front_of_the_service(
    tmp_path: Path, proxy: Callable[..., list[str]], path: str
) -> None:
    journal, port = str(tmp_path / "t.db"), free_port()
    certificate(tmp_path)
    key = Keys(journal).create("admin", "me")
    bearer = {"Authorization": f"Bearer {key}"}
    options = ["--name", "trials.example.org", "--proxy", "127.0.0.1"]
    options += ["--prefix", path] if path else []
    with Running(journal, tmp_path / "log", None, *options) as service:
        command = proxy(tmp_path, port, service.port, path)
        with running(command, tmp_path, port, path) as send:
            assert send("GET", "/api/v1/experiments")[0] == 401
            body = {"id": "main", "study": STUDY, "seed": 7}
            assert send("POST", "/api/v1/experiments", body, **bearer)[0] == 201
            tickets = send("POST", "/api/v1/experiments/main/ask", {}, **bearer)
            told = {"ticket": json.loads(tickets[2])[0]["ticket"], "outcome": 1}
            assert send("POST", "/api/v1/experiments/main/tell", told, **bearer)[0] == 200
            pages_have_the_prefix(send, key, path)
            wrong = {"Authorization": f"Bearer eh_00000000_{'a' * 43}"}
            codes = [send("GET", "/api/v1/experiments", **wrong)[0] for _ in range(WRONG_KEYS + 1)]
            assert codes[-1] == 429
            assert send("GET", "/api/v1/experiments", **bearer)[0] == 200


def pages_have_the_prefix(send: Send, key: str, path: str) -> None:
    """Sign in and look at every page: cookie, redirects and links are below the prefix."""
    _, headers, text = send("POST", "/login", {"key": key})
    cookie = headers["set-cookie"].lower().split("; ")
    assert "secure" in cookie
    assert f"path={path}/" in cookie
    assert json.loads(text)["to"] == f"{path}/"
    session = {"Cookie": headers["set-cookie"].partition(";")[0], "Accept": "text/html"}
    for page in ("/", "/experiments/main", "/experiments/main/work", "/planner", "/docs"):
        code, _, text = send("GET", page, **session)
        assert code == 200, page
        for target in re.findall(r'(?:href|src|hx-get|action|data-stream)="(/[^"]*)"', text):
            assert target.startswith(f"{path}/"), target
    assert send("GET", "/static/dashboard.css", **session)[0] == 200
    assert send("GET", "/planner", Accept="text/html")[1]["location"] == f"{path}/login"


def test_without_a_key_an_nginx_without_settings_is_recognised(tmp_path: Path) -> None:
    """It adds no header and passes on a loopback Host, but uses HTTP/1.0."""
    port = free_port()
    with Running(str(tmp_path / "t.db"), tmp_path / "log") as service:
        server = f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {service.url}; }} }}"
        with running(nginx(tmp_path, server), tmp_path, port, tls=False) as send:
            assert send("GET", "/api/v1/experiments")[0] == 401
            assert send("GET", "/", Accept="text/html")[0] in (302, 307)
        assert ask(service.port, "GET", "/api/v1/experiments", tls=False, Host="127.0.0.1")[0] == 200


@pytest.mark.parametrize("text", ["trials", "/a/../b", "/a b", "/a%2fb", "//a", "/<x>", "/.."])
def test_a_prefix_is_a_plain_path(text: str) -> None:
    with pytest.raises(BadInput, match="plain path"):
        checked_prefix(text)


# ---------------------------------------------------------------- settings


def settings(monkeypatch: pytest.MonkeyPatch, *arguments: str, **environment: str) -> tuple[Any, ...]:
    """The settings with which `evenhand serve` would run."""
    seen: list[tuple[Any, ...]] = []
    monkeypatch.setattr(serve_module, "serve", lambda *given: seen.append(given))
    result = CliRunner().invoke(serve_command, list(arguments), env=environment)
    if result.exception is not None:
        raise result.exception
    return seen[0]


def test_options_come_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(block("service.md", "toml"))
    guide = ("trials.db", "127.0.0.1", 8765, ("trials.example.org",), ("127.0.0.1",), "", ())
    assert settings(monkeypatch, "--config", str(file)) == guide
    assert settings(monkeypatch, EVENHAND_CONFIG=str(file)) == guide
    assert settings(monkeypatch, "--config", str(file), EVENHAND_PORT="1")[2] == 1
    assert settings(monkeypatch, "--config", str(file), "--port", "2", EVENHAND_PORT="1")[2] == 2
    both = settings(
        monkeypatch, EVENHAND_JOURNAL="x.db", EVENHAND_NAME="a b", EVENHAND_PROXY="10.0.0.0/8 ::1"
    )
    assert both == ("x.db", "127.0.0.1", 8765, ("a", "b"), ("10.0.0.0/8", "::1"), "", ())
    assert settings(monkeypatch) == ("evenhand.db", "127.0.0.1", 8765, (), (), "", ())


@pytest.mark.parametrize("text", ["prot = 1", "port = ", "\x00"])
def test_a_wrong_file_of_settings_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=r"serve\.toml"):
        settings(monkeypatch, "--config", str(file))


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("trials.db", "trials.db"),
        ("postgresql://me:secret@db/trials", "postgresql://me:...@db/trials"),
        ("postgresql://me:sec:r@et@db:5432/trials", "postgresql://me:...@db:5432/trials"),
        ("postgresql+psycopg://me:a/b@db/trials", "postgresql+psycopg://me:...@db/trials"),
        (
            "postgresql://db/trials?user=me&password=secret&x=1",
            "postgresql://db/trials?user=me&password=...&x=1",
        ),
        ("postgresql://db/trials", "postgresql://db/trials"),
    ],
)
def test_an_address_is_printed_without_its_password(address: str, shown: str) -> None:
    assert shown_address(address) == shown


# ---------------------------------------------------------------- curl


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is needed")
def test_the_commands_of_the_guide_run_an_experiment_with_curl(tmp_path: Path) -> None:
    text = (GUIDES / "live-http.md").read_text()
    blocks = re.findall(r"```sh\n(curl .*?)```", text, re.DOTALL)
    commands = [one for part in blocks for one in re.split(r"\n(?=curl|evenhand)", part)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ticket, answers = "", {}
    with Running(str(tmp_path / "t.db"), tmp_path / "log") as service:
        for command in commands:
            line = command.replace("http://127.0.0.1:8765", service.url).replace("TICKET", ticket)
            done = subprocess.run(
                ["bash", "-ec", line],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                env={**os.environ, "PATH": path},
            )
            assert done.returncode == 0, done.stderr
            name = re.search(r"(?:experiments|stroke)/?([a-z-]*)(?=['? ])", line)
            answers[name[1] if name else "audit"] = done.stdout
            if "/ask" in line:
                ticket = json.loads(done.stdout)[0]["ticket"]
    assert json.loads(answers["tell"])["counted"]
    assert json.loads(answers["tell-all"])[0]["outcome"] == 1
    assert json.loads(answers["import"]) == {"imported": 2}
    assert json.loads(answers["finish"])["closed"]
    assert len((tmp_path / "outcomes.csv").read_text().splitlines()) == 4
    assert "Identical" in answers["audit"]


def test_totals_and_metrics_count_what_there_is(tmp_path: Path) -> None:
    from litestar.testing import TestClient

    from evenhand.service.app import Settings, create_app
    from tests.service.peers import seen_from

    app = create_app(Settings(str(tmp_path / "t.db")))
    with TestClient(seen_from(app), base_url="http://127.0.0.1") as client:
        for name in ("a", "b", "c"):
            client.post("/api/v1/experiments", json={"id": name, "study": STUDY, "seed": 7})
        page = client.get("/api/v1/experiments?limit=2")
        assert (len(page.json()), page.headers["x-total-count"]) == (2, "3")
        before = told(client)
        ticket = client.post("/api/v1/experiments/a/ask", json={}).json()[0]["ticket"]
        client.post("/api/v1/experiments/a/tell", json={"ticket": ticket, "outcome": 1})
        assert told(client) == before + 1
        log = client.get("/api/v1/experiments/a/events?after=1")
        assert int(log.headers["x-total-count"]) == 1 + len(log.json())
        text = client.get("/metrics").text
        for name in ("evenhand_simulations", "evenhand_requests_in_progress 1.0", "process_resident_memory"):
            assert name in text


def told(client: Any) -> float:
    found = re.search(r'evenhand_tickets_total\{what="told"\} (\S+)', client.get("/metrics").text)
    return 0.0 if found is None else float(found[1])


# ---------------------------------------------------------------- backup, unit, container


@pytest.mark.slow
def test_the_commands_of_the_guide_back_up_restore_and_upgrade(tmp_path: Path) -> None:
    text = (GUIDES / "backup.md").read_text()
    back_up, restore, upgrade, _podman = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def run(commands: str) -> str:
        shell = ["bash", "-ec", commands]
        done = subprocess.run(
            shell, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PATH": path}
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    journal = str(tmp_path / "trials.db")
    key = Keys(journal).create("admin", "Dr Osei")
    with Running(journal, tmp_path / "log") as service:
        trial = eh.connect(service.url, key).create(eh.Study.from_dict(STUDY), seed=7)
        trial.tell_all([(ask, 1, None) for ask in trial.ask(4)])
        head = trial.head
        assert "Identical" in run(back_up)
        service.stop()
    assert "Dr Osei" in run(restore)
    run(upgrade)
    with Running(str(tmp_path / "restored.db"), tmp_path / "log2") as service:
        restored = eh.connect(service.url, key).open("main")
        assert restored.head == head
        assert restored.ask() is not None


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is needed")
    text = (DEPLOY / "evenhand.service").read_text()
    unit = tmp_path / "evenhand.service"
    unit.write_text(
        text.replace("/opt/evenhand/bin/evenhand", sys.executable).replace("User=evenhand", "User=root")
    )
    done = subprocess.run([program, "verify", "--man=no", str(unit)], capture_output=True, text=True)
    own = [line for line in done.stderr.splitlines() if "evenhand.service" in line]
    assert not own, own


def test_the_container_runs_a_command_and_settings_that_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images cannot be built here; what the container runs can."""
    text = (DEPLOY / "Containerfile").read_text()
    environment = dict(re.findall(r"^ENV (\w+)=(\S+)$", text, re.M))
    command = json.loads(re.findall(r"^CMD (.*)$", text, re.M)[-1])
    assert command == ["evenhand", "serve"]
    found = settings(monkeypatch, *command[2:], **environment)
    assert found == ("/data/trials.db", "0.0.0.0", 8765, (), (), "", ())
    extras = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.search(r"/source\[(.*?)\]", text)
    assert named is not None
    assert set(named[1].split(",")) <= set(extras)
