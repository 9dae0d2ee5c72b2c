"""Downloads against a local server that breaks off, lies and forgets: whole files, or one clear error."""

import gzip
import hashlib
import importlib
import io
import re
import struct
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

import hpcdl.data
from hpcdl.data import download
from hpcdl.data.download import DownloadError, RemoteFile, fetch

# The functions of the same names hide these two modules in `hpcdl.data`.
cifar10, mnist = (importlib.import_module(f"hpcdl.data.{name}") for name in ("cifar10", "mnist"))

DATA = bytes(range(256)) * 200


class Server(ThreadingHTTPServer):
    """Serves `files` by path; `cut` closes each connection after so many bytes; `ranges` False ignores Range."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.cut, self.ranges, self.stall, self.release = None, True, False, threading.Event()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"

    def file(self, name: str, data: bytes, *mirrors: str) -> RemoteFile:
        self.files.setdefault(f"/{name}", data)
        return RemoteFile(name, len(data), hashlib.sha256(data).hexdigest(), (*mirrors, self.url(name)))


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):  # the name is http.server's
        wanted = self.headers.get("Range", "")
        self.server.requests.append((self.path, wanted))
        if self.path not in self.server.files:
            self.send_error(404)
            return
        data = self.server.files[self.path]
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted).group(1)) if self.server.ranges else 0
        self.send_response(206 if self.server.ranges else 200)
        if self.server.ranges:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:][: self.server.cut])
        self.wfile.flush()
        if self.server.stall:
            self.server.release.wait(10)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.release.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def dead_url(held_port):
    """An address at which nothing listens."""
    return f"http://127.0.0.1:{held_port()}/x"


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_a_file_is_fetched_once_and_then_comes_from_the_cache(server, tmp_path):
    file = server.file("a.bin", DATA)
    assert fetch(file, tmp_path / "new" / "folder").read_bytes() == DATA
    assert fetch(file, tmp_path / "new" / "folder").read_bytes() == DATA
    assert len(server.requests) == 1
    assert names(tmp_path / "new" / "folder") == ["a.bin"]


def test_a_cut_download_keeps_its_part_and_resumes_where_it_stopped(server, tmp_path):
    file = server.file("a.bin", DATA)
    server.cut = 10_000
    with pytest.raises(DownloadError, match=r"after 10,000 of 51,200 bytes"):
        fetch(file, tmp_path)
    assert names(tmp_path) == ["a.bin.part"]
    server.cut = None
    assert fetch(file, tmp_path).read_bytes() == DATA
    assert server.requests[-1] == ("/a.bin", "bytes=10000-")
    assert names(tmp_path) == ["a.bin"]


def test_a_server_without_ranges_sends_it_all_again(server, tmp_path):
    file = server.file("a.bin", DATA)
    (tmp_path / "a.bin.part").write_bytes(DATA[:777])
    server.ranges = False
    assert fetch(file, tmp_path).read_bytes() == DATA


@pytest.mark.parametrize("leftover", [b"<html>", DATA[:-1] + b"x", DATA + b"more"], ids=["short", "full", "long"])
def test_a_bad_leftover_is_thrown_away_and_the_file_fetched_afresh(server, tmp_path, leftover):
    file = server.file("a.bin", DATA)
    (tmp_path / "a.bin.part").write_bytes(leftover)
    assert fetch(file, tmp_path).read_bytes() == DATA


def test_a_cached_file_that_was_damaged_is_fetched_again(server, tmp_path):
    file = server.file("a.bin", DATA)
    (tmp_path / "a.bin").write_bytes(DATA[:-1] + b"x")
    assert fetch(file, tmp_path).read_bytes() == DATA


def test_mirrors_are_tried_in_order(server, tmp_path, dead_url):
    server.files["/login"] = b"<html>please log in</html>"
    server.files["/evil"] = DATA[::-1]
    file = server.file("a.bin", DATA, dead_url, server.url("missing"), server.url("login"), server.url("evil"))
    assert fetch(file, tmp_path).read_bytes() == DATA
    assert [path for path, _ in server.requests] == ["/missing", "/login", "/evil", "/a.bin"]


def test_failed_mirrors_are_named_with_reasons(server, tmp_path, dead_url):
    server.files["/login"] = b"<html>please log in</html>"
    server.files["/evil"] = DATA[::-1]
    urls = (dead_url, server.url("missing"), server.url("login"), server.url("evil"))
    file = RemoteFile("a.bin", len(DATA), hashlib.sha256(DATA).hexdigest(), urls)
    with pytest.raises(DownloadError) as error:
        fetch(file, tmp_path)
    message = str(error.value)
    assert "Connection refused" in message
    assert "HTTP 404" in message
    assert "a login page of your network?" in message
    assert "sent other bytes" in message
    assert str(tmp_path / "a.bin") in message, "where to put it by hand"
    assert "HPCDL_DATA" in message
    assert names(tmp_path) == [], "bad bytes are not kept"


def test_a_server_that_falls_silent_is_left_after_a_while(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "STALLED", 0.3)
    file = server.file("a.bin", DATA)
    server.cut, server.stall = 10_000, True
    with pytest.raises(DownloadError, match=r"no answer for 0\.3 s"):
        fetch(file, tmp_path)


def test_several_ranks_at_once_cause_one_download(server, tmp_path):
    file = server.file("a.bin", DATA)
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: fetch(file, tmp_path), range(8)))
    assert {path.read_bytes() for path in paths} == {DATA}
    assert len(server.requests) == 1


def test_a_folder_that_cannot_be_made_is_named_with_the_way_out(server, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DownloadError, match=r"cannot keep a\.bin in .*file/inside.*HPCDL_DATA"):
        fetch(server.file("a.bin", DATA), tmp_path / "file" / "inside")


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("HPCDL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert download.cache_folder() == tmp_path / "hpcdl"
    monkeypatch.setenv("HPCDL_DATA", str(tmp_path / "mine"))
    assert download.cache_folder() == tmp_path / "mine"


def test_a_big_file_shows_its_progress(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(download, "BIG", 1)
    fetch(server.file("a.bin", DATA), tmp_path)
    assert "a.bin" in capsys.readouterr().out


# The two data sets, in miniature: the real format, a few records, from the local server


def idx(array: torch.Tensor) -> bytes:
    header = struct.pack(f">4B{array.dim()}I", 0, 0, 8, array.dim(), *array.shape)
    return gzip.compress(header + array.numpy().tobytes())


def test_mnist_gives_both_parts_as_images_and_labels(server, monkeypatch, tmp_path):
    generator, parts = torch.Generator().manual_seed(0), {}
    for prefix, n in {"train": 5, "t10k": 3}.items():
        parts[prefix] = torch.randint(0, 256, (n, 28, 28), dtype=torch.uint8, generator=generator)
        labels = torch.arange(n, dtype=torch.uint8)
        for name, array in {"images-idx3-ubyte.gz": parts[prefix], "labels-idx1-ubyte.gz": labels}.items():
            monkeypatch.setitem(mnist.FILES, f"{prefix}-{name}", server.file(f"{prefix}-{name}", idx(array)))
    data = hpcdl.data.mnist(tmp_path)
    assert data.x.shape == (5, 1, 28, 28)
    assert data.x.dtype == torch.float32
    assert torch.equal((data.x * 255).round().byte().squeeze(1), parts["train"])
    assert torch.equal((data.x_held_out * 255).round().byte().squeeze(1), parts["t10k"])
    assert data.y.tolist() == [0, 1, 2, 3, 4]
    assert data.y_held_out.dtype == torch.int64


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "begins with nothing"),
        (b"\0\0\x0d\x01....", "not an IDX file"),
        (b"\0\0\x08\x01\0\0\0\x09ab", "promises 9"),
    ],
)
def test_a_file_that_is_not_idx_says_what_it_is(tmp_path, raw, message):
    (tmp_path / "x.gz").write_bytes(gzip.compress(raw))
    with pytest.raises(ValueError, match=message):
        mnist.read_idx(tmp_path / "x.gz")


def cifar_archive(per_batch: int) -> tuple[bytes, dict[str, torch.Tensor]]:
    generator, records, out = torch.Generator().manual_seed(1), {}, io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name in ("test_batch.bin", *(f"data_batch_{i}.bin" for i in (3, 1, 2, 5, 4))):  # in no useful order
            batch = torch.randint(0, 256, (per_batch, cifar10.RECORD), dtype=torch.uint8, generator=generator)
            batch[:, 0] %= 10
            records[name] = batch
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = batch.numel()
            tar.addfile(member, io.BytesIO(batch.numpy().tobytes()))
    return out.getvalue(), records


def test_cifar10_gives_its_batches_in_order_and_the_last_held_out(server, monkeypatch, tmp_path):
    raw, records = cifar_archive(3)
    monkeypatch.setattr(cifar10, "ARCHIVE", server.file("cifar-10-binary.tar.gz", raw))
    data = hpcdl.data.cifar10(tmp_path)
    expected = torch.cat([records[f"data_batch_{i}.bin"] for i in range(1, 6)])
    assert data.x.shape == (15, 3, 32, 32)
    assert torch.equal(data.y, expected[:, 0].long())
    assert torch.equal(data.y_held_out, records["test_batch.bin"][:, 0].long())
    assert data.x[4, 2, 31, 7].item() == pytest.approx(expected[4, 1 + 2 * 1024 + 31 * 32 + 7].item() / 255)
    with pytest.raises(ValueError, match=r"lacks no\.bin"):
        cifar10.read_records(tmp_path / "cifar-10-binary.tar.gz", ("no.bin",))


def test_every_real_file_has_a_full_checksum_and_two_encrypted_mirrors():
    for file in (*mnist.FILES.values(), cifar10.ARCHIVE):
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert len(file.urls) == 2
        assert all(url.startswith("https://") and url.endswith(file.name) for url in file.urls)
