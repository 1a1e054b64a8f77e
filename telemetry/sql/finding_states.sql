-- One row a finding: how it stands now. An acknowledgement holds until the finding opens again.
--
--: engine [-, -] engine start, 64 random bits
--: finding [-, -] stable id: a rule and an engine
--: rule [-, -] rule
--: rule_version [-, -] version of the rule
--: severity [-, -] info, medium, high or critical, as it was last told
--: status [-, -] open, flapping (opens and clears again and again), cleared, or ended (open when the
--:   record of its engine ended), as it was last told
--: opened_ts [ns, -] when it last opened, on the engine's clock
--: cleared_ts [ns, -] when it cleared; NULL while it is open
--: first_opened_ts [ns, -] when it opened for the first time that is stored
--: changed_ts [ns, -] when its last change was told, on the wall clock
--: event [-, -] that change
--: reason [-, -] why, where there is more to say; else NULL
--: num_openings [openings, lower] how often it has opened
--: num_changes [changes, -] how many changes were told
--: acknowledged_ts [ns, -] when it was acknowledged since it last opened; NULL: it was not
--: acknowledged_by [-, -] by whom; NULL likewise
--: acknowledged_note [-, -] with which words; NULL likewise
--: silenced_until_ts [ns, -] the latest end of the silences that name it; NULL: none does
--: silenced_by [-, -] who said so; NULL likewise
--: silenced_note [-, -] with which words; NULL likewise
--: sentence [-, -] the finding in one sentence
--: body [-, -] the whole finding as it was last told, JSON
--= SELECT finding, rule, severity, status, num_openings, acknowledged_by
--= FROM finding_states ORDER BY changed_ts DESC, finding LIMIT 5
CREATE OR REPLACE VIEW finding_states AS
WITH changes AS (
  FROM finding_changes WHERE status IS NOT NULL
),
lives AS (
  SELECT
    engine,
    finding,
    arg_max(rule, ts) AS rule,
    arg_max(severity, ts) AS severity,
    arg_max(status, ts) AS status,
    arg_max(event, ts) AS event,
    arg_max(opened_ts, ts) AS opened_ts,
    arg_max(num_openings, ts) AS num_openings,
    arg_max(sentence, ts) AS sentence,
    arg_max({'ts': cleared_ts}, ts).ts AS cleared_ts,
    arg_max({'text': reason}, ts).text AS reason,
    min(opened_ts) AS first_opened_ts,
    max(ts) AS changed_ts,
    count(*) AS num_changes,
    max(ts) FILTER (event IN ('opened', 'reopened', 'flapping')) AS told_open_ts
  FROM changes GROUP BY engine, finding
),
bodies AS (
  SELECT
    engine, finding, arg_max(body, ts) AS body, arg_max(rule_version, ts) AS rule_version
  FROM findings WHERE body IS NOT NULL GROUP BY engine, finding
),
acknowledged AS (
  SELECT engine, finding, ts, author, note FROM finding_changes WHERE event = 'acknowledged'
  QUALIFY row_number() OVER (PARTITION BY engine, finding ORDER BY ts DESC) = 1
),
silenced AS (
  SELECT
    l.engine, l.finding, arg_max({'by': s.author, 'note': s.note}, s.until_ts) AS said,
    max(s.until_ts) AS until_ts
  FROM lives l
  JOIN finding_silences s
    ON coalesce(s.engine = l.engine, true) AND coalesce(s.rule = l.rule, true)
  GROUP BY l.engine, l.finding
)
SELECT
  l.engine,
  l.finding,
  l.rule,
  b.rule_version,
  l.severity,
  l.status,
  l.opened_ts,
  l.cleared_ts,
  l.first_opened_ts,
  l.changed_ts,
  l.event,
  l.reason,
  coalesce(l.num_openings, 1) AS num_openings,
  l.num_changes,
  a.ts AS acknowledged_ts,
  a.author AS acknowledged_by,
  a.note AS acknowledged_note,
  s.until_ts AS silenced_until_ts,
  s.said.by AS silenced_by,
  s.said.note AS silenced_note,
  l.sentence,
  b.body
FROM lives l
LEFT JOIN bodies b USING (engine, finding)
LEFT JOIN acknowledged a
  ON a.engine = l.engine AND a.finding = l.finding AND a.ts >= coalesce(l.told_open_ts, 0)
LEFT JOIN silenced s ON s.engine = l.engine AND s.finding = l.finding;
