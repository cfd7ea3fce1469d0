// Command penstock-bench measures Penstock, HAProxy, nginx, Envoy and the Go standard library, which take turns in
// one run. It starts the program penstock. The loads, the endpoints and the rivals are parts of penstock-bench
// itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/proxy/cli"
)

// programName is the name of this program.
const programName = "penstock-bench"

const description = `Measure Penstock and other proxies side by side.

Measure a subset, in about a minute:

    penstock-bench --quick

List every flag of a command:

    penstock-bench run --help

go test -bench measures parts of Penstock and compares them with rivals, see docs/claims.md.`

// commands has the commands and flags.
type commands struct {
	Run      runCmd      `cmd:"" default:"withargs" help:"Measure proxies against each other (the default command)."`
	Lane     laneCmd     `cmd:"" help:"Measure sessions that have left user space, and compare them with penstock run without the lane, HAProxy, nginx, Envoy, io.Copy and no proxy."`
	Incident incidentCmd `cmd:"" help:"Measure what clients notice when endpoints under load fall silent, become slow or refuse, with and without protection."`
	Rolling  rollingCmd  `cmd:"" help:"Count the clients that are lost while endpoints restart, die and fall silent, measure how long others wait, and compare with HAProxy and nginx."`
	Reload   reloadCmd   `cmd:"" help:"Change the configuration of thousands of listeners and endpoints while they serve."`
	TLS      tlsCmd      `cmd:"" name:"tls" help:"Measure handshakes and messages of a listener that terminates TLS, and compare them with HAProxy."`
	Version  versionCmd  `cmd:"" help:"Print the version of this program."`
	Part     partCmd     `cmd:"" hidden:""`
}

// versionCmd prints the version.
type versionCmd struct{}

// Run prints one line: version, compiler and platform.
func (*versionCmd) Run(e *cli.Env) error {
	_, err := fmt.Fprintf(e.Stdout, "%s %s %s %s/%s\n", programName, cli.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

func run(e *cli.Env) int {
	p := cli.Program{Name: programName, Description: description, Commands: new(commands)}
	return p.Run(e)
}

func main() {
	e, release := cli.ProcessEnv(programName)
	code := run(e)
	release()
	os.Exit(code)
}

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

func (f *programFlag) program() (contestant.Program, error) {
	p, err := thisProgram()
	if err != nil {
		return p, err
	}
	p.Proxy, p.Run = []string{"proxy"}, []string{"run"}
	p.PenstockPath, err = penstockProgram(f.Penstock, p.Path)
	return p, err
}

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
