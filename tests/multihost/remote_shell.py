"""A remote shell for hosts that are network namespaces: as with ssh, its connection is one of TCP, which ends with the link.

`remote_shell.py HOST COMMAND` runs the command on a host on which `remote_shell.py --serve ADDRESS` runs.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys

PORT = 2222
BYTES = 65536


def serve(address: str) -> None:
    """Runs the commands that come, each with its connection as standard input and output."""
    with socket.create_server((address, PORT)) as listener:
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            command = b""
            while not command.endswith(b"\0"):
                command += connection.recv(1)
            subprocess.Popen(["sh", "-c", command[:-1].decode()], stdin=connection, stdout=connection, start_new_session=True)
            connection.close()


def run(host: str, command: str) -> None:
    """Passes on what comes, until the other side closes the connection."""
    with socket.create_connection((host, PORT), timeout=10) as connection:
        connection.settimeout(None)
        connection.sendall(command.encode() + b"\0")
        sources = [0, connection.fileno()]
        while True:
            for source in select.select(sources, [], [])[0]:
                data = os.read(source, BYTES)
                if source == 0 and not data:
                    connection.shutdown(socket.SHUT_WR)
                    sources.remove(0)
                elif source == 0:
                    connection.sendall(data)
                elif not data:
                    return
                while source != 0 and data:
                    data = data[os.write(1, data) :]


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2])
    else:
        run(sys.argv[1], " ".join(sys.argv[2:]))
