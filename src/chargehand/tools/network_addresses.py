"""Which hosts and addresses may be contacted: public ones, in one spelling only."""

import ipaddress
import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

_CLOSED_4 = [
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; metadata services of some clouds too
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local, with the metadata service of most clouds at 169.254.169.254
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",  # for documentation, like two more below
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # for benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
]
#: all public IPv6 addresses; loopback, mapped, local and multicast addresses are outside
_OPEN_6 = IPv6Network("2000::/3")
_CLOSED_6 = [
    IPv6Network(text)
    for text in (
        "2001::/23",  # Teredo and other protocols that embed an IPv4 address
        "2001:db8::/32",
        "2002::/16",  # 6to4, which also embeds one
        "3fff::/20",
    )
]
#: NAT64: how IPv6-only networks reach IPv4; the last 32 bits are the real destination
_TRANSLATED = IPv6Network("64:ff9b::/96")
_NUMERIC = re.compile(r"(?:\d+|0[xX][0-9a-fA-F]*)")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")


def is_public(address: str) -> bool:
    """Whether this is a public address. False if it cannot be parsed."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, IPv6Address) and ip in _TRANSLATED:
        ip = IPv4Address(int(ip) & 0xFFFF_FFFF)
    if isinstance(ip, IPv4Address):
        return not any(ip in network for network in _CLOSED_4)
    return ip in _OPEN_6 and not any(ip in network for network in _CLOSED_6)


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def host_fault(host: str) -> str:
    """Why a host name is refused; empty if it is accepted.

    Some programs take a name that ends in a number for an address: 0177.1, 2130706433 and 0x7f.1 all mean
    127.0.0.1. So an address is accepted only in its usual spelling.
    """
    if is_address(host):
        return "" if "%" not in host else "an address with a zone is of this machine's network"
    labels = host.split(".")
    if _NUMERIC.fullmatch(labels[-1]):
        return "write an address as four numbers without leading zeros"
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        return "this is not a name of a host"
    return ""
