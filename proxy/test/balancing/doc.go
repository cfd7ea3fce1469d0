// Package balancing runs penstock run among real programs: a PostgreSQL primary and its
// standby that change roles, servers of seven protocols behind one port, services of gRPC of which
// one is a canary, and web servers that read requests in their own ways. It has no code but its tests.
//
// Each test starts its own servers on loopback, and a program of its own in front of them,
// which is controlled by signals and over its admin socket. Clients are psql, redis-cli, ssh and
// curl; where each connection is to be watched, the test speaks PostgreSQL's protocol itself.
package balancing
