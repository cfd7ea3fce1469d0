package process

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
)

// Run runs commands one after the other, in the network namespace of the group's children. It uses no shell: words
// are separated by blanks. It stops at the first command that fails. The error has the output of that command.
func (g *Group) Run(commands ...string) (err error) {
	for _, c := range commands {
		words := strings.Fields(c)
		cmd := exec.Command(words[0], words[1:]...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if stop := g.Do(func() { err = cmd.Run() }); stop != nil {
			return stop
		}
		if err != nil {
			return fmt.Errorf("%s: %w: %s", c, err, bytes.TrimSpace(said.Bytes()))
		}
	}
	return nil
}
