"""What a client is told: from the words of Python's programs to those of the Rust library."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union

from ._native import IllegalInputError

Address = Union[str, "tuple[str, int]"]
Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class TLS:
    """How connections to servers are encrypted; all files are PEM.

    `ca_cert` is who may have issued the servers' certificates, the system's authorities if it is missing; a certificate must have the
    name or address by which its server is reached. With `verify=False` whatever a server shows is believed. `cert` and `key` are shown
    to servers that ask for a certificate. `server_name` is the name that certificates must have where it is not that of the address.
    """

    ca_cert: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    verify: bool = True
    server_name: str | None = None

    def files(self) -> tuple[Path | None, Path | None, Path | None]:
        if (self.cert is None) != (self.key is None):
            raise IllegalInputError("a certificate and its key go together: TLS(cert=..., key=...)")
        if not self.verify:
            if self.ca_cert is not None:
                raise IllegalInputError("ca_cert is of no use where verify is False")
            return None, self.cert, self.key
        return self.ca_cert or _system_authorities(), self.cert, self.key


def _system_authorities() -> str:
    paths = ssl.get_default_verify_paths()
    for path in (paths.cafile, paths.openssl_cafile, "/etc/ssl/certs/ca-certificates.crt"):
        if path is not None and os.path.exists(path):
            return path
    raise IllegalInputError("the system has no file of authorities: TLS(ca_cert=...)")


# As the Rust library calls them, too.
_SAME = frozenset(
    (
        "config",
        "config_file",
        "hash",
        "default_route",
        "timeout",
        "connect_timeout",
        "deadline",
        "max_value_bytes",
        "compress",
        "compress_threshold",
        "timeouts_until_tko",
        "pending_max",
        "udp_gets",
        "window",
        "keep_deletes",
        "discovery_period",
        "discovery_dir",
    )
)

_OWN = frozenset(("tls", "username", "password"))


def address(server: Address) -> str:
    if isinstance(server, (tuple, list)):
        host, port = server
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"unix:{server}" if server.startswith("/") else server


def native(servers: Address | list[Address] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were given, as the Rust library takes them."""
    if "tls_context" in given:
        raise TypeError("an SSLContext cannot be read: tls=TLS(ca_cert=..., cert=..., key=...)")
    for name in given:
        if name not in _SAME and name not in _OWN:
            raise TypeError(f"no setting {name!r}")
    settings = {name: one for name, one in given.items() if one is not None and name in _SAME}
    if servers is not None:
        many = servers if isinstance(servers, list) else [servers]
        settings["servers"] = [address(one) for one in many]
    tls = given.get("tls")
    if isinstance(tls, ssl.SSLContext):
        raise TypeError("an SSLContext cannot be read: tls=TLS(ca_cert=..., cert=..., key=...)")
    # An empty dict is TLS by default settings.
    if tls is not None and tls is not False:
        tls = TLS() if tls is True else TLS(**tls) if isinstance(tls, Mapping) else tls
        settings["tls"] = tls.files()
        if tls.server_name is not None:
            settings["server_name"] = tls.server_name
    login = given.get("username"), given.get("password")
    if login != (None, None):
        if None in login:
            raise IllegalInputError("username and password go together")
        settings["login"] = login
    if "udp_gets" in settings and ("tls" in settings or "login" in settings):
        raise IllegalInputError("gets by UDP have neither TLS nor a login")
    return settings
