"""Three hosts join at a name that stands for all of them, as replicas behind a headless service do."""
from lab import wait_until


def run(new_lab):
    for command in ("node", "train"):
        with new_lab(3) as lab:
            for host in lab.hosts:
                host.set_names({"trainer": [h.address for h in lab.hosts]})
            start = getattr(lab, command)
            peers = [start(host, "--initial-peers", f"trainer:{lab.PORT}") for host in lab.hosts]
            wait_until(f"three peers ({command}) answer", lambda: all(p.ready() for p in peers), 10)
            wait_until(f"three peers ({command}) are linked", lambda: all(p.links() >= 2 for p in peers), 2)
            if command == "train":
                wait_until("they average together", lambda: all(p.status().get("group_size") == 3 for p in peers), 10)
                wait_until("they train one history", lambda: len({p.status().get("history") for p in peers}) == 1, 5)
