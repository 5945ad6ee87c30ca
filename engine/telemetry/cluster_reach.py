"""Tests before a launch whether a cluster can work from this machine: its own port, and the names of the hosts."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Sequence

from ..runs.cluster import VARIABLE, Cluster, host_of, port_of
from .background_call import BackgroundCall
from .cluster import COMMAND_LINE, ClusterError

ANSWER_SECONDS = 10.0  # a name server may be down
_WAITS = "the run waits until it is; if the name is wrong, stop the run, and give the right name or an address"


def check(cluster: Cluster) -> str:
    """Raises ClusterError where this worker cannot start; returns a remark on what looks wrong, or nothing.

    Containers may get their names later than their process starts: the trainer waits for unknown ones. Of those in
    TF_CONFIG nothing is said, as there this is usual.
    """
    _port_is_free(cluster)
    if cluster.source == VARIABLE:
        return ""
    hosts = list(dict.fromkeys(map(host_of, cluster.workers)))
    unknown = _unknown(hosts)
    if same := _same(cluster):
        raise ClusterError(f"{cluster.source}: {same}, so that both cannot listen there; give each worker its own port")
    if unknown:
        return f"the host {unknown[0]} is not known on this machine: {_WAITS}"
    return _elsewhere(cluster)


def _same(cluster: Cluster) -> str:
    """Two workers with one port at names of one machine, such as localhost and 127.0.0.1."""
    seen: dict[tuple[str, int], int] = {}
    for index, address in enumerate(cluster.workers):
        with contextlib.suppress(OSError, UnicodeError):
            for *_, place in socket.getaddrinfo(host_of(address), port_of(address), type=socket.SOCK_STREAM):
                other = seen.setdefault((str(place[0]), int(place[1])), index)
                if other != index:
                    return f"{cluster.named(other)} and {cluster.named(index)} are one address"
    return ""


def _port_is_free(cluster: Cluster) -> None:
    port = port_of(cluster.address)
    family = socket.AF_INET6 if ":" in host_of(cluster.address) else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC's server: an ended run does not hold it
        try:
            line.bind(("", port))
        except OSError as fault:
            raise ClusterError(_refused_port(cluster, port, fault)) from None


def _refused_port(cluster: Cluster, port: int, fault: OSError) -> str:
    who = f"{cluster.named(cluster.index)} cannot use its port {port}"
    change = "give it another port in --cluster, on every machine"
    if cluster.source != COMMAND_LINE:
        change = f"give it another port in {VARIABLE}"
    if cluster.source.startswith("Slurm"):
        change = f"set GPUTUI_PORT={port + 100} for all tasks of the job"
    if fault.errno == errno.EADDRINUSE:
        return f"{who}: another program on this machine uses it, perhaps an earlier worker; end that one, or {change}"
    return f"{who} ({fault.strerror}); {change}"


def _unknown(hosts: Sequence[str]) -> list[str]:
    """Those that have no address here; one whose name server does not answer is waited for by the trainer."""
    calls = [(host, BackgroundCall(lambda host=host: _is_known(host))) for host in hosts]  # type: ignore[misc]
    found = []
    for host, call in calls:
        try:
            if not call.result(ANSWER_SECONDS):
                found.append(host)
        except TimeoutError:
            continue
    return found


def _is_known(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):
        return False


def _elsewhere(cluster: Cluster) -> str:
    """Where this worker's address is none of this machine: perhaps the number of another worker was given."""
    host, port = host_of(cluster.address), port_of(cluster.address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ""
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as line:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                line.bind(address)
                return ""
        except OSError as fault:
            if fault.errno != errno.EADDRNOTAVAIL:
                return ""
    here = socket.gethostname()
    return f"{host} is none of the addresses of {here}: check that --worker {cluster.index} is this machine"
