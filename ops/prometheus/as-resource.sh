#!/bin/sh
# ops/prometheus/rules.yml as the Prometheus operator's resource: `ops/prometheus/as-resource.sh >deploy/kubernetes/prometheus-rule.yaml`.
set -eu
cat <<'HEAD'
# Made from ops/prometheus/rules.yml by ops/prometheus/as-resource.sh: change that file, not this one.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: booking-expiration
  labels: { app.kubernetes.io/name: booking-expiration }
spec:
HEAD
sed -n '/^groups:/,$p' "$(dirname "$0")/rules.yml" | sed 's/^\(.\)/  \1/'
