// Package iperf3 sends one flow through proxies with iperf3, a tool that others have
// written and everybody can repeat: a client, a proxy, a server, each a process of its
// own, and the same without a proxy.
package iperf3
