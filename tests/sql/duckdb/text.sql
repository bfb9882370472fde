# Text, patterns and regular expressions, as DuckDB's manual has them.

SELECT upper(name), lower(name), length(name), strlen(name) FROM 'users.csv' ORDER BY user_id

SELECT name, len(name), reverse(name), left(name, 2), right(name, 2) FROM 'users.csv' ORDER BY user_id

SELECT left(name, -2), right(name, -2) FROM 'users.csv' WHERE user_id = 1

SELECT name[1], name[1:3], name[-1], name[2:] FROM 'users.csv' WHERE user_id <= 3 ORDER BY user_id

SELECT substring(name, 2, 3), substr(name, 3) FROM 'users.csv' WHERE user_id = 1

SELECT substring('hello', -3)

SELECT substring(name FROM 2 FOR 3) FROM 'users.csv' WHERE user_id = 1

SELECT split(tags, '|') FROM 'users.csv' ORDER BY user_id

SELECT string_split(tags, '|')[1] AS first FROM 'users.csv' ORDER BY user_id

SELECT str_split('a.b.c', '.'), string_to_array('a.b.c', '.')

SELECT string_split_regex('a1b22c', '\d+')

SELECT regexp_split_to_array('a, b;c', '[,;]\s*')

SELECT split_part(email, '@', 2) AS domain, count(*) FROM 'users.csv' GROUP BY domain ORDER BY domain

SELECT split_part('a-b-c', '-', -1), split_part('a-b-c', '-', 9)

SELECT regexp_extract(url, 'https?://[^/]+') AS host, count(*) AS n FROM 'requests.csv' GROUP BY host ORDER BY n DESC

SELECT regexp_extract(agent, '(\w+)/(\d+)', 1), regexp_extract(agent, '(\w+)/(\d+)', 2) FROM 'requests.csv' WHERE id IN (1, 3) ORDER BY id

SELECT regexp_extract('2026-03-01', '(\d+)-(\d+)-(\d+)', ['y', 'm', 'd'])

SELECT regexp_extract(name, 'x(.)', 1) AS x FROM 'users.csv' WHERE user_id = 1

SELECT regexp_extract_all('a1b22c333', '\d+')

SELECT regexp_extract_all('k1=v1;k2=v2', '(\w+)=(\w+)', 2)

SELECT regexp_matches(url, 'search') AS found, count(*) FROM 'requests.csv' GROUP BY found ORDER BY found

SELECT regexp_full_match('abc', 'b'), regexp_full_match('abc', 'a.c')

SELECT regexp_replace('a1b2', '\d', 'X'), regexp_replace('a1b2', '\d', 'X', 'g')

SELECT regexp_replace('John Smith', '(\w+) (\w+)', '\2 \1')

SELECT regexp_replace('ABC', 'b', 'x', 'i')

SELECT regexp_matches('Hello', 'hello', 'i')

SELECT regexp_escape('a.b*c')

SELECT count(*) FROM 'requests.csv' WHERE url LIKE '%/cart%'

SELECT count(*) FROM 'requests.csv' WHERE agent ILIKE 'mozilla%iphone%'

SELECT count(*) FROM 'requests.csv' WHERE agent NOT ILIKE '%MOZILLA%'

SELECT name FROM 'users.csv' WHERE name GLOB 'F*' OR name GLOB '[B-D]*' ORDER BY name

SELECT name FROM 'users.csv' WHERE name SIMILAR TO '(Ann|Bob).*' ORDER BY name

SELECT '50%' LIKE '50\%' ESCAPE '\'

SELECT name FROM 'users.csv' WHERE name ~ '.*e.*' ORDER BY name

SELECT contains(url, 'shop') AS shop, count(*) FROM 'requests.csv' GROUP BY ALL ORDER BY ALL

SELECT starts_with(url, 'https://'), ends_with(url, '.html'), suffix(url, 'html'), prefix(url, 'http:') FROM 'requests.csv' WHERE id = 10

SELECT position('ell' IN 'hello'), strpos('hello', 'l'), instr('hello', 'z')

SELECT replace(email, '@example.com', '') FROM 'users.csv' WHERE user_id = 1

SELECT translate('abc', 'ab', 'xy')

SELECT lpad(user_id::VARCHAR, 3, '0'), rpad(name, 4, '.') FROM 'users.csv' ORDER BY user_id LIMIT 2

SELECT trim('  a  ') || '|', ltrim('xxa', 'x'), rtrim('axx', 'x'), trim('xaxx', 'x')

SELECT trim(BOTH 'x' FROM 'xaxx')

SELECT concat(name, ' <', email, '>') FROM 'users.csv' WHERE user_id >= 5 ORDER BY user_id

SELECT concat_ws('-', country, plan, NULL) FROM 'users.csv' ORDER BY user_id

SELECT name || ' ' || country FROM 'users.csv' WHERE user_id >= 5 ORDER BY user_id

SELECT repeat('ab', 3)

SELECT format('{} has {}', name, plan) FROM 'users.csv' WHERE user_id = 1

SELECT format('{:.2f}', 3.14159), format('{:05d}', 42), format('{:,}', 1234567)

SELECT printf('%s=%d (%.1f%%)', 'a', 5, 12.34)

SELECT printf('%05d|%-5s|%x', 42, 'ab', 255)

SELECT md5('abc'), sha256('abc')

SELECT sha1('abc')

SELECT ascii('A'), chr(66), unicode('é'), ord('é')

SELECT initcap('hello wORLD')

SELECT hex('abc'), to_hex(255), bin(5), to_base(10, 2)

SELECT unhex('616263')::VARCHAR

SELECT to_base64('abc'::BLOB), from_base64('YWJj')::VARCHAR

SELECT levenshtein('kitten', 'sitting'), hamming('abc', 'abd'), damerau_levenshtein('ab', 'ba')

SELECT round(jaccard('night', 'nacht'), 3), round(jaro_winkler_similarity('martha', 'marhta'), 3), jaro_similarity('a', 'a')

SELECT strip_accents('Chloé'), nfc_normalize('e') , lcase('ABC'), ucase('abc')

SELECT bit_length('abc'), octet_length('é'::BLOB), length('é')

SELECT overlay('Txxxxas' PLACING 'hom' FROM 2 FOR 4)

SELECT parse_filename('a/b/c.csv'), parse_dirname('a/b/c.csv'), parse_path('a/b'), parse_dirpath('a/b/c.csv')

SELECT url_encode('a b&c=é'), url_decode('a%20b%26c')

SELECT array_to_string(['a', 'b'], '-'), list_aggr(['x', 'y'], 'string_agg', '+')

SELECT bar(5, 0, 10, 10)

SELECT formatReadableSize(123456), format_bytes(16384)
