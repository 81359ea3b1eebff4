"""`waggle doctor` on a host with one planted fault at a time: it names the fault and the cure, and nothing else."""
import fcntl
import subprocess

from lab import Failed, wait_until

SEED = "10.77.0.1:21000"


def run(new_lab):
    with new_lab(2) as lab:
        seed, here = lab.hosts
        first = lab.train(seed)
        wait_until("the initial peer answers", first.ready, 20)
        folders = iter(range(100))

        def doctor(*options, before="", folder=None, run="t"):
            folder = folder or lab.folder / f"doctor{next(folders)}"
            words = [lab.binary, "doctor", "--run-id", run, "--data-dir", folder, *options]
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
