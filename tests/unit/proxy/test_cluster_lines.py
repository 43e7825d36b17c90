"""The request lines whose nodes a proxy knows."""

from tests.unit.proxy.clusters import cluster_of


def test_a_key_that_is_forgotten_is_in_no_line() -> None:
    cluster = cluster_of(2)
    node = cluster.node_of_line(b"get k\r\n", b"k")
    cluster.node_of_line(b"get other\r\n", b"other")
    cluster._forget(b"k")
    assert list(cluster.by_line) == [b"get other\r\n"]
    cluster.remember_meta(b"mg k v f\r\n", node)
    cluster._forget(b"k")
    assert not cluster.by_line


def test_a_get_of_an_unknown_key_is_remembered_once() -> None:
    cluster = cluster_of(2)
    node = cluster.node_of_line(b"get k\r\n", b"k")
    assert cluster.by_line == {b"get k\r\n": node}
    assert not cluster.known_nodes
    assert cluster.node_of(b"k") is node
