package sessionlog_test

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/penstock/penstock/proxy/internal/sessionlog"
)

// TestFieldsAreDocumented: docs/session-log.md has a row for each field, in their order, and for no other one.
func TestFieldsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/session-log.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := bytes.Cut(page, []byte("\n## Fields\n"))
	text, _, _ = bytes.Cut(text, []byte("\n| `state` | meaning |"))
	var got []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| .+ \\|$").FindAllSubmatch(text, -1) {
		got = append(got, string(row[1]))
	}
	if want := sessionlog.Fields(); !slices.Equal(got, want) {
		t.Errorf("it has\n%q, want\n%q", got, want)
	}
}
