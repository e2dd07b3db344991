# SPDX-License-Identifier: Apache-2.0
"""The container file: what it copies is there; it is built, and runs with settings from its environment."""

import json
import os
import re
import shutil
from pathlib import Path

import httpx
import pulsar
import pytest
import yaml

from tests.conftest import Eventually
from tests.deploy.checks import DEPLOY, check_command, skip_or_fail
from tests.deploy.container_image import CONTAINER_FILE, NEEDED, Image
from tests.processes import StandaloneProcess, free_port

USER = 10_000


def test_the_container_file_copies_what_is_there_and_runs_as_nobody() -> None:
    text = CONTAINER_FILE.read_text()
    for line in re.findall(r"(?m)^COPY (?!--from)(.+)$", text):
        *sources, _ = line.split()
        for source in sources:
            assert (DEPLOY.parent / source).exists(), source
    assert re.findall(r"(?m)^USER (.+)$", text) == [f"{USER}:{USER}"]
    assert "--require-hashes" in text
    command = re.findall(r"(?m)^CMD (.+)$", text)[-1]
    check_command(yaml.safe_load(command))


def check_served(web_url: str, service_url: str, advertised: str) -> None:
    """Settings by every kind of name are visible, and a client outside is sent to the address that was advertised."""
    shown = httpx.get(f"{web_url}/admin/v2/brokers/configuration/runtime", timeout=60).json()
    assert shown["clusterName"] == "boxed"
    assert shown["maxTopicsPerNamespace"] == "77"
    assert shown["defaultNumPartitions"] == "3"
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe("t", "s")
    client.create_producer("t").send(b"through another name")
    assert consumer.receive(timeout_millis=60_000).data() == b"through another name"
    client.close()
    found = httpx.get(f"{web_url}/lookup/v2/topic/persistent/public/default/t-partition-0", timeout=60).json()
    assert found["brokerUrl"] == advertised


ENVIRONMENT = {
    "advertisedAddress": "localhost",
    "clusterName": "boxed",
    "PULSAR_PREFIX_maxTopicsPerNamespace": "77",
    "MAGNETAR_DEFAULT_NUM_PARTITIONS": "3",
    "allowAutoTopicCreationType": "partitioned",
}


def test_the_containers_command_takes_its_settings_from_the_environment(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path, environment=ENVIRONMENT) as running:
        check_served(running.web_url, running.service_url, f"pulsar://localhost:{running.port}")


@pytest.mark.feature("F-DEP-02")
@pytest.mark.timeout(1800)
def test_a_container_is_built_and_runs_as_its_environment_says(tmp_path: Path, eventually: Eventually) -> None:
    missing = [tool for tool in NEEDED if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        skip_or_fail(f"no container is built: needs root, and {', '.join(NEEDED)}")
    image = Image(tmp_path)
    image.build()
    described = image.configuration
    assert described["User"] == f"{USER}:{USER}"
    assert set(described["Volumes"]) == {"/data", "/conf"}
    check_command(described["Cmd"])

    data, conf, log = tmp_path / "data", tmp_path / "conf", tmp_path / "log"
    for directory in (data, conf):
        directory.mkdir()
        os.chown(directory, USER, USER)
    (conf / "standalone.conf").write_text("maxTopicsPerNamespace=1\nmaxMessageSize=1048576\n")
    ports = {"brokerServicePort": str(free_port()), "webServicePort": str(free_port()), "bindAddress": "127.0.0.1"}
    words = ["standalone", "--data-dir", "/data", "--config", "/conf/standalone.conf"]
    words += ["--ready-file", "/data/ready.json"]
    process = image.start(words, {**ENVIRONMENT, **ports}, {data: "/data", conf: "/conf"}, log)
    try:
        ready = data / "ready.json"
        eventually(lambda: ready.exists() or process.poll() is not None, limit_s=300)
        assert process.poll() is None, log.read_text()[-3000:]
        assert json.loads(ready.read_text())["pid"] == process.pid
        assert Path(f"/proc/{process.pid}").stat().st_uid == USER
        assert ready.stat().st_uid == USER
        web_url, service = f"http://127.0.0.1:{ports['webServicePort']}", f"localhost:{ports['brokerServicePort']}"
        check_served(web_url, f"pulsar://{service}", f"pulsar://{service}")
        shown = httpx.get(f"{web_url}/admin/v2/brokers/configuration/runtime", timeout=60).json()
        assert shown["maxMessageSize"] == "1048576"
        process.terminate()
        assert process.wait(120) == 0, log.read_text()[-3000:]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
