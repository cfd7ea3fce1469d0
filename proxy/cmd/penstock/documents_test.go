package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// shownCommand matches a line of a document's example, in a fence or indented by four spaces, that calls the program. Outputs, whose
// columns are more than a space apart, are none.
var shownCommand = regexp.MustCompile(`(?m)^(?:    )?(?:\$ )?(?:sudo )?penstock ([a-z-]\S*(?: \S+)*?)(?: +#.*)?$`)

// TestCommandsOfDocuments: the commands in the documents' examples are ones that the program has, with their arguments and flags.
func TestCommandsOfDocuments(t *testing.T) {
	t.Parallel()

	pages, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]int)
	for _, page := range append(pages, "../../../README.md", "../../../README.zh-CN.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range shownCommand.FindAllStringSubmatch(string(text), -1) {
			found[filepath.Base(page)]++
			k, err := kong.New(new(commands))
			if err == nil {
				_, err = k.Parse(words(m[1]))
			}
			if err != nil {
				t.Errorf("%s: penstock %s: %v", page, m[1], err)
			}
		}
	}
	if found["mirror.md"] < 2 || found["filters.md"] < 1 {
		t.Errorf("the documents show %v commands", found)
	}
}

// words splits a command as a shell does, up to the next command.
func words(line string) (list []string) {
	line = regexp.MustCompile(` +(?:\||&&|>|;|2>).*$`).ReplaceAllString(line, "")
	for _, m := range regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`).FindAllString(line, -1) {
		list = append(list, strings.NewReplacer("'", "", `"`, "").Replace(m))
	}
	return list
}
