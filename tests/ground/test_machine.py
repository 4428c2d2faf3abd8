"""The browser and the database that other tests stand on do work here."""

from __future__ import annotations

import psycopg
from selenium import webdriver

from tests.postgres import PostgresServer


def test_the_browser_renders_a_page_and_runs_its_script(browser: webdriver.Chrome) -> None:
    browser.get("data:text/html,<title>x</title><script>document.title = 6 * 7</script>")
    assert browser.title == "42"


def test_a_committed_row_survives_an_immediate_stop(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    postgres_server.stop()
    postgres_server.start()
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
