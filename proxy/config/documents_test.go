package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

// TestFilesThatAreShown: the files shown in the project's other documents, and those that it
// ships, load and are formatted.
func TestFilesThatAreShown(t *testing.T) {
	for name, most := range map[string]int{"README.md": 1, "README.zh-CN.md": 1, "docs/loadbalancer.md": 2, "docs/tls.md": 1} {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		shown := regexp.MustCompile("(?s)\n```yaml\n(.*?)```\n").FindAllStringSubmatch(string(text), -1)
		if len(shown) != most {
			t.Errorf("%s shows %d files, want %d", name, len(shown), most)
		}
		for _, m := range shown {
			good(t, name, m[1])
		}
	}
	const shipped = "packaging/systemd/penstock.yaml"
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(shipped)))
	if err != nil {
		t.Fatal(err)
	}
	good(t, shipped, string(text))
}

// good checks a file of a document.
func good(t *testing.T, name, text string) {
	t.Helper()
	tree := wholeTree(t)
	tree["/etc/p.yaml"] = text
	unsuspected(t, loadTree(t, tree))
	if formatted, p := config.FormatText(text); p != nil || formatted != text {
		t.Errorf("%s: not formatted: %v\n%s", name, p, formatted)
	}
}

// unsuspected requires a configuration without warnings.
func unsuspected(t *testing.T, cfg *config.Config) {
	t.Helper()
	for _, w := range cfg.Warnings {
		t.Error(w.String())
	}
}
