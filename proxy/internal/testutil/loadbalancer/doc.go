// Package loadbalancer runs a load balancer in a test's own process, with the files
// that it is configured by, and asks it for its state.
package loadbalancer
