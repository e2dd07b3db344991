# SPDX-License-Identifier: Apache-2.0
"""Names: every form, every refusal, and the encoded forms of Apache Pulsar 4.0 (observed, not derived)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar import names
from magnetar.errors import BadName
from magnetar.names import NamespaceName, TopicDomain, TopicName

ENTITY = st.text("abcXYZ019_-=:.", min_size=1, max_size=20).filter(lambda text: text not in (".", ".."))
LOCAL_NAME = st.text(
    st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="/"), min_size=1, max_size=30
).filter(lambda text: text.strip() and text not in (".", "..") and names.PARTITION_SUFFIX not in text)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("t", "persistent://public/default/t"),
        ("tenant/ns/t", "persistent://tenant/ns/t"),
        ("persistent://tenant/ns/t", "persistent://tenant/ns/t"),
        ("Persistent://tenant/ns/t", "persistent://tenant/ns/t"),
        ("non-persistent://tenant/ns/t", "non-persistent://tenant/ns/t"),
        ("non-persistent://tenant/ns/t-partition-3", "non-persistent://tenant/ns/t-partition-3"),
        (" t ", "persistent://public/default/ t "),
        ("ü€😀", "persistent://public/default/ü€😀"),
    ],
)
def test_every_form_has_one_full_name(text: str, full: str) -> None:
    topic = TopicName.parse(text)
    assert str(topic) == full
    assert topic == TopicName.parse(full)
    assert hash(topic) == hash(TopicName.parse(full))


@pytest.mark.parametrize(
    ("local", "encoded"),
    [
        ("a b~c*d!e(f)g'h", "a+b%7Ec*d%21e%28f%29g%27h"),
        ("ü€😀", "%C3%BC%E2%82%AC%F0%9F%98%80"),
        ("%41+b", "%2541%2Bb"),
        ("a:b=c.d", "a%3Ab%3Dc.d"),
        ("a?b", "a%3Fb"),
        ("t-partition-1 ", "t-partition-1+"),
        ("plain-1_2.3", "plain-1_2.3"),
    ],
)
def test_names_in_paths_are_encoded_as_pulsar_does(local: str, encoded: str) -> None:
    topic = TopicName.parse(f"non-persistent://a/b/{local}")
    assert topic.encoded_local_name == encoded
    assert topic.persistence_name == f"a/b/non-persistent/{encoded}"
    assert topic.managed_ledger_path == f"/managed-ledgers/a/b/non-persistent/{encoded}"
    assert topic.lookup_name == f"non-persistent/a/b/{encoded}"
    assert TopicName.from_persistence_name(topic.persistence_name) == topic


@pytest.mark.parametrize(
    ("local", "index", "base"),
    [
        ("t", -1, "t"),
        ("t-partition-0", 0, "t"),
        ("t-partition-12", 12, "t"),
        ("t-partition-2147483647", 2147483647, "t"),
        ("t-partition-2147483648", -1, "t-partition-2147483648"),
        ("t-partition-99999999999999999999", -1, "t-partition-99999999999999999999"),
        ("t-partition-01", -1, "t-partition-01"),
        ("t-partition--1", -1, "t-partition--1"),
        ("t-partition-+1", -1, "t-partition-+1"),
        ("t-partition-", -1, "t-partition-"),
        ("t-partition-1 ", -1, "t-partition-1 "),
        ("t-partition-٣", -1, "t-partition-٣"),
        ("x-partition-1-partition-2", 2, "x-partition-1"),
    ],
)
def test_partition_index_and_base(local: str, index: int, base: str) -> None:
    topic = TopicName.parse(f"a/b/{local}")
    assert topic.partition_index == index
    assert topic.is_partition == (index >= 0)
    assert topic.base == TopicName.parse(f"a/b/{base}")


def test_partitions_share_their_base_in_metadata() -> None:
    topic = TopicName.parse("a/b/t")
    third = topic.partition(3)
    assert str(third) == "persistent://a/b/t-partition-3"
    assert third.partition(3) is third
    assert third.base == topic
    assert third.managed_ledger_path == "/managed-ledgers/a/b/persistent/t-partition-3"
    assert third.partitioned_metadata_path == "/admin/partitioned-topics/a/b/persistent/t"
    assert third.schema_path == topic.schema_path == "/schemas/a/b/t"
    with pytest.raises(BadName, match="is a partition already"):
        third.partition(4)
    with pytest.raises(BadName, match="partition index -1"):
        topic.partition(-1)
    with pytest.raises(BadName, match="partition index 2147483648"):
        topic.partition(2**31)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "topic name is empty"),
        (" ", "topic name is empty"),
        ("persistent://a/b/", "topic name is empty"),
        ("persistent://a/b/\u00a0", "topic name is empty"),
        ("a/b", "should be topic or tenant/namespace/topic"),
        ("a/b/c/d/e", "should be topic or tenant/namespace/topic"),
        ("persistent://t", "should be domain://tenant/namespace/topic"),
        ("persistent://a/b", "should be domain://tenant/namespace/topic"),
        ("persistent://tenant/cluster/ns/t", "old form tenant/cluster/namespace/topic, which is not supported"),
        ("a//b/c", "should be topic or"),
        ("/t", "should be topic or"),
        ("persistent:///b/c", "tenant name is empty"),
        ("://a/b/c", "topic domain '' should be persistent or non-persistent"),
        ("kafka://a/b/c", "topic domain 'kafka' should be"),
        ("t/n$/x", "namespace name 'n$' contains '$': allowed are letters, digits"),
        ("té/n/x", "tenant name 'té' contains 'é'"),
        ("a/../x", "namespace name '..' is a step in a path"),
        ("a/b/..", "topic name '..' is a step in a path"),
        (".", "topic name '.' is a step in a path"),
        ("x\ny", "control character '\\\\n'"),
        ("x\x00y", "control character"),
        ("x\ud800y", "control character"),
        ("-partition-0", "is a partition of a topic without a name"),
        ("t" * 2049, "longer than 2048 bytes"),
        ("ü" * 1025, "longer than 2048 bytes"),
        ("a" * 256 + "/n/t", "longer than 255 characters"),
    ],
)
@pytest.mark.feature("B-34")
def test_a_refusal_says_what_is_wrong(text: str, sentence: str) -> None:
    with pytest.raises(BadName) as refusal:
        TopicName.parse(text)
    assert sentence.replace("\\\\", "\\") in str(refusal.value)
    assert len(str(refusal.value)) < 400


def test_a_slash_never_gets_into_a_local_name() -> None:
    with pytest.raises(BadName, match="contains '/'"):
        NamespaceName("a", "b").topic("x/y")
    with pytest.raises(BadName, match="contains '/'"):
        TopicName.from_persistence_name("a/b/persistent/x%2Fy")


@pytest.mark.parametrize("text", ["a/b/persistent", "a/b/c/persistent/d", "", "a/b/kafka/t", "a/b/persistent/%FF"])
def test_other_paths_are_no_managed_ledger(text: str) -> None:
    with pytest.raises(BadName):
        TopicName.from_persistence_name(text)


def test_namespace_forms() -> None:
    namespace = NamespaceName.parse("tenant/ns")
    assert (namespace.tenant, namespace.name, str(namespace)) == ("tenant", "ns", "tenant/ns")
    assert namespace == NamespaceName("tenant", "ns")
    assert namespace != NamespaceName("tenant", "other")
    assert namespace.policies_path == "/admin/policies/tenant/ns"
    assert namespace.local_policies_path == "/admin/local-policies/tenant/ns"
    assert namespace.managed_ledgers_path() == "/managed-ledgers/tenant/ns/persistent"
    assert str(namespace.topic("t", TopicDomain.NON_PERSISTENT)) == "non-persistent://tenant/ns/t"
    assert names.tenant_path("tenant") == "/admin/policies/tenant"
    assert names.cluster_path("c1") == "/admin/clusters/c1"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "should be tenant/namespace"),
        ("a", "should be tenant/namespace"),
        ("a/", "namespace name is empty"),
        ("a/b/c", "old form tenant/cluster/namespace"),
        ("a/b/c/d", "should be tenant/namespace"),
        ("a/b c", "contains ' '"),
    ],
)
def test_namespace_refusals(text: str, sentence: str) -> None:
    with pytest.raises(BadName, match=sentence):
        NamespaceName.parse(text)


def test_tenants_clusters_and_subscriptions() -> None:
    assert names.check_tenant("my-tenant_1") == "my-tenant_1"
    assert names.check_cluster("us-west:1") == "us-west:1"
    assert names.check_subscription("any text / at all ü") == "any text / at all ü"
    with pytest.raises(BadName, match="cluster name 'a b' contains ' '"):
        names.check_cluster("a b")
    with pytest.raises(BadName, match="subscription name is empty"):
        names.check_subscription("")
    with pytest.raises(BadName, match="longer than 1024 bytes"):
        names.check_subscription("s" * 1025)
    with pytest.raises(BadName, match="control character"):
        names.check_subscription("a\tb")


def test_names_sort_by_their_text() -> None:
    texts = ["a/b/t-2", "a/b/t-10", "a/a/z", "non-persistent://a/a/a"]
    assert [str(topic) for topic in sorted(map(TopicName.parse, texts))] == sorted(
        str(TopicName.parse(text)) for text in texts
    )


def test_parsed_names_are_kept_but_not_without_bound() -> None:
    assert TopicName.parse("a/b/kept") is TopicName.parse("a/b/kept")
    assert names._parse_topic.cache_info().maxsize == names.PARSED_NAMES_MAX
    assert names._parse_namespace.cache_info().maxsize == names.PARSED_NAMES_MAX


@settings(max_examples=200, deadline=None)
@given(domain=st.sampled_from(TopicDomain), tenant=ENTITY, namespace=ENTITY, local=LOCAL_NAME)
def test_any_allowed_name_survives_every_form(domain: TopicDomain, tenant: str, namespace: str, local: str) -> None:
    topic = NamespaceName(tenant, namespace).topic(local, domain)
    assert TopicName.parse(str(topic)) == topic
    assert TopicName.from_persistence_name(topic.persistence_name) == topic
    assert topic.encoded_local_name.isascii()
    assert "/" not in topic.encoded_local_name
    for index in (0, 7, names.PARTITION_INDEX_MAX):
        assert topic.partition(index).base == topic
        assert topic.partition(index).partition_index == index


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.text("a/:-persistent.%", max_size=60))
def test_any_text_is_a_name_or_a_refusal(text: str) -> None:
    try:
        topic = TopicName.parse(text)
    except BadName:
        return
    assert TopicName.parse(str(topic)) == topic
