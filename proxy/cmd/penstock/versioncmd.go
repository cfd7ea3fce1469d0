package main

import (
	"fmt"
	"runtime"

	"github.com/penstock/penstock/proxy/cli"
)

type versionCmd struct{}

// Run prints one line: the module's version, the commit where the build knows
// it, the compiler, and the platform.
func (*versionCmd) Run(e *cli.Env) error {
	_, err := fmt.Fprintf(e.Stdout, "penstock %s %s %s/%s\n", cli.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
