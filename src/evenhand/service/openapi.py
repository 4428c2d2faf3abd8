"""The OpenAPI description and a local page that shows it, without external resources."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from litestar import Request
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, OpenAPIRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme, Server

from evenhand import __version__
from evenhand.service.api_examples import EXAMPLES, WITH_TOTAL
from evenhand.service.pages import render


def description(prefix: str = "") -> OpenAPIConfig:
    """Return the API description, at /docs for people and /docs/openapi.json for programs."""
    key = SecurityScheme(type="http", scheme="bearer", description="A key, once any was made.")
    return OpenAPIConfig(
        "evenhand",
        __version__,
        path="/docs",
        servers=[Server(url=prefix or "/")],
        render_plugins=[_Page(path="/"), _Json(path="/openapi.json")],
        use_handler_docstrings=True,
        components=Components(security_schemes={"key": key}),
        security=[{"key": []}],
    )


class Route(NamedTuple):
    """A route as the page shows it."""

    method: str
    path: str
    tag: str
    says: list[str]  # paragraphs
    fields: list[tuple[str, str, str]]  # name, type, default or "needed"
    request: str  # an example as JSON, or ""
    response: str


class _Page(OpenAPIRenderPlugin):
    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return render("docs.html", key=None, routes=routes_of(with_examples(openapi_schema))).encode()


class _Json(JsonRenderPlugin):
    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return super().render(request, with_examples(openapi_schema))


TOTAL = {"schema": {"type": "integer"}, "required": True, "description": "how many there are in all"}


def with_examples(schema: dict[str, Any]) -> dict[str, Any]:
    """Add the example of every route to its request and its successful response."""
    for (method, path), example in EXAMPLES.items():
        operation = schema["paths"][f"/api/v1{path}"][method]
        if example.request is not None:
            operation["requestBody"]["content"]["application/json"]["example"] = example.request
        done = next(found for code, found in operation["responses"].items() if code.startswith("2"))
        if (method, path) in WITH_TOTAL:
            done["headers"] = {"X-Total-Count": TOTAL}
        if example.response is not None:
            done["content"]["application/json"]["example"] = example.response
    return schema


def routes_of(schema: dict[str, Any]) -> list[Route]:
    """Return every route with its fields, by tag, otherwise in the order of declaration."""
    forms = schema["components"]["schemas"]
    found = []
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            taken = [_parameter(part) for part in operation.get("parameters", ())]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            name = body.get("schema", {}).get("$ref", "").rsplit("/", 1)[-1]
            form = forms.get(name, {})
            taken += [
                _field(field, kind, form.get("required", ()))
                for field, kind in form.get("properties", {}).items()
            ]
            done = next(one for code, one in operation["responses"].items() if code.startswith("2"))
            found.append(Route(
                method.upper(), path, next(iter(operation.get("tags", ())), ""),
                operation.get("description", "").split("\n\n"), taken,
                _example(operation.get("requestBody", {})), _example(done),
            ))  # fmt: skip
    tags = list(dict.fromkeys(route.tag for route in found))
    return sorted(found, key=lambda route: tags.index(route.tag))


def _example(part: dict[str, Any]) -> str:
    """Return the example of a request or response as JSON; "" if it has none."""
    example = part.get("content", {}).get("application/json", {}).get("example")
    return "" if example is None else json.dumps(example, indent=1, ensure_ascii=False)


def _parameter(part: dict[str, Any]) -> tuple[str, str, str]:
    needed = ["needed"] if part.get("required") else []
    name, kind, default = _field(part["name"], part.get("schema", {}), ())
    return f"{name} ({part['in']})", kind, needed[0] if needed else default


def _field(name: str, kind: dict[str, Any], required: Any) -> tuple[str, str, str]:
    kinds = [one.get("type", "") for one in kind.get("oneOf", kind.get("anyOf", [kind]))]
    shown = " or ".join(word for word in dict.fromkeys(map(str, kinds)) if word and word != "null")
    default = kind.get("default")
    return name, shown, "needed" if name in required else "" if default is None else f"default {default}"
