"""The learner's ranks meet on one network alone, loopback unless they are on several nodes, and know each other."""

import json
import socket
from ipaddress import ip_address

import psutil
import pytest

from learner.optim.collective import Group, free_address
from tests.learner.ranks import both

OUTSIDE = {
    name: [one.address for one in addresses if one.family == socket.AF_INET]
    for name, addresses in psutil.net_if_addrs().items()
    if any(a.family == socket.AF_INET and not ip_address(a.address).is_loopback for a in addresses)
}
"""The networks of this machine with their addresses; none on a machine without a network."""


def listening(rank, address):
    """Prints where this rank takes connections, once it has spoken with the other."""
    group = Group(rank, 2, address)
    mean = group.mean([float(rank)])
    found = [c.laddr.ip for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    group.minimum(0)  # the other is not gone before it has looked
    print(json.dumps([mean, found]))


def test_ranks_listen_on_loopback_alone(monkeypatch):
    """Also where a cluster's profile names a network for such groups, as many do."""
    if OUTSIDE:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", next(iter(OUTSIDE)))
    (mean, zero), (same, one) = both("test_collective", "listening")
    assert mean == same == [0.5]
    assert len(zero) > len(one) > 0, "rank 0 has the store in which they meet, and each takes the other's calls"
    assert {ip_address(host).is_loopback for host in zero + one} == {True}, (zero, one)


def test_ranks_of_several_nodes_meet_on_the_network_of_the_first_alone(monkeypatch):
    """A machine without a network has a second address of loopback in the network's place."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    name, hosts = next(iter(OUTSIDE.items()), ("lo", ["127.0.0.2"]))
    (mean, zero), (same, one) = both("test_collective", "listening", host=hosts[0])
    assert mean == same == [0.5]
    assert hosts[0] in zero
    own = {address.address.partition("%")[0] for address in psutil.net_if_addrs()[name]}
    assert set(zero + one) <= {*own, hosts[0]}, "the pairs are on the same network"


def meeting_a_stranger(rank, address):
    """Prints why there is no group. Rank 1 has the right place and another secret."""
    secret, _, place = address.partition("@")
    try:
        Group(rank, 2, f"{secret[:-4]}beef@{place}" if rank else address)
    except (PermissionError, RuntimeError) as error:  # the store may be gone with rank 0 before rank 1 has read it
        print(json.dumps(str(error)))


def test_who_does_not_know_the_secret_is_refused():
    refused, _ = both("test_collective", "meeting_a_stranger")
    assert refused.startswith("rank 1 at 127.0.0.1:")
    assert "does not know this group's secret" in refused


def test_an_address_without_a_secret_is_refused():
    with pytest.raises(ValueError, match=r"10\.0\.0\.5:20000 has no secret"):
        Group(0, 2, "tcp://10.0.0.5:20000")


def test_every_group_has_a_secret_of_its_own():
    assert free_address("10.0.0.5").partition("@")[0] != free_address("10.0.0.5").partition("@")[0]
