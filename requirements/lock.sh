#!/bin/sh
# Writes the locks anew: every package that is installed, with the hashes of its files, for Python 3.11 and later.
# worker.txt is what an image holds, demo.txt what `make demo` installs, dev.txt what development needs, and
# manifests.txt and examples.txt what is large and only CI has. UPGRADE= keeps the versions that are locked.
set -eu
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"$(sh requirements/python.sh "${PYTHON:-}")" -m venv "$tools"
"$tools/bin/pip" install --quiet --disable-pip-version-check uv

# without annotations and headers: neither the index nor the command of the day belongs into a lock
compile() {
    "$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes ${UPGRADE---upgrade} \
        --no-annotate --no-header --extra worker "$@" pyproject.toml
}
# without msk: boto3 holds back other packages
compile --extra console --extra mcp --extra tracing --extra registry --extra oauth --extra entailment --group dev \
    --output-file requirements/dev.txt
# datasketch requires scipy (115 MB), and no process imports either: keys are compared with datasketch's in tests
echo 'scipy ; python_version < "3"' > "$tools/overrides.txt"
compile --extra console --group demo --constraints requirements/dev.txt --override "$tools/overrides.txt" \
    --output-file requirements/demo.txt
compile --extra console --extra tracing --constraints requirements/dev.txt --override "$tools/overrides.txt" \
    --output-file requirements/worker.txt
for group in manifests examples; do
    "$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes ${UPGRADE---upgrade} \
        --no-annotate --no-header --group "$group" --constraints requirements/dev.txt \
        --output-file "requirements/$group.txt"
done
