// Package reload measures the cost of changing the configuration of a `penstock run` that serves: how long it
// takes until the new state serves its first connection, how long the swap takes, and how long the loops keep
// clients waiting meanwhile. It also measures what a thousand reloads in a row leave behind.
//
// The load balancer, the endpoints and the clients are separate processes. One process is any number of endpoints:
// it listens on every address, and the endpoints are addresses below 127.0.0.0/8 with its port. In fact it has two
// ports, and greets each client with the letter of the port. So a client knows which configuration has served it.
package reload
