"""The OpenAPI description and a local page that shows it, without external resources."""

from __future__ import annotations

from typing import Any, NamedTuple

from litestar import Request
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, OpenAPIRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from evenhand import __version__
from evenhand.service.pages import render


def description() -> OpenAPIConfig:
    """Return the API description, at /docs for people and /docs/openapi.json for programs."""
    key = SecurityScheme(type="http", scheme="bearer", description="A key, once any was made.")
    return OpenAPIConfig(
        "evenhand",
        __version__,
        path="/docs",
        render_plugins=[_Page(path="/"), JsonRenderPlugin(path="/openapi.json")],
        use_handler_docstrings=True,
        components=Components(security_schemes={"key": key}),
        security=[{"key": []}],
    )


class Route(NamedTuple):
    """A route as the page shows it."""

    method: str
    path: str
    says: str
    fields: list[tuple[str, str, str]]  # name, type, default or "needed"


class _Page(OpenAPIRenderPlugin):
    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return render("docs.html", key=None, routes=routes_of(openapi_schema)).encode()


def routes_of(schema: dict[str, Any]) -> list[Route]:
    """Return every route with its fields, in the order of declaration."""
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
            found.append(Route(method.upper(), path, operation.get("description", ""), taken))
    return found


def _parameter(part: dict[str, Any]) -> tuple[str, str, str]:
    needed = ["needed"] if part.get("required") else []
    name, kind, default = _field(part["name"], part.get("schema", {}), ())
    return f"{name} ({part['in']})", kind, needed[0] if needed else default


def _field(name: str, kind: dict[str, Any], required: Any) -> tuple[str, str, str]:
    kinds = [one.get("type", "") for one in kind.get("oneOf", kind.get("anyOf", [kind]))]
    shown = " or ".join(word for word in dict.fromkeys(map(str, kinds)) if word and word != "null")
    default = kind.get("default")
    return name, shown, "needed" if name in required else "" if default is None else f"default {default}"
