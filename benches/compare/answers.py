"""Whether a peer's answers are what the scenario demands: a proxy that does less work is no comparison."""

import contextlib
import http.client
import json
import ssl
import time

from load import Load
from peers import Running
from processes import PeerFailed
from scenario import ANSWER, HEADER, HEADER_VALUE, PATH

SAMPLES = 20
# A bucket refills while it is being hit: this share of answers may pass in a refused scenario.
ADMITTED_SHARE_MAX = 0.01
# What says that routes are not there yet.
NOT_YET = {404, 503}
ROUTED_WITHIN_S = 5
TLS_VERSION = "TLSv1.3"
LIMIT_HEADERS = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]


def wait_until_routed(running: Running) -> None:
    """Some listen before they know where to send requests. Those with a protocol that this cannot ask in know it."""
    if running.scenario.streams:
        return
    deadline = time.monotonic() + ROUTED_WITHIN_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connect(running)) as asking:
            asking.request("GET", running.scenario.path, headers={HEADER: HEADER_VALUE})
            if asking.getresponse().status not in NOT_YET:
                return
        time.sleep(0.02)
    raise PeerFailed("does not answer")


def connect(running: Running) -> http.client.HTTPConnection:
    if not running.scenario.tls:
        return http.client.HTTPConnection("127.0.0.1", running.port, timeout=5)
    context = ssl.create_default_context()
    # The certificate is self-signed, and no name leads to it.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection("127.0.0.1", running.port, timeout=5, context=context)


def check_load(load: Load, running: Running) -> None:
    """Holds what the load counted against the scenario."""
    if load.requests == 0:
        raise PeerFailed("answered no request")
    if load.socket_errors:
        raise PeerFailed(f"broke connections: {load.socket_errors}")
    if running.scenario.forwards and load.not_2xx:
        raise PeerFailed(f"{load.not_2xx} of {load.requests} answers were not 2xx")
    admitted = load.requests - load.not_2xx
    if not running.scenario.forwards and admitted > load.requests * ADMITTED_SHARE_MAX:
        raise PeerFailed(f"{admitted} of {load.requests} requests were not refused")


def check_samples(running: Running) -> None:
    """wrk tells only 2xx from the rest; status, headers, body and keep-alive are seen in a few requests."""
    scenario = running.scenario
    connection = connect(running)
    connection.connect()
    first_socket = connection.sock
    if scenario.tls and first_socket.version() != TLS_VERSION:
        raise PeerFailed(f"speaks {first_socket.version()} instead of {TLS_VERSION}")
    statuses = []
    for _ in range(SAMPLES):
        connection.request("GET", PATH, headers={HEADER: HEADER_VALUE})
        answer = connection.getresponse()
        statuses.append(answer.status)
        body = answer.read().decode(errors="replace")
        if answer.status == 200 and body != ANSWER:
            raise PeerFailed(f"changed the body: {body!r}")
        if running.peer.name == "Weir":
            check_weir(answer, body)
    kept_alive = connection.sock is first_socket
    connection.close()
    # A bucket of 1/s may give out a unit or two meanwhile.
    if statuses.count(scenario.status) < (SAMPLES if scenario.forwards else SAMPLES - 2):
        raise PeerFailed(f"answered {statuses} where {scenario.status} was due")
    if not kept_alive:
        raise PeerFailed("closed a connection that should be kept alive")
    if running.peer.name == "Weir":
        metric(running, "weir_requests_total")


def check_weir(answer: http.client.HTTPResponse, body: str) -> None:
    """Weir is measured with all that it tells clients."""
    wanted = LIMIT_HEADERS + ([] if answer.status == 200 else ["retry-after"])
    if missing := [name for name in wanted if answer.getheader(name) is None]:
        raise PeerFailed(f"left out {', '.join(missing)}")
    if answer.status != 200 and not json.loads(body).get("violated-policies"):
        raise PeerFailed(f"did not name the limit: {body!r}")


def metric(running: Running, name: str) -> float:
    """The sum of a metric of Weir over its labels, as operators see it."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", running.admin_port, timeout=30)) as admin:
        admin.request("GET", "/metrics")
        lines = admin.getresponse().read().decode().splitlines()
    values = [line.rpartition(" ")[2] for line in lines if line.partition("{")[0].partition(" ")[0] == name]
    if not values:
        raise PeerFailed(f"has no metric {name}")
    return sum(map(float, values))
