// Package part is the tasks of an echo server of `penstock-bench echo-servers` besides
// serving: print its address, end with its standard input, know its service, and find the
// requests of a hello.
package part

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
)

// Listening says on standard output where the server listens.
func Listening(address string) error {
	return json.NewEncoder(os.Stdout).Encode(struct {
		Address string `json:"address"`
	}{address})
}

// Wait returns when standard input ends: the measuring process is gone, or done.
func Wait() { _, _ = io.Copy(io.Discard, os.Stdin) }

// Address is where every server listens: a free port of loopback.
const Address = "127.0.0.1:0"

// Is reports whether the program was started with an argument: "hello" for the service in place
// of echo, or the name of one of several ways in which it serves.
func Is(argument string) bool { return slices.Contains(os.Args[1:], argument) }

// Response is the answer to each request of a hello.
var Response = []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!")

// Request returns how many bytes the first request in b has, which has no body; 0 if its end is
// not there.
func Request(b []byte) int {
	head, _, found := bytes.Cut(b, end)
	if !found {
		return 0
	}
	return len(head) + len(end)
}

// end is the empty line that ends the head of a request.
var end = []byte("\r\n\r\n")
