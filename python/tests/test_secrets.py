"""What a job shows of itself is no secret."""

import pytest

import tidemill


def test_a_job_shows_no_credentials():
    job = tidemill.Job(
        source={
            "url": "https://me:hush@host/a.csv?sig=hush",
            "storage_options": {"user_agent": "hush", "timeout": "5s"},
        },
        map={"sql": "SELECT a FROM source WHERE b <> 'https://u:hush@h/x?sig=hush'"},
        sink={"url": "s3://bucket/{a}.csv", "storage_options": {"region": "hush"}},
    )
    copied = tidemill.Job(source={"url": ["s3://u:hush@b/x?.csv?X=hush&Y=hush", "s3://b/a?.csv"]})
    assert "'s3://b/x?.csv?…', 's3://b/a?.csv'" in repr(copied)
    assert "hush" not in repr(copied)
    shown = repr(job)
    assert "hush" not in shown
    assert "https://host/a.csv?…" in shown and "s3://bucket/{a}.csv" in shown
    assert "'user_agent': '***'" in shown


@pytest.mark.parametrize("name", ["timeout", "hush/hush+hush=", "allow_http", ""])
def test_an_error_about_a_storage_option_does_not_show_its_value(tmp_path, name):
    with pytest.raises(tidemill.UsageError) as caught:
        tidemill.query("SELECT 1", storage_options={name: "hush"})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "table",
    [
        "http:/u:hush@h/x.csv",
        "http://u:hush@h/x.csv?sig=hush'.'zz",
        "f.csv?sig=hush",
        "s3://u:hush@b/x.csv?X=hush",
    ],
)
def test_an_error_shows_no_secret_of_a_url(table: str) -> None:
    with pytest.raises(tidemill.TidemillError) as caught:
        tidemill.query(f"SELECT * FROM '{table}'")
    assert "hush" not in str(caught.value)
    assert "hush" not in str(getattr(caught.value, "filename", ""))
