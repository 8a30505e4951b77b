#!/bin/sh
# Cluster init script: what python-qpid-proton is built with. Runs on every node, as root.
set -e
if ! command -v cc >/dev/null || ! python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null; then
    apt-get update
    apt-get install --yes --no-install-recommends gcc libc6-dev python3-dev
fi
