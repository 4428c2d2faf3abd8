"""The routes under /api/v1/webhooks: addresses that get messages about ends and alarms."""

from __future__ import annotations

from typing import Any

from litestar.di import NamedDependency
from litestar.params import JSONBody

from evenhand.service import response_bodies as bodies
from evenhand.service.auth import key_of, role
from evenhand.service.experiments import Asked, Registry
from evenhand.service.request_bodies import Nothing, WebhookForm
from evenhand.service.route_parts import Id, IdempotencyKey, api_get, api_post
from evenhand.service.webhooks import Webhooks

TAG = "webhooks"


@api_get("/webhooks", TAG, list[bodies.Webhook], guards=[role("admin")])
def list_webhooks(webhooks: NamedDependency[Webhooks]) -> list[dict[str, Any]]:
    """List the webhooks, oldest first, without their secrets."""
    return [hook.shown() for hook in webhooks.all()]


@api_post("/webhooks", TAG, bodies.Webhook, guards=[role("admin")], status_code=201)
def create_webhook(
    data: JSONBody[WebhookForm],
    request: Asked,
    registry: NamedDependency[Registry],
    webhooks: NamedDependency[Webhooks],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Send a signed message to an address when an experiment ends, and when an alarm begins or ends.

    The answer has the secret of the signature, which is not shown again. The service calls only addresses
    below the origins it was started with (`--webhook`).
    """
    if data.experiment is not None:
        registry.get(data.experiment)
    events = tuple(dict.fromkeys(data.events))
    key = key_of(request)
    sent = None if idempotency_key is None else f"{key.id} {idempotency_key}"
    made, secret = webhooks.create(data.url, data.experiment, events, key.name, sent)
    return made.shown() | {"secret": secret}


@api_get("/webhooks/{webhook:str}/messages", TAG, list[bodies.Message], guards=[role("admin")])
def messages(webhook: Id, webhooks: NamedDependency[Webhooks]) -> list[dict[str, Any]]:
    """List the latest messages of a webhook, newest first: whether they arrived, and the last answer."""
    return webhooks.messages(webhook)


@api_post("/webhooks/{webhook:str}/test", TAG, bodies.Queued, guards=[role("admin")], status_code=202)
def send_test(webhook: Id, data: JSONBody[Nothing], webhooks: NamedDependency[Webhooks]) -> dict[str, Any]:
    """Send a message that says nothing but that the webhook works."""
    return webhooks.test(webhook)


@api_post("/webhooks/{webhook:str}/delete", TAG, bodies.Deleted, guards=[role("admin")])
def delete_webhook(
    webhook: Id, data: JSONBody[Nothing], webhooks: NamedDependency[Webhooks]
) -> dict[str, Any]:
    """Delete a webhook with its messages."""
    webhooks.delete(webhook)
    return {"id": webhook, "deleted": True}


webhook_routes: list[Any] = [list_webhooks, create_webhook, messages, send_test, delete_webhook]
