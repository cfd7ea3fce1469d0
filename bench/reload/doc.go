// Package reload measures the cost of changing the configuration of a `penstock run` that
// serves. It measures how long it takes until the first connection is served by the new state,
// and how long the swap takes. It also measures how long the loops are kept from their clients
// meanwhile, and the remains of a thousand reloads in a row.
//
// The load balancer, the endpoints and the clients are processes of their own. There are as
// many endpoints as wanted in one process: it listens on every address, and the endpoints are
// addresses below 127.0.0.0/8, all with its port. In fact it has two ports, and greets each
// client with the letter of its port. So a client knows the configuration by which it was
// served.
package reload
