package incident

import (
	"io"
	"os"
	"strings"
	"testing"
)

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPartComplains(t *testing.T) {
	if err := RunPart(t.Context(), strings.NewReader("?\n"), io.Discard); err == nil || !strings.Contains(err.Error(), "the load: the plan") {
		t.Errorf("got %v", err)
	}
	// The end of its input ends the part.
	if err := RunPart(t.Context(), strings.NewReader(`{"address": "127.0.0.1:1", "rate": 1, "timeout": 1, "phases": [3600000000000, 0, 0]}`), io.Discard); err == nil {
		t.Error("no error of an unfinished load")
	}
}
