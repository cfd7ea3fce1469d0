// Package contestant is the proxies that a benchmark measures: Penstock's
// engines, the rival written with io.Copy, HAProxy, nginx and Envoy, and no
// proxy at all. It writes their configurations, starts them in front of an
// upstream, and asks those that keep an account of what they moved for it. It is
// for Linux only.
package contestant
