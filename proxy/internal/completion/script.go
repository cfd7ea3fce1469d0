package completion

import (
	"embed"
	"fmt"
)

// Shells are those that there is a script for.
var Shells = []string{"bash", "zsh", "fish"}

//go:embed scripts
var scripts embed.FS

// Script returns the script for a shell.
func Script(shell string) (string, error) {
	text, err := scripts.ReadFile("scripts/penstock." + shell)
	if err != nil {
		return "", fmt.Errorf("there is no completion for %s", shell)
	}
	return string(text), nil
}
