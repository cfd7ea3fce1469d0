package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

// TestFilesThatAreShown: the files shown in the project's other documents, and those that it
// ships, load and are formatted.
func TestFilesThatAreShown(t *testing.T) {
	for name, most := range map[string]int{"README.md": 1, "README.zh-CN.md": 1, "docs/loadbalancer.md": 1, "docs/tls.md": 1} {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
		must(t, err)
		shown := regexp.MustCompile("(?s)\n```yaml\n(.*?)```\n").FindAllStringSubmatch(string(text), -1)
		if len(shown) != most {
			t.Errorf("%s shows %d files, want %d", name, len(shown), most)
		}
		for _, m := range shown {
			good(t, name, m[1])
		}
	}
	text, err := os.ReadFile("../../docs/session-log.md")
	must(t, err)
	logs := regexp.MustCompile("(?m)^session_log: {.*}").FindAllString(string(text), -1)
	if len(logs) != 4 {
		t.Errorf("session-log.md shows %d session logs", len(logs))
	}
	for _, log := range logs {
		good(t, "session-log.md", withUpstreams(log+"\nlisteners: [{name: a, bind: '127.0.0.1:1', upstream: u}]\n"))
	}
	const shipped = "packaging/systemd/penstock.yaml"
	text, err = os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(shipped)))
	must(t, err)
	good(t, shipped, string(text))
}

// shownBlock matches a configuration in a document, in a fence or indented by four spaces, or a part of one that begins with its listeners.
var shownBlock = regexp.MustCompile("(?m)^```yaml\n((?:[^`].*\n|\n)*)```$|^    (?:#.*\n    )*listeners:.*\n(?:    .*\n)*")

// TestExamplesOfDocuments: every configuration in the documents that has listeners is one, with the files that it names beside it. Upstreams that a part
// of one does not have are added.
func TestExamplesOfDocuments(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	must(t, err)
	found := make(map[string]int)
	for _, page := range append(pages, "../../README.md", "../../README.zh-CN.md") {
		text, err := os.ReadFile(page)
		must(t, err)
		for _, m := range shownBlock.FindAllStringSubmatch(string(text), -1) {
			shown := m[1]
			if shown == "" {
				shown = regexp.MustCompile("(?m)^    ").ReplaceAllString(m[0], "")
			}
			if !strings.Contains(shown, "listeners:") {
				continue
			}
			found[filepath.Base(page)]++
			shown = withUpstreams(shown)
			for _, p := range loadProblems(exampleTree(t, shown)) {
				t.Errorf("%s: %s\n%s", page, p.String(), shown)
			}
		}
	}
	for page, least := range map[string]int{"mirror.md": 2, "first-bytes.md": 2, "filters.md": 3, "README.md": 1} {
		if found[page] < least {
			t.Errorf("%s shows %d configurations, want %d", page, found[page], least)
		}
	}
}

// withUpstreams adds the upstreams that the routes of an example name, if it has none.
func withUpstreams(shown string) string {
	if strings.Contains(shown, "upstreams:\n") || strings.Contains(shown, "\nupstreams:") {
		return shown
	}
	var names []string
	for _, m := range regexp.MustCompile(`\bupstream: ([a-z0-9-]+)`).FindAllStringSubmatch(shown, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	shown += "upstreams:\n"
	for i, name := range slices.Compact(names) {
		shown += fmt.Sprintf("  - {name: %s, endpoints: [\"10.9.0.%d:80\"]}\n", name, i+1)
	}
	return shown
}

func exampleTree(t *testing.T, shown string) config.Tree {
	tree := wholeTree(t)
	tree["/etc/p.yaml"], tree["/etc/penstock/token"] = shown, tree["/etc/token"]
	for _, m := range regexp.MustCompile(`\b(cert|key|ca|client_ca|wasm): ([\w.-]+)`).FindAllStringSubmatch(shown, -1) {
		like := map[string]string{"cert": "/etc/a.pem", "key": "/etc/a.key", "ca": "/etc/ca.pem", "client_ca": "/etc/ca.pem", "wasm": "/etc/names.wasm"}
		tree["/etc/"+m[2]] = tree[like[m[1]]]
	}
	return tree
}

func loadProblems(tree config.Tree) []config.Problem {
	_, problems := config.LoadTree(tree, "/etc/p.yaml", variables("ZONE", "a", "REDIS_PASSWORD", "s3cret"))
	return problems
}

func good(t *testing.T, name, text string) {
	t.Helper()
	tree := wholeTree(t)
	tree["/etc/p.yaml"] = text
	unsuspected(t, loadTree(t, tree))
}

// unsuspected requires a configuration without warnings.
func unsuspected(t *testing.T, cfg *config.Config) {
	t.Helper()
	for _, w := range cfg.Warnings {
		t.Error(w.String())
	}
}
