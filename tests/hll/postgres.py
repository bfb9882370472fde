"""A PostgreSQL server of one's own with the `hll` extension, for as long as a test takes.

It listens on a socket in a folder of its own and on no port, so that it meets no other server.
"""

import contextlib
import glob
import os
import pathlib
import pwd
import shutil
import subprocess
import tempfile

from programs import MissingError


def binaries():
    """Find the newest PostgreSQL that has the extension."""
    folders = {pathlib.Path(path).parent for path in glob.glob("/usr/lib/postgresql/*/bin/initdb")}
    if found := shutil.which("pg_config"):
        told = subprocess.run([found, "--bindir"], check=True, capture_output=True, text=True)
        folders.add(pathlib.Path(told.stdout.strip()))
    if not folders:
        raise MissingError("PostgreSQL is not installed")
    with_extension = []
    for folder in folders:
        version = folder.parent.name
        share = [pathlib.Path(f"/usr/share/postgresql/{version}")]
        if (folder / "pg_config").exists():
            told = subprocess.run(
                [folder / "pg_config", "--sharedir"], check=True, capture_output=True, text=True
            )
            share.append(pathlib.Path(told.stdout.strip()))
        if (folder / "initdb").exists() and any(
            (path / "extension" / "hll.control").exists() for path in share
        ):
            with_extension.append(folder)
    if not with_extension:
        raise MissingError("PostgreSQL has no `hll` extension (postgresql-NN-hll)")
    return max(with_extension, key=lambda folder: [int(n) for n in folder.parts if n.isdigit()])


def account():
    """Tell who runs the server: it refuses to be run by root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise MissingError("PostgreSQL is not run by root, and there is no other user")


class Server:
    """The running server."""

    def __init__(self, folder, programs, user):
        self.folder = folder
        self.programs = programs
        self.user = user

    def call(self, program, *arguments, **options):
        """Run a program of PostgreSQL as the server's user."""
        if self.user:
            options |= {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "HOME": self.folder}
        try:
            return subprocess.run(
                [self.programs / program, *arguments],
                check=True,
                capture_output=True,
                text=True,
                cwd=self.folder,
                env=environment,
                **options,
            )
        except subprocess.CalledProcessError as error:
            log = pathlib.Path(self.folder, "log")
            said = log.read_text() if log.exists() else ""
            raise AssertionError(f"{program}: {error.stderr}\n{error.stdout}\n{said}") from None

    def ask(self, statements):
        """Run statements in one session and give what each SELECT of one value answers, as text."""
        script = "".join(f"{statement};\n" for statement in statements)
        arguments = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-P", "null=NULL"]
        told = self.call("psql", *arguments, "-h", self.folder, "-d", "postgres", input=script)
        return told.stdout.splitlines()


@contextlib.contextmanager
def server():
    """Start a server and stop it afterwards."""
    programs, user = binaries(), account()
    # Under /tmp for the length of its path: a socket's may have a hundred characters.
    with tempfile.TemporaryDirectory(prefix="tidemill-pg-", dir="/tmp") as folder:
        if user:
            os.chown(folder, user.pw_uid, user.pw_gid)
        running = Server(folder, programs, user)
        data = os.path.join(folder, "data")
        options = ["-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        running.call("initdb", "-D", data, *options)
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": folder,
            "fsync": "off",
            "shared_buffers": "16MB",
            "jit": "off",
            "max_connections": "5",
            "autovacuum": "off",
        }
        options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        log = os.path.join(folder, "log")
        running.call("pg_ctl", "start", "-w", "-s", "-D", data, "-l", log, "-o", options)
        try:
            running.ask(["CREATE EXTENSION hll"])
            yield running
        finally:
            running.call("pg_ctl", "stop", "-w", "-s", "-m", "immediate", "-D", data)
