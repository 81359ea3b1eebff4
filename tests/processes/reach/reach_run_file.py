"""`waggle doctor --config birds.toml` with the file that a peer's `waggle invite` prints, in a run with a key and a list of
members: nothing is wrong with it, and of eight faults it names each, once, with what to do."""
import datetime
import os
import re
import subprocess

from lab import Failed, wait_until
from reach_doctor import made_clock

DAY = 24 * 3600


def run(new_lab):
    with new_lab(2) as lab:
        seed, here = lab.hosts
        clock = made_clock(lab.folder)
        list_file, auth, other_auth = (lab.folder / name for name in ("members.list", "auth.pem", "other.pem"))

        def program(host, *words, ahead=0):
            """Its exit code and its output. `ahead`: of the clock, in seconds."""
            shifted = {"LD_PRELOAD": str(clock), "CLOCK_AHEAD": str(ahead)} if ahead else {}
            done = subprocess.run(["ip", "netns", "exec", host.namespace, lab.binary, *map(str, words)], text=True, timeout=60,
                                  capture_output=True, env=os.environ | shifted)
            return done.returncode, done.stdout + done.stderr

        def made(name, *words, **options):
            code, text = program(seed, *words, **options)
            if code != 0:
                raise Failed(f"{name}: exit code {code}\n{text}")
            return text

        def identity(name):
            return made(name, "id", "--data-dir", lab.folder / name)[:64]

        def listed(*ids, days, key=auth, file=list_file, now=0):
            """Adds them for so many days from `now`, which is in days, too. The public key of the list."""
            until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=now + days)
            return made("the list", "members", "--key", key, "--members-list", file, "add", *ids, "--until",
                        f"{until:%Y-%m-%d}", ahead=now * DAY).split()[1]

        def push(first):
            made("push", "members", "push", f"{seed.address}:21000", "--swarm-key", lab.folder / "birds.key",
                 "--members-list", list_file)
            wait_until("the list is there", lambda: (first / "members.list").read_bytes() == list_file.read_bytes(), 10)

        ids = [identity(name) for name in ("first", "here", "stranger")]
        made("the key", "id", "--swarm-key", lab.folder / "birds.key", "--data-dir", lab.folder / "any")
        authority = listed(*ids[:2], days=30)
        peer = lab.train(seed, "--swarm-key", lab.folder / "birds.key", "--members", authority, "--members-list", list_file,
                         "--data-dir", lab.folder / "first", name="first")
        wait_until("the initial peer answers", peer.ready, 20)
        birds = made("the invitation", "invite", "--data-dir", lab.folder / "first")
        another = listed(ids[0], days=30, key=other_auth, file=lab.folder / "other.list")

        def doctor(text, *options, folder="here", ahead=0):
            (lab.folder / "birds.toml").write_text(text)
            (lab.folder / "birds.toml").chmod(0o600)
            return program(here, "doctor", "--config", lab.folder / "birds.toml", "--data-dir", lab.folder / folder, *options,
                           ahead=ahead)

        def expect(fault, seen, cure, text=birds, *options, **more):
            code, said = doctor(text, *options, **more)
            bad = re.findall(r"^bad .*\n.*→.*", said, re.MULTILINE)
            if code != 1 or len(bad) != 1 or seen not in bad[0] or cure not in bad[0].split("→")[1]:
                raise Failed(f"{fault}: exit code {code}\n{said}")

        code, said = doctor(birds)
        if code != 0 or "bad " in said or "it accepts this one" not in said:
            raise Failed(f"no fault: exit code {code}\n{said}")
        key = re.search(r'swarm-key = "key:(.*)"', birds)[1]
        expect("a wrong key", "have different swarm keys", "copy the run's key", birds.replace(key, key[::-1]))
        expect("no key", "has only a run's name", "copy the run's key", re.sub(r"swarm-key = .*\n", "", birds))
        expect("not a member", "is not on the run's list of members (version 1)", "send the id of this peer", folder="stranger")
        expect("a folder without an identity", "has no identity yet", "send its id", folder="nobody")
        expect("plain against TLS", "--encrypt never", "to all peers of the run, or to none", birds, "--encrypt", "never")
        without_list = re.sub(r"members-list = .*\n", "", birds)
        expect("another authority", "two authorities are two runs", "the --members KEY of the run",
               without_list.replace(authority, another))
        expect("a list of another authority", "a list of another authority", "correct the option",
               birds.replace(f'"{authority}"', f'"{another}"'))
        expect("a clock beyond the list's end", "the clock there is", "set this machine's clock", ahead=60 * DAY)
        listed(ids[1], days=1, now=-5)
        push(lab.folder / "first")
        expect("a member whose end has passed", "its time on it ended on", "send the id of this peer")
        listed(ids[0], days=1, now=-5)
        push(lab.folder / "first")
        expect("a list that is over", "is over since", "a newer list")
        expect("the same, of a file without a list", "is over since", "a newer list", without_list)
