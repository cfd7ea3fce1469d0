// Package contestant has the proxies that a benchmark measures: Penstock's engines, the rival written with
// io.Copy, HAProxy, nginx and Envoy, and no proxy at all. It writes their configurations and starts them in front
// of an upstream. It also reads their own counts of moved bytes, if they have any. It is for Linux only.
package contestant
