// Package reload measures what it costs to change the configuration of a `penstock run`
// that serves: how long it takes until the first connection is served by the new state,
// how long the swap takes, how long the loops are kept from their clients meanwhile, and
// what a thousand reloads in a row leave behind.
//
// The load balancer, the endpoints and the clients are processes of their own. There are
// as many endpoints as wanted in one process: it listens on every address, and the
// endpoints are addresses below 127.0.0.0/8, all with its port. In fact it has two
// ports, and greets who connects with the letter of that port; so a client knows by which
// configuration it was served.
package reload
