"""nginx, as a peer with `limit_req` and as the backend of all peers."""

from pathlib import Path

from scenario import ANSWER, HEADER, UNLIMITED, Limit, Scenario, Site

VERSION_ARGUMENT = "-v"
HAS_MASTER = True
# A worker closes idle clients once less than a sixteenth of its connections is free.
SPARE_CONNECTIONS, SPARE_SHARE = 256, 1.1
# Bodies of any length pass as they come, without a file.
HTTP = """
            client_max_body_size 0;
            proxy_request_buffering off;
            proxy_max_temp_file_size 0;
            proxy_pass http://backend;
            proxy_http_version 1.1;
            proxy_set_header Connection "";"""
# The fields of Weir's line that nginx knows, under the names of Weir.
FIELDS = {
    "timestamp": "time_iso8601",
    "client": "remote_addr",
    "method": "request_method",
    "host": "host",
    "path": "uri",
    "status": "status",
    "verdict": "limit_req_status",
    "keys": f"http_{HEADER.replace('-', '_')}",
    "upstream": "proxy_host",
    "endpoint": "upstream_addr",
    "duration": "request_time",
    "upstream_time": "upstream_response_time",
    "bytes_in": "request_length",
    "bytes_out": "body_bytes_sent",
    "protocol": "server_protocol",
    "tls": "ssl_protocol",
    "user_agent": "http_user_agent",
    "referer": "http_referer",
    "request_id": "http_x_request_id",
    "trace_id": "http_traceparent",
}
MEMBERS = ",".join(f'"{name}":"${variable}"' for name, variable in FIELDS.items())
LOG_JSON = f"log_format json escape=json '{{{MEMBERS}}}';"
GRPC = """
            client_max_body_size 0;
            grpc_pass grpc://backend;"""


def command(program: str, home: Path) -> list[str]:
    return [program, "-p", str(home), "-c", str(home / "nginx.conf"), "-e", "stderr", "-g", "daemon off;"]


def base(home: Path, http: str, connections: int, workers: int = 1) -> dict[str, str]:
    """An nginx without an access log, with every path inside `home`."""
    temporary = "\n".join(
        f"    {kind}_temp_path {home}/{kind};" for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    )
    text = f"""
worker_processes {workers};
pid {home}/pid;
error_log stderr crit;
events {{ worker_connections {int(connections * SPARE_SHARE) + SPARE_CONNECTIONS}; }}
http {{
    {"" if "access_log" in http else "access_log off;"}
    keepalive_requests {UNLIMITED};
    keepalive_timeout 300s;
{temporary}
{http}
}}
"""
    return {"nginx.conf": text}


def backend(home: Path, port: int, connections: int, workers: int) -> dict[str, str]:
    """A service that costs next to nothing: one answer from memory. It counts its requests."""
    reuse = "reuseport" if workers > 1 else ""
    http = f"""
    default_type application/json;
    server {{
        listen 127.0.0.1:{port} backlog=4096 {reuse};
        location / {{ return 200 '{ANSWER}'; }}
        location = /status {{ stub_status; }}
    }}"""
    return base(home, http, connections, workers)


def configure(site: Site) -> dict[str, str]:
    scenario = site.scenario
    zones = "\n".join(
        f"    limit_req_zone {key(limit)} zone={zone(limit)}:10m rate={limit.rate_per_s}r/s;" for limit in scenario.limits
    )
    limits = "\n".join(f"            limit_req zone={zone(limit)}{beyond(scenario, limit)};" for limit in scenario.limits)
    tls = ""
    if scenario.tls:
        tls = f"""
        ssl_certificate {site.certificate.chain};
        ssl_certificate_key {site.certificate.key};
        ssl_protocols TLSv1.2 TLSv1.3;"""
    http = f"""
{zones}
    limit_req_status 429;
    {LOG_JSON if scenario.access_log == "json" else ""}
    {f"access_log {site.home}/access {scenario.access_log} buffer=64k flush=1s;" if scenario.access_log else ""}
    upstream backend {{
        server 127.0.0.1:{site.backend_port};
        keepalive {scenario.in_flight};
        keepalive_requests {UNLIMITED};
    }}
    server {{
        listen 127.0.0.1:{site.port} backlog=4096 {"ssl" if tls else ""} {"http2" if scenario.streams else ""};{tls}
        location / {{
{limits}
{GRPC if scenario.grpc else HTTP}
        }}
    }}"""
    # A client's connection and the backend's.
    return base(site.home, http, 2 * scenario.in_flight, scenario.workers)


def beyond(scenario: Scenario, limit: Limit) -> str:
    """What becomes of requests beyond the limit."""
    if scenario.holds:
        # More than ever wait: at high rates the count of waiting requests falls behind.
        return f" burst={100 * scenario.connections}"
    # limit_req counts in milliseconds, so a high rate needs a burst to admit all.
    return f" burst={limit.rate_per_s} nodelay" if scenario.forwards else ""


def zone(limit: Limit) -> str:
    return limit.name.replace("-", "_")


def key(limit: Limit) -> str:
    return f"$http_{HEADER.replace('-', '_')}" if limit.by_header else "$binary_remote_addr"
