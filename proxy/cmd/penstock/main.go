// Command penstock is a layer 4 proxy that moves bytes between sockets by
// splice(2) through pooled kernel pipes.
package main

import (
	"os"

	"github.com/penstock/penstock/proxy/cli"
)

func main() {
	e, release := cli.ProcessEnv(programName)
	code := run(e)
	release()
	os.Exit(code)
}
