"""The key of a run, and run files, with a real peer on the loopback interface."""

import subprocess

import pytest
import torch
from support import PROGRAM, eventually, loss_of, net, processes

import waggle


@pytest.fixture
def keyed(tmp_path):
    """A node of a run with a key, and its run file."""
    key = tmp_path / "birds.key"
    subprocess.run([PROGRAM, "id", "--swarm-key", key, "--data-dir", tmp_path / "id"], check=True)
    with processes(tmp_path) as start:
        node = start("node", PROGRAM, "node", "--run-id", "birds", "--swarm-key", key, "--listen", "127.0.0.1:0",
                     "--data-dir", tmp_path / "node")
        node.where = node.line("listening on ")
        file = tmp_path / "birds.toml"
        text = eventually(lambda: subprocess.run([PROGRAM, "invite", "--data-dir", tmp_path / "node"], check=True,
                                                 capture_output=True, text=True).stdout)
        file.write_text(text + 'strategy = "collaborative"\ntarget-batch-size = 8\nstart-alone = true\n')
        node.key, node.file = key, file
        yield node


def steps(swarm, **options):
    model = net()
    optimizer = waggle.Optimizer(torch.optim.SGD(model.parameters(), 0.1), swarm, model, **options)
    for i in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, i)
        loss.backward()
        optimizer.step(samples=4, loss=loss)
    return swarm.status()


def test_a_run_file_is_all_that_a_loop_needs(keyed, tmp_path):
    with waggle.join(config=keyed.file, data_dir=tmp_path / "loop", log_level="warn", join_timeout=1) as swarm:
        assert swarm.run == "birds"
        assert steps(swarm).samples_offered == 12
        assert swarm.status().epoch >= 1, "target-batch-size is that of the file"
        assert keyed.key.read_bytes().hex() not in (swarm.join_line or "")
    with waggle.join("sparrows", swarm_key=keyed.key, initial_peers=[keyed.where], data_dir=tmp_path / "other",
                     start_alone=True, join_timeout=1, log_level="warn") as swarm:  # the name is a label
        assert steps(swarm, target_batch_size=8).epoch >= 1
        assert str(keyed.key) in swarm.join_line


def test_without_the_key_or_with_a_bad_one_a_sentence_says_so(keyed, tmp_path):
    with waggle.join("birds", initial_peers=[keyed.where], data_dir=tmp_path / "loop", log_level="error") as swarm:
        with pytest.raises(waggle.Error, match="only a run's name, the other end has a swarm key"):
            steps(swarm)
    (tmp_path / "short").write_text("a passphrase")
    (tmp_path / "short").chmod(0o600)
    with pytest.raises(ValueError, match="a passphrase is not a key"):
        waggle.join("birds", swarm_key=tmp_path / "short", data_dir=tmp_path / "loop2")
    with pytest.raises(ValueError, match="there is no file"):
        waggle.join("birds", swarm_key=tmp_path / "none", data_dir=tmp_path / "loop2")
    with pytest.raises(TypeError, match="needs the name of the run"):
        waggle.join(data_dir=tmp_path / "loop2")
    with pytest.raises(ValueError, match="cannot read the run file"):
        waggle.join(config=tmp_path / "none.toml")


def test_a_loop_on_the_list_of_members_joins_and_another_does_not(tmp_path):
    def program(*args):
        return subprocess.run([PROGRAM, *args], check=True, capture_output=True, text=True).stdout

    ids = [program("id", "--data-dir", tmp_path / name).strip() for name in ("node", "loop")]
    listed = tmp_path / "members.list"
    shown = program("members", "--key", tmp_path / "auth.pem", "--members-list", listed, "add", *ids, "--until", "2199-12-31")
    key = shown.split()[1]
    with processes(tmp_path) as start:
        node = start("node", PROGRAM, "node", "--run-id", "birds", "--members", key, "--members-list", listed, "--listen",
                     "127.0.0.1:0", "--data-dir", tmp_path / "node")
        peers = [node.line("listening on ")]
        with waggle.join("birds", members=key, initial_peers=peers, data_dir=tmp_path / "loop", start_alone=True,
                         join_timeout=1, log_level="warn") as swarm:
            assert steps(swarm, target_batch_size=8).epoch >= 1
            assert swarm.id == ids[1]
            assert f"members={key!r}" in swarm.join_line
            assert eventually((tmp_path / "loop" / "members.list").exists)
        with waggle.join("birds", initial_peers=peers, data_dir=tmp_path / "other", log_level="error") as swarm:
            with pytest.raises(waggle.Error, match="started with members KEY"):
                steps(swarm)
