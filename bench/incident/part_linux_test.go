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

func TestPartsComplain(t *testing.T) {
	for _, x := range []struct{ part, in, want string }{
		{"incident-umpire", "", "no part"},
		{PartLoad, "?\n", "the load: the plan"},
		{PartEndpoints, "?\n", "the endpoints: the plan"},
		{PartEndpoints, `{"endpoints": 1}` + "\n?", "a turn"},
		{PartEndpoints, `{"endpoints": 1}` + "\n" + `{"failure": "silent", "endpoints": [1]}` + "\n", "no endpoint 1 of 1"},
	} {
		if err := RunPart(t.Context(), x.part, strings.NewReader(x.in), io.Discard); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s, %q: %v", x.part, x.in, err)
		}
	}
	if IsPart("incident-umpire") || !IsPart(PartLoad) || !IsPart(PartEndpoints) {
		t.Error("what is a part?")
	}
	// The end of the input is the end of either.
	if err := RunPart(t.Context(), PartEndpoints, strings.NewReader(`{"endpoints": 2}`), io.Discard); err != nil {
		t.Error(err)
	}
	if err := RunPart(t.Context(), PartLoad, strings.NewReader(`{"address": "127.0.0.1:1", "rate": 1, "timeout": 1, "phases": [3600000000000, 0, 0]}`), io.Discard); err == nil {
		t.Error("no error of a load that was not finished")
	}
}
