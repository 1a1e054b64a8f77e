"""What scrapes or log lines say of an engine whose steps are not recorded.

Its tour: `metric_facts` are the numbers of a window, `metric_latency` its histograms,
`metric_capacity` what the pool holds by them; `metric_finding` is how a rule says what it found.
"""
