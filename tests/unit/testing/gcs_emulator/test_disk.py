"""Persistence of the emulator in a directory."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from memlite.core.errors import StartError
from memlite.testing.gcs_emulator import Disk, GcsError, Store
from memlite.testing.gcs_emulator.api import Api
from memlite.testing.gcs_emulator.messages import Request
from memlite.testing.gcs_emulator.model import Attributes

ATTRIBUTES = Attributes(
    content_type="a/b", custom_time=datetime(2024, 5, 1, tzinfo=UTC), metadata={"a": "é\n"}
)


@pytest.fixture
def disk(tmp_path):
    disk = Disk(tmp_path / "data")
    yield disk
    disk.close()


def test_buckets_and_objects_survive_a_restart(disk):
    first = Store(persistence=disk)
    first.insert_bucket("one", {"labels": {"a": "b"}})
    first.insert_bucket("two")
    first.insert_bucket("gone")
    first.update_bucket(first.bucket("one"), {"labels": {"c": "d"}})
    first.delete_bucket(first.bucket("gone"))
    for name in ("a", "a/b", "é\U0010ffff", "../x", "x" * 1024, "deleted"):
        first.insert("one", name, name.encode() + b"\n\0", ATTRIBUTES)
    first.update("one", "a", lambda before: replace(before, cache_control="no-store"))
    first.delete("one", "deleted")
    first.insert("two", "a", b"", Attributes())
    second = Store(persistence=disk)
    assert second.buckets.keys() == {"one", "two"}
    for name, bucket in second.buckets.items():
        before = first.bucket(name)
        assert bucket.objects == before.objects
        assert (bucket.properties, bucket.metageneration, bucket.created, bucket.updated) == (
            before.properties, before.metageneration, before.created, before.updated,
        )  # fmt: skip


def test_generations_are_not_reused_when_the_clock_goes_back(disk):
    first = Store(persistence=disk, clock=lambda: 2e9)
    first.insert_bucket("one")
    used = {first.insert("one", f"{number}", b"", Attributes()).generation for number in range(99)}
    second = Store(persistence=disk, clock=lambda: 1e9)
    assert second.insert("one", "0", b"", Attributes()).generation not in used


def test_temporary_files_of_a_killed_process_are_removed(disk, tmp_path):
    Store(persistence=disk).insert_bucket("one")
    unfinished = tmp_path / "data" / "one" / "0123.new"
    unfinished.write_bytes(b"half")
    assert Store(persistence=disk).bucket("one").objects == {}
    assert not unfinished.exists()


@pytest.mark.parametrize("damage", ["truncated", "foreign", "bucket"])
def test_damaged_files_are_refused(disk, tmp_path, damage):
    store = Store(persistence=disk)
    store.insert_bucket("one")
    store.insert("one", "a", b"value", Attributes())
    folder = tmp_path / "data" / "one"
    (file,) = (path for path in folder.iterdir() if path.name != "bucket.json")
    if damage == "bucket":
        file = folder / "bucket.json"
    file.write_bytes(b"foreign" if damage == "foreign" else file.read_bytes()[:-1])
    with pytest.raises(StartError, match="not written by the emulator") as caught:
        Store(persistence=disk)
    assert str(file) in str(caught.value)


def test_only_one_emulator_can_use_a_directory(disk, tmp_path):
    with pytest.raises(StartError, match="in use by another emulator"):
        Disk(tmp_path / "data")


def test_a_directory_that_cannot_be_created(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match="file: "):
        Disk(tmp_path / "file")


def test_a_failed_write_changes_nothing(disk, monkeypatch):
    def fail(stored):
        raise OSError(28, "No space left on device")

    store = Store(persistence=disk)
    store.insert_bucket("one")
    monkeypatch.setattr(disk, "put_object", fail)
    upload = "/upload/storage/v1/b/one/o?uploadType=media&name=a"
    assert Api(store).handle(Request("POST", upload)).status == 500
    with pytest.raises(GcsError):
        store.get("one", "a")
