"""Counters and durations in Prometheus' text format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

registry = CollectorRegistry()
requests = Counter("evenhand_requests", "Requests answered", ["method", "route", "status"], registry=registry)
seconds = Histogram("evenhand_request_seconds", "Time to answer", ["route"], registry=registry)
experiments = Gauge("evenhand_experiments", "Experiments in the journal", registry=registry)


def exposition() -> bytes:
    """Everything counted so far."""
    found: bytes = generate_latest(registry)
    return found
