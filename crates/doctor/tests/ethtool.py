#!/usr/bin/python3 -SI
"""ethtool of a made-up host: prints and changes the files `ethtool/OPTION.NIC` below its root."""
import sys

option, nic, *change = sys.argv[1:]
root = sys.argv[0].removesuffix("usr/sbin/ethtool")
name = f"{root}ethtool/{option.lower()}.{nic}"
try:
    with open(name, encoding="ascii") as file:
        text = file.read()
except OSError:
    sys.exit(f"netlink error: {nic}: Operation not supported")
if not change:
    print(text, end="")
else:
    setting, value = change
    lines = text.splitlines(keepends=True)
    with open(name, "w", encoding="ascii") as file:
        for line in lines:
            file.write(f"{setting}: {value}\n" if line.startswith(f"{setting}:") else line)
