// Package verdict makes causes of slow sessions for real, and compares the verdicts of the load balancer: each
// client, proxy and endpoint in a network namespace of its own.
package verdict
