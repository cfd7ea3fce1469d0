package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v4"

	"github.com/penstock/penstock/proxy/config"
)

// TestPairsOfJSON: pairs of escapes are read, which JSON has and YAML does not.
func TestPairsOfJSON(t *testing.T) {
	n := config.JSON(`{"a": "\ud83d\ude00 \u00e9"}`)
	if n == nil || n.Content[1].Value != "😀 é" {
		t.Errorf("%+v", n)
	}
	for _, bad := range []string{`{"a": "\ud83d"}`, `{"a": "\ude00"}`, `{"a": 1`, `["a"]`, "a: 1", "", "{a: 1}", strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40)} {
		if n := config.JSON(bad); n != nil {
			t.Errorf("%q is read as JSON: %+v", bad, n)
		}
	}
}

// FuzzJSON: the JSON reader gives the same nodes as the YAML parser, at the same positions.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"a": [1, -2.5e3, true, false, null, "x\n\"\\\/\u00e9", {}, []], "b": {"c": {"d": ""}}}`, "{\n\t\"a\":1 ,\r\n \"é\" : [\n{\"b\":2}]\n}\n",
		`{"a": 18446744073709551615, "b": 18446744073709551616, "c": -9223372036854775809, "d": 1e400, "e": -0, "f": 0.0}`, ` {"<<": {"a": 1}, "": 0}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n := config.JSON(text)
		if n == nil {
			return
		}
		var doc yaml.Node
		if yaml.Load([]byte(text), &doc) != nil { // because of pairs, or of text that is no key to YAML
			return
		}
		if d := cmp.Diff(doc.Content[0], n, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%q: %s", text, d)
		}
	})
}
