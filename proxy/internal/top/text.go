package top

import (
	"strings"

	"github.com/penstock/penstock/proxy/display"
)

// oneLine joins several lines into one, and escapes them: joined errors have some.
func oneLine(text string) string { return display.Text(strings.ReplaceAll(text, "\n", "; ")) }
