"""The OpenAPI description against the service itself: whatever the description allows gets an answer that it
describes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from litestar.testing import TestClient

from evenhand.app.service.build import Settings, create_app
from tests.service.running import STUDY

pytestmark = pytest.mark.filterwarnings("default")  # schemathesis warns of its own dependencies


@pytest.fixture(scope="module")
def api_schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    journal = str(tmp_path_factory.mktemp("schema") / "journal.db")
    app = create_app(Settings(journal))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        body = {"id": "main", "study": STUDY, "seed": 7}
        assert client.post("/api/experiments", json=body).status_code == 201
        yield schemathesis.openapi.from_asgi("/docs/openapi.json", app, base_url="http://127.0.0.1")


schema = schemathesis.pytest.from_fixture("api_schema")


@schema.parametrize()
@hypothesis.settings(max_examples=25)
def test_what_the_description_allows_gets_an_answer_that_it_describes(case: schemathesis.Case) -> None:
    if "name" in case.path_parameters and case.path_parameters["name"] != "main":
        case.path_parameters["name"] = "main" if hash(str(case.body)) % 2 else case.path_parameters["name"]
    case.call_and_validate()
