// Package sockopt holds the parts that listeners and upstreams share: the syntax of an
// address, and the options of a proxied socket.
package sockopt
