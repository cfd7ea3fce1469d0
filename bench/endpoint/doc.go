// Package endpoint is servers that fail on request, in a process of their own, and the client
// that asks them. It is for Linux only.
//
// An endpoint reads an HTTP request without a body, answers it after a time, and closes. Its
// state is a [Failure]. If a signal stops it besides ([Servers.Freeze]), it does nothing any
// more, and its kernel goes on accepting connections for it.
package endpoint
