"""Makes the pods of a StatefulSet for `podman kube play`, which knows pods and volume claims only.

    python3 tests/docker/pods_of_stateful_set.py docker/kubernetes.yaml FOLDER

writes claims.yaml and a file for each replica: the template's specification, with a name, a host name and a volume
claim of its own, as a cluster would make them.
"""
import copy, pathlib, sys, yaml
documents = list(yaml.safe_load_all(open(sys.argv[1])))
folder = pathlib.Path(sys.argv[2])
made = next(d for d in documents if d["kind"] == "StatefulSet")
claims = []
for number in range(made["spec"]["replicas"]):
    name = f"{made['metadata']['name']}-{number}"
    spec = copy.deepcopy(made["spec"]["template"]["spec"])
    spec["hostname"] = name
    spec["volumes"] = []
    for container in spec["containers"]:
        del container["ports"]  # Podman would publish them on this machine
    for claim in made["spec"]["volumeClaimTemplates"]:
        own = f"{claim['metadata']['name']}-{name}"
        spec["volumes"].append({"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": own}})
        claims.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": own}, "spec": claim["spec"]})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": made["spec"]["template"]["metadata"]["labels"]}, "spec": spec}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(pod))
(folder / "claims.yaml").write_text(yaml.safe_dump_all(claims))
