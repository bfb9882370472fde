"""java-hll behind a small program, which takes the commands that our own example takes."""

import os
import pathlib
import shutil
import subprocess

from programs import REPOSITORY, MissingError, Program, target

FOLDER = pathlib.Path(__file__).parent / "java"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def program():
    """Compile the program and start it; Maven has what it stands on, kept in the target folder."""
    for tool in ("javac", "java"):
        if not shutil.which(tool):
            raise MissingError(f"`{tool}` is not installed")
    kept = target() / "java-hll"
    jars = kept / "jars"
    pom = (FOLDER / "pom.xml").read_text()
    done = kept / "pom.xml"
    if not done.exists() or done.read_text() != pom:
        if not shutil.which("mvn"):
            raise MissingError("Maven is not installed")
        shutil.rmtree(kept, ignore_errors=True)
        jars.mkdir(parents=True)
        told = subprocess.run(
            ["mvn", "-q", "-B", "-f", FOLDER / "pom.xml", PLUGIN, f"-DoutputDirectory={jars}"],
            capture_output=True,
            text=True,
            cwd=REPOSITORY,
        )
        if told.returncode:
            raise MissingError(f"Maven cannot get java-hll: {told.stdout[-500:]}")
        done.write_text(pom)
    classes = kept / "classes"
    classes.mkdir(exist_ok=True)
    path = os.pathsep.join(map(str, [*jars.glob("*.jar"), classes]))
    source = FOLDER / "Peer.java"
    subprocess.run(
        ["javac", "-Xlint:all", "-Werror", "-cp", path, "-d", classes, source], check=True
    )
    return Program(["java", "-cp", path, "Peer"])
