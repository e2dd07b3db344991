# SPDX-License-Identifier: Apache-2.0
"""TLS and tokens: a query gets in with them, and neither plans nor event logs nor the UI nor errors ever show one."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pyspark.sql import SparkSession

from magnetar.blocking import Client
from magnetar.client.authentication import AuthenticationToken
from tests.conformance.guarded import GuardedStandalone, token
from tests.spark.test_batch_source import publish

TOPIC = "persistent://public/default/guarded"
# The UI shows the first twenty unless it is asked for more.
QUERIES_MAX = 100_000


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedStandalone]:
    with GuardedStandalone(tmp_path_factory.mktemp("guarded"), anonymousUserRole="") as process:
        yield process


def event_log_text(spark: SparkSession) -> str:
    directory = Path((spark.conf.get("spark.eventLog.dir") or "").removeprefix("file://"))
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert files
    return "".join(path.read_text(errors="replace") for path in files)


def ui_text(spark: SparkSession) -> str:
    """What the UI knows of the application: its settings, and all its queries with their plans."""
    with httpx.Client(base_url=f"{spark.sparkContext.uiWebUrl}/api/v1/applications", timeout=60) as ui:
        name = ui.get("").raise_for_status().json()[0]["id"]
        pages = [
            f"{name}/environment",
            f"{name}/sql?details=true&planDescription=true&length={QUERIES_MAX}",
            f"{name}/jobs",
        ]
        return "".join(ui.get(page).raise_for_status().text for page in pages)


@pytest.mark.feature("F-SPK-02")
def test_a_token_opens_the_door_and_is_never_shown(
    spark: SparkSession, guarded: GuardedStandalone, tmp_path: Path
) -> None:
    secret, wrong = token("superUser"), "eyJ-canary-of-a-wrong-token.x.y"
    with Client(guarded.service_url, AuthenticationToken(secret)) as client:
        publish(client, TOPIC, 50)
    right_file, wrong_file = tmp_path / "token", tmp_path / "wrong"
    right_file.write_text(secret)
    wrong_file.write_text(wrong)

    def reader(file: Path) -> "tuple[int, str]":
        frame = (
            spark.read.format("pulsar")
            .option("service.url", guarded.service_url_tls)
            .option("topic", TOPIC)
            .option("tlsTrustCertsFilePath", str(guarded.authority.file))
            .option("tokenFile", str(file))
            .load()
        )
        plan = frame._jdf.queryExecution().toString()
        return frame.count(), plan

    rows, plan = reader(right_file)
    assert rows == 50
    with pytest.raises(Exception) as refused:  # noqa: PT011 - whatever Spark makes of it
        reader(wrong_file)
    assert "NotAuthenticated" in str(refused.value)
    with pytest.raises(Exception, match="tokenFile or tokenEnvironment"):
        spark.read.format("pulsar").option("service.url", guarded.service_url).option("topic", TOPIC).option(
            "token", wrong
        ).load()
    for text in (plan, str(refused.value), event_log_text(spark), ui_text(spark)):
        assert secret not in text
        assert wrong not in text
    # The option that was refused is in no log either, and what was looked through is the query's.
    assert "canary" not in event_log_text(spark) + ui_text(spark)
    assert "planDescription" in ui_text(spark)
