// Package verdict makes causes of slow sessions for real, and looks at what the load balancer says of them: each
// client, proxy and endpoint in a network namespace of its own.
package verdict
