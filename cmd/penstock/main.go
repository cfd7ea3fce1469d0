// Command penstock is a layer 4 proxy that moves bytes between sockets by
// splice(2) through pooled kernel pipes.
package main

import "os"

func main() {
	e, release := processEnv()
	code := run(e)
	release()
	os.Exit(code)
}
