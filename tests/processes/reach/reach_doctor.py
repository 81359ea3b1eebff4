"""`waggle doctor` on a host with one planted fault at a time: it names the fault and the cure, and nothing else."""
import fcntl
import pathlib
import subprocess

from lab import Failed, wait_until

SEED = "10.77.0.1:21000"
CLOCK = pathlib.Path(__file__).resolve().parents[1] / "clock_ahead.c"


def run(new_lab):
    one_fault_at_a_time(new_lab)
    nothing_to_find(new_lab)


def made_clock(folder):
    clock = folder / "clock.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", clock, CLOCK], check=True)
    return clock


def nothing_to_find(new_lab):
    """Ten set-ups without a fault."""
    with new_lab(3, ipv6=True) as lab:
        seed, other, here = lab.hosts
        here.set_names({"trainer": [seed.address]})
        first = lab.train(seed, "--listen", "[::]:21000")
        second = lab.train(other, "--initial-peers", SEED)
        wait_until("they train", lambda: first.epoch() > 3 and second.epoch() > 3, 40)
        made = lab.folder / "made"
        made.mkdir(mode=0o700)
        join = ["--run-id", "t", "--data-dir", made]
        for options in ([], ["--initial-peers", SEED], ["--initial-peers", "trainer:21000"],
                        ["--initial-peers", f"[{seed.address6}]:21000"],
                        ["--initial-peers", f"{SEED},10.77.0.2:21000"],
                        ["--initial-peers", SEED, "--client-mode"],
                        ["--initial-peers", SEED, "--announce", f"{here.address}:0"],
                        ["--initial-peers", SEED, "--listen", "0.0.0.0:21000", "--step-interval", "50ms"],
                        ["--initial-peers", SEED, "--pages", "none"], None):
            words = ["doctor", *join, *options] if options is not None else ["doctor", SEED]
            done = subprocess.run(["ip", "netns", "exec", here.namespace, lab.binary, *map(str, words)],
                                  capture_output=True, text=True, timeout=60)
            if done.returncode != 0 or any(line.startswith(("bad", "warning")) for line in done.stdout.splitlines()):
                raise Failed(f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def one_fault_at_a_time(new_lab):
    with new_lab(2) as lab:
        seed, here = lab.hosts
        first = lab.train(seed)
        wait_until("the initial peer answers", first.ready, 20)
        folders = iter(range(100))

        def doctor(*options, before="", folder=None, run="t", program=lab.binary):
            folder = folder or lab.folder / f"doctor{next(folders)}"
            words = [program, "doctor", "--run-id", run, "--data-dir", folder, *options]
            script = f"{before} exec \"$@\""
            done = subprocess.run(["ip", "netns", "exec", here.namespace, "sh", "-c", script, "doctor", *map(str, words)],
                                  capture_output=True, text=True, timeout=60)
            return done.returncode, done.stdout + done.stderr

        def expect(fault, *texts, code=1, **arguments):
            """`arguments["options"]`: of the command."""
            found, text = doctor(*arguments.pop("options", ["--initial-peers", SEED]), **arguments)
            wrong = [line for line in text.splitlines() if line.startswith(("bad", "warning"))]
            if found != code or any(word not in text for word in texts) or len(wrong) != (1 if texts else 0):
                raise Failed(f"{fault}: exit code {found}\n{text}")

        expect("no fault", code=0)
        if (lab.folder / "doctor0").exists():
            raise Failed("the doctor made a data folder")
        expect("another run", "same --run-id", run="other")
        expect("other options", "width is 48 here and 32 there", options=["--initial-peers", SEED, "--width", "48"])
        expect("nobody listens", "nothing accepts connections", options=["--initial-peers", "10.77.0.1:9"])
        expect("a firewall", "firewall", options=["--initial-peers", "192.0.2.1:7700"])
        expect("an unknown name", "correct the name", options=["--initial-peers", f"nowhere:7700,{SEED}"])
        expect("a closed announced port", "open or forward that port",
               options=["--initial-peers", SEED, "--announce", "10.77.0.2:9"])
        expect("few descriptors", "ulimit -n", before="ulimit -Sn 128;")
        clock = made_clock(lab.folder)
        expect("a clock 2 s off", "set the clocks", code=0, before=f"export LD_PRELOAD={clock} CLOCK_AHEAD=2;")
        expect("a clock a minute off", "set this machine's clock", before=f"export LD_PRELOAD={clock} CLOCK_AHEAD=60;")
        newer = lab.folder / "newer"
        newer.write_bytes(pathlib.Path(lab.binary).read_bytes().replace(b"0.1.0", b"0.1.9"))
        newer.chmod(0o700)
        expect("another version", "use one version", code=0, program=newer)

        found, text = doctor("--initial-peers", SEED, "--listen", "127.0.0.1:0")
        if found != 1 or "leave --listen out" not in text:
            raise Failed(f"loopback only: exit code {found}\n{text}")

        other = lab.start(here, ["/usr/bin/python3", "-m", "http.server", "7701"])
        wait_until("another program listens", lambda: here.run("ss", "-ltn").find(":7701") > 0, 20)
        expect("a taken port", "is taken", options=["--initial-peers", SEED, "--listen", "0.0.0.0:7701"])
        expect("another program at the address", "another program answers",
               options=["--initial-peers", f"10.77.0.2:7701,{SEED}"])
        other.end()

        open_key = lab.folder / "open"
        open_key.mkdir(mode=0o700)
        (open_key / "identity.pem").write_text("x")
        (open_key / "identity.pem").chmod(0o644)
        expect("a readable key", "chmod 600", folder=open_key)
        locked = lab.folder / "locked"
        locked.mkdir(mode=0o700)
        with open(locked / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            expect("a locked folder", "is locked", folder=locked)
        expect("a full disk", "make room", folder="/mnt",
               before="unshare -m sh -c 'mount -t tmpfs -o size=1m,mode=700 none /mnt && exec \"$@\"' doctor \"$@\"; exit $?;")

        for host in lab.hosts:
            host.cut_segments()
        here.set_port_mtu(1300)
        expect("a path that drops large packets", "large ones do not")
        if "is stopping" in first.text() or not first.running():
            raise Failed("the peer that was asked has ended")
