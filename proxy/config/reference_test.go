package config_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

var update = flag.Bool("update", false, "rewrite docs/configuration.md")

const (
	document = "../../docs/configuration.md"
	begin    = "<!-- The rest is generated: go test ./proxy/config -run Reference -update -->\n"
)

// TestReference compares the document with the code.
func TestReference(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	prose, generated, ok := strings.Cut(string(text), begin)
	if !ok {
		t.Fatalf("%s has no line %q", document, begin)
	}
	want := "\n" + config.Reference()
	if *update {
		if err := os.WriteFile(document, []byte(prose+begin+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if generated != want {
		t.Errorf("%s differs from the code: go test ./proxy/config -run Reference -update", document)
	}
	for _, k := range config.Keys() {
		if !strings.Contains(want, k.Doc) {
			t.Errorf("%s is not in the reference", k.Path)
		}
	}
}

// TestExamplesOfTheDocument: every file that the document shows loads, and is formatted.
func TestExamplesOfTheDocument(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)\n```yaml\n(.*?)```\n").FindAllStringSubmatch(string(text), -1)
	if len(examples) < 3 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, m := range examples {
		tree := wholeTree(t)
		tree["/etc/p.yaml"] = m[1]
		unsuspected(t, loadTree(t, tree, "ZONE", "a", "REDIS_PASSWORD", "x"))
	}
}
