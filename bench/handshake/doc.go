// Package handshake measures what it costs to terminate TLS: handshakes per second, new
// and resumed, the proxy's CPU for each, and how much later a message arrives than through
// the same proxy without TLS. Penstock beside HAProxy; the client, which does the other
// half of each handshake, is the same for both.
package handshake
