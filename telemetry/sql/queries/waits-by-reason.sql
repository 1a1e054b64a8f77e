-- One row a reason for which requests waited, in request-steps: one request waiting for one step.
--? What did the waiting requests wait for?
--: wait_reason [-, -] what they waited for (WaitReason)
--: num_request_steps [requests x steps, lower] waiting requests, summed over the steps
--: share_ratio [ratio, -] part of all waiting
--: most_at_once [requests, lower] requests that waited for it at most
SELECT
  wait_reason,
  sum(num_requests * num_repeats)::BIGINT AS num_request_steps,
  round(
    sum(num_requests * num_repeats) / sum(sum(num_requests * num_repeats)) OVER (), 3
  ) AS share_ratio,
  max(num_requests) AS most_at_once
FROM queue_by_reason_between($from_ns, $until_ns)
WHERE engine = coalesce($engine, engine)
GROUP BY wait_reason
ORDER BY num_request_steps DESC, wait_reason;
