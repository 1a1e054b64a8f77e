-- One row a change in the life of a finding, and one for each thing that a person said of findings:
-- what happened, in order.
--
--: engine [-, -] engine start, 64 random bits; NULL for a silence of all engines
--: finding [-, -] stable id: a rule and an engine; NULL for a silence
--: ts [ns, -] when it was told, on the wall clock
--: ts_utc [-, -] the same for reading, UTC
--: event [-, -] opened, explained, updated, reopened, cleared, ended, flapping or settled;
--:   acknowledged, silenced or unsilenced where a person said so
--: status [-, -] open, flapping, cleared or ended (open when the record ended) after it; NULL for
--:   what a person said
--: rule [-, -] rule; NULL for a silence of all rules
--: severity [-, -] info, medium, high or critical; NULL for what a person said
--: opened_ts [ns, -] when it opened, on the engine's clock; NULL for what a person said
--: cleared_ts [ns, -] when it cleared; NULL while it is open
--: num_openings [openings, lower] how often it has opened so far; NULL for what a person said
--: reason [-, -] why it changed, where there is more to say; else NULL
--: author [-, -] the person; NULL for a change of the finding itself
--: note [-, -] what the person wrote; else NULL
--: until_ts [ns, -] end of a silence; else NULL
--: sentence [-, -] the finding in one sentence; NULL for what a person said
--= SELECT ts_utc, event, rule, severity, reason FROM finding_changes ORDER BY ts, finding LIMIT 5
CREATE OR REPLACE VIEW finding_changes AS
SELECT
  engine,
  finding,
  ts,
  utc(ts) AS ts_utc,
  coalesce(event, CASE WHEN cleared_ts IS NULL THEN 'opened' ELSE 'cleared' END) AS event,
  CASE
    WHEN event IN ('acknowledged', 'silenced', 'unsilenced') THEN NULL
    ELSE coalesce(status, CASE WHEN cleared_ts IS NULL THEN 'open' ELSE 'cleared' END)
  END AS status,
  rule,
  severity,
  opened_ts,
  cleared_ts,
  num_openings,
  reason,
  author,
  note,
  until_ts,
  json_extract_string(body, '$.sentence') AS sentence
FROM findings
-- A change that was stored and not acknowledged is posted again: it counts once.
QUALIFY row_number() OVER (PARTITION BY engine, finding, ts, event, rule ORDER BY ts) = 1;
