#!/bin/sh
# Prometheus and Alertmanager files, by their own tools. Each case of an alert is a file, so that the output names it.
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
# A new folder or an empty one must not pass for tested.
cases=$(find prometheus/tests -name '*.yml' | sort)
[ -n "$cases" ]
# shellcheck disable=SC2086 # one word per file; none has a blank in its name
promtool test rules $cases
