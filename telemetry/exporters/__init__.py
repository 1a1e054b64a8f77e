"""What leaves the record for the tools that people have: Prometheus pages and OpenTelemetry.

Its tour. The engine's own page: `prometheus`, vLLM's names from a snapshot. All else is the
collector's, and comes out of the step log:

    metrics      what the collector's numbers are called, counted in and good for
    totals       counts of one engine, kept up to date by reading only what is new
    sights       what the rings' headers say: alive, behind, blind
    numbers      puts these together, a reading at a time
    page, metrics_server    a reading as a page, and the page over HTTP
    request_spans, step_spans    rows of the log as spans of the SDK (`sdk_spans`, `attributes`)
    span_export  which spans go next, and how far each engine has been exported
    metric_push  a reading as OpenTelemetry metrics
    otlp         the standard environment variables, and the SDK's exporters that they ask for
    courier      a thread that does a piece of work again and again, slower while it fails
    status       what `doctor` is told
    exports      all of it behind four calls, for the collector's loop

Nothing here may slow, block or fail the drain: the loop hands over what it saw and goes on.
"""
