-- Visits: a visitor's views with less than 30 minutes between one and the next.
--     tidemill query --file examples/sessions.sql
WITH marked AS (
    SELECT user_id, ts, page,
           CASE WHEN ts - lag(ts) OVER by_time < INTERVAL '30 minutes' THEN 0 ELSE 1 END AS begins
    FROM 'examples/logs/*.json'
    WINDOW by_time AS (PARTITION BY user_id ORDER BY ts)
),
numbered AS (
    SELECT user_id, ts, page,
           sum(begins) OVER (PARTITION BY user_id ORDER BY ts ROWS UNBOUNDED PRECEDING) AS visit
    FROM marked
)
SELECT user_id, visit, min(ts) AS began, to_unixtime(max(ts)) - to_unixtime(min(ts)) AS seconds,
       count(*) AS views, first_value(page ORDER BY ts) AS entered
FROM numbered
GROUP BY user_id, visit
ORDER BY began
