#!/bin/sh
# Prints the Python to make .venv with: the one asked for, else the first that is 3.11 or later and has venv.
fits='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'
for python in ${1:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
    if "$python" -c "$fits" 2>/dev/null; then
        command -v "$python"
        exit 0
    fi
done
echo "no Python 3.11 or later with venv and ensurepip found${1:+ at $1}." >&2
echo "Install one (Debian, Ubuntu: apt-get install python3-venv), or name one: make PYTHON=/path/to/python3.12 ..." >&2
exit 1
