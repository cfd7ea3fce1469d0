package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/internal/testutil/must"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must.Do(t, os.WriteFile(path, got, 0o644))
	}
	want := must.Get(os.ReadFile(path))(t)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (go test -update rewrites it):\n%s", name, diff)
	}
}

func TestJSON(t *testing.T) {
	text := must.Get(json.MarshalIndent(document(), "", "  "))(t)
	golden(t, "document.json", append(text, '\n'))
	var back report.Document
	must.Do(t, json.Unmarshal(text, &back))
	again, err := json.MarshalIndent(&back, "", "  ")
	if err != nil || !bytes.Equal(text, again) {
		t.Errorf("it differs after reading and writing, %v:\n%s", err, cmp.Diff(string(text), string(again)))
	}
}

func TestMarkdown(t *testing.T) {
	golden(t, "document.md", []byte(text(t, document())))
}

// elements parses a picture, and returns the count of each element and all of its text.
func elements(t *testing.T, picture []byte) (counts map[string]int, text string) {
	t.Helper()
	counts = make(map[string]int)
	for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return counts, text
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, picture)
		}
		switch x := token.(type) {
		case xml.StartElement:
			counts[x.Name.Local]++
		case xml.CharData:
			text += string(x) + "\n"
		}
	}
}

func TestSVG(t *testing.T) {
	var picture bytes.Buffer
	must.Do(t, document().WriteSVG(&picture))
	golden(t, "document.svg", picture.Bytes())
	counts, text := elements(t, picture.Bytes())
	if counts["script"] != 0 || counts["image"] != 0 || counts["svg"] != 1 {
		t.Errorf("elements: %v", counts)
	}
	for _, want := range []string{`<rival> & "co"`, "A <fast> CPU", "bulk-8: 8 connections that stream", "1.10", "2.00", "throughput (more is better)"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the picture's text", want)
		}
	}
	if strings.Contains(text, "echo-64-1") {
		t.Error("a scenario without ratios is in the picture")
	}
}

// text returns the document as Markdown.
func text(t *testing.T, d *report.Document) string {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, d.WriteMarkdown(&b))
	return b.String()
}
