"""Files that are put together on a machine: once, whole, and of right content."""

import hashlib
import multiprocessing
import os
import stat

import pytest

from tidemill._errors import UsageError
from tidemill.ray import _files
from tidemill.ray._files import MachineFolder, SharedFile, Shelf


class Store:
    """An object store of this process, with a count of what was asked for."""

    def __init__(self):
        self.kept = []
        self.gets = 0

    def put(self, piece):
        self.kept.append(bytes(piece))
        return len(self.kept) - 1

    def get(self, places):
        self.gets += len(places)
        return [self.kept[place] for place in places]


CONTENT = bytes(range(256)) * 20


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(_files, "PIECE_BYTES", 100)
    return Store()


def named(path, name="x.dat", is_executable=False):
    found = os.stat(path)
    return (name, str(path), path.name, found.st_size, found.st_mtime_ns, is_executable)


@pytest.fixture
def shared(store, tmp_path):
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return Shelf(store).put([named(path)])[0]


def test_a_file_is_put_together_from_its_pieces_once(store, shared, tmp_path):
    folder = MachineFolder("node1", str(tmp_path))
    path = folder.path(shared, store.get)
    with open(path, "rb") as file:
        assert file.read() == CONTENT
    assert len(shared.pieces) == store.gets == 52
    assert list(folder.written) == [shared.digest] == [hashlib.sha256(CONTENT).hexdigest()]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o444
    # Another worker of the machine finds it.
    other = MachineFolder("node1", str(tmp_path))
    assert other.path(shared, store.get) == path
    assert store.gets == 52 and not other.written
    # That may be run is another file.
    run = SharedFile("x.dat", shared.digest, shared.size, True, shared.pieces)
    ran = other.path(run, store.get)
    assert ran != path and stat.S_IMODE(os.stat(ran).st_mode) == 0o555
    folder.leave()
    assert os.path.exists(path)
    other.leave()
    assert not os.path.exists(os.path.dirname(path))
    other.leave()


def test_what_a_killed_worker_began_is_begun_again(store, shared, tmp_path):
    folder = MachineFolder("node1", str(tmp_path))

    class Killed(BaseException):
        pass

    def get(places):
        if store.gets > 20:
            raise Killed
        return store.get(places)

    with pytest.raises(Killed):
        folder.path(shared, get)
    store.gets = 0
    with open(folder.path(shared, store.get), "rb") as file:
        assert file.read() == CONTENT


def test_other_bytes_than_were_sent_are_refused(store, shared, tmp_path):
    folder = MachineFolder("node1", str(tmp_path))
    store.kept[7] = bytes(100)
    with pytest.raises(RuntimeError, match="other bytes"):
        folder.path(shared, store.get)
    folder_of_node = os.path.join(tmp_path, f"tidemill-files-{os.getuid()}", "node1")
    assert not os.path.exists(os.path.join(folder_of_node, shared.digest))


def test_a_file_that_was_written_to_is_put_together_again(store, shared, tmp_path):
    folder = MachineFolder("node1", str(tmp_path))
    path = folder.path(shared, store.get)
    os.chmod(path, 0o644)
    for spoil in [lambda: os.truncate(path, 5), lambda: open(path, "r+b").write(b"no")]:
        spoil()
        with open(folder.path(shared, store.get), "rb") as file:
            assert file.read() == CONTENT


def holds(parent, node, is_there, may_end):
    folder = MachineFolder(node, parent)
    is_there.set()
    may_end.wait()
    del folder
    os._exit(0)


def test_a_folder_that_nobody_holds_goes_with_the_next_and_others_stay(tmp_path):
    context = multiprocessing.get_context("fork")
    is_there, may_end = context.Event(), context.Event()
    process = context.Process(target=holds, args=(str(tmp_path), "node1", is_there, may_end))
    process.start()
    is_there.wait()
    root = tmp_path / f"tidemill-files-{os.getuid()}"
    first = MachineFolder("node2", str(tmp_path))
    assert (root / "node1").is_dir() and (root / "node2").is_dir()
    may_end.set()
    process.join()
    second = MachineFolder("node3", str(tmp_path))
    assert sorted(entry.name for entry in root.iterdir()) == ["node2", "node3"]
    first.leave()
    second.leave()
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".x", "x\0"])
def test_names_that_are_none_are_refused(name, store, shared, tmp_path):
    with pytest.raises(ValueError, match="is no name"):
        MachineFolder(name, str(tmp_path))
    folder = MachineFolder("node1", str(tmp_path))
    hostile = SharedFile("x.dat", name, shared.size, False, shared.pieces)
    with pytest.raises(ValueError, match="is no name"):
        folder.path(hostile, store.get)


def test_a_folder_of_somebody_else_is_not_used(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"tidemill-files-{os.getuid()}").symlink_to(elsewhere)
    with pytest.raises(PermissionError, match="somebody else"):
        MachineFolder("node1", str(tmp_path))
    assert list(elsewhere.iterdir()) == []


def test_a_file_is_read_once_as_long_as_it_is_the_same(store, tmp_path, monkeypatch):
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    shelf = Shelf(store)
    first = shelf.put([named(path)])[0]
    assert shelf.put([named(path, "y.dat")])[0].pieces == first.pieces
    assert shelf.reads == 1
    # Read, and found to be the same: no piece of it is kept twice.
    (tmp_path / "copy").write_bytes(CONTENT)
    assert shelf.put([named(tmp_path / "copy")])[0].pieces == first.pieces
    listed = named(path)
    path.write_bytes(CONTENT + b"more")
    with pytest.raises(UsageError, match="changed while it was read"):
        shelf.put([listed])
    assert shelf.put([named(path)])[0].digest != first.digest
    assert shelf.reads == 3
    # What is too much is let go of, the oldest first.
    monkeypatch.setattr(_files, "_KEPT_BYTES", len(CONTENT))
    for count in range(3):
        path.write_bytes(CONTENT + bytes(count))
        shelf.put([named(path)])
        assert len(shelf._kept) == 1
    path.unlink()
    with pytest.raises(UsageError, match="No such file"):
        shelf.put([listed])
