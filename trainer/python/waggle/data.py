"""Data that is read a block at a time, for `Swarm.stream`. A block is one claim of a loop, and what weighs are the
records in there.

    stream = swarm.stream(waggle.data.jsonl("data/*.jsonl", block="4MiB"), passes=3)

Blocks are read where they are needed, by the workers of a DataLoader, so the data may be larger than memory."""

from __future__ import annotations

import array
import bisect
import contextlib
import errno
import functools
import glob
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Union

from ._options import whole

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_BLOCK_MAX = 1 << 30
_LINE_MAX = 1 << 20  # or a block, if that is larger
_LOOK_AHEAD = 1 << 14  # for the end of the last line
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".lz4")
_line = re.compile(rb"[^\n\0]+")  # a hole of a sparse file reads as zeros, and begins no line
_end = re.compile(rb"[\n\0]")

Files = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]


class Blocks:
    """Data of `len()` blocks, of which `read(i)` has the records of block i. `description`: what peers compare; of several lines, the
    first, and the others one by one, so that a disagreement names the first that differs."""

    def __init__(self, count: int, read: Callable[[int], Sequence[Any]], description: str) -> None:
        self._count = count
        self.read = read
        self.description = description

    def __len__(self) -> int:
        return self._count


class Block:
    """The records of one block of a stream, and its number. A list, which reads lines when they are asked for."""

    __slots__ = ("number", "records")

    def __init__(self, number: int, records: Sequence[Any]) -> None:
        self.number = number
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, at: Any) -> Any:
        return self.records[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.records)

    def __repr__(self) -> str:
        return f"<block {self.number}: {len(self)} records>"


class _Lines(Sequence[Any]):
    """Records of a part of a file. A worker has read it and found them; whoever asks for some reads these once more, from the
    system's cache, so that no memory holds a block."""

    def __init__(self, path: str, size: int, begin: int, starts: array.array[int], stop: int,
                 decode: Callable[[bytes], Any]) -> None:
        self.path = path
        self.size = size
        self.begin = begin  # in the file
        self.starts = starts  # from there on
        self.stop = stop  # of the last one
        self.decode = decode

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, slice):
            return self._read(range(len(self))[at], 1)[0]
        numbers = range(*at.indices(len(self)))
        if numbers.step == 1:
            return self._read(numbers.start, len(numbers))
        return [self[i] for i in numbers]

    def __iter__(self) -> Iterator[Any]:
        for i in range(0, len(self), 32):
            yield from self[i:i + 32]

    def _read(self, first: int, count: int) -> list[Any]:
        if count == 0:
            return []
        starts = self.starts[first:first + count]
        stop = self.starts[first + count] if first + count < len(self) else self.stop
        begin = self.begin + starts[0]
        with _opened(self.path, self.size, begin, self.begin + stop) as file:
            data = _pread(file, begin, self.begin + stop)
        out = []
        for start in starts:
            found = _line.match(data, start - starts[0])
            try:
                out.append(self.decode(found.group() if found else b""))
            except ValueError as e:
                raise ValueError(f"{self.path}, byte {self.begin + start}: {e}") from None
        return out


@contextlib.contextmanager
def _opened(path: str, size: int, begin: int, end: int) -> Iterator[int]:
    try:
        with open(path, "rb", buffering=0) as file:
            now = os.fstat(file.fileno()).st_size
            if now != size:
                raise ValueError(f"{path} has {now} bytes now, and had {size} when the stream was made: files of a stream must "
                                 "not change")
            yield file.fileno()
    except OSError as e:
        raise OSError(f"{path}, bytes {begin} to {end}: the block cannot be read: {e.strerror}") from None


def _json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError as e:
        raise ValueError(f"no line of JSON: {e}") from None


def _text(line: bytes) -> str:
    return line.decode().rstrip("\r")


class _Files:
    """Reads block i of several files: the lines that begin in it. So nobody needs an index."""

    def __init__(self, files: list[tuple[str, int]], block: int, decode: Callable[[bytes], Any]) -> None:
        self.files = files
        self.block = block
        self.decode = decode
        self.ends: list[int] = []  # of each file's blocks
        for _, size in files:
            self.ends.append((self.ends[-1] if self.ends else 0) + -(-size // block))

    def __call__(self, number: int) -> Sequence[Any]:
        which = bisect.bisect_right(self.ends, number)
        path, size = self.files[which]
        begin = (number - (self.ends[which - 1] if which else 0)) * self.block
        end = min(begin + self.block, size)
        with _opened(path, size, begin, end) as file:
            return self._lines(path, file, begin, end, size)

    def _lines(self, path: str, file: int, begin: int, end: int, size: int) -> Sequence[Any]:
        """The lines that begin in [begin, end): after the end of another line, or at the beginning of the file."""
        start = max(begin - 1, 0)  # a line that begins at `begin` has an end before it
        if _is_hole(file, start, end):
            return []
        data = _pread(file, start, min(end + _LOOK_AHEAD, size))
        first = 0
        if begin > 0:
            found = _end.search(data, 0, end - start - 1)
            first = found.end() if found else end - start
        starts, stop = array.array("I"), 0
        for line in _line.finditer(data, first):
            if line.start() >= end - start:
                break
            goes_on = line.end() == len(data) and start + len(data) < size
            if goes_on or not line.group().isspace():
                starts.append(line.start())
                stop = line.end()
        if starts and stop == len(data):
            stop = self._end_of(path, file, start, starts[-1], stop, size)
        return _Lines(path, size, start, starts, stop, self.decode)

    def _end_of(self, path: str, file: int, start: int, line: int, stop: int, size: int) -> int:
        line_max = max(self.block, _LINE_MAX)
        while start + stop < size:
            if stop - line > line_max:
                raise ValueError(f"{path}, byte {start + line}: the line is longer than {line_max} bytes: take larger blocks, "
                                 "if it is one")
            more = _pread(file, start + stop, min(start + stop + _LINE_MAX, size))
            found = _end.search(more)
            if found:
                return stop + found.start()
            stop += len(more)
        return stop


def _is_hole(file: int, begin: int, end: int) -> bool:
    """As reading would find out, but without."""
    try:
        return os.lseek(file, begin, os.SEEK_DATA) >= end
    except OSError as e:
        return e.errno == errno.ENXIO  # nothing but a hole is left; others: the file system cannot say


def _pread(file: int, begin: int, end: int) -> bytes:
    data = os.pread(file, end - begin, begin)
    while len(data) < end - begin:  # a signal, or a file on a network
        more = os.pread(file, end - begin - len(data), begin + len(data))
        if not more:
            raise OSError(0, "the file has ended")
        data += more
    return data


def _size(block: int | str) -> int:
    number: int | str = block
    unit = ""
    if isinstance(block, str):
        found = re.fullmatch(r"(\d+) ?(\w*)", block)
        if not found or found[2] not in _UNITS:
            raise ValueError(f"block is {block!r}, and must be a size, such as \"4MiB\"")
        number, unit = int(found[1]), found[2]
    size = whole("block", number, 1) * _UNITS[unit]
    if size > _BLOCK_MAX:
        raise ValueError(f"block is {block!r}, and must be at most 1GiB: it is read into memory at once")
    return size


def _found(files: Files) -> list[str]:
    """In an order that does not depend on the machine."""
    out: list[str] = []
    if not isinstance(files, (str, os.PathLike, list, tuple)):
        raise TypeError(f"files is of type {type(files).__name__}, and must be a path, a pattern, or a list of them")
    for each in [files] if isinstance(files, (str, os.PathLike)) else files:
        name = os.fspath(each)
        matching = [name] if os.path.exists(name) else glob.glob(name, recursive=True)
        if not matching:
            raise FileNotFoundError(f"there is no file {name}")
        out += sorted(matching)
    for name in out:
        if os.path.isdir(name):
            raise ValueError(f"{name} is a folder: name its files, such as \"{os.path.join(name, '*')}\"")
        if name.endswith(_PACKED):
            raise ValueError(f"{name} is packed, so a block of it cannot be read alone: unpack it, or read one file a block "
                             "with waggle.data.blocks")
    return out


def _of_files(files: Files, block: int | str, decode: Callable[[bytes], Any]) -> Blocks:
    size = _size(block)
    found = [(name, os.stat(name).st_size) for name in _found(files)]
    reader = _Files(found, size, decode)
    if not reader.ends or reader.ends[-1] == 0:
        raise ValueError(f"{files!r}: all files are empty")
    named = [(os.path.basename(name), length, size) for name, length in found]
    digest = hashlib.sha256(json.dumps(named).encode()).hexdigest()[:16]
    words = [re.sub(r"[\x00-\x1f\x7f]", "?", f"{name} of {length} bytes") for name, length, _ in named]
    where = words[0] if len(words) == 1 else "\n".join([f"{len(words)} files (names and sizes {digest})", *words])
    return Blocks(reader.ends[-1], reader, f"{reader.ends[-1]} blocks of {size} bytes in {where}")


def jsonl(files: Files, block: int | str = "4MiB") -> Blocks:
    """Lines of JSON in one or several files. files: a path, a pattern such as "data/*.jsonl", or a list of them.
    block: bytes, or a size such as "4MiB". A block has the lines that begin in it; blank lines, and the zeros of a hole in a
    sparse file, are none. A line may be as long as a block, or 1 MiB.

    Peers compare names (without folders) and sizes of the files, in order."""
    return _of_files(files, block, _json)


def text(files: Files, block: int | str = "4MiB") -> Blocks:
    """The same of lines of text in UTF-8."""
    return _of_files(files, block, _text)


def blocks(n: int, read: Callable[[int], Sequence[Any]], *, name: str = "") -> Blocks:
    """`n` blocks, of which `read(i)` returns the list of records of block i, on any machine the same. Workers of a
    DataLoader call it. name: what peers compare, beside n."""
    if not callable(read):
        raise TypeError(f"read is of type {type(read).__name__}, and must be a function of the number of a block")
    return Blocks(whole("n", n, 1), read, f"{n} blocks" + (f" of {name}" if name else ""))


def _rows(dataset: Any, rows: int, number: int) -> list[Any]:
    return _records(dataset[number * rows:(number + 1) * rows])


def _shard(dataset: Any, number: int) -> list[Any]:
    # Its iterator would split the shard once more among the workers of a DataLoader; iter does not ask for them.
    shard = dataset.shard(num_shards=dataset.num_shards, index=number)
    return [record for columns in shard.iter(batch_size=256) for record in _records(columns)]


def _records(columns: Mapping[str, Sequence[Any]]) -> list[Any]:
    return [dict(zip(columns, values)) for values in zip(*columns.values())]


def hf(dataset: Any, *, rows: int = 1000) -> Blocks:
    """A data set of Hugging Face datasets. One that is streamed: a block is a shard of it, which fits into memory (of
    Parquet, `dataset.reshard()` makes a shard of each row group). Another one: a block is `rows` rows. Shuffle it with a seed
    that all peers have; peers compare the number of blocks, columns, and some rows."""
    rows = whole("rows", rows, 1)
    columns = sorted(getattr(dataset, "column_names", None) or [])
    of = f" with columns {', '.join(columns)}" if columns else ""
    if hasattr(dataset, "num_shards") and not hasattr(dataset, "__len__"):
        if dataset.num_shards < 2:
            raise ValueError("the data set has one shard, so one loop would get all of it: read its files with "
                             "waggle.data.jsonl or text, or call its reshard() before, which splits Parquet")
        return Blocks(dataset.num_shards, functools.partial(_shard, dataset), f"{dataset.num_shards} shards{of}")
    if not all(hasattr(dataset, name) for name in ("__len__", "__getitem__", "column_names", "features")):
        raise TypeError(f"dataset is of type {type(dataset).__name__}, and must be a Dataset or an IterableDataset of "
                        "Hugging Face datasets: take a split of it, such as [\"train\"]")
    if len(dataset) == 0:
        raise ValueError("the data set is empty")
    some = [dataset[i] for i in (0, len(dataset) // 2, len(dataset) - 1)]
    digest = hashlib.sha256(json.dumps(some, default=lambda value: type(value).__name__).encode()).hexdigest()[:16]
    n = -(-len(dataset) // rows)
    return Blocks(n, functools.partial(_rows, dataset, rows), f"{n} blocks of {len(dataset)} rows{of} (some of them {digest})")
