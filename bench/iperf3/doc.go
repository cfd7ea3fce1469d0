// Package iperf3 sends one flow through proxies with iperf3, an independent tool, so that the
// results can be repeated without Penstock's tools. There are a client, a proxy and a server,
// each a process of its own, and the same without a proxy.
package iperf3
