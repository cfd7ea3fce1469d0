// Package socket holds what listeners and upstreams have in common: how an
// address is written, and the options of a proxied socket.
package socket
