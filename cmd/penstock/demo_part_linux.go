package main

import (
	"context"
	"os"

	"github.com/penstock/penstock/bench"
)

// Run serves until standard input ends. It takes no notice of signals: a child
// of the demo is ended by it.
func (c *partCmd) Run(e *env) error {
	return bench.RunPart(context.Background(), c.Part, c.Upstream, os.Stdin, e.stdout)
}

// thisProgram is how the demo runs its parts.
func thisProgram() (bench.Program, error) {
	path, err := os.Executable()
	return bench.Program{
		Path: path, Name: os.Args[0],
		Part:  []string{"part"},
		Proxy: []string{"proxy"},
	}, err
}
