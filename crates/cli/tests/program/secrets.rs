//! Secrets of URLs, stores and programs appear in no message and no record.

use crate::TestFolder;

const URL: &str = "http://bob:hunter2@127.0.0.1:1/x.csv?sig=hush";

#[test]
fn messages_and_records_omit_secrets_of_urls() {
    let place = TestFolder::new();
    place.write("f.csv", "a,s\n1,abc\n");
    place.write(
        "job.toml",
        "[source]\nurl = \"f.csv\"\n[map]\nsql = \"SELECT a FROM source\"\n[sink]\nurl = \"o.csv\"\n",
    );
    for words in [
        &["run", "job.toml", "--set", "source.urlx=$"][..],
        &["run", "job.toml", "--set", "$"],
        &["run", "job.toml", "--set", "source.format=$"],
        &["run", "job.toml", "--set", "source.storage_options=$"],
        &["run", "job.toml", "--set", "source.storage_options.region=hush", "--set", "x=1"],
        &["run", "job.toml", "--set", "source.storage_options.secret_access_key=hush", "--set=x=1"],
        &["run", "job.toml", "--set", "source.storage.session_token=hush"],
        &["run", "job.toml", "--set", "source.exec=['false', '-u', 'bob:hunter2']"],
        &["run", "job.toml", "--set", "map.sql=SELECT a FROM source WHERE '$'"],
        &["run", "$"],
        &["jobs", "show", "$"],
        &["jobs", "list", "--since", "$"],
        &["jobs", "compare", "$", "$"],
        &["completions", "$"],
        &["$"],
        &["query", "SELECT 1", "$"],
        &["head", "f.csv", "--rows", "$"],
        &["head", "f.csv", "--$"],
        &["head", "f.csv", "--source-format", "$"],
        &["head", "f.csv?sig=hush"],
        &["head", "http:/bob:hunter2@h/x.csv"],
        &["query", "SELECT * FROM 's3://bob:hunter2@b/x.csv?X=hush'"],
        &["query", "SELECT CAST('s3://b/?.csv?X=a&Y=hush' AS INT)"],
        &["query", "SELECT 1", "--memory", "$"],
        &["query", "SELECT 1", "--sink-exec", "$"],
        &["query", "SELECT * FROM '$'.zz"],
        &["query", "SELECT \"$\" FROM 'f.csv'"],
        &["query", "SELECT \"$\"(1)"],
        &["query", "SELECT CAST('$' AS INT)"],
        &["query", "SELECT CAST(1 AS \"$\")"],
        &["query", "SELECT a FROM 'f.csv' WHERE a = :token", "--param", "token=hunter2"],
        &["query", "SELECT CAST(:api_key AS INT)", "--param", "api_key=12hush"],
        &["query", "SELECT a FROM 'http:bob:hunter2@h/x.csv'"],
        &["query", "SELECT * FROM read_csv('$')"],
        &["query", "SELECT * FROM ['$', 'f.csv']"],
        &["query", "SELECT * FROM read_csv('f.csv', skip = '$')"],
        &["query", "SELECT * FROM read_csv('f.csv', delim = '$')"],
        &["query", "SELECT year('$', 1)"],
        &["query", "SELECT * FROM 'f.csv'", "--source-exec", "$"],
        &[
            "query",
            "SELECT * FROM 'f.csv'",
            "--source-exec",
            "false",
            "--source-exec",
            "-u",
            "--source-exec",
            "bob:hunter2",
            "--source-exec=-phush",
        ],
        // The program reports the argument that it does not know.
        &[
            "query",
            "SELECT * FROM 'f.csv'",
            "--source-exec",
            "cat",
            "--source-exec",
            "--token=hunter2",
        ],
        &["convert", "f.csv", "o.csv", "--where", "'$' zz"],
    ] {
        let words: Vec<String> = words.iter().map(|word| word.replace('$', URL)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = place.run(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && !said.is_empty(), "{words:?}");
        assert!(!said.contains("hunter2") && !said.contains("hush"), "{words:?}: {said}");
    }
    let kept = serde_json::to_string(&place.job_log_runs()).unwrap();
    assert!(kept.contains("f.csv") && kept.contains("\"--source-exec\",\"false\""), "{kept}");
    assert!(!kept.contains("hunter2") && !kept.contains("hush"), "{kept}");
}

#[test]
fn plan_omits_parameter_values() {
    let place = TestFolder::new();
    place.write("f.csv", "a,s\n1,abc\n");
    for sql in
        ["SELECT a FROM 'f.csv' WHERE s = :token", "SELECT count(*) FROM 'f.csv' WHERE s = :token"]
    {
        let explained = format!("EXPLAIN {sql}");
        for words in [&["query", sql, "--explain"][..], &["query", &explained]] {
            let words: Vec<&str> =
                words.iter().copied().chain(["--param", "token=hunter2"]).collect();
            let output = place.run(&words);
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("***"), "{words:?}: {said}");
            assert!(!said.contains("hunter2"), "{words:?}: {said}");
        }
    }
}

#[test]
fn redaction_keeps_messages_without_secrets() {
    let place = TestFolder::new();
    assert!(place.run_failing(2, &["completions", URL]).contains("`http://127.0.0.1:1/x.csv?…`"));
    let said = place.run_failing(2, &["head", "http:/bob:hunter2@h/x.csv"]);
    assert!(said.contains("was `http://h/x.csv` meant?"), "{said}");
    for output in [" http://bob:hunter2@h/x.csv", "https//bob:hunter2@h/{a}.csv"] {
        let said = place.run_failing(2, &["query", "SELECT 1 AS a", "-o", output]);
        assert!(said.contains("://h/"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    place.write("job.toml", "[source]\nurl = \"f.csv\"\n");
    let said = place.run_failing(2, &["run", "job.toml", "--set", "source.storage.region=hush"]);
    assert!(said.contains("--set source.storage.region=***: unknown key `storage`"), "{said}");
}
