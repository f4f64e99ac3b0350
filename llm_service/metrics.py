"""The definition of a metric, the metrics of the LLM service, and its endpoint for Prometheus.

    Service.stats() ──> `families` ──> http://HOST:PORT/metrics             a service on its own
                   └──> cluster/metrics/exporting.py ──> Ray's endpoint, ray_NAME    a service of a run

The rows of `LLM` give names and meanings for both; all other rows are in `cluster/metrics/table.py`. Only numbers are
exported, under names in the table: no text of a prompt, an answer or a caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from llm_service.errors import UsageError

Unit = Literal["", "seconds", "time", "share", "bytes", "dollars"]
"""`time`: seconds since 1970; `share`: 0 to 1; "": a plain number."""
LABELS = ("run", "role", "worker")
"""Labels of every metric: the run's name, a role of the table, and the worker's number, from 0."""


@dataclass(frozen=True)
class Metric:
    """One row of the table."""

    name: str
    """Exported name; names of counters, which only grow until their process ends, end in `_total`."""
    role: str
    """The role that the number belongs to."""
    key: str
    """Its key among the role's numbers; with `label`, the prefix of its keys."""
    unit: Unit
    help: str
    """Its meaning, one sentence."""
    panel: str = ""
    """Title of the dashboard's panel that shows it; empty: none."""
    label: str = ""
    """An additional label, whose value is the rest of the key."""
    query: str = ""
    """PromQL to show it, with `{}` for its series; empty: the rate of a counter, otherwise the value."""

    @property
    def kind(self) -> Literal["counter", "gauge"]:
        return "counter" if self.name.endswith("_total") else "gauge"

    @property
    def labels(self) -> tuple[str, ...]:
        return (*LABELS, self.label) if self.label else LABELS

    def read(self, numbers: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], float]]:
        """This metric's values among a role's numbers, each with the additional label if there is one."""
        if not self.label:
            value = numbers.get(self.key)
            if value is not None:
                yield {}, float(value)
            return
        for key, value in numbers.items():
            if key.startswith(self.key):
                yield {self.label: key.removeprefix(self.key)}, float(value)


def _row(name: str, key: str, unit: Unit, help: str, panel: str = "", label: str = "", query: str = "") -> Metric:
    return Metric(f"cairn_llm_{name}", "llm", key, unit, help, panel, label, query)


_ITEMS = "Items by outcome: the source of the answer, or why there is none."
LLM = (
    _row("answers_total", "answers_", "", _ITEMS, "Answers a second, by outcome", "outcome"),
    _row("requests_total", "server/requests", "", "Requests received by the server.", "Requests and calls a second"),
    _row("items_total", "server/items", "", "Items in the received requests."),
    _row("busy_total", "server/busy", "", "Requests refused because too many wait.", "Requests that fail a second"),
    _row("failed_total", "server/failed", "", "Requests that failed.", "Requests that fail a second"),
    _row("running", "server/running", "", "Requests in progress.", "Requests in flight"),
    _row("in_flight", "in_flight", "", "Questions being answered.", "Requests in flight"),
    _row("waiting", "waiting", "", "Calls waiting for the model.", "Requests in flight"),
    _row("calls_total", "calls", "", "Calls sent to the model.", "Requests and calls a second"),
    _row("batches_total", "batches", "", "Batches sent to the model.", "Requests and calls a second"),
    _row("retries_total", "retries", "", "Retried calls.", "Requests and calls a second"),
    _row("batch_fill", "batch_fill", "", "Mean number of calls per batch since the service started.", "Batch fill"),
    _row("queue_p50_seconds", "queue_p50_s", "seconds", "Median time of a call in the queue.", "Time in the queue"),
    _row("queue_p95_seconds", "queue_p95_s", "seconds", "The same, 95th percentile.", "Time in the queue"),
    _row("queue_p99_seconds", "queue_p99_s", "seconds", "The same, 99th percentile.", "Time in the queue"),
    _row("latency_p50_seconds", "latency_p50_s", "seconds", "Median time to answer a request.", "Time to answer"),
    _row("latency_p95_seconds", "latency_p95_s", "seconds", "The same, 95th percentile.", "Time to answer"),
    _row("latency_p99_seconds", "latency_p99_s", "seconds", "The same, 99th percentile.", "Time to answer"),
    _row("breaker_open", "breaker_open", "", "1 while the circuit breaker stops calls after failures.", "Breaker open"),
    _row("reply_tokens_total", "reply_tokens", "", "Tokens of replies and of their prompts, metered or not."),
    _row("reply_dollars_total", "reply_dollars", "dollars", "What they cost."),
    _row("tokens", "tokens", "", "Tokens spent and reserved, across all restarts.", "Tokens"),
    _row("dollars", "dollars", "dollars", "Money spent and reserved, across all restarts.", "Cost"),
    _row("budget_share", "budget_share", "share", "Share spent of the tightest cap; 0 without caps.", "Budget"),
    _row("memory_answers", "memory_answers", "", "Answers in memory."),
    _row("memory_bytes", "memory_bytes", "bytes", "Bytes of answers in memory.", "Answers in memory"),
    _row("journal_lines", "journal_lines", "", "Replies in the journal."),
    _row("redis_errors_total", "redis_errors", "", "How often the second cache could not be reached."),
    _row("jobs_waiting", "jobs_waiting", "", "Waiting durable jobs.", "Durable jobs"),
    _row("jobs_taken", "jobs_taken", "", "Durable jobs being answered.", "Durable jobs"),
    _row("jobs_dead", "jobs_dead", "", "Durable jobs that were given up (dead letters).", "Durable jobs"),
    _row("jobs_answers", "jobs_answers", "", "Stored answers of durable jobs."),
    _row("jobs_oldest_seconds", "jobs_oldest", "seconds", "Age of the oldest durable job.", "Oldest durable job"),
    _row("jobs_finished_total", "jobs_finished", "", "Durable jobs answered by this service's consumers."),
    _row("jobs_buried_total", "jobs_buried", "", "Durable jobs that this service's consumers gave up."),
    _row("jobs_paused", "jobs_paused", "", "1 while consumers wait for a model or for budget."),
)  # fmt: skip
"""All metrics of a service; the keys are those of `Service.stats` and of the server."""


def families(numbers: Mapping[str, float], run: str) -> Iterator[Any]:
    """Metric families of prometheus_client, for those rows of `LLM` that have a value."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for metric in LLM:
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(metric.name, metric.help, labels=metric.labels)
        for further, value in metric.read(numbers):
            family.add_metric([run, metric.role, "0", *further.values()], value)
        if family.samples:
            yield family


class _Numbers:
    """Reads the numbers when Prometheus scrapes."""

    def __init__(self, read: Callable[[], Mapping[str, float]], run: str) -> None:
        self._read, self._run = read, run

    def collect(self) -> Iterator[Any]:
        return families(self._read(), self._run)


def serve(read: Callable[[], Mapping[str, float]], run: str, host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Serve Prometheus at HOST:PORT, port 0: a free one. Returns the port, and a function that stops serving.

    read: the numbers, called from another thread.
    run: value of the label `run`.

    Raises:
        UsageError: it cannot listen there.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(_Numbers(read, run))
    try:
        http, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise UsageError(f"server.metrics_port: cannot listen at {host}:{port}: {error.strerror}") from None

    def end() -> None:
        http.shutdown()
        http.server_close()
        thread.join()

    return http.server_port, end
