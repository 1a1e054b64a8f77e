-- One row a silence that nobody has ended, whether its time is over or not: findings that it names
-- go on, but nobody is told of them until `until_ts`.
--
--: engine [-, -] engine start that it is for; NULL: of any
--: rule [-, -] rule that it is for; NULL: any
--: since_ts [ns, -] when it was said, on the wall clock
--: until_ts [ns, -] when it ends
--: author [-, -] who said so
--: note [-, -] why
--= SELECT rule, until_ts, author, note FROM finding_silences ORDER BY since_ts DESC, rule LIMIT 3
CREATE OR REPLACE VIEW finding_silences AS
SELECT engine, rule, ts AS since_ts, until_ts, author, note
FROM (
  FROM finding_changes WHERE event IN ('silenced', 'unsilenced')
  QUALIFY row_number() OVER (PARTITION BY engine, rule ORDER BY ts DESC) = 1
)
WHERE event = 'silenced';
