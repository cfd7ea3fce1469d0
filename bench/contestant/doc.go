// Package contestant is the proxies that a benchmark measures: Penstock's engines, the rival
// written with io.Copy, HAProxy, nginx and Envoy, and no proxy at all. It writes their
// configurations and starts them in front of an upstream. If a contestant counts the bytes
// that it moves, this package asks for the counts. It is for Linux only.
package contestant
