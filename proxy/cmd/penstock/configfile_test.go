package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDefaultConfig: the first one that exists, even if it is invalid.
func TestDefaultConfig(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	first, second := filepath.Join(dir, "first.yaml"), filepath.Join(dir, "second.yaml")
	is := func(want string) {
		t.Helper()
		if got := defaultConfig([]string{first, second}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	is("")
	if err := os.WriteFile(second, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	is(second)
	if err := os.WriteFile(first, nil, 0); err != nil {
		t.Fatal(err)
	}
	is(first)
}
