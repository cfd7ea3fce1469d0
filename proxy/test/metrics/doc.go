// Package metrics has a real Prometheus scrape penstock run, and evaluate the rules and the queries of the
// dashboard in the folder deploy; and a real Alertmanager receive the alerts of a day of flapping endpoints.
// It has no code but its tests.
package metrics
