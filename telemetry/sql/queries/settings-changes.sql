-- One row a setting that differs between an engine start and the start before it of the same model.
--? What changed in the settings?
--: started_utc [UTC, -] when the later engine started
--: engine [-, -] the later engine start
--: setting [-, -] the setting
--: before [-, -] its value before
--: after [-, -] its value from then on
WITH described AS (
  SELECT engine, started_ts, coalesce(model, '') AS model, dp_rank, settings
  FROM engines
),
pairs AS (
  SELECT *, lag(settings) OVER (PARTITION BY model, dp_rank ORDER BY started_ts) AS old_settings
  FROM described
),
paths AS (
  SELECT p.*, t.fullkey AS path
  FROM pairs p, json_tree(p.settings) t
  WHERE p.old_settings IS NOT NULL AND t.type NOT IN ('OBJECT', 'ARRAY')
)
SELECT
  utc(started_ts) AS started_utc,
  engine,
  ltrim(path, '$.') AS setting,
  json_extract_string(old_settings, path) AS before,
  json_extract_string(settings, path) AS after
FROM paths
WHERE started_ts BETWEEN $from_ns AND $until_ns AND engine = coalesce($engine, engine)
  AND json_extract_string(old_settings, path) IS DISTINCT FROM json_extract_string(settings, path)
ORDER BY started_ts, setting;
