package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/proxy/cli"
)

// Run serves until standard input ends. It ignores signals, because a child ends with its parent.
func (c *partCmd) Run(e *cli.Env) error {
	return bench.RunPart(context.Background(), c.Part, c.Args, os.Stdin, e.Stdout)
}

// errInterrupted means that a signal has ended a measurement.
var errInterrupted = errors.New("interrupted")

// partCmd is a part of a measurement in a separate process. Its parent holds its standard input open. When the
// input ends, the part ends.
type partCmd struct {
	Part string   `arg:"" help:"Run this part."`
	Args []string `arg:"" optional:"" help:"Pass these arguments to the part."`
}

// thisProgram returns this program. The measurements run parts of it.
func thisProgram() (contestant.Program, error) {
	self, err := os.Executable()
	return contestant.Program{Path: self, Name: os.Args[0], Part: []string{"part"}}, err
}

// programFlag is the flag of commands that measure the penstock program.
type programFlag struct {
	Penstock string `placeholder:"PATH" help:"Measure this penstock program (default: penstock beside this program, or in PATH)."`
}

// program returns this program and the penstock program.
func (f *programFlag) program() (contestant.Program, error) {
	p, err := thisProgram()
	if err != nil {
		return p, err
	}
	p.Proxy, p.Run = []string{"proxy"}, []string{"run"}
	p.PenstockPath, err = penstockProgram(f.Penstock, p.Path)
	return p, err
}

// penstockProgram returns the path of the penstock program.
func penstockProgram(path, self string) (string, error) {
	if path != "" {
		found, err := exec.LookPath(path)
		if err != nil {
			return "", cli.Usagef("--penstock: %w", err)
		}
		return found, nil
	}
	if beside, err := exec.LookPath(filepath.Join(filepath.Dir(self), "penstock")); err == nil {
		return beside, nil
	}
	found, err := exec.LookPath("penstock")
	if err != nil {
		return "", fmt.Errorf("no penstock program beside %s or in PATH: go install github.com/penstock/penstock/proxy/cmd/penstock@latest, or write --penstock PATH", self)
	}
	return found, nil
}
