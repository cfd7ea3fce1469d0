// Nethttp is a server on package net/http, with its default settings. It does not echo: its service is hello.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/penstock/penstock/bench/echo/part"
)

func main() {
	l, err := net.Listen("tcp", part.Address)
	if err == nil {
		err = part.Listening(l.Addr().String())
	}
	if err == nil {
		go func() { part.Wait(); os.Exit(0) }()
		err = http.Serve(l, http.HandlerFunc(hello))
	}
	fmt.Fprintln(os.Stderr, "nethttp:", err)
	os.Exit(1)
}

// hello answers a request.
func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "Hello, World!") }
