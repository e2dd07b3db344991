# SPDX-License-Identifier: Apache-2.0
"""Loading: who wins, what is noticed, what stops a start and what it says then."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.config.broker import BrokerSettings
from magnetar.config.keys import KEYS
from magnetar.config.known_keys import KNOWN_KEYS
from magnetar.config.load import NoticeLevel, Settings, SettingsFile, load_settings
from magnetar.config.metadata import MetadataSettings
from magnetar.errors import BadSetting


def from_file(text: str, name: str = "broker.conf", role: str = "standalone") -> Settings:
    return load_settings([SettingsFile(name, text)], role=role)


def warnings(loaded: Settings) -> list[str]:
    return [notice.text for notice in loaded.notices if notice.level is NoticeLevel.WARNING]


def infos(loaded: Settings) -> list[str]:
    return [notice.text for notice in loaded.notices if notice.level is NoticeLevel.INFO]


def test_nothing_given_gives_the_defaults() -> None:
    loaded = load_settings()
    assert loaded.broker == BrokerSettings()
    assert loaded.managed_ledger.write_quorum == 1
    assert loaded.notices == ()


def test_a_broker_takes_upstreams_quorums_for_granted() -> None:
    loaded = load_settings(role="broker").managed_ledger
    assert (loaded.ensemble_size, loaded.write_quorum, loaded.ack_quorum) == (2, 2, 2)


def test_the_later_layer_wins() -> None:
    files = [SettingsFile("a.conf", "webServicePort=1"), SettingsFile("b.conf", "webServicePort=2")]
    environ: dict[str, str] = {}
    flags: dict[str, str] = {}

    def port() -> int:
        return load_settings(files, environ, flags).broker.http_port

    assert port() == 2
    environ["webServicePort"] = "3"
    assert port() == 3
    environ["PULSAR_PREFIX_webServicePort"] = "4"
    assert port() == 4
    environ["MAGNETAR_WEB_SERVICE_PORT"] = "5"
    assert port() == 5
    flags["--http-port"] = "6"
    assert port() == 6
    # An empty text stands for the default of the layer below.
    flags["--http-port"] = ""
    assert port() == 5


def test_the_environment_speaks_as_in_pulsars_containers() -> None:
    loaded = load_settings(
        environ={
            "clusterName": "east",
            "PULSAR_PREFIX_advertisedAddress": "broker.example",
            "MAGNETAR_managedLedgerMaxEntriesPerLedger": "7",
            "MAGNETAR_LEDGER_METADATA_RETRIES_MAX": "3",
            "PATH": "/bin",
        }
    )
    assert loaded.broker.cluster_name == "east"
    assert loaded.broker.advertised_address == "broker.example"
    assert loaded.managed_ledger.ledger_entries_max == 7
    assert loaded.ledger.metadata_retries_max == 3
    assert loaded.notices == ()


@pytest.mark.feature("D-03")
def test_major_compaction_acts_below_half_unless_another_share_is_asked_for() -> None:
    assert load_settings(role="bookie").bookie.major_compaction_share == 0.5
    assert from_file("majorCompactionThreshold=0.8", role="bookie").bookie.major_compaction_share == 0.8


def test_units_are_converted() -> None:
    loaded = from_file(
        "journalMaxSizeMB=16\nmanagedLedgerMinLedgerRolloverTimeMinutes=2\nmetadataStoreOperationTimeoutSeconds=5\n"
        "managedLedgerDefaultMarkDeleteRateLimit=0.1\ndefaultRetentionTimeInMinutes=-1\nlostBookieRecoveryDelay=60\n"
        "managedLedgerDigestType=MAC\nmanagedLedgerPassword=secret"
    )
    assert loaded.bookie.journal_file_bytes_max == 16 * 1024 * 1024
    assert loaded.managed_ledger.rollover_age_min_ms == 120_000
    assert loaded.managed_ledger.cursor_flush_interval_ms == 10_000
    assert loaded.managed_ledger.retention_ms == -1
    assert loaded.managed_ledger.digest == "HMAC"
    assert loaded.managed_ledger.password == b"secret"
    assert loaded.metadata.operation_timeout_ms == 5_000
    assert loaded.repair.lost_bookie_delay_ms == 60_000


def test_one_key_may_fill_several_owners() -> None:
    loaded = from_file("nettyMaxFrameSizeBytes=10000000")
    assert loaded.bookie.entry_bytes_max == loaded.channel.frame_bytes_max == 10_000_000


def test_no_limit_upstream_leaves_our_limit() -> None:
    assert from_file("brokerMaxConnections=0").broker.connections_max == BrokerSettings().connections_max


@pytest.mark.parametrize("first", [True, False])
def test_flush_when_empty_beats_the_wait_in_any_order(first: bool) -> None:
    lines = ["journalFlushWhenQueueEmpty=true", "journalMaxGroupWaitMSec=2"]
    assert from_file("\n".join(lines if first else lines[::-1])).bookie.journal_group_delay_max_ms == 0.0
    assert (
        from_file("journalFlushWhenQueueEmpty=false\njournalMaxGroupWaitMSec=2").bookie.journal_group_delay_max_ms == 2
    )


def test_a_bookies_file_names_its_metadata_but_not_for_others() -> None:
    text = "zkServers=localhost:2181"
    assert from_file(text, "bookkeeper.conf", role="bookie").metadata.url == "zk:localhost:2181"
    assert from_file(text, "bookkeeper.conf").metadata.url == MetadataSettings().url


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "# x\nbrokerServicePort=70000",
            "'70000' cannot be used (broker.conf, line 2): allowed is a whole number between -1 and 65535",
        ),
        (
            "allowAutoTopicCreationType=sometimes",
            "allowAutoTopicCreationType: 'sometimes' cannot be used (broker.conf, line 1): allowed is non-partitioned",
        ),
        ("journalSyncData=maybe", "allowed is true or false"),
        ("metadataStoreUrl=rocksdb:/x", "allowed is embedded:DIR, memory:, remote:host:port"),
        ("=5", "broker.conf, line 1: '=5' is no setting: allowed is key=value"),
        ("diskUsageThreshold=" + "9" * 500, "…"),
    ],
)
def test_a_bad_value_stops_with_key_value_place_and_what_is_allowed(text: str, sentence: str) -> None:
    with pytest.raises(BadSetting) as refusal:
        from_file(text)
    assert sentence in str(refusal.value)
    assert len(str(refusal.value)) < 500


def test_bad_values_elsewhere_name_their_place() -> None:
    with pytest.raises(BadSetting, match="environment variable MAGNETAR_BROKER_SERVICE_PORT"):
        load_settings(environ={"MAGNETAR_BROKER_SERVICE_PORT": "x"})
    with pytest.raises(BadSetting, match="flag --port"):
        load_settings(flags={"--port": "-2"})
    with pytest.raises(BadSetting, match="--prot is no setting"):
        load_settings(flags={"--prot": "1"})
    with pytest.raises(BadSetting, match="nearest known one is brokerServicePort"):
        load_settings(flags={"brokerServicePorts": "1"})


def test_a_later_layer_does_not_hide_a_bad_value() -> None:
    with pytest.raises(BadSetting):
        load_settings([SettingsFile("a.conf", "webServicePort=x")], flags={"webServicePort": "1"})


def test_fields_that_must_fit_together_are_compared() -> None:
    with pytest.raises(BadSetting) as refusal:
        from_file("managedLedgerDefaultWriteQuorum=3\n", role="broker")
    assert str(refusal.value) == (
        "managedLedgerDefaultWriteQuorum=3 (broker.conf, line 1) must not be larger than "
        "managedLedgerDefaultEnsembleSize=2 (role broker)"
    )
    with pytest.raises(BadSetting, match=r"broker\.message_bytes_max=5242880 \(default\)"):
        from_file("nettyMaxFrameSizeBytes=4096")


def test_standalone_has_one_bookie_whatever_a_brokers_file_says() -> None:
    loaded = from_file("managedLedgerDefaultEnsembleSize=2\nmanagedLedgerDefaultWriteQuorum=2")
    assert (loaded.managed_ledger.ensemble_size, loaded.managed_ledger.write_quorum) == (1, 1)
    assert len(warnings(loaded)) == 2
    assert "managedLedgerDefaultEnsembleSize=2 (broker.conf, line 1) is taken as 1" in warnings(loaded)[0]


def test_the_addresses_of_a_websocket_conf() -> None:
    text = "brokerServiceUrl=pulsar://a:1\nbrokerServiceUrlTls=pulsar+ssl://b:2\nserviceUrl=http://c:3\n"
    loaded = from_file(text + "brokerClientTlsEnabled=true\nwebSocketNumIoThreads=8", role="websocket")
    assert (loaded.proxy.broker_url, loaded.proxy.broker_url_tls) == ("pulsar://a:1", "pulsar+ssl://b:2")
    assert (loaded.proxy.broker_web_url, loaded.proxy.tls_with_broker) == ("http://c:3", True)
    assert (loaded.websocket.enabled, warnings(loaded)) == (True, [])
    assert not from_file("", role="broker").websocket.enabled


def test_an_unknown_key_is_a_warning_that_names_the_nearest() -> None:
    loaded = from_file("\nbrokerServicePrt=1\nzzz=1\n")
    assert warnings(loaded) == [
        "'brokerServicePrt' (broker.conf, line 2) is unknown and ignored; the nearest known one is brokerServicePort",
        "'zzz' (broker.conf, line 3) is unknown and ignored",
    ]
    loaded = load_settings(environ={"MAGNETAR_CLUSTER_NAM": "x", "PULSAR_PREFIX_clusterNam": "x"})
    assert len(warnings(loaded)) == 2
    assert all("nearest known one is clusterName" in text for text in warnings(loaded))


@pytest.mark.feature("F-SEC-02")
@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("authenticationEnable", "authenticationEnabled"),
        ("authorisationEnabled", "authorizationEnabled"),
        ("superUserRole", "superUserRoles"),
        ("tlsRequireTrustedClientCertOnConect", "tlsRequireTrustedClientCertOnConnect"),
    ],
)
def test_a_misspelt_lock_stops_the_start(typed: str, meant: str) -> None:
    with pytest.raises(BadSetting, match=rf"{typed}.*line 1.*looks like {meant}"):
        from_file(f"{typed}=true\n")
    for prefix in ("PULSAR_PREFIX_", "MAGNETAR_"):
        with pytest.raises(BadSetting, match=meant):
            load_settings(environ={f"{prefix}{typed}": "true"})
    for other in ("authenticationOfSomethingElse", "tokens", "brokerServicePrt"):
        assert len(warnings(from_file(f"{other}=true\n"))) == 1


def test_what_pulsar_knows_and_we_do_not_use_is_one_info_line_per_source() -> None:
    loaded = load_settings(
        [SettingsFile("broker.conf", "numIOThreads=4\nfunctionsWorkerEnabled=false\nwebServicePortTls=\n")],
        {"PULSAR_PREFIX_bookkeeper_numWorkerThreads": "2", "MAGNETAR_NUM_IO_THREADS": "2"},
    )
    assert infos(loaded) == [
        "broker.conf: 2 keys are known to Pulsar, not used by Magnetar yet: numIOThreads, functionsWorkerEnabled",
        (
            "the environment: 2 keys are known to Pulsar, not used by Magnetar yet: "
            "MAGNETAR_NUM_IO_THREADS, PULSAR_PREFIX_bookkeeper_numWorkerThreads"
        ),
    ]
    assert warnings(loaded) == []


def test_turning_durability_off_is_said_aloud() -> None:
    loaded = from_file("journalSyncData=false", "standalone.conf")
    assert loaded.bookie.journal_sync is False
    assert "acknowledged messages are lost" in warnings(loaded)[0]


def test_a_secret_is_never_repeated() -> None:
    loaded = from_file("managedLedgerPassword=hunter2")
    assert "hunter2" not in repr(loaded.notices)


def test_no_file_is_too_large_to_refuse() -> None:
    with pytest.raises(BadSetting, match="no configuration file"):
        from_file("#" * (4 * 1024 * 1024 + 1))


@settings(max_examples=150, deadline=None)
@given(st.text("brokeSvicPt=0123\n\\ #", max_size=80))
def test_any_file_loads_or_is_refused(text: str) -> None:
    try:
        loaded = from_file(text)
    except BadSetting:
        return
    assert loaded.broker.cluster_name


def test_every_key_of_upstream_is_accepted() -> None:
    empty = from_file("\n".join(f"{key}=" for key in sorted(KNOWN_KEYS)))
    assert empty == load_settings()
    unused = KNOWN_KEYS - {key.name for key in KEYS}
    loaded = from_file("\n".join(f"{key}=any" for key in sorted(unused)))
    assert warnings(loaded) == []
    assert len(infos(loaded)) == 1
    assert f"{len(unused)} keys are known to Pulsar" in infos(loaded)[0]


def test_a_known_key_without_use_is_a_notice_as_a_flag_too() -> None:
    settings = load_settings(flags={"s3ManagedLedgerOffloadBucket": "history"})
    assert any("s3ManagedLedgerOffloadBucket" in notice.text for notice in settings.notices)


@pytest.mark.feature("D-27")
def test_an_old_name_is_taken_with_a_warning() -> None:
    for loaded in (
        from_file("managedLedgerNumWorkerThreads=8"),
        load_settings(environ={"PULSAR_PREFIX_managedLedgerNumWorkerThreads": "8"}),
        load_settings(flags={"managedLedgerNumWorkerThreads": "8"}),
    ):
        assert ["is called managedLedgerNumSchedulerThreads now" in text for text in warnings(loaded)] == [True]
        assert loaded.broker == BrokerSettings()


@pytest.mark.feature("F-TUN-03")
def test_numbers_of_threads_are_accepted_and_said_to_be_unused() -> None:
    keys = ("managedLedgerNumSchedulerThreads", "numIOThreads", "bookkeeperClientNumIoThreads", "numHttpServerThreads")
    loaded = from_file("".join(f"{key}=16\n" for key in keys))
    assert warnings(loaded) == []
    assert all(key in infos(loaded)[0] for key in keys)


@pytest.mark.feature("F-TUN-03")
def test_that_bookkeepers_client_reads_system_properties_is_accepted() -> None:
    loaded = from_file("org.apache.bookkeeper.conf.readsystemproperties=true\n")
    assert warnings(loaded) == []
    assert "org.apache.bookkeeper.conf.readsystemproperties" in infos(loaded)[0]
    given = load_settings(environ={"PULSAR_PREFIX_org.apache.bookkeeper.conf.readsystemproperties": "true"})
    assert warnings(given) == []


@pytest.mark.feature("D-13")
def test_forwarding_of_credentials_is_spelled_as_pulsar_spells_it() -> None:
    assert from_file("forwardAuthorizationCredentials=true", role="proxy").proxy.forward_credentials
    misspelt = from_file("forwardAuthorizationCredential=true", role="proxy")
    assert not misspelt.proxy.forward_credentials
    assert ["nearest known one is forwardAuthorizationCredentials" in text for text in warnings(misspelt)] == [True]


@pytest.mark.feature("B-30")
def test_an_empty_plain_port_is_closed_where_there_is_one_with_tls() -> None:
    both = from_file("brokerServicePort=\nbrokerServicePortTls=6651\nwebServicePort=\nwebServicePortTls=8443\n")
    assert (both.broker.port, both.broker.http_port) == (-1, -1)
    # Otherwise a broker would have no port at all.
    neither = from_file("brokerServicePort=\nwebServicePort=\n")
    assert (neither.broker.port, neither.broker.http_port) == (6650, 8080)
    # What comes later wins, as everywhere.
    text = "brokerServicePort=\nbrokerServicePortTls=6651\n"
    assert load_settings([SettingsFile("broker.conf", text)], {"brokerServicePort": "7000"}).broker.port == 7000
