package main

import (
	"context"
	"os"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
)

// Run serves until standard input ends. It takes no notice of signals: a child
// of the demo is ended by it.
func (c *partCmd) Run(e *env) error {
	return bench.RunPart(context.Background(), c.Part, c.Args, os.Stdin, e.stdout)
}

// thisProgram is how the demo and the bench run their parts.
func thisProgram() (contestant.Program, error) {
	path, err := os.Executable()
	return contestant.Program{
		Path: path, Name: os.Args[0],
		Part:  []string{"part"},
		Proxy: []string{"proxy"},
		Run:   []string{"run"},
	}, err
}
