# SPDX-License-Identifier: Apache-2.0
"""`magnetar initialize-cluster-metadata` and moving metadata, as they are typed."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from magnetar.cli.initialize import boundaries
from magnetar.cli.main import app
from magnetar.cli.metadata_transfer import opened
from magnetar.errors import BadSetting, CannotStart, MagnetarError

FLAGS = ["-c", "east", "-uw", "http://b:8080", "-ub", "pulsar://b:6650", "-tw", "https://b:8443", "-bn", "4"]


def typed(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    if isinstance(done.exception, MagnetarError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def records(url: str) -> dict[str, bytes]:
    from magnetar.metadata.transfer import walk

    async def read() -> dict[str, bytes]:
        async with opened(url) as store:
            return {path: record.value async for path, record in walk(store)}

    return asyncio.run(read())


def as_json(found: dict[str, bytes], path: str) -> Any:
    return json.loads(found[path])


def test_a_new_cluster_has_the_records_that_pulsar_gives_it(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path}/m"
    assert "setup" in typed("initialize-cluster-metadata", "-md", url, *FLAGS)
    found = records(url)
    cluster = as_json(found, "/admin/clusters/east")
    assert cluster == {
        "serviceUrl": "http://b:8080",
        "serviceUrlTls": "https://b:8443",
        "brokerServiceUrl": "pulsar://b:6650",
    }
    for tenant in ("public", "pulsar"):
        assert as_json(found, f"/admin/policies/{tenant}") == {"adminRoles": [], "allowedClusters": ["east"]}
    policies = as_json(found, "/admin/policies/public/default")
    assert policies["replication_clusters"] == ["east"]
    assert policies["bundles"]["boundaries"] == ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]
    coordinators = "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign"
    assert as_json(found, coordinators)["partitions"] == 16
    assert found["/ledgers/LAYOUT"].startswith(b"2\n")
    assert len(found["/ledgers/INSTANCEID"]) == 36
    assert {"/ledgers/available", "/ledgers/available/readonly", "/ledgers/cookies"} <= set(found)


def test_it_may_be_run_again_and_changes_nothing_that_is_there(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path}/m"
    typed("initialize-cluster-metadata", "-md", url, *FLAGS)
    before = records(url)
    changed = [word.replace("b:8080", "other:8080") for word in FLAGS]
    assert "0 records made" in typed("initialize-cluster-metadata", "-md", url, *changed)
    assert records(url) == before
    with pytest.raises(CannotStart, match="belongs to cluster 'east', and clusterName is 'west'"):
        typed("initialize-cluster-metadata", "-md", url, "-c", "west", "-uw", "http://b:8080")
    assert records(url) == before


@pytest.mark.feature("F-MD-03")
def test_what_clusters_share_may_lie_in_a_store_of_its_own(tmp_path: Path) -> None:
    local, shared = f"embedded:{tmp_path}/local", f"embedded:{tmp_path}/shared"
    typed("initialize-cluster-metadata", "-md", local, "-cms", shared, *FLAGS)
    west = ["-c", "west", "-uw", "http://w:8080"]
    typed("initialize-cluster-metadata", "-md", f"embedded:{tmp_path}/west", "-cms", shared, *west)
    assert not [path for path in records(local) if path.startswith("/admin")]
    assert "/ledgers/LAYOUT" in records(local)
    found = records(shared)
    assert {"/admin/clusters/east", "/admin/clusters/west", "/admin/policies/public/default"} <= set(found)
    assert not [path for path in found if path.startswith("/ledgers")]


def test_a_store_that_is_none_is_one_sentence() -> None:
    with pytest.raises(BadSetting, match="is no metadata store"):
        typed("initialize-cluster-metadata", "-md", "nowhere", *FLAGS)


@pytest.mark.parametrize("bundles", [1, 3, 16, 1000])
def test_bundles_cover_all_hashes(bundles: int) -> None:
    found = [int(text, 16) for text in boundaries(bundles)]
    assert found == sorted(set(found))
    assert (found[0], found[-1], len(found)) == (0, 2**32 - 1, bundles + 1)


def test_metadata_is_moved_by_three_commands(tmp_path: Path) -> None:
    old, new, file = f"embedded:{tmp_path}/old", f"embedded:{tmp_path}/new", str(tmp_path / "export")
    typed("initialize-cluster-metadata", "-md", old, *FLAGS)
    numbers = json.loads(typed("metadata", "export", file, "--metadata", old, "--json"))
    with pytest.raises(BadSetting, match="exists and is not overwritten"):
        typed("metadata", "export", file, "--metadata", old)
    assert json.loads(typed("metadata", "import", file, "--metadata", new, "--json"))["records"] == numbers["records"]
    assert "They are the same" in typed("metadata", "verify", file, "--metadata", new)
    assert "They are the same" in typed("metadata", "verify", "--against", old, "--metadata", new)
    assert records(new) == records(old)
    with pytest.raises(MagnetarError, match="not empty"):
        typed("metadata", "import", file, "--metadata", new)

    async def change() -> None:
        async with opened(new) as store:
            await store.put("/admin/clusters/east", b"{}")

    asyncio.run(change())
    done = CliRunner().invoke(app, ["metadata", "verify", file, "--metadata", new])
    assert done.exit_code == 1
    assert "/admin/clusters/east has another value in the store" in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-c", "bad name!", "-uw", "http://b:8080"], "bad name!"),
        (["-c", "east", "-uw", "not a url"], "'not a url' is not the address of a service: http://HOST:PORT is"),
        (["-c", "east", "-uw", "http://b:8080", "-ub", "b:6650"], "pulsar://HOST:PORT is"),
    ],
)
@pytest.mark.feature("F-DEP-05")
def test_a_cluster_that_nobody_could_name_or_reach_is_not_begun(tmp_path: Path, words: list[str], said: str) -> None:
    with pytest.raises(MagnetarError, match=re.escape(said)):
        typed("initialize-cluster-metadata", *words, "-md", f"embedded:{tmp_path}/store")
    assert not list(tmp_path.iterdir())


@pytest.mark.feature("F-MD-01")
def test_an_export_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="There is no metadata store in"):
        typed("metadata", "export", str(tmp_path / "file"), "--metadata", f"embedded:{tmp_path}/misspelt")
    typed("initialize-cluster-metadata", *FLAGS, "-md", f"embedded:{tmp_path}/store")
    target = str(tmp_path / "absent" / "file")
    with pytest.raises(BadSetting, match="cannot be written: No such file or directory"):
        typed("metadata", "export", target, "--metadata", f"embedded:{tmp_path}/store")
    assert [each.name for each in tmp_path.iterdir()] == ["store"]
