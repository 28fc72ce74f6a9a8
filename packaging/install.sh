#!/bin/bash
# Inside an image of Debian 12 or newer: afltool into /opt/afltool, from Debian's Python and wheels.
#   install.sh SOURCE full|light
set -euo pipefail
source=$1 which=$2 extras='[plot,import,sklearn]'
[ "$which" = light ] || extras='[demo,import,export]'
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3 python3-venv ca-certificates
python3 -m venv /opt/afltool
dist=$(mktemp -d)
/opt/afltool/bin/python "$source/packaging/light/build.py" "$dist" "$which"
name=afltool
[ "$which" = full ] || name=afltool_light
/opt/afltool/bin/pip install --quiet --no-cache-dir "$(ls "$dist/$name"-*.whl)$extras"
rm -rf "$dist" /var/lib/apt/lists/*
/opt/afltool/bin/afltool --version
