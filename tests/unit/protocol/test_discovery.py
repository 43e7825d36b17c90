"""The bytes of auto discovery, as in ElastiCache's documentation and clients."""

from memlite.protocol.discovery import CLUSTER_KEY, config_reply, item_reply, listing

PAYLOAD = b"12\na.example|10.0.0.1|11211 b.example||11212\n"


def test_listing() -> None:
    nodes = [("a.example", "10.0.0.1", 11211), ("b.example", "", 11212)]
    assert listing(12, nodes) == PAYLOAD


def test_the_reply_to_config() -> None:
    expected = b"CONFIG cluster 0 45\r\n" + PAYLOAD + b"\r\nEND\r\n"
    assert config_reply(b"cluster", PAYLOAD) == expected


def test_the_reply_to_get() -> None:
    assert CLUSTER_KEY == b"AmazonElastiCache:cluster"
    head = b"VALUE AmazonElastiCache:cluster 0 45"
    assert item_reply(PAYLOAD) == head + b"\r\n" + PAYLOAD + b"\r\nEND\r\n"
    assert item_reply(PAYLOAD, 12) == head + b" 12\r\n" + PAYLOAD + b"\r\nEND\r\n"
