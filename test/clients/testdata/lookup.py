"""Looks up what each line of standard input says, "HOW NAME", and prints a line of what it found: "ok" and the
results, or "no" and the failure, apart by tabs."""

import socket
import sys

import dns.resolver


def addresses(name):
    return [a[4][0] for a in socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)]


def dnspython(name, search=None):
    return [a.address for a in dns.resolver.resolve(name, "A", search=search)]


def srv(name):
    return [f"{a.priority} {a.weight} {a.port} {a.target}" for a in dns.resolver.resolve(name, "SRV")]


ways = {
    "socket": addresses,
    "dnspython": dnspython,
    "dnspython-search": lambda name: dnspython(name, search=True),
    "dnspython-srv": srv,
}

for line in sys.stdin:
    how, name = line.split()
    try:
        print("ok", *ways[how](name), sep="\t", flush=True)
    except socket.gaierror as e:
        print("no", e.strerror, sep="\t", flush=True)
    except dns.exception.DNSException as e:
        print("no", type(e).__name__, sep="\t", flush=True)
