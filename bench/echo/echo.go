// Package echo knows the sources of the echo servers, which are programs in the directories below it.
package echo

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed */*.go
var sources embed.FS

// Lines returns how many lines of code a program has that serve something: those of its main.go, and of the
// file with the service's name if there is one. Empty lines and comments do not count.
func Lines(program, service string) (int, error) {
	text, err := sources.ReadFile(program + "/main.go")
	if err != nil {
		return 0, fmt.Errorf("echo: %w", err)
	}
	n := code(string(text))
	if text, err = sources.ReadFile(program + "/" + service + ".go"); err == nil {
		n += code(string(text))
	}
	return n, nil
}

// code counts the lines of code of a file that has no comments but those of whole lines.
func code(text string) (n int) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}
