"""An engine's numbers as a Prometheus page, under vLLM's names, labels and buckets.

Takes any snapshot that has the fields of `Snapshot`, wherever it comes from, so that dashboards and
alerts made for vLLM work unchanged. A number that the snapshot does not have is not on the page:
0 would say that somebody measured. Counters keep vLLM's spelling even where it misleads
(`kv_cache_usage_perc` is a ratio).

Source: the page of vLLM 0.32.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from itertools import accumulate
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest


class HistogramLike(Protocol):
    """Counts by bucket: `counts` has one entry more than `bounds`, for what is above all."""

    @property
    def bounds(self) -> Sequence[float]: ...
    @property
    def counts(self) -> Sequence[int]: ...
    @property
    def total(self) -> float: ...


class AdaptersLike(Protocol):
    """How many adapters a step may have, and those that requests run or wait with at a moment."""

    @property
    def seconds(self) -> float: ...
    @property
    def max_loras(self) -> int: ...
    @property
    def running(self) -> Sequence[str]: ...
    @property
    def waiting(self) -> Sequence[str]: ...


class DraftsLike(Protocol):
    """Counters of speculative decoding; `num_drafts` counts verifications, not tokens."""

    @property
    def num_drafts(self) -> int: ...
    @property
    def num_draft_tokens(self) -> int: ...
    @property
    def num_accepted_tokens(self) -> int: ...
    @property
    def num_accepted_tokens_per_pos(self) -> Sequence[int]: ...


class Snapshot(Protocol):
    """What is read off an engine. Counters count since its start; ratios are 0 to 1."""

    @property
    def engine(self) -> str: ...
    @property
    def model_name(self) -> str: ...
    @property
    def started_seconds(self) -> float: ...
    @property
    def num_running(self) -> int: ...
    @property
    def num_waiting_capacity(self) -> int: ...
    @property
    def num_waiting_deferred(self) -> int: ...
    @property
    def kv_cache_usage_ratio(self) -> float: ...
    @property
    def num_preemptions(self) -> int: ...
    @property
    def num_prompt_tokens(self) -> int: ...
    @property
    def num_prompt_tokens_cached(self) -> int: ...
    @property
    def num_generation_tokens(self) -> int: ...
    @property
    def num_prefix_cache_queries(self) -> int: ...
    @property
    def num_prefix_cache_hits(self) -> int: ...
    @property
    def num_finished(self) -> Mapping[str, int]: ...
    @property
    def num_admission_rejections(self) -> int: ...
    @property
    def histograms(self) -> Mapping[str, HistogramLike]: ...
    @property
    def cache_config(self) -> Mapping[str, str]: ...
    @property
    def adapters(self) -> AdaptersLike | None: ...
    @property
    def drafts(self) -> DraftsLike | None: ...


FINISHED_REASONS: Mapping[str, tuple[str, ...]] = {
    "stop": ("stop",),
    "length": ("length",),
    "abort": ("abort_client", "abort_api", "abort_timeout"),
    "error": ("error",),
}
"""Values of the label `finished_reason`, and the FinishReasons that each of them sums up."""

HISTOGRAMS: Mapping[str, str] = {
    "time_to_first_token_seconds": "Time from a request's arrival to its first token.",
    "inter_token_latency_seconds": "Time between two tokens of a request.",
    "request_time_per_output_token_seconds": "A finished request's mean time between tokens.",
    "e2e_request_latency_seconds": "Time from a request's arrival to its end.",
    "request_queue_time_seconds": "Time to the first admission, waits after preemptions left out.",
    "request_inference_time_seconds": "Time from the first admission to the last token.",
    "request_prefill_time_seconds": "Time from the first admission to the first token.",
    "request_decode_time_seconds": "Time from the first to the last token.",
    "request_prompt_tokens": "Prompt tokens of a finished request.",
    "request_generation_tokens": "Output tokens of a finished request.",
    "request_params_max_tokens": "The max_tokens that a finished request asked for.",
    "iteration_tokens_total": "Tokens scheduled in a step.",
    "request_num_preemptions": "How often a finished request was preempted.",
}
"""Histograms of the snapshot by their name on the page, less the prefix, with their help."""

PREFIX = "vllm:"
LABELS = ("engine", "model_name")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class SnapshotCollector:
    """A prometheus_client collector over one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._labels = (snapshot.engine, snapshot.model_name)

    def collect(self) -> Iterator[Metric]:
        """Yields every family of the page."""
        yield from self._gauges()
        yield from self._counters()
        yield from self._labelled_counters()
        if self._snapshot.drafts is not None:
            yield from self._draft_counters(self._snapshot.drafts)
        for name, histogram in self._snapshot.histograms.items():
            yield self._histogram(name, histogram)

    def _gauges(self) -> Iterator[Metric]:
        s = self._snapshot
        num_waiting = s.num_waiting_capacity + s.num_waiting_deferred
        yield self._gauge("num_requests_running", "Requests in the running list.", s.num_running)
        yield self._gauge("num_requests_waiting", "Requests that wait.", num_waiting)
        yield self._by_reason()
        yield self._gauge(
            "kv_cache_usage_perc", "KV blocks in use, 1 is all of them.", s.kv_cache_usage_ratio
        )
        info = GaugeMetricFamily(
            f"{PREFIX}cache_config_info",
            "Settings of the KV cache, as labels.",
            labels=("engine", *s.cache_config),
        )
        info.add_metric((s.engine, *s.cache_config.values()), 1)
        yield info
        if s.adapters is not None:
            yield _adapters_info(s.adapters)

    def _by_reason(self) -> Metric:
        family = GaugeMetricFamily(
            f"{PREFIX}num_requests_waiting_by_reason",
            "Requests that wait, for room (capacity) or for something of their own (deferred).",
            labels=(*LABELS, "reason"),
        )
        family.add_metric((*self._labels, "capacity"), self._snapshot.num_waiting_capacity)
        family.add_metric((*self._labels, "deferred"), self._snapshot.num_waiting_deferred)
        return family

    def _counters(self) -> Iterator[Metric]:
        s = self._snapshot
        for name, text, value in (
            ("num_preemptions", "Preemptions.", s.num_preemptions),
            ("prompt_tokens", "Prompt tokens of requests with a first token.", s.num_prompt_tokens),
            (
                "prompt_tokens_cached",
                "Prompt tokens that the prefix cache had.",
                s.num_prompt_tokens_cached,
            ),
            ("generation_tokens", "Output tokens.", s.num_generation_tokens),
            (
                "prefix_cache_queries",
                "Tokens looked up in the prefix cache.",
                s.num_prefix_cache_queries,
            ),
            ("prefix_cache_hits", "Of these, tokens found.", s.num_prefix_cache_hits),
        ):
            family = CounterMetricFamily(PREFIX + name, text, labels=LABELS)
            family.add_metric(self._labels, value, created=s.started_seconds)
            yield family

    def _labelled_counters(self) -> Iterator[Metric]:
        s = self._snapshot
        success = CounterMetricFamily(
            f"{PREFIX}request_success",
            "Requests that have ended, by reason.",
            labels=(*LABELS, "finished_reason"),
        )
        for reason, parts in FINISHED_REASONS.items():
            value = sum(s.num_finished.get(part, 0) for part in parts)
            success.add_metric((*self._labels, reason), value, created=s.started_seconds)
        yield success
        rejections = CounterMetricFamily(
            f"{PREFIX}admission_rejections",
            "Requests refused because too many were under way, by the limit that said so.",
            labels=("model_name", "reason"),
        )
        words = (s.model_name, "max_num_queued_reqs")
        rejections.add_metric(words, s.num_admission_rejections, created=s.started_seconds)
        yield rejections

    def _draft_counters(self, drafts: DraftsLike) -> Iterator[Metric]:
        started = self._snapshot.started_seconds
        for name, text, value in (
            ("num_drafts", "Verifications: requests with drafts, step by step.", drafts.num_drafts),
            ("num_draft_tokens", "Draft tokens that were verified.", drafts.num_draft_tokens),
            ("num_accepted_tokens", "Of these, those that were right.", drafts.num_accepted_tokens),
        ):
            family = CounterMetricFamily(f"{PREFIX}spec_decode_{name}", text, labels=LABELS)
            family.add_metric(self._labels, value, created=started)
            yield family
        by_place = CounterMetricFamily(
            f"{PREFIX}spec_decode_num_accepted_tokens_per_pos",
            "Draft tokens that were right, by their place behind the newest token.",
            labels=(*LABELS, "position"),
        )
        for place, value in enumerate(drafts.num_accepted_tokens_per_pos):
            by_place.add_metric((*self._labels, str(place)), value, created=started)
        yield by_place

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(PREFIX + name, text, labels=LABELS)
        family.add_metric(self._labels, value)
        return family

    def _histogram(self, name: str, histogram: HistogramLike) -> Metric:
        family = HistogramMetricFamily(PREFIX + name, HISTOGRAMS[name], labels=LABELS)
        bounds = (*(str(float(bound)) for bound in histogram.bounds), "+Inf")
        cumulative = accumulate(histogram.counts)
        family.add_metric(
            self._labels, list(zip(bounds, cumulative, strict=True)), sum_value=histogram.total
        )
        return family


def _adapters_info(adapters: AdaptersLike) -> Metric:
    """Returns the adapters as labels. As with vLLM the value is when that was so."""
    family = GaugeMetricFamily(
        f"{PREFIX}lora_requests_info",
        "Adapters that requests run and wait with, as labels; the value is the time in seconds.",
        labels=("max_lora", "waiting_lora_adapters", "running_lora_adapters"),
    )
    labels = (str(adapters.max_loras), ",".join(adapters.waiting), ",".join(adapters.running))
    family.add_metric(labels, adapters.seconds)
    return family


def render(snapshot: Snapshot) -> bytes:
    """Returns the page, in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(snapshot))
    return generate_latest(registry)


def metrics_app(read: Callable[[], Awaitable[Snapshot]]) -> ASGIApp:
    """Returns an ASGI application that answers with the page of what `read` returns.

    Where `read` raises, the scrape fails with 503 and the reason: a page of old numbers would look
    like an engine at rest.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            status, body = 200, render(await read())
        except Exception as error:  # the scraper is told; the server it is mounted on goes on
            status, body = 503, f"# {type(error).__name__}: {error}\n".encode()
        headers = [(b"content-type", CONTENT_TYPE_LATEST.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app
