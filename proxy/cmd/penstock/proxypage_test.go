package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

var updatePage = flag.Bool("update", false, "write the flags into docs/proxy.md")

// TestProxyPage: docs/proxy.md has the flags of penstock proxy, with their help.
func TestProxyPage(t *testing.T) {
	t.Parallel()

	const page, begin, end = "../../../docs/proxy.md", "-update -->\n", "<!-- end -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no place for the flags", page)
	}
	want := before + begin + "\n" + proxyFlags(t) + "\n" + end + after
	if *updatePage {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s does not have the flags of penstock proxy: go test ./proxy/cmd/penstock -run TestProxyPage -update", page)
	}
}

// proxyFlags returns the flags as a table.
func proxyFlags(t *testing.T) string {
	t.Helper()
	k, err := kong.New(new(commands))
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := kong.Trace(k, []string{"proxy"})
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| flag | default | |\n|---|---|---|\n")
	for _, f := range ctx.Selected().Flags {
		if f.Hidden {
			continue
		}
		name := "--" + f.Name
		switch {
		case f.Negated || f.Tag.Negatable != "":
			name = "--[no-]" + f.Name
		case f.PlaceHolder != "":
			name += " " + f.PlaceHolder
		}
		value := ""
		if f.HasDefault && f.Default != "" {
			value = "`" + f.Default + "`"
		}
		help := regexp.MustCompile(` *\(default: [^)]*\)`).ReplaceAllString(f.Help, "")
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", strings.ReplaceAll(name, "|", "\\|"), value, strings.ReplaceAll(help, "|", "\\|"))
	}
	return table.String()
}
