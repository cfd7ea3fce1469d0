package config_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/penstock/penstock/proxy/config"
)

// TestSchemaIsOne: the printed schema is valid, and allows its own defaults.
func TestSchemaIsOne(t *testing.T) {
	var s jsonschema.Schema
	must(t, json.Unmarshal(config.SchemaJSON(), &s))
	if _, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true}); err != nil {
		t.Fatal(err)
	}
}

// at returns a text that has the key of a path, with a value, and the required keys around it.
func at(path, value string) string {
	keys := strings.Split(path, ".")
	text := keys[len(keys)-1] + ": " + value
	for i := len(keys) - 2; i >= 0; i-- {
		inner := "{" + strings.Join(append(required(keys[:i+1], keys[i+1]), text), ", ") + "}"
		if name, ok := strings.CutSuffix(keys[i], "[]"); ok {
			text = name + ": [" + inner + "]"
		} else {
			text = keys[i] + ": " + inner
		}
	}
	return "{" + text + "}"
}

var allKeys = sync.OnceValue(config.Keys)

// required returns the keys that a group must have besides one.
func required(group []string, but string) (texts []string) {
	prefix := strings.Join(group, ".") + "."
	for _, k := range allKeys() {
		name, ok := strings.CutPrefix(k.Path, prefix)
		if !ok || strings.Contains(name, ".") || !k.Required || strings.TrimSuffix(but, "[]") == name {
			continue
		}
		example := k.Example
		switch {
		case k.Section:
			example = "[{cert: a, key: b}]"
		case example == "${ZONE}":
			example = "z"
		default:
			example = fmt.Sprintf("%q", example)
			if name == "percent" {
				example = k.Example
			}
		}
		texts = append(texts, name+": "+example)
	}
	return texts
}

// TestSchemaAgreesWithLoader gives every key values of every type. The schema must accept each
// value that the loader accepts, and refuse each value that the loader refuses for its type or
// range. Of texts the schema knows less.
func TestSchemaAgreesWithLoader(t *testing.T) {
	values := []string{
		"5", "0", "-1", "1e30", "0.5", "1.0", "4000000000", "true", "null", "[]", "[[]]", "{}", "[5, 5]", "[1, 2]", "[-1]", "[x]", "[null]", "[{}]",
		"{zzz: 1}", "zzz", `""`, `"5"`, `"true"`, `"0.5"`, "off", "false", "5s", `"0"`, `"5 s"`, "64KiB", "64 KiB/s", "64XB", `"${SET}"`, "on_data", "'10.0.0.1:1'", "/x",
	}
	agreed := 0
	for _, k := range config.Keys() {
		if k.Path == "include" {
			continue // reads files
		}
		for _, value := range values {
			text := at(k.Path, value)
			problems := config.Decode(config.Tree{"/etc/p.yaml": text, "/x": "x", "/etc/names.wasm": filterModule()}, "/etc/p.yaml", variables("SET", "5"))
			err := config.ValidateText(text)
			switch {
			case len(problems) == 0 && err != nil:
				t.Errorf("the loader takes it, the schema does not: %s\n%v", text, err)
			case len(problems) > 0 && err == nil && !aboutText(value, problems):
				t.Errorf("the schema takes it, the loader does not: %s\n%v", text, problems)
			default:
				agreed++
			}
		}
	}
	if agreed < 1000 {
		t.Errorf("only %d comparisons", agreed)
	}
}

// aboutText reports whether a value is a text, a variable, or a whole number with a point,
// which is no integer to YAML but one to the schema.
func aboutText(value string, problems []config.Problem) bool {
	v := strings.Trim(value, "[]")
	isText := v != "" && v != "null" && v != "true" && v != "false" && !strings.ContainsAny(v[:1], "0123456789-{") || strings.Contains(value, "s") || strings.Contains(value, "B") || v == "'10.0.0.1:1'"
	return isText || value == "1.0" || value == "1e30"
}

// TestTags: the tags are complete and true.
func TestTags(t *testing.T) {
	for _, k := range config.Keys() {
		if !strings.HasSuffix(k.Doc, ".") || strings.Contains(k.Doc, "|") {
			t.Errorf("%s: its doc is no sentence: %q", k.Path, k.Doc)
		}
		if k.Accepts == nil {
			continue
		}
		if k.Example != "" && k.Example != "${ZONE}" {
			if wrong := k.Accepts(k.Example); wrong != "" {
				t.Errorf("%s: its example: %s", k.Path, wrong)
			}
		}
		if !k.InBounds {
			t.Errorf("%s: its default is out of its range", k.Path)
		}
	}
}

var update = flag.Bool("update", false, "rewrite docs/configuration.md")

const (
	document = "../../docs/configuration.md"
	begin    = "<!-- The rest is generated: .ci/run generate -->\n"
)

// TestReference compares the document with the code.
func TestReference(t *testing.T) {
	text, err := os.ReadFile(document)
	must(t, err)
	prose, generated, ok := strings.Cut(string(text), begin)
	if !ok {
		t.Fatalf("%s has no line %q", document, begin)
	}
	want := "\n" + config.Reference()
	if *update {
		must(t, os.WriteFile(document, []byte(prose+begin+want), 0o644))
		return
	}
	if generated != want {
		t.Errorf("%s differs from the code: .ci/run generate", document)
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
	must(t, err)
	examples := regexp.MustCompile("(?s)\n```yaml\n(.*?)```\n").FindAllStringSubmatch(string(text), -1)
	if len(examples) < 2 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, m := range examples {
		tree := wholeTree(t)
		tree["/etc/p.yaml"] = m[1]
		unsuspected(t, loadTree(t, tree, "ZONE", "a", "REDIS_PASSWORD", "x"))
	}
}
