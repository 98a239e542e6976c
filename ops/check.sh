#!/bin/sh
# Prometheus and Alertmanager files, by their own tools. Each case is a file, so that the output names it: those of one alert in
# prometheus/tests, and those made of tests/alerts/matrix.py, every alert in every scenario.
set -eu
cd "$(dirname "$0")"

for tool in promtool amtool; do
  if ! command -v "$tool" >/dev/null; then
    package=prometheus
    [ "$tool" = promtool ] || package=prometheus-alertmanager
    echo "$tool is not installed, so the alerts were not checked: install it (Debian and Ubuntu: apt-get install $package)" >&2
    [ -z "${CI:-}" ] # here it is a remark, in CI a failure
    exit
  fi
done

promtool check rules prometheus/rules.yml
promtool check config --syntax-only prometheus/prometheus.yml
amtool check-config alertmanager/alertmanager.yml
for route in critical:pager warning:chat; do
  amtool config routes test --config.file alertmanager/alertmanager.yml --verify.receivers="${route##*:}" \
    service=booking-expiration severity="${route%%:*}" 2>/dev/null || { echo "alerts that are ${route%%:*} must go to ${route##*:}" >&2; exit 1; }
done
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
(cd .. && "${PYTHON:-python3}" -m tests.alerts "$made")
# A new folder or an empty one must not pass for tested.
[ -n "$(ls prometheus/tests)" ]
[ -n "$(ls "$made")" ]
promtool test rules prometheus/tests/*/*.yml
# They take seconds each, so two at a time; the output of each stays whole.
cd "$made"
find . -name '*.yml' -print0 | sort -z | xargs -0 -n 1 -P 2 sh -c 'said=$(promtool test rules "$0" 2>&1) && ok=0 || ok=255; echo "$said"; exit $ok'
