package endpoint

import (
	"io"
	"strings"
	"testing"
)

func TestPartComplains(t *testing.T) {
	for in, want := range map[string]string{
		"?\n":                      "the endpoints: the plan",
		`{"endpoints": 1}` + "\n?": "the endpoints: a turn",
		`{"endpoints": 1}` + "\n" + `{"failure": "silent", "endpoints": [1]}`: "no endpoint 1 of 1",
	} {
		if err := RunPart(t.Context(), strings.NewReader(in), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", in, err)
		}
	}
	// The end of its input ends the part.
	if err := RunPart(t.Context(), strings.NewReader(`{"endpoints": 2}`), io.Discard); err != nil {
		t.Error(err)
	}
}
