// Package balancing runs penstock run among real programs: a PostgreSQL primary and its
// standby that change roles, Redis, nginx with names of its own for each certificate, and
// HAProxy in front of and behind it. It has no code but its tests.
//
// Each test starts its own servers on loopback, and a program of its own in front of them,
// which is controlled by signals and over its admin socket. Clients are psql, pgbench,
// redis-cli, redis-benchmark and curl; where each connection is to be watched, the test speaks
// PostgreSQL's protocol itself. All along, the configuration is read again.
package balancing
