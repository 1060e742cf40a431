"""The server's port: bound before anything is loaded, and if it is taken, by whom."""

from __future__ import annotations

import errno
import glob
import os
import socket
from pathlib import Path

from terrazzo.errors import OptionError

LISTEN = "0A"  # the state's number in /proc/net/tcp


def bind(host: str, port: int) -> socket.socket:
    """A listening socket's beginning; raises OptionError that names who has the port."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise OptionError(f"host {host!r} is not an address: {error.strerror}") from None
    sock = socket.socket(family, kind, proto)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
        sock.listen(1024)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise OptionError(
                f"port {port} of {host} is taken by {owner(port)}", "choose another with --port"
            ) from None
        raise OptionError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    sock.set_inheritable(False)
    return sock


def owner(port: int) -> str:
    """Process number and command of who listens on `port`, as far as we may see."""
    inodes = {
        f"socket:[{fields[9]}]"
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for fields in _rows(table)
        if fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port
    }
    for path in glob.iglob("/proc/[0-9]*/fd/*"):
        try:
            if os.readlink(path) in inodes:
                pid = path.split("/")[2]
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
                return f"process {pid} ({' '.join(words.split(chr(0))).strip()[:120]})"
        except OSError:
            continue  # it has ended, or is another user's
    return "another user's process"


def _rows(table: str) -> list[list[str]]:
    try:
        return [line.split() for line in Path(table).read_text().splitlines()[1:]]
    except OSError:
        return []
