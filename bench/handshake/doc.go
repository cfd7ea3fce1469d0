// Package handshake measures the cost of terminating TLS: handshakes per second, new and
// resumed, the proxy's CPU for each, and how much later a message arrives than through the
// same proxy without TLS. It measures Penstock beside HAProxy. The client, which does the
// other half of each handshake, is the same for both.
package handshake
