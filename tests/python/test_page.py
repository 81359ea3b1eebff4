"""The scripts that examples/frameworks.md prints: each alone beside itself without waggle, and as two peers."""

import functools
import re
import sys

import pytest
import torch
from support import ROOT, processes

import waggle

PAGE = (ROOT / "examples/frameworks.md").read_text()
BLOCKS = re.findall(r"\n([^\n]+?)[:;][^\n]*\n\n```python\n(.*?)```", PAGE[:PAGE.index("| script |")], re.S)
SCRIPTS = {title: code for title, code in BLOCKS if code.startswith("from birds")}
PREAMBLE = next(code for _, code in BLOCKS if not code.startswith("from birds"))
TABLE = {cells[1].strip(): [cell.strip() for cell in cells[2:6]] for cells in
         (line.split("|") for line in PAGE.splitlines() if line.count("|") == 6)}
COLUMN = {"1.13": 0, "2.13": 2}.get(".".join(torch.__version__.split(".")[:2]))
END = """
import os
trained = [(name, p.tolist()) for name, p in net.named_parameters() if p.requires_grad]
# At once: the log is in the same file.
os.write(1, f"names {sorted(name for name, _ in trained)}\\nweights {[values for _, values in trained]}\\n".encode())
"""
pytestmark = pytest.mark.skipif(COLUMN is None, reason="the page says nothing of this version of torch")


def row_of(title):
    return next(row for row in TABLE if title.startswith(row))


@functools.lru_cache
def is_there(title):
    needed = re.findall(r"^(?:from|import) (accelerate|lightning|transformers|peft)", SCRIPTS[title], re.M)
    try:
        for name in needed:
            __import__(name)
    except ImportError:
        return False
    return hasattr(torch, "compile") or "torch.compile" not in SCRIPTS[title]


def test_the_page_has_a_row_for_each_script():
    assert [row_of(title) for title in SCRIPTS] == [row for row in TABLE if row not in ("script", "---")]


@pytest.mark.parametrize("title", list(SCRIPTS))
def test_a_script_of_the_page(title, tmp_path, monkeypatch):
    alone, both = TABLE[row_of(title)][COLUMN:COLUMN + 2]
    assert (alone, both) == (("bits", "equal") if is_there(title) else ("–", "–"))
    if alone == "–":
        return
    # torch.compile keeps in /tmp what another Python's linker found, which this one's may not load.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    (tmp_path / "birds.py").write_text(PREAMBLE)
    script = tmp_path / "script.py"
    script.write_text(SCRIPTS[title] + END)
    batch = 64 if "accumulation" in SCRIPTS[title] else 32
    with processes(tmp_path) as start:
        def launch(name, target, *more):
            return start(name, sys.executable, "-m", "waggle", "--run-id", "birds", "--listen", "127.0.0.1:0", "--data-dir",
                         tmp_path / name, "--target-batch-size", target, *more, script, SEED=str(len(name)))

        pair = ["--epochs", "30", "--min-peers", "2"]
        plain = start.python("plain", script, SEED="5")
        single = launch("alone", batch)
        first = launch("first", 2 * batch, *pair)
        where = first.line("is a peer of 'birds' at ").split(";")[0]
        second = launch("second", 2 * batch, *pair, f"--initial-peers={where}")
        for each in (plain, single, first, second):
            assert each.ended() == 0, each.log
        assert f"batches of {batch} samples" in single.log
        assert single.line("weights ") == plain.line("weights ")
        assert str(sorted(waggle.load_checkpoint(tmp_path / "alone").parameters)) == plain.line("names ")
        for each in (first, second):
            assert "ended at epoch 30 (the last)" in each.log, each.log
        assert first.line("weights ") == second.line("weights ")
