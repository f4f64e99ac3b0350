"""The learner's ranks meet on this machine's loopback, whatever the machine's own networks are."""

import json
import socket
from ipaddress import ip_address

import psutil
import pytest

from learner.optim.collective import Group
from tests.learner.ranks import both


def listening(rank, address):
    """Prints where this rank takes connections, once it has spoken with the other."""
    group = Group(rank, 2, address)
    mean = group.mean([float(rank)])
    found = [c.laddr.ip for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    group.minimum(0)  # the other is not gone before it has looked
    print(json.dumps([mean, found]))


def test_ranks_listen_on_loopback_alone(monkeypatch):
    """Also where a cluster's profile names a network for such groups, as many do."""
    outside = [
        name
        for name, addresses in psutil.net_if_addrs().items()
        if any(a.family == socket.AF_INET and not ip_address(a.address).is_loopback for a in addresses)
    ]
    if outside:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", outside[0])
    (mean, zero), (same, one) = both("test_collective", "listening")
    assert mean == same == [0.5]
    assert len(zero) > len(one) > 0, "rank 0 has the store in which they meet, and each takes the other's calls"
    assert {ip_address(host).is_loopback for host in zero + one} == {True}, (zero, one)


def test_an_address_of_a_network_is_refused():
    with pytest.raises(ValueError, match=r"ranks meet on loopback, not on 10\.0\.0\.5"):
        Group(0, 2, "tcp://10.0.0.5:20000")
