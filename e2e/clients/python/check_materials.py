"""Fails unless a bill of materials is strictly CycloneDX 1.5 and has every crate of stdin.

Lines of stdin start with name and version, as `cargo tree` prints them: `serde v1.0.228`.
"""

import json
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator


def main(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    fault = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
    if fault is not None:
        sys.exit(f"{path}: not CycloneDX 1.5: {str(fault)[:2000]}")
    bill = json.loads(text)
    components = bill["components"] + [bill["metadata"]["component"]]
    there = {(one["name"], one["version"]) for one in components}
    wanted = {tuple(line.split()[:2]) for line in sys.stdin if line.strip()}
    wanted = {(name, version.removeprefix("v")) for name, version in wanted}
    missing = sorted(wanted - there)
    if not wanted or missing:
        sys.exit(f"{path}: of {len(wanted)} crates of the binary it lacks {missing}")
    print(f"{len(there)} components, with all {len(wanted)} crates of the binary")


main(sys.argv[1])
