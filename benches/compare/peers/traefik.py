"""Traefik with one `rateLimit` middleware for each limit. Its YAML is written as JSON, which is YAML too."""

import json
from pathlib import Path

from scenario import HEADER, Limit, Site

VERSION_ARGUMENT = "version"


def command(program: str, home: Path) -> list[str]:
    # `env` replaces itself by the program, so the PID stays. One thread runs Go code, as with the others' one worker.
    return ["env", "GOMAXPROCS=1", program, f"--configFile={home / 'traefik.yml'}"]


def configure(site: Site) -> dict[str, str]:
    static = {
        "global": {"checkNewVersion": False, "sendAnonymousUsage": False},
        "log": {"level": "ERROR"},
        "entryPoints": {"front": {"address": f"127.0.0.1:{site.port}"}},
        "providers": {"file": {"filename": str(site.home / "dynamic.yml"), "watch": False}},
    }
    limits = site.scenario.limits
    router = {
        "rule": "PathPrefix(`/`)",
        "service": "backend",
        "middlewares": [limit.name for limit in limits],
    }
    backend = {"servers": [{"url": f"http://127.0.0.1:{site.backend_port}"}], "serversTransport": "pool"}
    dynamic = {
        "http": {
            "routers": {"all": router},
            "middlewares": {limit.name: {"rateLimit": rate_limit(limit, site)} for limit in limits},
            "services": {"backend": {"loadBalancer": backend}},
            "serversTransports": {"pool": {"maxIdleConnsPerHost": site.scenario.connections}},
        }
    }
    if site.scenario.tls:
        router["tls"] = {}
        pair = {"certFile": str(site.certificate.chain), "keyFile": str(site.certificate.key)}
        dynamic["tls"] = {"certificates": [pair]}
    return {"traefik.yml": json.dumps(static, indent=2), "dynamic.yml": json.dumps(dynamic, indent=2)}


def rate_limit(limit: Limit, site: Site) -> dict:
    config = {"average": limit.rate_per_s, "period": "1s", "burst": limit.rate_per_s}
    if limit.by_header:
        config["sourceCriterion"] = {"requestHeaderName": HEADER}
    if site.scenario.needs_redis:
        config["redis"] = {"endpoints": [f"127.0.0.1:{site.scenario.redis_port}"]}
    return config
