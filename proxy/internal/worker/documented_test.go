package worker_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/penstock/penstock/proxy/internal/worker"
)

// TestRefusalsAreDocumented: docs/failures.md has each reason of a summary, and no other one.
func TestRefusalsAreDocumented(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile("../../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, row := range regexp.MustCompile(`(?m)^\| summary \| ([^|]+) \|`).FindAllSubmatch(text, -1) {
		for _, word := range regexp.MustCompile("`([a-z_]+)`").FindAllSubmatch(row[1], -1) {
			got = append(got, string(word[1]))
		}
	}
	for r := range len(worker.Refusals{}) {
		want = append(want, worker.Refusal(r).String())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("it has %q, want %q", got, want)
	}
}
