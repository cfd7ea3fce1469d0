// Package handshake measures the cost of terminating TLS: new and resumed handshakes per second, the proxy's CPU
// for each, and how much later a message arrives than through the same proxy without TLS. It measures Penstock
// beside HAProxy. Both have the same client, which does the other half of each handshake.
package handshake
