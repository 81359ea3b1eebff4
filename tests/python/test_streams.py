"""Loops whose data is dealt by blocks: each record enters one update a pass, and records weigh."""

import json
import pathlib
import random

import pytest
import torch
from support import PROGRAM, ROOT, join, processes
from torch.utils.data import DataLoader

import waggle

HERE = pathlib.Path(__file__).parent
RECORDS = 403
PASSES = 2
BLOCK = 500


def write_records(folder, count=RECORDS):
    """In two files, with blank lines, ends of lines of both kinds, and lines longer than a block."""
    folder.mkdir()
    chance = random.Random(1)
    for name, numbers in (("a.jsonl", range(0, count // 3)), ("b.jsonl", range(count // 3, count))):
        lines = []
        for n in numbers:
            length = 2 * BLOCK + 300 if n % 50 == 7 else chance.randrange(60)
            lines.append(json.dumps({"n": n, "text": "é" * length}, ensure_ascii=False))
            lines += [""] * (n % 5 == 0)
        (folder / name).write_text(("\r\n" if name == "a.jsonl" else "\n").join(lines), newline="")
    return str(folder / "*.jsonl")


def all_records(blocks):
    return [record for i in range(len(blocks)) for record in blocks.read(i)]


@pytest.mark.parametrize("size", [7, 64, BLOCK, 4096, "1MiB"])
def test_each_line_is_in_the_block_in_which_it_begins(size, tmp_path):
    blocks = waggle.data.jsonl(write_records(tmp_path / "data"), block=size)
    assert [record["n"] for record in all_records(blocks)] == list(range(RECORDS))
    if size == BLOCK:
        assert any(len(blocks.read(i)) == 0 for i in range(len(blocks)))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_of_text_at_the_edges(size, tmp_path):
    for text in (b"a", b"\n", b"a\n", b"\na", b"ab\ncd\n\n  \nef", b"\0\0ab\0\0\0cd\n\0ef\0"):
        (tmp_path / "t").write_bytes(text)
        wanted = [line.decode() for line in text.replace(b"\0", b"\n").split(b"\n") if line.strip()]
        assert all_records(waggle.data.text(tmp_path / "t", size)) == wanted, text


def start_loop(start, folder, i, where, files, workers=0, min_peers=1, slow="", steps=1_000_000):
    return start.python(f"loop{i}", HERE / "shards_loop.py", folder / f"peer{i}", where, RECORDS, PASSES, workers, min_peers, slow,
                        steps, files, BLOCK)


def check_ending(process, blocks):
    assert process.ended() == 0, process.log
    status, seen = json.loads(process.line("STATUS ")), json.loads(process.line("SEEN "))
    passes = [[number + 1, blocks, 0, 0] for number in range(PASSES)] + [[PASSES + 1, 0, 0, blocks]]
    assert status["finished"] and status["passes"] == passes
    assert seen == [PASSES] * RECORDS  # equal weights, too: a block weighs as its records


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_each_record_enters_one_update_a_pass_though_a_loop_is_killed(workers, tmp_path):
    files = write_records(tmp_path / "data")
    blocks = len(waggle.data.jsonl(files, BLOCK))
    with processes(tmp_path) as start:
        slow = tmp_path / "slow"  # until one is killed
        slow.touch()
        first = start_loop(start, tmp_path, 1, "", files, workers, 3, slow)
        where = first.line("address ")
        others = [start_loop(start, tmp_path, i, where, files, workers, 3, slow) for i in (2, 3)]
        doomed = others.pop()
        doomed.line("stepped")
        doomed.kill()
        slow.unlink()
        for each in (first, *others):
            check_ending(each, blocks)
            assert "stepped" in each.log


def test_a_loop_that_stops_goes_on_and_one_with_other_files_is_refused(tmp_path):
    files = write_records(tmp_path / "data")
    with processes(tmp_path) as start:
        for steps in (4, 30):
            assert start_loop(start, tmp_path, 1, "", files, 0, 1, "", steps).ended() == 0
        slow = tmp_path / "slow"
        slow.touch()
        first = start_loop(start, tmp_path, 1, "", files, 2, 1, slow)
        where = first.line("address ")
        others = write_records(tmp_path / "others")
        path = tmp_path / "others" / "a.jsonl"
        path.write_text(path.read_text().replace("{", " {", 1))
        second = start_loop(start, tmp_path, 2, where, others)
        assert second.ended() != 0
        assert "data is" in second.log and "2 files (names and sizes" in second.log, second.log
        assert f"the first that differs is 'a.jsonl of {path.stat().st_size} bytes' here" in second.log, second.log
        slow.unlink()
        check_ending(first, len(waggle.data.jsonl(files, BLOCK)))


def test_the_example_of_two_peers(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("a", "b"):
        lines = [json.dumps({"text": f"{name} is letter {i} of many"}) for i in range(150)]
        (tmp_path / "data" / f"{name}.jsonl").write_text("\n".join(lines))
    with processes(tmp_path) as start:
        def peer(name, *more):
            return start.python(name, ROOT / "examples/stream.py", "--data", tmp_path / "data/*.jsonl", "--block", "1KiB",
                                "--passes", 4, "--target", 60, "--min-peers", 2, "--listen", "127.0.0.1:0", "--data-dir", tmp_path / name, *more)

        first = peer("first")
        second = peer("second", "--peer", first.line("listening on ").split(";")[0])
        blocks = len(waggle.data.jsonl(str(tmp_path / "data/*.jsonl"), "1KiB"))
        for each in (first, second):
            assert each.ended() == 0, each.log
            assert f"SamplesSeen(number=4, once={blocks}, twice=0, never=0)" in each.line("passes:"), each.log


CONTEXT = 12  # a block of waggle train has 32 windows


def write_texts(folder, lines=120):
    folder.mkdir()
    for name in ("a", "b"):
        texts = [f"{name} is letter {i} of {lines} {'x' * (i * 37 % 300)}" for i in range(lines)]
        (folder / f"{name}.jsonl").write_text("\n\n".join(json.dumps({"text": each} if i % 2 else each)
                                                          for i, each in enumerate(texts)))
    return folder / "*.jsonl"


def train(start, folder, name, data, *more):
    return start(name, PROGRAM, "train", "--run-id", "tests", "--data", data, "--data-dir", folder / name, "--listen", "127.0.0.1:0",
                 "--passes", 2, "--layers", 1, "--width", 16, "--heads", 2, "--context", CONTEXT, "--micro-batch", 4,
                 "--target-batch-size", 600, "--device", "cpu", "--step-interval", "5ms", *more)


def test_the_program_trains_on_each_block_once_a_pass_though_a_peer_is_killed(tmp_path):
    data = write_texts(tmp_path / "data")
    others = write_texts(tmp_path / "others", 119)
    with processes(tmp_path) as start:
        first = train(start, tmp_path, "first", data, "--min-peers", 3)
        where = first.line("listening on ").split(";")[0]
        second, doomed = (train(start, tmp_path, name, data, "--min-peers", 3, "--initial-peers", where)
                          for name in ("second", "doomed"))
        doomed.line("samples in the last update")
        other = train(start, tmp_path, "other", others, "--initial-peers", where)
        doomed.kill()
        blocks = len(waggle.data.jsonl(str(data), 32 * (CONTEXT + 1)))
        for each in (first, second):
            assert each.ended() == 0, each.log
            assert f"pass 2 over the data is complete: {blocks} samples seen once, 0 twice, 0 never" in each.log, each.log
        assert other.ended() != 0
        assert "the first that differs is 'a.jsonl of" in other.log, other.log


def test_the_program_leaves_out_a_line_that_is_no_text_and_says_where_it_is(tmp_path):
    data = write_texts(tmp_path / "data")
    broken = tmp_path / "data" / "b.jsonl"
    text = broken.read_text()
    at = text.index("{", len(text) // 2)
    broken.write_text(text[:at] + "[" + text[at + 1:])
    with processes(tmp_path) as start:
        first = train(start, tmp_path, "first", data, "--min-peers", 2)
        where = first.line("listening on ").split(";")[0]
        both = [first, train(start, tmp_path, "second", data, "--min-peers", 2, "--initial-peers", where)]
        blocks = len(waggle.data.jsonl(str(data), 32 * (CONTEXT + 1)))
        for each in both:
            assert each.ended() == 0, each.log
            assert f"pass 2 over the data is complete: {blocks} samples seen once, 0 twice, 0 never" in each.log, each.log
        assert any(f"left out: --data {broken}, byte {at}: this is no line of JSON" in each.log for each in both), first.log


@pytest.fixture
def hub_data(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    for shard in range(8):
        path = tmp_path / f"{shard}.jsonl"
        path.write_text("".join(json.dumps({"n": shard * 50 + i}) + "\n" for i in range(50)))

    def load(**more):
        return datasets.load_dataset("json", data_files=str(tmp_path / "*.jsonl"), split="train",
                                     cache_dir=str(tmp_path / "cache"), **more)

    return load


@pytest.mark.parametrize("workers", [0, 2])
def test_each_record_of_hugging_face_data_is_dealt_once(workers, hub_data, tmp_path):
    streamed, table = hub_data(streaming=True), hub_data()
    for i, data in enumerate((streamed, streamed.shuffle(seed=1, buffer_size=20).map(lambda row: {"m": 2 * row["n"]}),
                              table, table.shuffle(seed=1))):
        swarm, stream, _, opt = alone(tmp_path / str(i), waggle.data.hf(data, rows=64))
        records = []
        for block in DataLoader(stream, batch_size=None, sampler=stream.shards, num_workers=workers):
            records += [record["n"] for record in block]
            opt.step(block)
        assert sorted(records) == list(range(400))
        assert swarm.status().samples_used == 400
        swarm.leave()
    assert waggle.data.hf(table).description != waggle.data.hf(table.shuffle(seed=1)).description
    with pytest.raises(ValueError, match="has one shard"):
        waggle.data.hf(streamed.shard(8, 0))


def test_other_data_is_not_of_hugging_face():
    with pytest.raises(TypeError, match="dataset is of type list"):
        waggle.data.hf([1, 2])


def alone(folder, data, target=100, **more):
    swarm = join(folder)
    stream = swarm.stream(data, **more)
    model = torch.nn.Linear(1, 1)
    return swarm, stream, model, waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), swarm, model,
                                                  target_batch_size=target)


def numbers(i):
    return [10.0 * i + k for k in range(i)]


def test_batches_of_any_size_come_to_the_mean_of_the_block(tmp_path):
    swarm, stream, model, opt = alone(tmp_path, waggle.data.blocks(14, numbers))
    for block in DataLoader(stream, batch_size=None, sampler=stream.shards):
        assert list(block) == numbers(block.number) and block[-3:] == numbers(block.number)[-3:]
        gradients = []
        for size in (5, 20, 1):
            for batch in stream.batches(block, size):
                assert len(batch) <= size
                (model(torch.tensor(batch)[:, None]) ** 2).mean().backward()
            gradients.append(None if model.weight.grad is None else model.weight.grad.clone())
        if len(block) > 0:
            assert gradients[0].abs() > 0
            assert torch.allclose(gradients[0], gradients[1]) and torch.allclose(gradients[0], gradients[2])
        opt.step(block)
    status = swarm.status()
    assert swarm.finished and status.passes[0] == waggle.SamplesSeen(1, 14, 0, 0)
    assert status.samples_used == sum(range(14)) + 1  # the empty block weighs as one record
    swarm.leave()


def test_shards_deal_blocks_of_ones_own(tmp_path):
    swarm = join(tmp_path)
    shards = swarm.shards(9)
    model = torch.nn.Linear(1, 1)
    opt = waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), swarm, model, target_batch_size=100)
    for i, pair in enumerate(DataLoader(range(9), 2, sampler=shards)):
        if i == 1:
            with pytest.raises(ValueError, match="over 2 blocks, and weighs as 1"):
                opt.step(samples=1, claims=2)
            opt.step(samples=2)
        else:
            opt.step(samples=30, claims=len(pair))
    assert swarm.finished and swarm.status().passes[0] == waggle.SamplesSeen(1, 9, 0, 0)
    assert swarm.status().samples_used == 4 * 30 + 2
    swarm.leave()


def test_a_block_that_cannot_be_read_is_named_and_its_claim_returns(tmp_path):
    files = write_records(tmp_path / "data")
    swarm, stream, _, opt = alone(tmp_path, waggle.data.jsonl(files, block=2000))
    loader = DataLoader(stream, batch_size=None, sampler=stream.shards, num_workers=1)
    path = tmp_path / "data" / "b.jsonl"
    path.rename(tmp_path / "away")
    steps = 0
    with pytest.raises(OSError, match=r"b\.jsonl, bytes \d+ to \d+: the block cannot be read: No such file"):
        for block in loader:
            opt.step(block)
            steps += 1
    path.write_text("{")
    with pytest.raises(ValueError, match=r"b\.jsonl has 1 bytes now, and had \d+ when the stream was made"):
        for block in loader:
            opt.step(block)
            steps += 1
    (tmp_path / "away").rename(path)
    for block in loader:
        opt.step(block)
        steps += 1
    assert steps == len(stream) and swarm.status().passes[0] == waggle.SamplesSeen(1, steps, 0, 0)
    swarm.leave()


def test_records_that_are_none_are_named(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"n": 1}\n{"n": \n')
    block = waggle.data.jsonl(path).read(0)
    assert block[0] == {"n": 1}
    with pytest.raises(ValueError, match=r"bad\.jsonl, byte 9: no line of JSON: .*"):
        block[1]
    path.write_bytes(b"good\n\xff\xfe\n")
    with pytest.raises(ValueError, match=r"bad\.jsonl, byte 5: .*can't decode"):
        waggle.data.text(path).read(0)[1]
    path.write_bytes(b"short\n" + b"x" * (3 << 20))
    with pytest.raises(ValueError, match=r"bad\.jsonl, byte 6: the line is longer than 1048576 bytes"):
        waggle.data.text(path, 100).read(0)


def test_refusals(tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "one.jsonl").write_text("1\n")
    (tmp_path / "one.gz").write_text("1\n")
    one = tmp_path / "one.jsonl"
    for arguments, kind, sentence in (((tmp_path / "no",), FileNotFoundError, "there is no file .*no"),
                                      (("/*.jsonl",), FileNotFoundError, "there is no file /\\*.jsonl"),
                                      ((tmp_path,), ValueError, "is a folder: name its files"),
                                      ((tmp_path / "one.gz",), ValueError, "is packed"),
                                      (([tmp_path / "empty"],), ValueError, "all files are empty"),
                                      ((one, 0), ValueError, "block is 0"),
                                      ((one, "4 parsecs"), ValueError, "block is '4 parsecs', and must be a size"),
                                      ((one, "2GiB"), ValueError, "at most 1GiB")):
        with pytest.raises(kind, match=sentence):
            waggle.data.jsonl(*arguments)
    with pytest.raises(TypeError, match="read is of type list"):
        waggle.data.blocks(3, [1, 2, 3])
    swarm = join(tmp_path / "1")
    with pytest.raises(TypeError, match="data is of type list, and must be what a function of waggle.data returns"):
        swarm.stream([one])
    stream = swarm.stream(waggle.data.blocks(12, numbers))
    with pytest.raises(ValueError, match="construct it before"):
        next(stream.batches(stream[1], 4))
    model = torch.nn.Linear(1, 1)
    opt = waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), swarm, model, target_batch_size=10)
    with pytest.raises(ValueError, match="call step\\(block\\)"):
        opt.step(samples=2)
    with pytest.raises(ValueError, match="is not the next one that this loop was dealt.*sampler=stream.shards"):
        for block in DataLoader(stream, batch_size=None):
            opt.step(block)
    with pytest.raises(ValueError, match="over 11 samples, more than target_batch_size, 10.*smaller blocks"):
        for block in DataLoader(stream, batch_size=None, sampler=stream.shards):
            opt.step(block)
    with pytest.raises(IndexError, match="there are 12 blocks"):
        stream[12]
    swarm.leave()
    other = join(tmp_path / "2")
    opt = waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), other, model)
    with pytest.raises(ValueError, match="has no stream"):
        opt.step(stream[2])
    with pytest.raises(ValueError, match="over 2 blocks, and nothing deals them"):
        opt.step(samples=4, claims=2)
    other.leave()
    swarm = join(tmp_path / "3")
    stream = swarm.stream(waggle.data.blocks(3, range))
    assert len(stream[2]) == 2
    swarm.leave()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_of_20_gb_that_is_mostly_holes(workers, tmp_path):
    path = tmp_path / "sparse.jsonl"
    places = [0, (3 << 30) + 5, 7 << 30, (20 << 30) - 300]
    with open(path, "wb") as file:
        for place in places:
            file.seek(place)
            file.write(b"".join(b'{"n": %d}\n' % (place + i) for i in range(10)))
        file.truncate(20 << 30)
    if path.stat().st_blocks * 512 > 1 << 30:
        pytest.skip("this file system has no holes in files")
    swarm, stream, _, opt = alone(tmp_path, waggle.data.jsonl(path, "64MiB"))
    records = []
    for block in DataLoader(stream, batch_size=None, sampler=stream.shards, num_workers=workers):
        records += [record["n"] for record in block]
        opt.step(block)
    assert sorted(records) == [place + i for place in places for i in range(10)]
    assert len(stream) == 320 and swarm.status().passes[0] == waggle.SamplesSeen(1, 320, 0, 0)
    swarm.leave()


MEMORY = """
import multiprocessing, pathlib, sys, torch, waggle
from torch.utils.data import DataLoader

def peak(process):
    for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10

data, block, folder = sys.argv[1:]
swarm = waggle.join("tests", listen="127.0.0.1:0", data_dir=folder)
stream = swarm.stream(waggle.data.jsonl(data, int(block)))
model = torch.nn.Linear(1, 1)
opt = waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), swarm, model, target_batch_size=1_000_000)
for block in DataLoader(stream, batch_size=None, sampler=stream.shards, num_workers=2):
    for batch in stream.batches(block, 32):
        pass
    opt.step(block)
    peaks = [peak(each.pid) for each in multiprocessing.active_children()]
print("PEAK", peak("self") + sum(peaks), len(peaks), flush=True)
swarm.leave()
"""


def test_a_loop_needs_memory_for_few_blocks(tmp_path):
    (tmp_path / "data").write_text("\n".join(json.dumps({"text": "x" * 300}) for _ in range(200_000)))
    block = 16 << 20
    peaks = []
    with processes(tmp_path) as start:
        for size in (1 << 16, block):
            loop = start.python(f"{size}", "-c", MEMORY, tmp_path / "data", size, tmp_path / f"peer{size}")
            assert loop.ended() == 0, loop.log
            peak, workers = loop.line("PEAK ").split()
            assert workers == "2"
            peaks.append(int(peak))
    assert peaks[1] - peaks[0] < 3 * block * 2
