// Package part is the tasks of an echo server of `penstock-bench echo-servers` besides
// echoing: print its address, and end with its standard input.
package part

import (
	"encoding/json"
	"io"
	"os"
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
