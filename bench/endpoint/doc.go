// Package endpoint has servers that fail on request, in a separate process, and the client that asks them. It is
// for Linux only.
//
// An endpoint reads an HTTP request without a body, answers it after a time, and closes. Its state is a [Failure].
// In addition, a signal can stop its process ([Servers.Freeze]). Then the endpoint does nothing, but the kernel
// goes on accepting connections for it.
package endpoint
